//! Watches: waiting until somebody says that bytes have changed.

use crate::errors::{OrRaise, exception, waiting};
use crate::interrupts::SIGNAL_CHECK;
use crate::patience::{deadline, in_time, until};
use crate::ranges::Bytes;
use commonhold::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex, PoisonError};

/// What waits for a change of bytes of an object: of one that came since it was made, or since its last wait returned. Make it,
/// look at the data, and wait only if that is not yet as it should be.
#[pyclass(module = "commonhold", frozen, weakref)]
pub(crate) struct Watch {
    /// None once it was closed. Only ever locked for an instant.
    watch: Mutex<Option<Arc<commonhold::Watch>>>,
}

impl Watch {
    pub(crate) fn begin(
        py: Python<'_>,
        make: impl FnOnce() -> commonhold::Result<commonhold::Watch> + Send + 'static,
    ) -> PyResult<Watch> {
        Ok(Watch { watch: Mutex::new(Some(Arc::new(waiting(py, make)?))) })
    }

    fn get(&self, py: Python<'_>) -> PyResult<Arc<commonhold::Watch>> {
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).clone();
        watch.ok_or_else(|| exception(py, &Error::invalid("the watch was closed: make another")))
    }

    /// Waits; false if the time is over.
    pub(crate) fn wait_in_time(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let end = deadline(py, timeout)?;
        let watch = self.get(py)?;
        let wait = |deadline| match watch.wait(deadline) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::new(ErrorKind::TimedOut, "nobody has notified in time")),
            Err(error) => Err(error),
        };
        in_time(py, until(py, end, SIGNAL_CHECK, wait)?)
    }
}

#[pymethods]
impl Watch {
    /// Waits until it is woken; gives false if that does not happen in so many seconds.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.wait_in_time(py, timeout)
    }

    /// A descriptor for `select`, `selectors` and `asyncio`, readable when `wait` would return at once. It is the watch's: do not
    /// read or close it.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(self.get(py)?.as_fd().as_raw_fd())
    }

    /// Whether it was closed here.
    #[getter]
    fn closed(&self) -> bool {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Ends it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        crate::interrupts::run(py, || drop(watch))
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            crate::errors::drop_waiting(watch);
        }
    }
}

/// Watches the bytes of an array, mapping or object.
#[pyfunction]
pub(crate) fn watch(target: &Bound<'_, PyAny>) -> PyResult<Watch> {
    let bytes = Bytes::of(target)?;
    Watch::begin(target.py(), move || bytes.watch())
}

/// Waits until somebody notifies of bytes of an array, mapping or object, or another host's sync changes them; gives false if
/// that does not happen in so many seconds. What came before the call it does not know: who looks at the data first makes a
/// `watch` before that.
#[pyfunction]
#[pyo3(signature = (target, timeout = None))]
pub(crate) fn wait(target: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<bool> {
    deadline(target.py(), timeout)?;
    watch(target)?.wait_in_time(target.py(), timeout)
}

/// Wakes all who watch any of the bytes of an array, mapping or object, in whatever process on whatever host.
#[pyfunction]
pub(crate) fn notify(target: &Bound<'_, PyAny>) -> PyResult<()> {
    let bytes = Bytes::of(target)?;
    crate::interrupts::run(target.py(), move || bytes.notify())?.or_raise(target.py())
}
