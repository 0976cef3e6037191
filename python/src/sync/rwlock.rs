//! A lock to read or to write, with a name.

use super::methods;
use super::named::{Create, Named, Opening, creating};
use crate::errors::OrRaise;
use crate::interrupts::SIGNAL_CHECK;
use crate::options::{name as object_name, natural};
use crate::patience::{deadline, until};
use commonhold::{ErrorKind, Result, Wait};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::time::Duration;

/// The longest of the short waits of who wants to write. Between two of them readers that came later
/// go first, so who reads for longer than one, and then another, keeps it out.
const LONGEST_WRITE: Duration = Duration::from_secs(1);

/// A lock with a name that one thread has to write, or several have to read.
#[pyclass(module = "commonhold", frozen)]
pub(crate) struct RwLock {
    named: Named<commonhold::RwLock>,
}

impl RwLock {
    fn like(&self, _py: Python<'_>, named: Named<commonhold::RwLock>) -> RwLock {
        RwLock { named }
    }

    fn others<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        Ok(PyTuple::empty(py))
    }
}

/// How a lock is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Read,
    Write,
    Mend,
}

impl How {
    /// Takes it; gives whether its writer had died.
    fn take(self, lock: &commonhold::RwLock, wait: Wait) -> Result<bool> {
        match self {
            How::Read => lock.acquire_read(wait).map(|()| false),
            How::Write => lock.acquire_write(wait).map(|()| false),
            How::Mend => {
                let died = lock.acquire_write_marked(wait)?;
                if died {
                    lock.consistent()?;
                }
                Ok(died)
            }
        }
    }
}

/// What `RwLock.read` and its like give: a `with` block takes the lock and lets it go.
#[pyclass(module = "commonhold._native", frozen)]
pub(crate) struct Holding {
    lock: Py<RwLock>,
    how: How,
    timeout: Option<f64>,
}

#[pymethods]
impl Holding {
    /// None; of `write_and_mend`, whether the lock's writer had died.
    fn __enter__(&self, py: Python<'_>) -> PyResult<Option<bool>> {
        let end = deadline(py, self.timeout)?;
        let (how, lock) = (self.how, self.lock.get().named.get(py)?);
        let longest = if how == How::Read { SIGNAL_CHECK } else { LONGEST_WRITE };
        let taken = match how.take(&lock, Wait::No) {
            Err(error) if error.kind == ErrorKind::TimedOut => {
                until(py, end, longest, |deadline| how.take(&lock, deadline.into()))?
            }
            taken => taken,
        };
        let died = taken.or_raise(py)?;
        Ok((how == How::Mend).then_some(died))
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let how = self.how;
        self.lock.get().named.call(py, |lock| match how {
            How::Read => lock.release_read(),
            How::Write | How::Mend => lock.release_write(),
        })
    }
}

methods! { plain RwLock,
    /// Holds it to read within a `with` block.
    #[pyo3(signature = (timeout = None))]
    fn read(slf: Bound<'_, Self>, timeout: Option<f64>) -> Holding {
        Holding { lock: slf.unbind(), how: How::Read, timeout }
    }

    /// Holds it to write within a `with` block.
    #[pyo3(signature = (timeout = None))]
    fn write(slf: Bound<'_, Self>, timeout: Option<f64>) -> Holding {
        Holding { lock: slf.unbind(), how: How::Write, timeout }
    }

    /// Holds it to write within a `with` block, also after its writer died; gives whether he did.
    #[pyo3(signature = (timeout = None))]
    fn write_and_mend(slf: Bound<'_, Self>, timeout: Option<f64>) -> Holding {
        Holding { lock: slf.unbind(), how: How::Mend, timeout }
    }
}
