//! Lines about objects that have one address in all processes, and about what lies where one is to be mapped.

use super::{Agent, Done, number, wrong};
use commonhold::PAGE_SIZE_BYTES;

/// What a program has in its own memory.
const OWN: u8 = 0xa5;

/// The first address of the chain's nodes: of two words, where the next is, and what is in this one.
fn node(start: u64, index: u64) -> u64 {
    start + index * PAGE_SIZE_BYTES + index % 8 * 16
}

fn read(at: u64) -> u64 {
    // SAFETY: tests name words of mappings of theirs; where they fail, the process dies of it.
    unsafe { std::ptr::with_exposed_provenance::<u64>(at as usize).read_volatile() }
}

fn write(at: u64, word: u64) {
    // SAFETY: as above.
    unsafe { std::ptr::with_exposed_provenance_mut::<u64>(at as usize).write_volatile(word) };
}

impl Agent {
    pub(super) fn on_fixed(&mut self, words: &[&str]) -> Done {
        match words {
            // A chain of ordinary pointers, one node in each page.
            ["link", mapping, count, seed] => {
                let start = self.mapping(mapping)?.as_ptr().expose_provenance() as u64;
                let (count, seed) = (number(count)?, number(seed)?);
                for index in 0..count {
                    let next = if index + 1 < count { node(start, index + 1) } else { 0 };
                    write(node(start, index), next);
                    write(node(start, index) + 8, seed + index);
                }
                Ok(String::new())
            }
            // Follows it, with no more than the first pointer: gives how long it was.
            ["walk", first, seed] => {
                let (mut at, seed, mut index) = (number(first)?, number(seed)?, 0);
                while at != 0 {
                    let found = read(at + 8);
                    if found != seed + index {
                        return Err(wrong(format!(
                            "node {index} at {at:#x} has {found}, not {}",
                            seed + index
                        )));
                    }
                    (at, index) = (read(at), index + 1);
                }
                Ok(index.to_string())
            }
            ["occupy", address, length] => {
                let (address, length) = (number(address)? as usize, number(length)? as usize);
                let at = std::ptr::with_exposed_provenance_mut(address);
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
                let access = libc::PROT_READ | libc::PROT_WRITE;
                // SAFETY: MAP_FIXED_NOREPLACE takes nobody's memory.
                let got = unsafe { libc::mmap(at, length, access, flags, -1, 0) };
                if got != at {
                    return Err(std::io::Error::last_os_error().into());
                }
                // SAFETY: mapped just now, writable, and this process's alone.
                unsafe { std::ptr::write_bytes(got.cast::<u8>(), OWN, length) };
                Ok(String::new())
            }
            ["still-own", address, length] => {
                let own = u64::from_ne_bytes([OWN; 8]);
                let (first, length) = (number(address)?, number(length)?);
                match (first..first + length).step_by(8).find(|at| read(*at) != own) {
                    Some(at) => Err(wrong(format!("{at:#x} is not what it was"))),
                    None => Ok(String::new()),
                }
            }
            _ => Err(wrong(format!("what is {words:?}?"))),
        }
    }
}
