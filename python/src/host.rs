//! A host, and the one that the package uses unless told otherwise.

use crate::errors::{OrRaise, waiting};
use crate::object::{Object, Opened};
use crate::options::{Mode, natural, natural_or_none, on_last_death, shared, sync_mode};
use crate::records;
use commonhold::{Coherence, CreateOptions, Error, PageSize, PagerKind};
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A connection to a host; all of this process to the same host share one.
#[pyclass(module = "commonhold._native", frozen)]
pub(crate) struct Host {
    pub(crate) host: commonhold::Host,
}

/// The host of that state directory; never starts one.
#[pyfunction]
pub(crate) fn connect(py: Python<'_>, state_directory: PathBuf) -> PyResult<Host> {
    let host = waiting(py, move || commonhold::Host::connect_to(&state_directory))?;
    Ok(Host { host })
}

/// The host that `COMMONHOLD_HOST` names, else the system's, else the user's own, started if need be. The
/// connection is kept until the process ends.
#[pyfunction]
pub(crate) fn default_host(py: Python<'_>) -> PyResult<Host> {
    /// Which host, by `COMMONHOLD_HOST` as it was, is connected. Only ever locked for an instant, by a thread
    /// that holds the interpreter.
    static CONNECTED: Mutex<Option<(Option<OsString>, commonhold::Host)>> = Mutex::new(None);
    let named = std::env::var_os("COMMONHOLD_HOST");
    if let Some((by, host)) = &*CONNECTED.lock().unwrap_or_else(PoisonError::into_inner)
        && *by == named
    {
        return Ok(Host { host: host.clone() });
    }
    py.import("commonhold._program")?.call_method0("name_program")?;
    let host = waiting(py, commonhold::Host::connect)?;
    let kept = Some((named, host.clone()));
    let before = std::mem::replace(&mut *CONNECTED.lock().unwrap_or_else(PoisonError::into_inner), kept);
    py.detach(|| drop(before));
    Ok(Host { host })
}

impl Host {
    /// Asks the host something about a name.
    fn asks<T: Send + 'static>(
        &self,
        py: Python<'_>,
        name: &str,
        ask: impl FnOnce(&commonhold::Host, &str) -> commonhold::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let (host, name) = (self.host.clone(), name.to_owned());
        waiting(py, move || ask(&host, &name))
    }
}

#[pymethods]
impl Host {
    #[getter]
    fn state_directory(&self) -> PathBuf {
        self.host.state_directory().to_owned()
    }

    /// Opens an object: `r`, or `r+`.
    #[pyo3(signature = (name, mode, *, movable = false))]
    fn open(&self, py: Python<'_>, name: &str, mode: &str, movable: bool) -> PyResult<Object> {
        let mode = Mode::parse(mode).or_raise(py)?;
        let (host, owned) = (self.host.clone(), name.to_owned());
        let object = waiting(py, move || match movable {
            true => host.open_movable(&owned, mode.access()),
            false => host.open(&owned, mode.access()),
        })?;
        Ok(Object::new(Opened { host: self.host.clone(), object }, name))
    }

