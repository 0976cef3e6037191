//! Channels, and reads into objects.

use super::objects::{access_of, ch_object, handle as object_handle, object};
use super::outcome::{guard, guard_code, text};
use super::{host, null, wait_of};
use crate::channel::Wait;
use crate::{Channel, ChannelOptions, Error, ErrorKind, Landing, Result, Translation};
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::time::Instant;

/// `ch_channel`: an open channel.
#[allow(non_camel_case_types)] // the name of the header
pub struct ch_channel(Channel);

/// `ch_message`: what was received.
#[allow(non_camel_case_types, missing_docs)] // the names of the header, documented there
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ch_message {
    pub struct_bytes: usize,
    pub length: usize,
    pub landing: u64,
    pub landed_bytes: u64,
    pub kind: u32,
    pub unused: u32,
    pub object: *mut ch_object,
}

/// What every program has of it.
const SMALLEST_MESSAGE: usize = std::mem::offset_of!(ch_message, object);

/// # Safety
/// `channel` is null, or a handle that was not closed.
unsafe fn channel<'a>(channel: *const ch_channel) -> Result<&'a Channel> {
    // SAFETY: the caller's promise.
    unsafe { channel.as_ref() }.map(|channel| &channel.0).ok_or_else(|| null("channel"))
}

fn handle(channel: Channel) -> *mut ch_channel {
    Box::into_raw(Box::new(ch_channel(channel)))
}

/// # Safety
/// `data` is null or has `length` bytes.
unsafe fn bytes<'a>(what: &str, data: *const c_void, length: usize) -> Result<&'a [u8]> {
    match (data.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null(what)),
        (_, length) if length > isize::MAX as usize => {
            Err(Error::invalid(format!("no buffer has {length} bytes")))
        }
        // SAFETY: the caller's promise.
        (false, length) => Ok(unsafe { std::slice::from_raw_parts(data.cast(), length) }),
    }
}

/// Creates a channel.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_channel_create(
    name: *const c_char,
    capacity_bytes: u64,
    translation: c_int,
    mode: u32,
) -> *mut ch_channel {
    guard(null_mut(), || {
        // SAFETY: the caller's promise.
        let name = unsafe { text("name", name) }?;
        let translation = usize::try_from(translation).ok().and_then(|n| Translation::ALL.get(n));
        let translation = *translation
            .ok_or_else(|| Error::invalid("the translation of a channel is neither CH_PAGED nor CH_WIRED"))?;
        let options = ChannelOptions { capacity_bytes, translation, mode };
        Channel::create(&host()?, name, &options).map(handle)
    })
}

/// Opens a channel.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_channel_open(name: *const c_char) -> *mut ch_channel {
    guard(null_mut(), || {
        // SAFETY: the caller's promise.
        let name = unsafe { text("name", name) }?;
        Channel::open(&host()?, name).map(handle)
    })
}

/// Closes a handle.
///
/// # Safety
/// `channel` is null, or a handle that was not closed and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_channel_close(channel: *mut ch_channel) -> c_int {
    guard_code(|| {
        if channel.is_null() {
            return Err(null("channel"));
        }
        // SAFETY: handles come from `handle`, and the caller gives this one up.
        drop(unsafe { Box::from_raw(channel) });
        Ok(())
    })
}

/// Bytes of the largest message; 0 on failure.
///
/// # Safety
/// `channel` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_channel_most_bytes(channel: *const ch_channel) -> usize {
    // SAFETY: the caller's promise.
    guard(0, || Ok(unsafe { self::channel(channel) }?.most_bytes()))
}

/// Sends a message: 1, 0 when the time is over, -1.
///
/// # Safety
/// `channel` is null or a handle; `data` is null or has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_channel_send(
    channel: *const ch_channel,
    kind: u32,
    data: *const c_void,
    length: usize,
    timeout_ms: c_int,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let (channel, data) = unsafe { (self::channel(channel)?, bytes("data", data, length)?) };
        Ok(c_int::from(channel.put(kind, data, wait_of(timeout_ms))?))
    })
}

/// Receives a message: 1, 0 when the time is over, -1.
///
/// # Safety
/// `channel` is null or a handle; `message` is null or begins with its size; `buffer` is null or
/// has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_channel_receive(
    channel: *const ch_channel,
    message: *mut ch_message,
    buffer: *mut c_void,
    size: usize,
    timeout_ms: c_int,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let channel = unsafe { self::channel(channel) }?;
        if message.is_null() || buffer.is_null() && size > 0 {
            return Err(null("message or buffer"));
        }
        // SAFETY: the caller's promise; the size is the first field.
        let known = unsafe { (&raw const (*message).struct_bytes).read_unaligned() };
        if known < SMALLEST_MESSAGE {
            return Err(Error::invalid(
                "struct_bytes of ch_message is too small: begin with CH_MESSAGE_INIT",
            ));
        }
        let mut room = Room { start: buffer.cast(), size, length: 0 };
        let received = channel.take(&mut room, wait_of(timeout_ms));
        let mut told = ch_message {
            struct_bytes: known,
            length: room.length,
            landing: 0,
            landed_bytes: 0,
            kind: 0,
            unused: 0,
            object: null_mut(),
        };
        let received = received.map(|received| {
            let Some(received) = received else { return false };
            told.kind = received.kind;
            told.landing = received.region.map_or(0, |region| region.landing.number());
            told.landed_bytes = received.region.map_or(0, |region| region.length);
            // A program that does not know of objects cannot close one.
            let object = received.object.filter(|_| known >= size_of::<ch_message>());
            told.object = object.map_or(null_mut(), object_handle);
            true
        });
        let bytes = known.min(size_of::<ch_message>());
        // SAFETY: it has as many bytes, by its first field.
        unsafe { std::ptr::copy_nonoverlapping((&raw const told).cast::<u8>(), message.cast::<u8>(), bytes) };
        received.map(c_int::from)
    })
}

