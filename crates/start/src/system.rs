//! What a start asks of the kernel.

pub use commonhold_kernel::{File, Status, exit, say, user};

use commonhold_kernel::{call, number};
use commonhold_record::State;
use core::ffi::c_char;

/// What tells a file from others.
pub fn state(status: &Status) -> State {
    State {
        device: status.device,
        inode: status.inode,
        size: status.bytes,
        modified_ns: status.modified_ns,
        changed_ns: status.changed_ns,
    }
}

/// The state of the file at a path, which ends with a zero.
pub fn state_of(path: &[u8]) -> Option<State> {
    Status::of_path(path).ok().map(|status| state(&status))
}

/// Whether nobody but root or this user made a file what it is. `user`: who runs this.
pub fn is_trusted(status: &Status, user: u32) -> bool {
    const OTHERS_MAY_WRITE: u32 = 0o022;
    // In a user's name space everybody whom it does not know is this one.
    const NOBODY: u32 = 65534;
    let own = status.owner == user && status.owner != NOBODY;
    (status.owner == 0 || own) && status.mode & OTHERS_MAY_WRITE == 0
}

/// Whether a copy is what was written: one call to the kernel for each copy at each start. What is in it nobody could
/// change without changing its times.
pub fn is_as_written(copy: &[u8], written: &State, user: u32) -> bool {
    const READABLE: u32 = 0o444;
    Status::of_path(copy).is_ok_and(|status| {
        state(&status) == *written && is_trusted(&status, user) && status.mode & READABLE == READABLE
    })
}

/// The bytes of a file, for ever.
pub fn map(file: &File, bytes: usize) -> Option<&'static [u8]> {
    const READABLE: usize = 1;
    const PRIVATE: usize = 2;
    // SAFETY: a new mapping, wherever the kernel likes.
    let first = unsafe { call(number::MMAP, [0, bytes, READABLE, PRIVATE, file.number(), 0]) };
    // SAFETY: of so many bytes, which nobody unmaps. The file is replaced and never changed in place.
    (bytes > 0 && first > 0).then(|| unsafe { core::slice::from_raw_parts(first as *const u8, bytes) })
}

/// The path of this program, with a zero behind it; none if it does not fit.
pub fn program(buffer: &mut [u8]) -> Option<&[u8]> {
    let link = b"/proc/self/exe\0";
    // SAFETY: room for all but one of the buffer's bytes.
    let length = unsafe {
        call(
            number::READLINK,
            [link.as_ptr() as usize, buffer.as_mut_ptr() as usize, buffer.len() - 1, 0, 0, 0],
        )
    };
    let length = usize::try_from(length).ok().filter(|length| *length > 0 && *length < buffer.len() - 1)?;
    buffer[length] = 0;
    Some(&buffer[..=length])
}

/// Whether a path, which ends with a zero, is that of a symbolic link; none if it is nobody's.
pub fn is_link(path: &[u8]) -> Option<bool> {
    const KIND: u32 = 0o170_000;
    const LINK: u32 = 0o120_000;
    Status::of_link(path).ok().map(|status| status.mode & KIND == LINK)
}

/// The auxiliary values that this program was started with: pairs of kind and value. None: an older kernel than Linux 6.4 does
/// not tell, or there are more.
pub fn auxiliary_values(room: &mut [usize]) -> Option<&[usize]> {
    const GET_AUXILIARY_VALUES: usize = 0x4155_5856;
    let bytes = size_of_val(room);
    // SAFETY: room for so many bytes. It gives how many there are in all, and has written those if they fit.
    let all =
        unsafe { call(number::PRCTL, [GET_AUXILIARY_VALUES, room.as_mut_ptr() as usize, bytes, 0, 0, 0]) };
    let all = usize::try_from(all).ok().filter(|all| *all <= bytes)?;
    room.get(..all / size_of::<usize>())
}

/// This process.
pub fn process() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(number::GETPID, [0; 6]) as u32 }
}

/// Memory full of zeros, for ever; none if there is none.
pub fn memory(bytes: usize) -> Option<&'static mut [u8]> {
    const READABLE_AND_WRITABLE: usize = 3;
    const PRIVATE_AND_ANONYMOUS: usize = 0x22;
    // SAFETY: a new mapping, wherever the kernel likes.
    let first = unsafe {
        call(number::MMAP, [0, bytes, READABLE_AND_WRITABLE, PRIVATE_AND_ANONYMOUS, usize::MAX, 0])
    };
    // SAFETY: of so many bytes, which nobody else knows of.
    (bytes > 0 && first > 0).then(|| unsafe { core::slice::from_raw_parts_mut(first as *mut u8, bytes) })
}

/// Whether the page with an address may be mapped, and is not.
pub fn is_free(address: usize) -> bool {
    const PAGE_BYTES: usize = 4096;
    const PRIVATE_ANONYMOUS_AND_NEVER_ELSEWHERE: usize = 0x10_0022;
    let page = address & !(PAGE_BYTES - 1);
    // SAFETY: a new mapping, which never takes the place of another.
    let first = unsafe {
        call(number::MMAP, [page, PAGE_BYTES, 0, PRIVATE_ANONYMOUS_AND_NEVER_ELSEWHERE, usize::MAX, 0])
    };
    if first > 0 {
        // SAFETY: the mapping that was just made, wherever an older kernel has put it.
        unsafe { call(number::MUNMAP, [first as usize, PAGE_BYTES, 0, 0, 0, 0]) };
    }
    first as usize == page
}

/// Runs another program instead of this one. Comes back if that cannot be.
pub fn execute(path: &[u8], arguments: *const *const c_char, environment: *const *const c_char) {
    // SAFETY: a path with its zero, and two lists of strings, each ended by a null pointer.
    unsafe {
        call(number::EXECVE, [path.as_ptr() as usize, arguments as usize, environment as usize, 0, 0, 0])
    };
}
