//! What is done by name.

use super::outcome::{guard_code, text};
use super::structs::ch_info;
use super::{host, null};
use std::ffi::{c_char, c_int, c_void};

/// What `ch_list` calls for each entry: other than 0 ends the listing.
#[allow(non_camel_case_types)] // the name of the header
pub type ch_list_function = Option<unsafe extern "C" fn(user: *mut c_void, entry: *const ch_info) -> c_int>;

/// What is known of a name.
///
/// # Safety
/// `name` is null or a C string; `info` as [`ch_info`] says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_stat(name: *const c_char, info: *mut ch_info) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { text("name", name) }?;
        if info.is_null() {
            return Err(null("info"));
        }
        let known = host()?.stat(name)?;
        // SAFETY: the caller's promise.
        unsafe { ch_info::of(&known).give(info) }
    })
}

/// The entries of a directory.
///
/// # Safety
/// `directory` is null or a C string; `each` may be called with `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_list(
    directory: *const c_char,
    each: ch_list_function,
    user: *mut c_void,
) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        let directory = unsafe { text("directory", directory) }?;
        let each = each.ok_or_else(|| null("each"))?;
        for entry in host()?.list(directory)? {
            let info = ch_info::of(&entry);
            // SAFETY: the caller's promise; the entry lives until the call returns.
            if unsafe { each(user, &raw const *info) } != 0 {
                break;
            }
        }
        Ok(())
    })
}

/// Changes the size of an object.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_resize(name: *const c_char, size_bytes: u64) -> c_int {
    // SAFETY: the caller's promise.
    guard_code(|| host_after(unsafe { text("name", name) }?, |host, name| host.resize(name, size_bytes)))
}

/// Says what is in pages of an object, by its name.
///
/// # Safety
/// `name` and `tag` are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_tag_name(
    name: *const c_char,
    offset: u64,
    length: u64,
    tag: *const c_char,
) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        let (name, tag) = unsafe { (text("name", name)?, text("tag", tag)?) };
        host_after(name, |host, name| host.tag(name, offset, length, tag))
    })
}

/// Removes an object or an empty directory.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_remove(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    guard_code(|| host_after(unsafe { text("name", name) }?, |host, name| host.remove(name)))
}

/// Gives an object another name.
///
/// # Safety
/// Both are null or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_rename(from: *const c_char, to: *const c_char) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        let (from, to) = unsafe { (text("from", from)?, text("to", to)?) };
        host()?.rename(from, to)
    })
}

/// Changes the mode bits.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_chmod(name: *const c_char, mode: u32) -> c_int {
    // SAFETY: the caller's promise.
    guard_code(|| host_after(unsafe { text("name", name) }?, |host, name| host.set_mode(name, mode)))
}

/// Changes owner and group; -1 leaves one as it is.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_chown(name: *const c_char, uid: u32, gid: u32) -> c_int {
    let given = |id: u32| (id != u32::MAX).then_some(id);
    guard_code(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { text("name", name) }?;
        host()?.set_owner(name, given(uid), given(gid))
    })
}

/// Drops what was not synced.
///
/// # Safety
/// `name` is null or a C string; `pages` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_revert(name: *const c_char, pages: *mut u64) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        let dropped = host_after(unsafe { text("name", name) }?, |host, name| host.revert(name))?;
        // SAFETY: the caller's promise.
        if let Some(pages) = unsafe { pages.as_mut() } {
            *pages = dropped;
        }
        Ok(())
    })
}

/// Checks the name before a host is looked for, so that a bad one is said even without a host.
fn host_after<T>(name: &str, act: impl FnOnce(crate::Host, &str) -> crate::Result<T>) -> crate::Result<T> {
    crate::Name::directory(name)?;
    act(host()?, name)
}
