//! A mapping that a program made by hand: the buffer protocol, a context manager, and a close that is safe.

use crate::errors::{OrRaise, exception, waiting};
use crate::exports;
use crate::options::{self, natural, natural_or_none};
use crate::pages::Pages;
use crate::ranges::page_states;
use crate::watch::Watch;
use commonhold::{Error, PAGE_SIZE_BYTES, classical};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyMemoryView, PySlice, PyTuple};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// A part of an object in this process's memory. Give it to `memoryview`, `numpy.frombuffer`, `numpy.ndarray` or
/// anything else that takes a buffer.
///
/// The pages are not this object's own: each buffer keeps them. `close` gives up this object's reference, and
/// they are unmapped when the last buffer is gone.
#[pyclass(module = "commonhold", frozen, weakref)]
pub(crate) struct Mapping {
    /// None once it was given up. Only ever locked for an instant.
    pages: Mutex<Option<Py<Pages>>>,
    closed: AtomicBool,
    /// Somebody may use the address without a buffer, as long as this object lives: see `exports::gives_back`.
    kept_by_address: AtomicBool,
    address: usize,
    length: usize,
    offset: u64,
    mode: &'static str,
}

impl Mapping {
    pub(crate) fn new(py: Python<'_>, pages: Pages) -> PyResult<Self> {
        let (length, offset, mode) = (pages.nbytes(), pages.offset(), pages.mode());
        let pages = Py::new(py, pages)?;
        Ok(Mapping {
            address: pages.get().get_address(),
            pages: Mutex::new(Some(pages)),
            closed: AtomicBool::new(false),
            kept_by_address: AtomicBool::new(false),
            length,
            offset,
            mode,
        })
    }

    /// Its pages, unless it was closed.
    fn pages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Pages>> {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        match &*pages {
            Some(pages) if !self.closed.load(Ordering::SeqCst) => Ok(pages.bind(py).clone()),
            _ => Err(exception(py, &Error::invalid("the mapping was closed: map the object again"))),
        }
    }

    /// The bytes of a part of it, and what keeps them mapped.
    fn bytes(
        &self,
        py: Python<'_>,
        offset: usize,
        length: Option<usize>,
    ) -> PyResult<(usize, usize, Py<Pages>)> {
        let pages = self.pages(py)?.unbind();
        let length = length.unwrap_or(self.length.saturating_sub(offset));
        if length == 0 || offset.checked_add(length).is_none_or(|end| end > self.length) {
            let what = format!("{length} bytes from {offset} on are no part of a mapping of {}", self.length);
            return Err(exception(py, &Error::invalid(what)));
        }
        Ok((self.address + offset, length, pages))
    }

    /// Does something with part of it (whole pages around it), while the pages cannot go.
    fn on_range<T: Send + 'static>(
        &self,
        py: Python<'_>,
        offset: usize,
        length: Option<usize>,
        act: impl FnOnce(*mut u8, usize) -> commonhold::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let (start, length, pages) = self.bytes(py, offset, length)?;
        let page = PAGE_SIZE_BYTES as usize;
        let first = start / page * page; // a mapping begins with a page
        let length = (start - first + length).next_multiple_of(page);
        waiting(py, move || {
            let outcome = act(first as *mut u8, length);
            drop(pages);
            outcome
        })
    }
}

#[pymethods]
impl Mapping {
    /// Address of the first byte in this process.
    #[getter]
    fn address(&self) -> usize {
        self.address
    }

