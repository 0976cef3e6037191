//! The classical calls on what Python has in its hands: arrays, slices of arrays, mappings, whole objects.

use crate::errors::{OrRaise, exception, waiting};
use crate::exports::View;
use crate::object::Object;
use crate::options;
use commonhold::{Error, PAGE_SIZE_BYTES, PageState, classical};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyTuple};

/// What a call is for.
enum Target {
    /// All of an object.
    Whole(commonhold::Object),
    /// The pages that hold these addresses, and what keeps them.
    Addresses { start: usize, length: usize, kept: Py<PyAny> },
}

impl Target {
    fn of(thing: &Bound<'_, PyAny>) -> PyResult<Target> {
        let py = thing.py();
        if let Ok(object) = thing.cast::<Object>() {
            return Ok(Target::Whole(object.get().opened(py)?.object));
        }
        let (start, nbytes) = View::strided(thing)?
            .covering_range()
            .ok_or_else(|| exception(py, &Error::invalid("the range is empty: nothing lies in it")))?;
        let first = start / PAGE_SIZE_BYTES as usize * PAGE_SIZE_BYTES as usize;
        let length = (start - first + nbytes).next_multiple_of(PAGE_SIZE_BYTES as usize);
        Ok(Target::Addresses { start: first, length, kept: thing.clone().unbind() })
    }

    /// Does it, while other Python threads run.
    fn act<T: Send + 'static>(
        self,
        py: Python<'_>,
        by_object: impl FnOnce(&commonhold::Object, u64) -> commonhold::Result<T> + Send + 'static,
        by_address: impl FnOnce(*mut u8, usize) -> commonhold::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        waiting(py, move || match self {
            Target::Whole(object) => by_object(&object, object.info()?.options.size_bytes),
            Target::Addresses { start, length, kept } => {
                let outcome = by_address(start as *mut u8, length);
                drop(kept);
                outcome
            }
        })
    }
}

/// The very bytes of a target, and not the pages that hold them.
pub(crate) enum Bytes {
    Of(commonhold::Object),
    At { start: usize, length: usize, _kept: Py<PyAny> },
}

impl Bytes {
    pub(crate) fn of(thing: &Bound<'_, PyAny>) -> PyResult<Bytes> {
        let py = thing.py();
        if let Ok(object) = thing.cast::<Object>() {
            return Ok(Bytes::Of(object.get().opened(py)?.object));
        }
        let (start, length) = View::strided(thing)?
            .covering_range()
            .ok_or_else(|| exception(py, &Error::invalid("the range is empty: nothing lies in it")))?;
        Ok(Bytes::At { start, length, _kept: thing.clone().unbind() })
    }

    pub(crate) fn watch(&self) -> commonhold::Result<commonhold::Watch> {
        match self {
            Bytes::Of(object) => object.watch(0, object.info()?.options.size_bytes),
            Bytes::At { start, length, .. } => classical::watch(*start as *mut u8, *length),
        }
    }

    pub(crate) fn notify(&self) -> commonhold::Result<()> {
        match self {
            Bytes::Of(object) => object.notify(0, object.info()?.options.size_bytes),
            Bytes::At { start, length, .. } => classical::notify(*start as *mut u8, *length),
        }
    }
}

/// Makes the pages of an array, mapping or object what is stored; gives the number of pages written.
///
/// What is stored then is by the object's sync mode: of `atomic`, all of it or none of it. `freeze`: at a true
/// instant (objects created `freezable`). Raises `Error` with `kind` `no_space` if the disk is full: everything stays
/// in memory, and it can be tried again; `NotFoundError` if the memory is no object's.
#[pyfunction]
#[pyo3(signature = (target, *, freeze = false))]
pub(crate) fn sync(target: &Bound<'_, PyAny>, freeze: bool) -> PyResult<u64> {
    let py = target.py();
    if freeze {
        return Target::of(target)?.act(py, |o, n| o.sync_frozen(0, n), classical::sync_frozen);
    }
    Target::of(target)?.act(py, |o, n| o.sync(0, n), classical::sync)
}

/// Holds the pages in memory and away from the pager, and keeps nobody out (`Mutex` does), until a sync of them or `unlock`; gives whether they are pinned
/// against swap too. Raises `Error` with `kind` `unsupported` for a direct object.
#[pyfunction]
pub(crate) fn lock(target: &Bound<'_, PyAny>) -> PyResult<bool> {
    Target::of(target)?.act(target.py(), |o, n| o.lock(0, n), classical::lock)
}

/// Lets them go.
#[pyfunction]
pub(crate) fn unlock(target: &Bound<'_, PyAny>) -> PyResult<()> {
    Target::of(target)?.act(target.py(), |o, n| o.unlock(0, n), classical::unlock)
}

/// Begins to bring the pages in, without waiting.
#[pyfunction]
pub(crate) fn prefetch(target: &Bound<'_, PyAny>) -> PyResult<()> {
    Target::of(target)?.act(target.py(), |o, n| o.prefetch(0, n), classical::prefetch)
}

/// From now on a fork child has that of the pages of an array or mapping: `share`, `copy` or `none`.
#[pyfunction]
pub(crate) fn inherit(target: &Bound<'_, PyAny>, how: &str) -> PyResult<()> {
    let how = options::inherit(how).or_raise(target.py())?;
    let of_mappings =
        || Error::invalid("what a child has is said of arrays and mappings, and not of an object");
    Target::of(target)?.act(
        target.py(),
        move |_, _| Err(of_mappings()),
        move |start, length| classical::inherit(start, length, how),
    )
}

/// State of each page, as a NumPy array: `PageState` in the low bits, `LOCKED` where it is locked.
#[pyfunction]
pub(crate) fn incore<'py>(target: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let states = Target::of(target)?.act(target.py(), |o, n| o.incore(0, n), classical::incore)?;
    page_states(target.py(), states)
}

/// Page states as a NumPy array of bytes.
pub(crate) fn page_states(py: Python<'_>, states: Vec<(PageState, bool)>) -> PyResult<Bound<'_, PyAny>> {
    let bytes: Vec<u8> = states.into_iter().map(|(state, locked)| state.encode(locked)).collect();
    py.import("commonhold._arrays")?.call_method1("page_states", (PyByteArray::new(py, &bytes),))
}

/// First address and number of bytes of the smallest range that covers a buffer.
#[pyfunction]
pub(crate) fn address_range<'py>(buffer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
    let (start, nbytes) = View::strided(buffer)?.covering_range().unwrap_or((0, 0));
    (start, nbytes).into_pyobject(buffer.py())
}
