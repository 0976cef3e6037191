//! Copies of bytes that other processes change.

use std::hint::black_box;

/// Copies bytes by a call that the compiler cannot look into, so that it reads none of them again
/// later: another process may have changed it by then.
///
/// # Safety
/// `source` is valid for reads and `target` for writes of so many bytes, and they do not overlap.
pub unsafe fn copy_once(source: *const u8, target: *mut u8, bytes: usize) {
    type Copy = unsafe extern "C" fn(*mut libc::c_void, *const libc::c_void, usize) -> *mut libc::c_void;
    let copy: Copy = black_box(libc::memcpy);
    // SAFETY: the caller's promise.
    unsafe { copy(target.cast(), source.cast(), bytes) };
}
