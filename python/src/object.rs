//! An open object.

use crate::errors::{OrRaise, drop_if, exception, waiting, waiting_if};
use crate::exports::View;
use crate::guard::Guard;
use crate::mapping::Mapping;
use crate::options::{self, Mode, flags, natural, natural_or_none};
use crate::pages::Pages;
use crate::ranges::page_states;
use crate::{interrupts, records, second_interrupt};
use commonhold::{Error, ErrorKind, MapOptions, PAGE_SIZE_BYTES, SnapshotOptions};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// An object and the host it was opened with.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) host: commonhold::Host,
    pub(crate) object: commonhold::Object,
}

impl Opened {
    /// The name it has now.
    pub(crate) fn name(&self, py: Python<'_>) -> PyResult<String> {
        let object = self.object.clone();
        let info = waiting(py, move || object.info())?;
        let removed = || Error::new(ErrorKind::NotFound, "the object was removed: it has no name any more");
        info.name.map(|name| name.as_str().to_owned()).ok_or_else(removed).or_raise(py)
    }
}

/// An open object. Its mappings and arrays outlive it.
#[pyclass(module = "commonhold", frozen, weakref)]
pub(crate) struct Object {
    /// None once it was closed. Only ever locked for an instant.
    opened: Mutex<Option<Opened>>,
    name: String,
    mode: Mode,
}

impl Object {
    pub(crate) fn new(opened: Opened, name: &str) -> Self {
        let mode = Mode::of(opened.object.access());
        Object { opened: Mutex::new(Some(opened)), name: name.to_owned(), mode }
    }

    /// What is open, unless it was closed.
    pub(crate) fn opened(&self, py: Python<'_>) -> PyResult<Opened> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        opened.ok_or_else(|| {
            let what = format!("object {} was closed by this program: open it again", self.name);
            exception(py, &Error::invalid(what))
        })
    }

    fn map_mode(&self, py: Python<'_>, mode: Option<&str>) -> PyResult<Mode> {
        mode.map_or(Ok(self.mode), |word| Mode::parse(word).or_raise(py))
    }
}

/// Maps a part. `shown` bytes of it are shown; all that the object has there, unless given.
fn map_part(
    py: Python<'_>,
    opened: Opened,
    options: MapOptions,
    mode: Mode,
    shown: Option<u64>,
) -> PyResult<Pages> {
    second_interrupt::watch();
    let object = opened.object.clone();
    let offset = options.offset;
    let waits = shown.is_none() || options.length.is_none() || !object.waits_for_nobody();
    let (mapping, size_bytes) = waiting_if(py, waits, move || {
        if shown.is_none() {
            object.info()?; // to the byte, as it is now
        }
        let mapping = object.map(&options)?;
        Ok((mapping, object.size_bytes()))
    })?;
    let all = size_bytes.saturating_sub(offset).min(mapping.len() as u64);
    let length = usize::try_from(shown.unwrap_or(all).min(mapping.len() as u64)).unwrap_or(mapping.len());
    Ok(Pages::new(mapping, opened, mode, offset, length))
}