/// A buffer of C, whose bytes may never have been set: they are only written.
struct Room {
    start: *mut u8,
    size: usize,
    /// What the message would need.
    length: usize,
}

impl crate::Buffer for Room {
    fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        self.length = length;
        if length == 0 {
            return Some(&mut []);
        }
        if length > self.size {
            return None;
        }
        // SAFETY: the caller of `ch_channel_receive` has that many bytes there; zeroes make them
        // numbers.
        unsafe {
            std::ptr::write_bytes(self.start, 0, length);
            Some(std::slice::from_raw_parts_mut(self.start, length))
        }
    }
}

/// Posts a landing.
///
/// # Safety
/// `channel` and `object` are null or handles; `landing` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_channel_post(
    channel: *const ch_channel,
    object: *const ch_object,
    offset: u64,
    length: u64,
    landing: *mut u64,
) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        let (channel, object) = unsafe { (self::channel(channel)?, self::object(object)?) };
        if landing.is_null() {
            return Err(null("landing"));
        }
        let posted = channel.post(object, offset, length)?;
        // SAFETY: the caller's promise.
        unsafe { landing.write(posted.number()) };
        Ok(())
    })
}

/// Takes a landing back; all of them if it is 0.
///
/// # Safety
/// `channel` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_channel_withdraw(channel: *const ch_channel, landing: u64) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        let channel = unsafe { self::channel(channel) }?;
        match landing {
            0 => channel.withdraw_all().map(drop),
            landing => channel.withdraw(Landing::of_number(landing)),
        }
    })
}

/// Copies a region to a landing, and sends a message about it: 1, 0 when the time is over, -1.
///
/// # Safety
/// `channel` is null or a handle; `data` and `region` are null or have so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_channel_send_region(
    channel: *const ch_channel,
    kind: u32,
    data: *const c_void,
    length: usize,
    region: *const c_void,
    region_bytes: usize,
    timeout_ms: c_int,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let (channel, data) = unsafe { (self::channel(channel)?, bytes("data", data, length)?) };
        if region.is_null() || region_bytes > isize::MAX as usize {
            return Err(null("region"));
        }
        let region = (region.cast(), region_bytes);
        // SAFETY: the caller's promise; others may write there meanwhile.
        in_time(unsafe { channel.send_region_from(kind, data, region, deadline_of(timeout_ms)) })
    })
}

fn deadline_of(timeout_ms: c_int) -> Option<Instant> {
    match wait_of(timeout_ms) {
        Wait::No => Some(Instant::now()),
        Wait::Until(end) => Some(end),
        Wait::Forever => None,
    }
}

fn in_time(sent: Result<()>) -> Result<c_int> {
    match sent {
        Ok(()) => Ok(1),
        Err(error) if error.kind == ErrorKind::TimedOut => Ok(0),
        Err(error) => Err(error),
    }
}

/// Sends a message with an object: 1, 0 when the time is over, -1.
///
/// # Safety
/// `channel` and `object` are null or handles; `data` is null or has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_channel_send_object(
    channel: *const ch_channel,
    kind: u32,
    data: *const c_void,
    length: usize,
    object: *const ch_object,
    access: c_int,
    timeout_ms: c_int,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let (channel, data) = unsafe { (self::channel(channel)?, bytes("data", data, length)?) };
        // SAFETY: likewise.
        let object = unsafe { self::object(object) }?;
        in_time(channel.send_object(kind, data, object, access_of(access)?, deadline_of(timeout_ms)))
    })
}

/// Sends a message with part of an object by reference: 1, 0 when the time is over, -1.
///
/// # Safety
/// As [`ch_channel_send_object`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_channel_send_by_reference(
    channel: *const ch_channel,
    kind: u32,
    data: *const c_void,
    length: usize,
    object: *const ch_object,
    offset: u64,
    region_bytes: u64,
    timeout_ms: c_int,
) -> c_int {
    guard(-1, || {
        // SAFETY: the caller's promise.
        let (channel, data) = unsafe { (self::channel(channel)?, bytes("data", data, length)?) };
        // SAFETY: likewise.
        let object = unsafe { self::object(object) }?;
        let deadline = deadline_of(timeout_ms);
        in_time(channel.send_by_reference(kind, data, object, (offset, region_bytes), deadline))
    })
}

/// Reads part of a file into an object.
///
/// # Safety
/// `object` is null or a handle; `fd` is open; `bytes` and `direct_bytes` are null or can be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_read_into(
    fd: c_int,
    file_offset: u64,
    object: *const ch_object,
    offset: u64,
    length: u64,
    bytes: *mut u64,
    direct_bytes: *mut u64,
) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        let object = unsafe { self::object(object) }?;
        if bytes.is_null() {
            return Err(null("bytes"));
        }
        if fd < 0 {
            return Err(Error::invalid(format!("{fd} is no open file descriptor")));
        }
        // SAFETY: the caller promises that it is open; it is only borrowed for the call.
        let file = unsafe { BorrowedFd::borrow_raw(fd) };
        let read = object.read_into(file, file_offset, offset, length)?;
        // SAFETY: the caller's promise.
        unsafe {
            bytes.write(read.bytes);
            if let Some(direct) = direct_bytes.as_mut() {
                *direct = read.direct_bytes;
            }
        }
        Ok(())
    })
}
