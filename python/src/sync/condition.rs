//! A condition with a name.

use super::methods;
use super::mutex::Mutex;
use super::named::{Create, Named, Opening, creating};
use crate::interrupts::{SIGNAL_CHECK, is_main_thread};
use crate::options::{name as object_name, natural};
use crate::patience::{deadline, in_time, until};
use commonhold::{ErrorKind, Wait};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::time::Instant;

/// More than wait at once, in all likelihood: then all are woken.
const MANY: u32 = 1000;

/// A condition with a name: threads wait until another signals.
#[pyclass(module = "commonhold", frozen)]
pub(crate) struct Condition {
    named: Named<commonhold::Condition>,
    mutex: Py<Mutex>,
}

impl Condition {
    fn like(&self, py: Python<'_>, named: Named<commonhold::Condition>) -> Condition {
        Condition { named, mutex: self.mutex.clone_ref(py) }
    }

    fn others<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, [self.mutex.bind(py)])
    }

    /// Lets the mutex go, waits, and takes it again; gives whether somebody signalled in time.
    ///
    /// In the main thread this is a chain of short waits, so that Python hears of signals. Who
    /// signals between two of them changes the number: then the wait is over with the one that goes
    /// on, and nothing is lost.
    fn wait_until(&self, py: Python<'_>, end: Option<Instant>) -> PyResult<bool> {
        let condition = self.named.get(py)?;
        let mutex = self.mutex.get().named.get(py)?;
        let wait = |deadline| condition.wait_with(&mutex, Wait::from(deadline));
        if !is_main_thread() {
            return in_time(py, py.detach(|| wait(end)));
        }
        let first = condition.number();
        let wait = |deadline| match wait(deadline) {
            Err(error) if error.kind == ErrorKind::TimedOut && condition.number() != first => Ok(()),
            outcome => outcome,
        };
        in_time(py, until(py, end, SIGNAL_CHECK, wait)?)
    }
}

methods! { Condition,
    /// Opens it; creates it if there is none, unless told otherwise.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "they are Python's keywords")]
    #[pyo3(signature = (name, mutex, create = Create::IfMissing, *, mode = 0o600, count = 1, hosts = false, host = None))]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = object_name)] name: String,
        mutex: Py<Mutex>,
        #[pyo3(from_py_with = creating)] create: Create,
        #[pyo3(from_py_with = natural)] mode: u32,
        #[pyo3(from_py_with = natural)] count: u32,
        hosts: bool,
        host: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Condition> {
        let how = Opening { host, name, create, mode, count, hosts };
        let named = Named::open(py, how, |host, name, create, options| match create {
            Create::No => commonhold::Condition::open(host, name),
            Create::IfMissing => commonhold::Condition::open_or_create(host, name, options),
            Create::New => commonhold::Condition::create(host, name, options),
        })?;
        Ok(Condition { named, mutex })
    }

    /// What guards that which is waited for.
    #[getter]
    fn mutex(&self, py: Python<'_>) -> Py<Mutex> {
        self.mutex.clone_ref(py)
    }

    /// Takes its mutex.
    #[pyo3(signature = (timeout = None))]
    fn acquire(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.mutex.get().acquire_in_time(py, timeout)
    }

    /// Lets its mutex go.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.mutex.get().let_go(py)
    }

    /// Lets the mutex go, waits for a signal, and takes the mutex again; False: the time is over.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let end = deadline(py, timeout)?;
        self.wait_until(py, end)
    }

    /// Waits until a function gives something true, or the time is over; gives what it gave last.
    #[pyo3(signature = (predicate, timeout = None))]
    fn wait_for<'py>(
        &self,
        py: Python<'py>,
        predicate: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let end = deadline(py, timeout)?;
        loop {
            let value = predicate.call0()?;
            if value.is_truthy()? || end.is_some_and(|end| end <= Instant::now()) {
                return Ok(value);
            }
            // Whether it came in time or not, the predicate says what is so.
            self.wait_until(py, end)?;
        }
    }

    /// Wakes so many of those who wait.
    #[pyo3(signature = (n = 1))]
    fn notify(&self, py: Python<'_>, #[pyo3(from_py_with = natural)] n: u32) -> PyResult<()> {
        self.named.call(py, |condition| match n {
            0..MANY => (0..n).try_for_each(|_| condition.signal()),
            MANY.. => condition.broadcast(),
        })
    }

    /// Wakes all who wait.
    fn notify_all(&self, py: Python<'_>) -> PyResult<()> {
        self.named.call(py, |condition| condition.broadcast())
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().mutex.get().acquire_in_time(slf.py(), None)?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.mutex.get().let_go(py)
    }
}