    /// Bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.length
    }

    /// Offset of the first byte in the object.
    #[getter]
    fn offset(&self) -> u64 {
        self.offset
    }

    /// `r`, `r+` or `c` (copy-on-write).
    #[getter]
    fn mode(&self) -> &'static str {
        self.mode
    }

    /// What its buffers keep alive.
    #[getter(pages)]
    fn get_pages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Pages>> {
        // Whoever has the pages in hand keeps them mapped by that.
        self.pages(py)
    }

    /// Whether it was closed here.
    #[getter]
    fn closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// A byte, or the bytes of a slice: as of an `mmap`.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let found = PyMemoryView::from(slf.as_any())?.get_item(index)?;
        if index.is_instance_of::<PySlice>() { found.call_method0("tobytes") } else { Ok(found) }
    }

    /// Writes a byte, or as many bytes as a slice has.
    fn __setitem__(
        slf: &Bound<'_, Self>,
        index: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        PyMemoryView::from(slf.as_any())?.set_item(index, value)
    }

    /// Makes the pages that hold the range (bytes; all unless given) what is stored; gives the number of pages written.
    #[pyo3(signature = (offset = 0, length = None, *, freeze = false))]
    fn sync(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] offset: usize,
        #[pyo3(from_py_with = natural_or_none)] length: Option<usize>,
        freeze: bool,
    ) -> PyResult<u64> {
        self.on_range(py, offset, length, if freeze { classical::sync_frozen } else { classical::sync })
    }

    /// Holds the pages in memory and away from the pager, and keeps nobody out (`Mutex` does); gives whether they are pinned against swap too.
    #[pyo3(signature = (offset = 0, length = None))]
    fn lock(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] offset: usize,
        #[pyo3(from_py_with = natural_or_none)] length: Option<usize>,
    ) -> PyResult<bool> {
        self.on_range(py, offset, length, classical::lock)
    }

    /// Lets them go.
    #[pyo3(signature = (offset = 0, length = None))]
    fn unlock(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] offset: usize,
        #[pyo3(from_py_with = natural_or_none)] length: Option<usize>,
    ) -> PyResult<()> {
        self.on_range(py, offset, length, classical::unlock)
    }

    /// Begins to bring the pages in, without waiting.
    #[pyo3(signature = (offset = 0, length = None))]
    fn prefetch(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] offset: usize,
        #[pyo3(from_py_with = natural_or_none)] length: Option<usize>,
    ) -> PyResult<()> {
        self.on_range(py, offset, length, classical::prefetch)
    }

    /// Watches bytes of it (all unless given), not pages: see `Watch`.
    #[pyo3(signature = (offset = 0, length = None))]
    fn watch(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] offset: usize,
        #[pyo3(from_py_with = natural_or_none)] length: Option<usize>,
    ) -> PyResult<Watch> {
        let (start, length, pages) = self.bytes(py, offset, length)?;
        Watch::begin(py, move || {
            let made = classical::watch(start as *mut u8, length);
            drop(pages);
            made
        })
    }

    /// Waits until somebody notifies of these bytes, or another host's sync changes them; gives false if that does not happen in
    /// so many seconds. What came before the call it does not know: who looks at the data first makes a `watch` before that.
    #[pyo3(signature = (offset = 0, length = None, timeout = None))]
    fn wait(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] offset: usize,
        #[pyo3(from_py_with = natural_or_none)] length: Option<usize>,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        crate::patience::deadline(py, timeout)?;
        self.watch(py, offset, length)?.wait_in_time(py, timeout)
    }

    /// Wakes all who watch any of these bytes (all unless given), in whatever process on whatever host.
    #[pyo3(signature = (offset = 0, length = None))]
    fn notify(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] offset: usize,
        #[pyo3(from_py_with = natural_or_none)] length: Option<usize>,
    ) -> PyResult<()> {
        let (start, length, pages) = self.bytes(py, offset, length)?;
        waiting(py, move || {
            let done = classical::notify(start as *mut u8, length);
            drop(pages);
            done
        })
    }

    /// From now on a fork child has that of it: `share`, `copy` or `none`.
    #[pyo3(signature = (how, offset = 0, length = None))]
    fn inherit(
        &self,
        py: Python<'_>,
        how: &str,
        #[pyo3(from_py_with = natural)] offset: usize,
        #[pyo3(from_py_with = natural_or_none)] length: Option<usize>,
    ) -> PyResult<()> {
        let how = options::inherit(how).or_raise(py)?;
        self.on_range(py, offset, length, move |start, length| classical::inherit(start, length, how))
    }

    /// State of each page of the range, as a NumPy array: a `PageState`, plus `LOCKED`.
    #[pyo3(signature = (offset = 0, length = None))]
    fn incore<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = natural)] offset: usize,
        #[pyo3(from_py_with = natural_or_none)] length: Option<usize>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let states = self.on_range(py, offset, length, classical::incore)?;
        page_states(py, states)
    }

    /// Gives it up; the pages are unmapped now, or when the last buffer of them is gone.
    fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        if self.kept_by_address.load(Ordering::SeqCst) {
            return;
        }
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(pages);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) {
        self.close();
    }

    fn __len__(&self) -> usize {
        self.length
    }

    /// # Safety
    /// Only the interpreter calls it.
    unsafe fn __getbuffer__(&self, py: Python<'_>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let pages = self.pages(py)?;
        if !exports::gives_back(flags) {
            self.kept_by_address.store(true, Ordering::SeqCst);
        }
        // SAFETY: the interpreter asks for it.
        unsafe { Pages::export(&pages, view, flags) }
    }

    /// Nothing to do: the buffer belongs to the pages. That it is here tells NumPy that buffers of this class are
    /// to be held (through a `memoryview`), and not only the object that gave them.
    ///
    /// # Safety
    /// Only the interpreter calls it.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {}

    /// Pickled as the object's host, name and identity, and the range: another process maps it anew.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let pages = self.pages(py)?;
        let opened = pages.get().opened();
        let (directory, uuid) = (opened.host.state_directory().to_owned(), opened.object.uuid());
        let how = (directory, opened.name(py)?, uuid, self.mode, self.offset, self.length);
        let map_same = py.import("commonhold._handles")?.getattr("map_same")?;
        (map_same, how).into_pyobject(py).map(Bound::into_any)
    }

    fn __repr__(&self) -> String {
        let closed = if self.closed() { ", closed" } else { "" };
        let (length, offset, address) = (self.length, self.offset, self.address);
        format!(
            "<commonhold.Mapping of {length} bytes from {offset} at {address:#x} mode={}{closed}>",
            self.mode
        )
    }
}
