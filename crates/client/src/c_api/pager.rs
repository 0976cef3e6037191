//! A pager written in C.

use super::outcome::{guard_code, text};
use super::{host, null};
use crate::{Error, Pager};
use std::ffi::{CString, c_char, c_int, c_void};
use std::io;

/// `ch_pager`: the two calls of a pager.
#[allow(non_camel_case_types, missing_docs)] // the names of the header, documented there
#[repr(C)]
pub struct ch_pager {
    pub struct_bytes: usize,
    pub page_in: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            object: *const c_char,
            offset: u64,
            buffer: *mut c_void,
            length: usize,
        ) -> c_int,
    >,
    pub page_out: Option<
        unsafe extern "C" fn(
            user: *mut c_void,
            object: *const c_char,
            offset: u64,
            data: *const c_void,
            length: usize,
        ) -> c_int,
    >,
    pub user: *mut c_void,
}

struct CPager(ch_pager);

impl Pager for CPager {
    fn page_in(&mut self, object: &str, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let object = CString::new(object)?;
        let call = self.0.page_in.ok_or_else(|| io::Error::other("no page_in"))?;
        // SAFETY: who called ch_serve_pager promised that it may be called so; the buffer has `length` bytes.
        outcome(unsafe {
            call(self.0.user, object.as_ptr(), offset, buffer.as_mut_ptr().cast(), buffer.len())
        })
    }

    fn page_out(&mut self, object: &str, offset: u64, data: &[u8]) -> io::Result<()> {
        let object = CString::new(object)?;
        let call = self.0.page_out.ok_or_else(|| io::Error::other("no page_out"))?;
        // SAFETY: as above.
        outcome(unsafe { call(self.0.user, object.as_ptr(), offset, data.as_ptr().cast(), data.len()) })
    }
}

/// 0, or an errno.
fn outcome(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        1.. => Err(io::Error::from_raw_os_error(code)),
        _ => Err(io::Error::other(format!("the pager returned {code}"))),
    }
}

/// Serves as a pager until the host closes the connection.
///
/// # Safety
/// `name` is null or a C string; `pager` is null or a structure of the header, whose functions may be called
/// with its `user` by this thread until the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_serve_pager(name: *const c_char, pager: *const ch_pager) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { text("name", name) }?;
        // SAFETY: the caller's promise.
        let pager = unsafe { pager.as_ref() }.ok_or_else(|| null("pager"))?;
        if pager.struct_bytes < size_of::<ch_pager>() {
            return Err(Error::invalid("struct_bytes of ch_pager is too small: set it to sizeof(ch_pager)"));
        }
        if pager.page_in.is_none() || pager.page_out.is_none() {
            return Err(null("page_in or page_out"));
        }
        let pager = CPager(ch_pager { struct_bytes: size_of::<ch_pager>(), ..*pager });
        host()?.serve_pager(name, pager)
    })
}
