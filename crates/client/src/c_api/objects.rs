//! Objects: create, open, close, read and write.

use super::outcome::{guard, guard_code, text};
use super::structs::{ch_info, ch_options};
use super::{host, null};
use crate::{Access, EntryInfo, Error, Object, Result, SnapshotOptions};
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

/// `ch_object`: an open object.
#[allow(non_camel_case_types)] // the name of the header
pub struct ch_object(pub(super) Object);

/// In an access: the object may move.
const MOVABLE: c_int = 4;

/// `ch_place`: where an object lies as long as its guard.
#[allow(non_camel_case_types, missing_docs)] // the names of the header, documented there
#[repr(C)]
pub struct ch_place {
    pub address: *mut c_void,
    pub length: usize,
    pub generation: u64,
}

/// The object behind a handle.
///
/// # Safety
/// `object` is null, or a handle that was not closed.
pub(super) unsafe fn object<'a>(object: *const ch_object) -> Result<&'a Object> {
    // SAFETY: the caller's promise.
    unsafe { object.as_ref() }.map(|object| &object.0).ok_or_else(|| null("object"))
}

pub(super) fn handle(object: Object) -> *mut ch_object {
    Box::into_raw(Box::new(ch_object(object)))
}

/// What an argument with `CH_READ` and `CH_WRITE` asks for.
pub(super) fn access_of(access: c_int) -> Result<Access> {
    match access {
        1 => Ok(Access::Read),
        2 | 3 => Ok(Access::ReadWrite),
        other => Err(Error::invalid(format!("access {other} is neither CH_READ nor CH_READ | CH_WRITE"))),
    }
}

/// Creates an object without a backing file.
///
/// # Safety
/// `name` is null or a C string; `options` as [`ch_options`] says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_create(name: *const c_char, options: *const ch_options) -> *mut ch_object {
    guard(null_mut(), || {
        // SAFETY: the caller's promise.
        let (name, options) = unsafe { (text("name", name)?, ch_options::read(options)?) };
        host()?.create(name, &options, None).map(handle)
    })
}

/// Creates an object that never has a name.
///
/// # Safety
/// `options` as [`ch_options`] says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_create_nameless(options: *const ch_options) -> *mut ch_object {
    guard(null_mut(), || {
        // SAFETY: the caller's promise.
        let options = unsafe { ch_options::read(options) }?;
        host()?.create_nameless(&options).map(handle)
    })
}

/// Creates an object on an open file.
///
/// # Safety
/// As [`ch_create`]; `fd` is an open descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_create_file(
    name: *const c_char,
    options: *const ch_options,
    fd: c_int,
) -> *mut ch_object {
    guard(null_mut(), || {
        // SAFETY: the caller's promise.
        let (name, mut options) = unsafe { (text("name", name)?, ch_options::read(options)?) };
        if fd < 0 {
            return Err(Error::invalid(format!("{fd} is no open file descriptor")));
        }
        options.pager = crate::PagerKind::File;
        // SAFETY: the caller promises that it is open; it is only borrowed for the call.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        host()?.create(name, &options, Some(file)).map(handle)
    })
}

/// Opens an object.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_open(name: *const c_char, access: c_int) -> *mut ch_object {
    guard(null_mut(), || {
        // SAFETY: the caller's promise.
        let name = unsafe { text("name", name) }?;
        match access & MOVABLE {
            0 => host()?.open(name, access_of(access)?).map(handle),
            _ => host()?.open_movable(name, access_of(access & !MOVABLE)?).map(handle),
        }
    })
}

/// Creates an object that has the pages of another as they are now.
///
/// # Safety
/// `object` is null or a handle; `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_snapshot(
    object: *const ch_object,
    name: *const c_char,
    flags: c_int,
    mode: u32,
    offset: u64,
    length: u64,
) -> *mut ch_object {
    // SAFETY: the caller's promise.
    unsafe { snapshot(object, name, None, flags, mode, offset, length) }
}

/// The same of a direct object on a file: `path` becomes a clone of the file, and the object is on that.
///
/// # Safety
/// As [`ch_snapshot`]; `path` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_snapshot_file(
    object: *const ch_object,
    name: *const c_char,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    offset: u64,
    length: u64,
) -> *mut ch_object {
    // SAFETY: the caller's promise.
    unsafe { snapshot(object, name, Some(path), flags, mode, offset, length) }
}

