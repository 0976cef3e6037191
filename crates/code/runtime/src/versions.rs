//! The newest version of an image: a directory has a link for each, `1.2.0`; `1.3.0~` is withdrawn.

use crate::system::{self, File};
use crate::why::{NOT_READABLE, NOT_THERE};
use crate::words::Text;
use core::mem::MaybeUninit;

/// Opens the newest version of a major version. `directory` is a path with a zero behind it.
pub fn open(directory: &[u8], major: u32) -> Result<File, i32> {
    let why = |error| if error == system::NO_FILE { NOT_THERE } else { NOT_READABLE };
    let directory = File::directory(directory).map_err(why)?;
    let mut newest: Option<[u32; 3]> = None;
    let mut text = Text::<40>::new();
    let mut buffer = [const { MaybeUninit::uninit() }; 2048];
    loop {
        let entries = directory.entries(&mut buffer);
        if entries.is_empty() {
            break;
        }
        each(entries, |name| {
            if let Some(numbers) = numbers(name).filter(|numbers| numbers[0] == major)
                && newest.is_none_or(|newest| is_newer(numbers, newest))
            {
                newest = Some(numbers);
                text.clear();
                text.append(name);
                text.push(0);
            }
        });
    }
    newest.ok_or(NOT_THERE)?;
    directory.inside(text.get()).map_err(why)
}

fn is_newer(one: [u32; 3], other: [u32; 3]) -> bool {
    let [_, minor, patch] = one;
    let [_, other_minor, other_patch] = other;
    minor > other_minor || minor == other_minor && patch > other_patch
}

/// Names of `struct linux_dirent64`: inode 8, offset 8, length of the record 2, kind 1, name with a zero.
fn each(entries: &[u8], mut see: impl FnMut(&[u8])) {
    const NAME_AT: usize = 19;
    let mut rest = entries;
    while let Some([low, high]) = rest.get(16..18) {
        let length = usize::from(*low) | usize::from(*high) << 8;
        let Some(name) = rest.get(NAME_AT..length) else { return };
        see(crate::format::text(name));
        rest = rest.get(length..).unwrap_or_default();
    }
}

/// Three numbers with points between them, and nothing else.
fn numbers(name: &[u8]) -> Option<[u32; 3]> {
    let mut numbers = [0_u32; 3];
    let mut at = 0;
    let mut digits = 0;
    for byte in name {
        match byte {
            b'0'..=b'9' => {
                let number = numbers.get_mut(at)?;
                *number = number.checked_mul(10)?.checked_add(u32::from(byte - b'0'))?;
                digits += 1;
            }
            b'.' if digits > 0 => {
                at += 1;
                digits = 0;
            }
            _ => return None,
        }
    }
    (at == 2 && digits > 0).then_some(numbers)
}
