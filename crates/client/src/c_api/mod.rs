//! The C ABI: `include/commonhold.h`, `commonhold_sync.h` and `commonhold_heap.h`, function by function. What each promises stands in the header.
//!
//! Every function catches panics, sets errno and the thread's last error on failure, and takes null pointers
//! for bad arguments. There is one host for the process, connected at first use.

mod channels;
mod heaps;
mod image_types;
mod images;
mod memory;
mod names;
mod objects;
mod outcome;
mod pager;
mod structs;
mod sync;
mod watches;

pub use channels::*;
pub use heaps::*;
pub use image_types::{ch_field, ch_type};
pub use images::*;
pub use memory::*;
pub use names::*;
pub use objects::*;
pub use outcome::ch_last_error;
pub use pager::*;
pub use structs::*;
pub use sync::*;
pub use watches::*;

use crate::{Error, Host, Result, channel::Wait, link::lock};
use outcome::{guard_code, optional_text};
use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The host that all calls without another one use.
pub(crate) static DEFAULT_HOST: Mutex<Option<Host>> = Mutex::new(None);

/// The default host, found at first use.
fn host() -> Result<Host> {
    if let Some(host) = &*lock(&DEFAULT_HOST) {
        return Ok(host.clone());
    }
    // Not under the lock: starting a host may take long, and a fork would wait for it.
    let found = Host::connect()?;
    Ok(lock(&DEFAULT_HOST).get_or_insert(found).clone())
}

/// Chooses the host of this process.
///
/// # Safety
/// `state_directory` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_connect(state_directory: *const c_char) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        let directory = unsafe { optional_text("state_directory", state_directory) }?;
        let host = match directory {
            Some(directory) => Host::connect_to(Path::new(directory))?,
            None => Host::connect()?,
        };
        let former = lock(&DEFAULT_HOST).replace(host);
        drop(former);
        Ok(())
    })
}

/// Version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn ch_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// A time as the headers have it: milliseconds, -1 for ever, 0 not at all.
fn wait_of(timeout_ms: c_int) -> Wait {
    match u64::try_from(timeout_ms) {
        Ok(0) => Wait::No,
        Ok(ms) => Wait::Until(Instant::now() + Duration::from_millis(ms)),
        Err(_) => Wait::Forever,
    }
}

fn null(what: &str) -> Error {
    Error::invalid(format!("{what} is NULL"))
}