/// # Safety
/// As [`ch_snapshot_file`].
unsafe fn snapshot(
    object: *const ch_object,
    name: *const c_char,
    path: Option<*const c_char>,
    flags: c_int,
    mode: u32,
    offset: u64,
    length: u64,
) -> *mut ch_object {
    const WRITABLE: c_int = 1;
    const WHOLE: c_int = 2;
    guard(null_mut(), || {
        // SAFETY: the caller's promise.
        let (object, name) = unsafe { (self::object(object)?, text("name", name)?) };
        // SAFETY: the caller's promise.
        let file = path.map(|path| unsafe { text("path", path) }).transpose()?.map(Into::into);
        if flags & !(WRITABLE | WHOLE) != 0 {
            let what = format!("flags {flags:#x} are none of CH_SNAPSHOT_WRITABLE and CH_SNAPSHOT_WHOLE");
            return Err(Error::invalid(what));
        }
        let (writable, whole) = (flags & WRITABLE != 0, flags & WHOLE != 0);
        let length = (length != 0).then_some(length);
        object.snapshot(name, &SnapshotOptions { offset, length, mode, writable, whole, file }).map(handle)
    })
}

/// Takes a guard of an object that was opened movable.
///
/// # Safety
/// `object` is null or a handle; `place` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_guard(object: *const ch_object, place: *mut ch_place) -> c_int {
    guard_code(|| {
        if place.is_null() {
            return Err(null("place"));
        }
        // SAFETY: the caller's promise.
        let guard = unsafe { self::object(object) }?.guard()?;
        let at =
            ch_place { address: guard.as_ptr().cast(), length: guard.len(), generation: guard.generation() };
        guard.keep();
        // SAFETY: the caller's promise.
        unsafe { place.write(at) };
        Ok(())
    })
}

/// Gives a guard up.
///
/// # Safety
/// `object` is null or a handle, of which the caller has a guard.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_unguard(object: *const ch_object) -> c_int {
    // SAFETY: the caller's promise.
    guard_code(|| unsafe { self::object(object) }?.leave())
}

/// Closes a handle; mappings stay.
///
/// # Safety
/// `object` is null, or a handle that was not closed and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_close(object: *mut ch_object) -> c_int {
    guard_code(|| {
        if object.is_null() {
            return Err(null("object"));
        }
        // SAFETY: handles come from `handle`, and the caller gives this one up.
        drop(unsafe { Box::from_raw(object) });
        Ok(())
    })
}

/// What is known of an open object.
///
/// # Safety
/// `object` is null or a handle; `info` as [`ch_info`] says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_object_info(object: *const ch_object, info: *mut ch_info) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        let known = unsafe { self::object(object) }?.info()?;
        // SAFETY: the caller's promise.
        unsafe { ch_info::of(&EntryInfo::Object(Box::new(known))).give(info) }
    })
}

/// Says what is in pages of an open object.
///
/// # Safety
/// `object` is null or a handle; `tag` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_tag(
    object: *const ch_object,
    offset: u64,
    length: u64,
    tag: *const c_char,
) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        let (object, tag) = unsafe { (self::object(object)?, text("tag", tag)?) };
        object.tag(offset, length, tag)
    })
}

/// The tags that its pages have, as text: a line each, of first byte, bytes and tag. As much as there is room for, and a zero;
/// -1, or how long all of it is.
///
/// # Safety
/// `object` is null or a handle; `buffer` is null or has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_tags(object: *const ch_object, buffer: *mut c_char, room: usize) -> i64 {
    let mut length = -1;
    let code = guard_code(|| {
        // SAFETY: the caller's promise.
        let text = unsafe { self::object(object) }?.tags()?.to_string();
        length = text.len() as i64;
        if room > 0 && !buffer.is_null() {
            let bytes = text.len().min(room - 1);
            // SAFETY: the buffer has that many bytes and one more; the text is another memory.
            unsafe {
                buffer.copy_from_nonoverlapping(text.as_ptr().cast(), bytes);
                *buffer.add(bytes) = 0;
            }
        }
        Ok(())
    });
    if code == 0 { length } else { -1 }
}

/// Copies bytes out.
///
/// # Safety
/// `object` is null or a handle; `buffer` is null or has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_read(
    object: *const ch_object,
    buffer: *mut c_void,
    length: usize,
    offset: u64,
) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        let object = unsafe { self::object(object) }?;
        if buffer.is_null() {
            return Err(null("buffer"));
        }
        check_length(length)?;
        // SAFETY: the caller's promise; bytes that were never set are only written here.
        let buffer = unsafe {
            std::ptr::write_bytes(buffer.cast::<u8>(), 0, length);
            std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length)
        };
        object.read_at(buffer, offset)
    })
}

/// Copies bytes in.
///
/// # Safety
/// `object` is null or a handle; `data` is null or has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_write(
    object: *const ch_object,
    data: *const c_void,
    length: usize,
    offset: u64,
) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        let object = unsafe { self::object(object) }?;
        if data.is_null() {
            return Err(null("data"));
        }
        check_length(length)?;
        // SAFETY: the caller's promise.
        object.write_at(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) }, offset)
    })
}

fn check_length(length: usize) -> Result<()> {
    if length > isize::MAX as usize {
        return Err(Error::invalid(format!("no buffer has {length} bytes")));
    }
    Ok(())
}