    fn create_nameless(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] size_bytes: u64,
        description: String,
        controlled: bool,
        freezable: bool,
    ) -> PyResult<Object> {
        let options =
            CreateOptions { size_bytes, description, controlled, freezable, ..CreateOptions::default() };
        let host = self.host.clone();
        let object = waiting(py, move || host.create_nameless(&options))?;
        Ok(Object::new(Opened { host: self.host.clone(), object }, ""))
    }

    /// Creates an object and opens it for reading and writing.
    #[pyo3(signature = (name, *, size_bytes, fd, pager, sync, permissions, description, controlled, freezable, reserve,
        on_last_death, budget_bytes, fault_deadline_ms, pager_deadline_ms, coherence, on_loss,
        scheduler, page_size_bytes, replicas, home_moves, translation, fixed, room_bytes, ephemeral_ms))]
    #[allow(clippy::too_many_arguments)] // one for each thing that can be chosen, each named by the caller
    fn create(
        &self,
        py: Python<'_>,
        name: &str,
        #[pyo3(from_py_with = natural)] size_bytes: u64,
        fd: Option<i32>,
        pager: Option<String>,
        sync: &str,
        #[pyo3(from_py_with = natural)] permissions: u32,
        description: String,
        controlled: bool,
        freezable: bool,
        reserve: Option<bool>,
        on_last_death: &str,
        #[pyo3(from_py_with = natural_or_none)] budget_bytes: Option<u64>,
        #[pyo3(from_py_with = natural_or_none)] fault_deadline_ms: Option<u32>,
        #[pyo3(from_py_with = natural_or_none)] pager_deadline_ms: Option<u32>,
        coherence: &str,
        on_loss: &str,
        scheduler: Option<&str>,
        #[pyo3(from_py_with = natural_or_none)] page_size_bytes: Option<u64>,
        #[pyo3(from_py_with = natural)] replicas: u32,
        home_moves: bool,
        translation: &str,
        fixed: bool,
        #[pyo3(from_py_with = natural_or_none)] room_bytes: Option<u64>,
        #[pyo3(from_py_with = natural_or_none)] ephemeral_ms: Option<u32>,
    ) -> PyResult<Object> {
        if room_bytes.is_some() && !fixed {
            let what = "room is for objects with a fixed address: give fixed=True, or leave it out";
            return Err(Error::invalid(what)).or_raise(py);
        }
        let options = CreateOptions {
            size_bytes,
            pager: match (fd, pager) {
                (_, Some(pager)) => PagerKind::External { pager },
                (Some(_), None) => PagerKind::File,
                (None, None) => PagerKind::Anonymous,
            },
            sync: sync_mode(sync).or_raise(py)?,
            controlled,
            freezable,
            reserve,
            on_last_death: self::on_last_death(on_last_death).or_raise(py)?,
            budget_bytes,
            fault_deadline_ms,
            pager_deadline_ms,
            mode: permissions,
            description,
            page_size: page_size_bytes.map_or(Ok(PageSize::SMALLEST), PageSize::new).or_raise(py)?,
            replicas,
            home_moves,
            translation: crate::options::translation(translation).or_raise(py)?,
            coherence: Coherence::Local,
            read_only: false,
            fixed: fixed.then(|| commonhold::Fixed::asked(room_bytes.unwrap_or(0))),
            types: commonhold::tags::Types::default(),
            ephemeral_ms,
        };
        let options = shared(options, coherence, on_loss, scheduler).or_raise(py)?;
        // SAFETY: the caller keeps the descriptor open until this call returns.
        let file = fd.filter(|fd| *fd >= 0).map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
        let file = file.map(|file| file.try_clone_to_owned()).transpose()?;
        let (host, owned) = (self.host.clone(), name.to_owned());
        let object = waiting(py, move || host.create(&owned, &options, file.as_ref().map(AsFd::as_fd)))?;
        Ok(Object::new(Opened { host: self.host.clone(), object }, name))
    }

    fn stat<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let entry = self.asks(py, name, commonhold::Host::stat)?;
        records::entry(py, &entry)
    }

    fn ls<'py>(&self, py: Python<'py>, directory: &str) -> PyResult<Bound<'py, PyList>> {
        let entries = self.asks(py, directory, commonhold::Host::list)?;
        let entries = entries.iter().map(|entry| records::entry(py, entry)).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, entries)
    }

    fn resize(
        &self,
        py: Python<'_>,
        name: &str,
        #[pyo3(from_py_with = natural)] size_bytes: u64,
    ) -> PyResult<()> {
        self.asks(py, name, move |host, name| host.resize(name, size_bytes))
    }

    fn tag(
        &self,
        py: Python<'_>,
        name: &str,
        #[pyo3(from_py_with = natural)] offset: u64,
        #[pyo3(from_py_with = natural_or_none)] length: Option<u64>,
        tag: String,
    ) -> PyResult<()> {
        self.asks(py, name, move |host, name| host.tag(name, offset, length.unwrap_or(0), &tag))
    }

    fn remove(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.asks(py, name, commonhold::Host::remove)
    }

    fn rename(&self, py: Python<'_>, old: &str, new: &str, replace: bool) -> PyResult<()> {
        let new = new.to_owned();
        let rename = if replace { commonhold::Host::rename_over } else { commonhold::Host::rename };
        self.asks(py, old, move |host, old| rename(host, old, &new))
    }

    fn chmod(&self, py: Python<'_>, name: &str, #[pyo3(from_py_with = natural)] mode: u32) -> PyResult<()> {
        self.asks(py, name, move |host, name| host.set_mode(name, mode))
    }

    fn chown(
        &self,
        py: Python<'_>,
        name: &str,
        #[pyo3(from_py_with = natural_or_none)] uid: Option<u32>,
        #[pyo3(from_py_with = natural_or_none)] gid: Option<u32>,
    ) -> PyResult<()> {
        self.asks(py, name, move |host, name| host.set_owner(name, uid, gid))
    }

    fn revert(&self, py: Python<'_>, name: &str) -> PyResult<u64> {
        self.asks(py, name, commonhold::Host::revert)
    }

    fn map_info<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let mappings = self.asks(py, name, commonhold::Host::map_info)?;
        let mappings = mappings.iter().map(|one| records::mapping(py, one)).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, mappings)
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let status = self.asks(py, "", |host, _| host.status())?;
        records::status(py, &status)
    }

    fn kernel_faults(&self, py: Python<'_>) -> PyResult<bool> {
        self.asks(py, "", |host, _| host.kernel_faults())
    }
}
