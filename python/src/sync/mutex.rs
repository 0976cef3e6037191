//! A mutex with a name.

use super::methods;
use super::named::{Create, Named, Opening, creating};
use crate::errors::OrRaise;
use crate::interrupts::SIGNAL_CHECK;
use crate::options::{name as object_name, natural};
use crate::patience::{deadline, in_time, until};
use commonhold::{ErrorKind, Wait};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A mutex with a name: one thread has it, of all processes that have it open.
#[pyclass(module = "commonhold", frozen)]
pub(crate) struct Mutex {
    pub(super) named: Named<commonhold::Mutex>,
}

impl Mutex {
    fn like(&self, _py: Python<'_>, named: Named<commonhold::Mutex>) -> Mutex {
        Mutex { named }
    }

    fn others<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        Ok(PyTuple::empty(py))
    }

    /// At once if it is free, without letting other Python threads run; else with patience.
    fn take<T: Send>(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        take: impl Fn(&commonhold::Mutex, Wait) -> commonhold::Result<T> + Sync,
    ) -> PyResult<commonhold::Result<T>> {
        let end = deadline(py, timeout)?;
        let mutex = self.named.get(py)?;
        match take(&mutex, Wait::No) {
            Err(error) if error.kind == ErrorKind::TimedOut => {}
            taken => return Ok(taken),
        }
        until(py, end, SIGNAL_CHECK, |deadline| take(&mutex, deadline.into()))
    }

    /// As `acquire`.
    pub(super) fn acquire_in_time(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let taken = self.take(py, timeout, |mutex, wait| mutex.acquire(wait))?;
        in_time(py, taken)
    }

    /// As `release`.
    pub(super) fn let_go(&self, py: Python<'_>) -> PyResult<()> {
        self.named.get(py)?.release().or_raise(py)
    }
}

/// Takes it also after its owner died; gives whether he had.
fn take_and_mend(mutex: &commonhold::Mutex, wait: Wait) -> commonhold::Result<bool> {
    let died = mutex.acquire_marked(wait)?;
    if died {
        mutex.consistent()?;
    }
    Ok(died)
}

methods! { plain Mutex,
    /// Takes it for this thread; gives whether it was free in time.
    #[pyo3(signature = (timeout = None))]
    fn acquire(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.acquire_in_time(py, timeout)
    }

    /// Takes it for this thread, also after its owner died; gives whether he did.
    #[pyo3(signature = (timeout = None))]
    fn acquire_and_mend(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.take(py, timeout, take_and_mend)?.or_raise(py)
    }

    /// Lets it go.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.let_go(py)
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().acquire_in_time(slf.py(), None)?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.let_go(py)
    }
}
