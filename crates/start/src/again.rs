//! The way back: the program is started again, and this library stays out of it.

use crate::process::{self, LONGEST_PATH};
use crate::stack::{self, Stack};
use crate::system::{self, File};
use commonhold_record::IS_THE_COPY;
use core::ffi::c_char;

/// With the number of the process that is to go on without: a process keeps it over `execve`, and its children have others.
const VARIABLE: &[u8] = b"COMMONHOLD_REBASE_WITHOUT=";
const DIGITS: usize = 10;
/// Arguments and variables: four times what Linux lets a program have as a rule.
const MOST_BYTES: usize = 8 << 20;

/// Whether a variable says that this process was started again.
pub fn says_so(variable: &[u8]) -> bool {
    variable.strip_prefix(VARIABLE).is_some_and(|digits| number(digits) == Some(system::process()))
}

fn number(digits: &[u8]) -> Option<u32> {
    let digit = |value: u32, digit: &u8| {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value.checked_mul(10)?.checked_add(digit.into())
    };
    digits.iter().try_fold(0, digit)
}

/// Starts the program again, without copies. Does not come back.
pub fn start() -> ! {
    let stack = stack::find();
    let mut path = [0; LONGEST_PATH];
    let mut variable = [0; VARIABLE.len() + DIGITS + 1];
    write(&mut variable, system::process());
    // Of a copy: the original.
    let original = crate::record().and_then(|record| record.files().next());
    let original = original.filter(|file| file.dynamic == IS_THE_COPY).map(|file| file.copy);
    let path = original.or_else(|| process::program(stack.as_ref(), &mut path));
    if let (Some(path), Some((arguments, variables))) = (path, lists(stack.as_ref(), &variable)) {
        system::execute(path, arguments, variables);
    }
    system::say(b"commonhold: a copy of a library cannot be used, and the program cannot be started without: unset LD_AUDIT\n");
    system::exit(127)
}

/// Starts the copy of the program instead of it. Comes back if that cannot be.
pub fn as_copy(copy: &[u8]) {
    if let Some((arguments, variables)) = lists(stack::find().as_ref(), &[]) {
        system::execute(copy, arguments, variables);
    }
}

/// Strings, the last of which a null pointer follows.
type List = *const *const c_char;

/// The arguments and variables of this process, and one more variable, with its zero, if it is not empty.
fn lists(stack: Option<&Stack>, one_more: &[u8]) -> Option<(List, List)> {
    let Some(stack) = stack else {
        return Some((strings(b"/proc/self/cmdline\0", &[])?, strings(b"/proc/self/environ\0", one_more)?));
    };
    let (arguments, variables, count) = stack.lists();
    if one_more.is_empty() {
        return Some((arguments, variables));
    }
    // Zeros: the list ends where no pointer is written.
    let more: *mut *const c_char =
        system::memory((count + 2) * size_of::<*const c_char>())?.as_mut_ptr().cast();
    for index in 0..count {
        // SAFETY: the kernel's list has `count` pointers, and this one has room for two more.
        unsafe { more.add(index).write(variables.add(index).read()) };
    }
    // SAFETY: as above.
    unsafe { more.add(count).write(one_more.as_ptr().cast()) };
    Some((arguments, more))
}

/// The strings of a file, and one more if it is not empty, as a list that ends with a null pointer.
fn strings(path: &[u8], one_more: &[u8]) -> Option<List> {
    let file = File::open(path).ok()?;
    let text = system::memory(MOST_BYTES)?;
    let mut length = 0;
    loop {
        let read = file.read(&mut text[length..]).ok()?;
        if read == 0 {
            break;
        }
        length += read;
    }
    text.get_mut(length..length + one_more.len())?.copy_from_slice(one_more);
    let text = &text[..length + one_more.len()];
    let count = text.iter().filter(|byte| **byte == 0).count();
    // Zeros: the list ends where no pointer is written.
    let list: *mut *const c_char =
        system::memory((count + 1) * size_of::<*const c_char>())?.as_mut_ptr().cast();
    for (index, string) in text.split_inclusive(|byte| *byte == 0).take(count).enumerate() {
        // SAFETY: the list has room for `count` pointers and the null.
        unsafe { list.add(index).write(string.as_ptr().cast()) };
    }
    Some(list)
}

/// `NAME=number` with leading zeros, and a zero behind it.
fn write(variable: &mut [u8; VARIABLE.len() + DIGITS + 1], process: u32) {
    variable[..VARIABLE.len()].copy_from_slice(VARIABLE);
    let mut rest = process;
    for digit in variable[VARIABLE.len()..VARIABLE.len() + DIGITS].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}
