//! Guards of objects that were opened movable.

use crate::errors::{OrRaise, exception, waiting};
use crate::exports;
use commonhold::{Error, Object};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Until it is released the object lies where it does. A buffer: give it to `memoryview` or `numpy.frombuffer`; it cannot be
/// released while somebody has one of it.
#[pyclass(module = "commonhold", frozen)]
pub(crate) struct Guard {
    object: Object,
    address: usize,
    length: usize,
    generation: u64,
    state: Mutex<State>,
}

struct State {
    held: bool,
    buffers: usize,
}

impl Guard {
    /// Takes one.
    pub(crate) fn take(py: Python<'_>, object: Object) -> PyResult<Guard> {
        waiting(py, move || {
            let guard = object.guard()?;
            let (address, length, generation) = (guard.as_ptr() as usize, guard.len(), guard.generation());
            guard.keep();
            let state = Mutex::new(State { held: true, buffers: 0 });
            Ok(Guard { object, address, length, generation, state })
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.state().held {
            let _ = self.object.leave(); // it was kept in `take`, and is left once
        }
    }
}

#[pymethods]
impl Guard {
    /// Address of the first byte in this process.
    #[getter]
    fn address(&self) -> usize {
        self.address
    }

    /// Bytes, whole pages.
    #[getter]
    fn nbytes(&self) -> usize {
        self.length
    }

    /// Another number than that of the guard before: the object may lie elsewhere, or have another size.
    #[getter]
    fn generation(&self) -> u64 {
        self.generation
    }

    /// Gives it up. `BufferError` while somebody has a buffer of it.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let mut state = self.state();
        if state.buffers > 0 {
            return Err(PyBufferError::new_err("a buffer of the guard is in use: release it first"));
        }
        match std::mem::take(&mut state.held) {
            true => self.object.leave().or_raise(py),
            false => Ok(()),
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.release(py)
    }

    fn __len__(&self) -> usize {
        self.length
    }

    /// # Safety
    /// Only the interpreter calls it.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        let mut state = this.state();
        if !state.held {
            return Err(exception(slf.py(), &Error::invalid("the guard was released: take another one")));
        }
        let read_only = !this.object.access().writes();
        // SAFETY: the object lies there until the guard is released, which it is not while there is a buffer.
        unsafe { exports::fill(slf.as_any(), view, flags, this.address as *mut u8, this.length, read_only) }?;
        state.buffers += 1;
        Ok(())
    }

    /// One buffer less.
    ///
    /// # Safety
    /// Only the interpreter calls it.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.state().buffers -= 1;
    }
}
