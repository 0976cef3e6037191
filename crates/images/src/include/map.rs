//! Puts an image at its addresses, where nothing else may be.

use crate::{Error, Result};
use commonhold_image::{EXECUTE, Header, READ, Segment, WRITE};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::fs::File;
use std::os::fd::AsFd;

const PAGE: u64 = commonhold_image::PAGE_BYTES as u64;

fn protection(segment: &Segment) -> ProtFlags {
    let pairs = [(READ, ProtFlags::READ), (WRITE, ProtFlags::WRITE), (EXECUTE, ProtFlags::EXEC)];
    let of = pairs.into_iter().filter(|(bit, _)| segment.protection & bit != 0);
    of.fold(ProtFlags::empty(), |all, (_, flag)| all | flag)
}

/// Maps pages at an address, of a file or of zeroes, private to this process. Never over what is there.
#[unsafe(link_section = ".commonhold.include")]
fn map(
    first: u64,
    bytes: u64,
    protection: ProtFlags,
    file: Option<(&File, u64)>,
) -> std::result::Result<(), Errno> {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    let (at, length) = (first as *mut std::ffi::c_void, bytes as usize);
    // SAFETY: the kernel refuses what overlaps a mapping, so no memory in use is touched.
    let found = unsafe {
        match file {
            Some((file, offset)) => mmap(at, length, protection, flags, file.as_fd(), offset)?,
            None => mmap_anonymous(at, length, protection, flags)?,
        }
    };
    if found != at {
        // A kernel before 4.17 takes the address for a wish.
        // SAFETY: this mapping was made a moment ago, and nobody knows of it.
        unsafe { munmap(found, length) }?;
        return Err(Errno::EXIST);
    }
    Ok(())
}

#[unsafe(link_section = ".commonhold.include")]
fn map_segment(segment: &Segment, file: &File) -> std::result::Result<(), Errno> {
    let protection = protection(segment);
    let from_file = segment.file_bytes.next_multiple_of(PAGE);
    if from_file > 0 {
        map(segment.address, from_file, protection, Some((file, segment.offset)))?;
        if segment.protection & WRITE != 0 && segment.file_bytes < from_file {
            let tail = (segment.address + segment.file_bytes) as *mut u8;
            // SAFETY: the rest of the last page that was mapped now, writable and this process's own.
            unsafe { tail.write_bytes(0, (from_file - segment.file_bytes) as usize) };
        }
    }
    let zeroes = segment.bytes.next_multiple_of(PAGE) - from_file;
    if zeroes == 0 {
        return Ok(());
    }
    let done = map(segment.address + from_file, zeroes, protection, None);
    if done.is_err() && from_file > 0 {
        // SAFETY: mapped by this thread a moment ago, and told to nobody.
        let _ = unsafe { munmap(segment.address as *mut _, from_file as usize) };
    }
    done
}

/// Takes a segment away again that nobody has used.
fn unmap(segment: &Segment) {
    // SAFETY: mapped by this thread a moment ago, and told to nobody.
    let _ = unsafe { munmap(segment.address as *mut _, segment.bytes.next_multiple_of(PAGE) as usize) };
}

/// All segments, or none.
#[unsafe(link_section = ".commonhold.include")]
pub fn image(header: Header<'_>, file: &File) -> Result<()> {
    for (index, segment) in header.segments().enumerate() {
        if let Err(error) = map_segment(&segment, file) {
            header.segments().take(index).for_each(|done| unmap(&done));
            let name = format!("{}@{}", header.name(), header.version());
            return Err(no_place(name, segment.address, segment.bytes, error));
        }
    }
    Ok(())
}

/// Memory of zeroes, readable and writable, for an image that is being built.
pub fn memory(name: &str, first: u64, bytes: u64) -> Result<()> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    map(first, bytes, protection, None).map_err(|error| no_place(name.into(), first, bytes, error))
}

/// Gives memory back that [`memory`] made.
///
/// # Safety
/// Nothing points there any more.
pub unsafe fn forget(first: u64, bytes: u64) {
    // SAFETY: the caller's promise.
    let _ = unsafe { munmap(first as *mut _, bytes as usize) };
}

/// What this process has in a range, as `/proc/self/maps` calls it.
pub fn who_is_at(first: u64, end: u64) -> Option<String> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let text = String::from_utf8_lossy(&maps);
    text.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (start, stop) = fields.next()?.split_once('-')?;
        let hex = |digits| u64::from_str_radix(digits, 16).ok();
        (hex(start)? < end && first < hex(stop)?).then_some(())?;
        let name = fields.skip(4).collect::<Vec<_>>().join(" ");
        Some(if name.is_empty() { "memory without a name".into() } else { name })
    })
}

fn no_place(image: String, first: u64, bytes: u64, error: Errno) -> Error {
    let end = first + bytes;
    let why = match error {
        Errno::EXIST => {
            let who = who_is_at(first, end).unwrap_or_else(|| "another mapping".into());
            format!(
                "{who} is there; include it earlier, or `commonhold image ranges` for who has which addresses \
                 (ThreadSanitizer has them all)"
            )
        }
        Errno::NOMEM => match rustix::process::getrlimit(rustix::process::Resource::As).current {
            Some(limit) => format!("this process may have {limit} bytes of addresses (ulimit -v), and would have more"),
            None => "the kernel has no memory for it, or the process too many mappings (vm.max_map_count)".into(),
        },
        Errno::PERM | Errno::ACCESS => {
            "the kernel does not let it be mapped so: code is not run from file systems that are mounted noexec".into()
        }
        other => std::io::Error::from(other).to_string(),
    };
    Error::NoPlace { image, first, end, why }
}
