//! Library code of a static program by its own symbol table: the paper's way (`nm -n`, Govindan 5.2).

use super::archive::Archive;
use super::elf::Image;
use super::names::Names;
use std::rc::Rc;

/// Functions begin at multiples of this at most: less than it between two functions is filling.
const ALIGNMENT: u64 = 64;

/// Bytes of the program's functions that an archive defines. A global function is known by its name, a local one by its
/// name and size. Aliases are counted once, the filling behind a function with it.
pub fn library_code(program: &Image, archives: &[Rc<Archive>], names: &mut Names) -> u64 {
    let mut functions = program.functions.clone();
    functions.sort_by_key(|function| function.address);
    let mut sum = 0;
    let mut counted_to = 0;
    for (place, function) in functions.iter().enumerate() {
        let known = archives.iter().any(|archive| {
            let all = archive.functions(names);
            match function.global {
                true => all.global.contains(&function.name),
                false => all.local.contains(&(function.name, function.size)),
            }
        });
        if !known {
            continue;
        }
        let next =
            functions[place..].iter().map(|other| other.address).find(|other| *other > function.address);
        let end = end(function.address, function.size, next);
        let start = function.address.max(counted_to);
        sum += end.saturating_sub(start);
        counted_to = counted_to.max(end);
    }
    sum.min(program.code_bytes)
}

fn end(address: u64, size: u64, next: Option<u64>) -> u64 {
    let end = address.saturating_add(size);
    match next {
        // Its maker did not say how long it is.
        Some(next) if size == 0 => next,
        Some(next) if next > end && next - end < ALIGNMENT => next,
        _ => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filling_belongs_to_a_function_and_gaps_do_not() {
        assert_eq!(end(100, 20, Some(128)), 128);
        assert_eq!(end(100, 20, Some(1000)), 120);
        assert_eq!(end(100, 20, Some(110)), 120, "one within the other");
        assert_eq!(end(100, 0, Some(300)), 300);
        assert_eq!(end(100, 20, None), 120);
    }
}