#[pymethods]
impl Object {
    /// As it was opened: it may have another by now (see `stat`).
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// `r` or `r+`.
    #[getter]
    fn mode(&self) -> &'static str {
        self.mode.word()
    }

    /// Whether it was closed here.
    #[getter]
    fn closed(&self) -> bool {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Its number at this host.
    #[getter]
    fn id(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.opened(py)?.object.id().0)
    }

    /// What no other object has, of any host.
    #[getter]
    fn uuid(&self, py: Python<'_>) -> PyResult<u128> {
        Ok(self.opened(py)?.object.uuid())
    }

    /// Bytes, as known since it was opened, or asked for by `stat`.
    #[getter]
    fn size_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.opened(py)?.object.size_bytes())
    }

    /// By now, to the page; the host is asked only if that changed.
    fn size_by_now(&self, py: Python<'_>) -> PyResult<u64> {
        let object = self.opened(py)?.object;
        waiting_if(py, !object.waits_for_nobody(), move || object.size_by_now())
    }

    /// Whether the host serves its faults.
    #[getter]
    fn controlled(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.opened(py)?.object.is_controlled())
    }

    /// Data type of its elements; empty: bytes.
    #[getter]
    fn description(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.opened(py)?.object.options().description.clone())
    }

    /// Of its host.
    #[getter]
    fn state_directory(&self, py: Python<'_>) -> PyResult<PathBuf> {
        Ok(self.opened(py)?.host.state_directory().to_owned())
    }

    /// All there is to know of it now: an `ObjectStat`.
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let object = self.opened(py)?.object;
        let info = waiting(py, move || object.info())?;
        records::object(py, &info)
    }

    /// Maps `length` bytes from `offset` (page-aligned) on; all unless given.
    ///
    /// `mode` is that of the object unless given; `c` is copy-on-write. `address` is a hint, or with `fixed` the only
    /// place. `anywhere`: of an object with a fixed address not there. `lock`: hold each page as it comes in (it keeps nobody
    /// out). `prefetch`: begin to bring all in. `in_thread`: the faulting thread serves itself where it can. `inherit`: what a fork child has of it, `share`, `copy` or `none`. Raises `InvalidError` for a range that is misaligned or past the end, and
    /// `PermissionDeniedError` for writing to what was opened for reading.
    #[pyo3(signature = (offset = 0, length = None, mode = None, *, address = 0, fixed = false, lock = false,
        prefetch = false, in_thread = false, inherit = "share", anywhere = false))]
    #[allow(clippy::too_many_arguments)] // one for each thing that can be chosen, most named by the caller
    fn map(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] offset: u64,
        #[pyo3(from_py_with = natural_or_none)] length: Option<u64>,
        mode: Option<&str>,
        #[pyo3(from_py_with = natural)] address: usize,
        fixed: bool,
        lock: bool,
        prefetch: bool,
        in_thread: bool,
        inherit: &str,
        anywhere: bool,
    ) -> PyResult<Mapping> {
        let mode = self.map_mode(py, mode)?;
        let flags = commonhold::MapFlags { fixed, anywhere, ..flags(lock, prefetch, in_thread) };
        let options = MapOptions {
            hint: address,
            offset,
            length,
            protection: mode.protection(),
            sharing: mode.sharing(),
            flags,
            inherit: options::inherit(inherit).or_raise(py)?,
        };
        let pages = map_part(py, self.opened(py)?, options, mode, length)?;
        Mapping::new(py, pages)
    }

    /// A guard of an object that was opened movable.
    fn guard(&self, py: Python<'_>) -> PyResult<Guard> {
        Guard::take(py, self.opened(py)?.object)
    }

    /// Pages that hold `length` bytes from `offset` on; they begin with the page that holds the first.
    #[pyo3(signature = (offset, length, mode = None, *, lock = false, prefetch = false, in_thread = false,
        inherit = "share"))]
    #[allow(clippy::too_many_arguments)] // as above
    fn pages(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] offset: u64,
        #[pyo3(from_py_with = natural)] length: u64,
        mode: Option<&str>,
        lock: bool,
        prefetch: bool,
        in_thread: bool,
        inherit: &str,
    ) -> PyResult<Pages> {
        let mode = self.map_mode(py, mode)?;
        let first = offset / PAGE_SIZE_BYTES * PAGE_SIZE_BYTES;
        let length = length.checked_add(offset - first);
        let length = length.ok_or_else(|| Error::invalid("offset + length overflows")).or_raise(py)?;
        let options = MapOptions {
            hint: 0,
            offset: first,
            length: Some(length),
            protection: mode.protection(),
            sharing: mode.sharing(),
            flags: flags(lock, prefetch, in_thread),
            inherit: options::inherit(inherit).or_raise(py)?,
        };
        map_part(py, self.opened(py)?, options, mode, Some(length))
    }

    /// A NumPy array on the object: see `commonhold/_arrays.py`.
    #[pyo3(signature = (dtype = None, shape = None, **how))]
    fn array<'py>(
        slf: Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        shape: Option<Bound<'py, PyAny>>,
        how: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        static ON_OBJECT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = slf.py();
        ON_OBJECT.import(py, "commonhold._arrays", "on_object")?.call((slf, dtype, shape), how)
    }

    /// Makes the range (bytes; all unless given) what is stored, by the mode chosen at creation; gives the number of
    /// pages written. Raises `Error` with `kind` `no_space` if the disk is full: everything stays in memory, and it can
    /// be tried again.
    #[pyo3(signature = (offset = 0, length = None, *, freeze = false))]
    fn sync(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] offset: u64,
        #[pyo3(from_py_with = natural_or_none)] length: Option<u64>,
        freeze: bool,
    ) -> PyResult<u64> {
        self.on_range(py, offset, length, move |object, offset, length| {
            if freeze { object.sync_frozen(offset, length) } else { object.sync(offset, length) }
        })
    }

    /// Holds the pages in memory and away from the pager, and keeps nobody out (`Mutex` does); gives whether they are pinned against swap too. Raises
    /// `Error` with `kind` `unsupported` for a direct object.
    #[pyo3(signature = (offset = 0, length = None))]
    fn lock(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] offset: u64,
        #[pyo3(from_py_with = natural_or_none)] length: Option<u64>,
    ) -> PyResult<bool> {
        self.on_range(py, offset, length, commonhold::Object::lock)
    }

    /// Lets them go.
    #[pyo3(signature = (offset = 0, length = None))]
    fn unlock(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] offset: u64,
        #[pyo3(from_py_with = natural_or_none)] length: Option<u64>,
    ) -> PyResult<()> {
        self.on_range(py, offset, length, commonhold::Object::unlock)
    }

    /// Begins to bring the pages in, without waiting.
    #[pyo3(signature = (offset = 0, length = None))]
    fn prefetch(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] offset: u64,
        #[pyo3(from_py_with = natural_or_none)] length: Option<u64>,
    ) -> PyResult<()> {
        self.on_range(py, offset, length, commonhold::Object::prefetch)
    }

    /// State of each page of the range, as a NumPy array: a `PageState`, plus `LOCKED`.
    #[pyo3(signature = (offset = 0, length = None))]
    fn incore<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = natural)] offset: u64,
        #[pyo3(from_py_with = natural_or_none)] length: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let states = self.on_range(py, offset, length, commonhold::Object::incore)?;
        page_states(py, states)
    }

    /// Drops what was not synced, whoever wrote it; gives the number of pages dropped. One opened with mode "r" may not.
    fn revert(&self, py: Python<'_>) -> PyResult<u64> {
        let object = self.opened(py)?.object;
        waiting(py, move || object.revert())
    }

    /// Changes its size, in bytes. Touching a mapping past a smaller size raises SIGBUS.
    fn resize(&self, py: Python<'_>, #[pyo3(from_py_with = natural)] size_bytes: u64) -> PyResult<()> {
        let object = self.opened(py)?.object;
        waiting(py, move || object.resize(size_bytes))
    }

    /// Says what is in its pages, in words (`docs/TYPES.md`).
    #[pyo3(signature = (tag, offset = 0, length = None))]
    fn tag_pages(
        &self,
        py: Python<'_>,
        tag: String,
        #[pyo3(from_py_with = natural)] offset: u64,
        #[pyo3(from_py_with = natural_or_none)] length: Option<u64>,
    ) -> PyResult<()> {
        let object = self.opened(py)?.object;
        waiting(py, move || object.tag(offset, length.unwrap_or(0), &tag))
    }

    /// What is in its pages: first byte, bytes and tag of each run that has one.
    fn tags(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64, String)>> {
        let object = self.opened(py)?.object;
        waiting(py, move || object.tags()).map(|types| records::tagged(&types))
    }

    /// Creates an object that has this one's pages as they are at one instant, and opens it.
    #[allow(clippy::too_many_arguments)] // as above
    #[pyo3(signature = (name, offset = 0, length = None, *, writable = false, whole = false, permissions = 0o600,
        file = None))]
    fn snapshot(
        &self,
        py: Python<'_>,
        name: String,
        #[pyo3(from_py_with = natural)] offset: u64,
        #[pyo3(from_py_with = natural_or_none)] length: Option<u64>,
        writable: bool,
        whole: bool,
        #[pyo3(from_py_with = natural)] permissions: u32,
        file: Option<PathBuf>,
    ) -> PyResult<Object> {
        let Opened { host, object } = self.opened(py)?;
        let options = SnapshotOptions { offset, length, mode: permissions, writable, whole, file };
        let wanted = name.clone();
        let made = waiting(py, move || object.snapshot(&wanted, &options))?;
        Ok(Object::new(Opened { host, object: made }, &name))
    }

    /// Copies `length` bytes from `offset` on out, as `bytes`; all unless given.
    #[pyo3(signature = (offset = 0, length = None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = natural)] offset: u64,
        #[pyo3(from_py_with = natural_or_none)] length: Option<usize>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let object = self.opened(py)?.object;
        let length = match length {
            Some(length) => length,
            None => {
                // As it is now: another process may have changed it.
                let object = object.clone();
                let size_bytes = waiting(py, move || object.info())?.options.size_bytes;
                usize::try_from(size_bytes.saturating_sub(offset)).unwrap_or(usize::MAX)
            }
        };
        let bytes = PyBytes::new_with(py, length, |_| Ok(()))?;
        let kept = bytes.clone().unbind();
        let start = bytes.as_bytes().as_ptr() as usize;
        waiting(py, move || {
            // SAFETY: nobody else has these bytes until the call is over, and they stay as long as it goes on.
            let buffer = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, length) };
            let read = object.read_at(buffer, offset);
            drop(kept);
            read
        })?;
        Ok(bytes)
    }

    /// Copies the bytes of a buffer in, from `offset` on. Raises `InvalidError` past the end: nothing is written then.
    #[pyo3(signature = (data, offset = 0))]
    fn write(&self, data: &Bound<'_, PyAny>, #[pyo3(from_py_with = natural)] offset: u64) -> PyResult<()> {
        let py = data.py();
        let object = self.opened(py)?.object;
        if let Ok(bytes) = data.cast::<PyBytes>() {
            let (kept, bytes) = (bytes.clone().unbind(), bytes.as_bytes());
            let (start, length) = (bytes.as_ptr() as usize, bytes.len());
            return waiting(py, move || {
                // SAFETY: bytes never change, and they stay as long as the call goes on.
                let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, length) };
                let written = object.write_at(bytes, offset);
                drop(kept);
                written
            });
        }
        // Anything else may be written by other threads meanwhile: a copy of it is not.
        let view = View::contiguous(data)?;
        let mut copy = vec![0_u8; view.nbytes()];
        // SAFETY: the view shows that many readable bytes, and the copy has as many; they cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(view.start(), copy.as_mut_ptr(), copy.len()) };
        waiting(py, move || object.write_at(&copy, offset))
    }

    /// Reads part of a file into it: see `commonhold.read_into`.
    fn _read_into(
        &self,
        py: Python<'_>,
        fd: i32,
        #[pyo3(from_py_with = natural)] file_offset: u64,
        #[pyo3(from_py_with = natural)] offset: u64,
        #[pyo3(from_py_with = natural)] length: u64,
    ) -> PyResult<(u64, u64)> {
        let object = self.opened(py)?.object;
        if fd < 0 {
            return Err(Error::invalid(format!("{fd} is no open file descriptor"))).or_raise(py);
        }
        // SAFETY: the caller keeps the descriptor open until this call returns.
        let file = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?;
        let read = waiting(py, move || object.read_into(file, file_offset, offset, length))?;
        Ok((read.bytes, read.direct_bytes))
    }

    /// Gives it up. Its mappings and arrays go on.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        match opened {
            Some(opened) if opened.object.waits_for_nobody() => {
                py.detach(|| drop(opened));
                Ok(())
            }
            opened => interrupts::run(py, || drop(opened)),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    /// Pickled as its host, name and identity: another process opens it by name, and refuses another object.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let opened = self.opened(py)?;
        let uuid = opened.object.uuid();
        let how = (opened.host.state_directory().to_owned(), opened.name(py)?, uuid, self.mode.word());
        let open_same = py.import("commonhold._handles")?.getattr("open_same")?;
        (open_same, how).into_pyobject(py).map(Bound::into_any)
    }

    fn __repr__(&self) -> String {
        let closed = if self.closed() { ", closed" } else { "" };
        format!("<commonhold.Object {} mode={}{closed}>", self.name, self.mode.word())
    }
}

impl Object {
    /// Does something with a part of it; all from `offset` on, unless a length is given.
    fn on_range<T: Send + 'static>(
        &self,
        py: Python<'_>,
        offset: u64,
        length: Option<u64>,
        act: impl FnOnce(&commonhold::Object, u64, u64) -> commonhold::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let object = self.opened(py)?.object;
        waiting(py, move || {
            let length = match length {
                Some(length) => length,
                None => object.info()?.options.size_bytes.saturating_sub(offset),
            };
            act(&object, offset, length)
        })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let opened = self.opened.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(opened) = opened {
            drop_if(!opened.object.waits_for_nobody(), opened);
        }
    }
}
