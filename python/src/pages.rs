//! Pages: what a mapping's buffers, and arrays made on it, keep alive.

use crate::errors::{drop_if, waiting};
use crate::exports;
use crate::object::Opened;
use crate::options::Mode;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Mapped pages. They are unmapped when the last array, buffer and mapping that shows them is gone, and never
/// before: there is no way to close them. `numpy.ndarray.base` of an array on an object leads to one.
#[pyclass(module = "commonhold._native", frozen, weakref)]
pub(crate) struct Pages {
    /// There until it is dropped.
    mapping: Option<commonhold::Mapping>,
    opened: Opened,
    mode: Mode,
    offset: u64,
    /// What is shown: the last page may reach past the object's end.
    length: usize,
    /// The name that the object had when it was asked for.
    named: Mutex<Option<(Instant, String)>>,
}

/// So old may a name be by which arrays are pickled: many are, one after the other.
const RECENT: Duration = Duration::from_secs(1);

impl Pages {
    pub(crate) fn new(
        mapping: commonhold::Mapping,
        opened: Opened,
        mode: Mode,
        offset: u64,
        length: usize,
    ) -> Self {
        Pages { mapping: Some(mapping), opened, mode, offset, length, named: Mutex::default() }
    }

    fn address(&self) -> *mut u8 {
        self.mapping.as_ref().map_or(std::ptr::null_mut(), commonhold::Mapping::as_ptr)
    }

    pub(crate) fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Fills in a buffer that shows all of them, and keeps this object alive.
    ///
    /// # Safety
    /// `view` must be a buffer structure that the interpreter asks to be filled in.
    pub(crate) unsafe fn export(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        let read_only = this.mode == Mode::Read;
        // SAFETY: the address and length are those of a mapping that lives as long as `slf`, to which the buffer
        // holds a reference; the rest is the caller's promise.
        unsafe { exports::fill(slf.as_any(), view, flags, this.address(), this.length, read_only) }
    }
}

#[pymethods]
impl Pages {
    /// Address of the first byte in this process.
    #[getter(address)]
    pub(crate) fn get_address(&self) -> usize {
        self.address() as usize
    }

    /// Bytes shown.
    #[getter]
    pub(crate) fn nbytes(&self) -> usize {
        self.length
    }

    /// Offset of the first byte in the object.
    #[getter]
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// How they are mapped: `r`, `r+` or `c`.
    #[getter]
    pub(crate) fn mode(&self) -> &'static str {
        self.mode.word()
    }

    /// State directory of the host.
    #[getter]
    fn state_directory(&self) -> std::path::PathBuf {
        self.opened.host.state_directory().to_owned()
    }

    /// The same as words, which costs less.
    #[getter]
    fn directory(&self) -> std::ffi::OsString {
        self.opened.host.state_directory().as_os_str().to_owned()
    }

    /// What no other object has, of any host.
    #[getter]
    fn uuid(&self) -> u128 {
        self.opened.object.uuid()
    }

    /// The name that the object has now.
    fn object_name(&self, py: Python<'_>) -> PyResult<String> {
        self.opened.name(py)
    }

    /// The name that it has, or had a second ago.
    fn recent_name(&self, py: Python<'_>) -> PyResult<String> {
        let named = || self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((when, name)) = &*named()
            && when.elapsed() < RECENT
        {
            return Ok(name.clone());
        }
        let name = self.opened.name(py)?;
        *named() = Some((Instant::now(), name.clone()));
        Ok(name)
    }

    /// Drops what was not synced of the whole object, unless that was opened with mode "r".
    fn revert(&self, py: Python<'_>) -> PyResult<u64> {
        {
            let object = self.opened.object.clone();
            waiting(py, move || object.revert())
        }
    }

    /// Says what is in pages of the object, in words.
    fn tag(&self, py: Python<'_>, tag: String, offset: u64, length: u64) -> PyResult<()> {
        let object = self.opened.object.clone();
        waiting(py, move || object.tag(offset, length, &tag))
    }

    fn __len__(&self) -> usize {
        self.length
    }

    /// # Safety
    /// Only the interpreter calls it.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: the interpreter asks for it.
        unsafe { Pages::export(&slf, view, flags) }
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyRuntimeError::new_err(
            "pages cannot be pickled: pass the object or mapping, or commonhold.handle(array), to another process",
        ))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(mapping) = self.mapping.take() {
            drop_if(!self.opened.object.waits_for_nobody(), mapping);
        }
    }
}
