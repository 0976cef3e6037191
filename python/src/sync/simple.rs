//! A semaphore, a barrier and a counter, each with a name.

use super::methods;
use super::named::{Create, Named, Opening, creating};
use crate::errors::OrRaise;
use crate::interrupts::{self, SIGNAL_CHECK};
use crate::options::{name as object_name, natural, natural_or_none};
use crate::patience::{deadline, in_time, patiently, until};
use commonhold::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A semaphore with a name: a number that is never below zero.
#[pyclass(module = "commonhold", frozen)]
pub(crate) struct Semaphore {
    named: Named<commonhold::Semaphore>,
}

/// A barrier with a name: threads wait in it until so many are there.
#[pyclass(module = "commonhold", frozen)]
pub(crate) struct Barrier {
    named: Named<commonhold::Barrier>,
}

/// A counter with a name: a number of 64 bits that begins with 0.
#[pyclass(module = "commonhold", frozen)]
pub(crate) struct Counter {
    named: Named<commonhold::Counter>,
}

/// Another one of the object, and what else opens one.
macro_rules! alone {
    ($($class:ident)*) => {$(
        impl $class {
            fn like(&self, _py: Python<'_>, named: Named<commonhold::$class>) -> $class {
                $class { named }
            }

            fn others<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
                Ok(PyTuple::empty(py))
            }
        }
    )*};
}
alone! { Semaphore Barrier Counter }

impl Semaphore {
    fn acquire_in_time(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let end = deadline(py, timeout)?;
        let semaphore = self.named.get(py)?;
        if semaphore.try_acquire() {
            return Ok(true);
        }
        in_time(py, until(py, end, SIGNAL_CHECK, |deadline| semaphore.acquire(deadline))?)
    }
}

methods! { Semaphore,
    /// Opens it; creates it with that value if there is none, unless told otherwise.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "they are Python's keywords")]
    #[pyo3(signature = (name, value = 1, create = Create::IfMissing, *, mode = 0o600, count = 1, hosts = false, host = None))]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = object_name)] name: String,
        #[pyo3(from_py_with = natural)] value: u32,
        #[pyo3(from_py_with = creating)] create: Create,
        #[pyo3(from_py_with = natural)] mode: u32,
        #[pyo3(from_py_with = natural)] count: u32,
        hosts: bool,
        host: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Semaphore> {
        let how = Opening { host, name, create, mode, count, hosts };
        let named = Named::open(py, how, move |host, name, create, options| match create {
            Create::No => commonhold::Semaphore::open(host, name),
            Create::IfMissing => commonhold::Semaphore::open_or_create(host, name, value, options),
            Create::New => commonhold::Semaphore::create(host, name, value, options),
        })?;
        Ok(Semaphore { named })
    }

    /// Its value just now.
    #[getter]
    fn value(&self, py: Python<'_>) -> PyResult<u32> {
        self.named.call(py, |it| it.value())
    }

    /// Takes one from its value; gives whether it was above zero in time.
    #[pyo3(signature = (timeout = None))]
    fn acquire(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        self.acquire_in_time(py, timeout)
    }

    /// Adds to its value, and wakes as many.
    #[pyo3(signature = (n = 1))]
    fn release(&self, py: Python<'_>, #[pyo3(from_py_with = natural)] n: u32) -> PyResult<()> {
        self.named.call(py, |it| it.release(n))
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().acquire_in_time(slf.py(), None)?;
        Ok(slf)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.named.call(py, |it| it.release(1))
    }
}

/// Opens a barrier, of so many parties if they are stated.
fn open_barrier(
    host: &commonhold::Host,
    name: &str,
    parties: Option<u32>,
) -> commonhold::Result<commonhold::Barrier> {
    let barrier = commonhold::Barrier::open(host, name)?;
    let has = barrier.parties();
    match parties.filter(|parties| *parties != has) {
        Some(other) => {
            let what =
                format!("barrier {name} waits for {has}, not for {other}: say {has}, or create another");
            Err(Error::new(ErrorKind::Mismatch, what))
        }
        None => Ok(barrier),
    }
}

methods! { Barrier,
    /// Opens it; creates it of so many parties if there is none, unless told otherwise.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "they are Python's keywords")]
    #[pyo3(signature = (name, parties = None, create = Create::IfMissing, *, mode = 0o600, count = 1, hosts = false, host = None))]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = object_name)] name: String,
        #[pyo3(from_py_with = natural_or_none)] parties: Option<u32>,
        #[pyo3(from_py_with = creating)] create: Create,
        #[pyo3(from_py_with = natural)] mode: u32,
        #[pyo3(from_py_with = natural)] count: u32,
        hosts: bool,
        host: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Barrier> {
        let how = Opening { host, name, create, mode, count, hosts };
        let named = Named::open(py, how, move |host, name, create, options| match (create, parties) {
            (Create::No, _) => open_barrier(host, name, parties),
            (Create::IfMissing, Some(parties)) => {
                commonhold::Barrier::open_or_create(host, name, parties, options)
            }
            (Create::New, Some(parties)) => commonhold::Barrier::create(host, name, parties, options),
            (_, None) => {
                let what = "cannot be created without its parties: give them, or create=False";
                Err(Error::invalid(format!("barrier {name} {what}")))
            }
        })?;
        Ok(Barrier { named })
    }

    /// How many it waits for.
    #[getter]
    fn parties(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.named.get(py)?.parties())
    }

    /// Waits until all are there; gives whether this thread came last.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let end = deadline(py, timeout)?;
        let barrier = self.named.get(py)?;
        // Waits in one piece: who left for an instant would not hear that the round was broken. The
        // main thread's wait is made by another one, which is no other party: the barrier knows
        // processes.
        let over = Arc::new(AtomicBool::new(false));
        let (its, is_over) = (barrier.clone(), over.clone());
        let waited = interrupts::run(py, move || {
            let waited = its.wait(end);
            is_over.store(true, Ordering::SeqCst);
            waited
        });
        if waited.is_err() && !over.load(Ordering::SeqCst) {
            // A signal handler raised. Others would count on this thread.
            self.abort(py)?;
        }
        waited?.or_raise(py)
    }

    /// Gives the round up, if somebody waits in it.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        self.named.call(py, |it| it.abort())
    }
}

methods! { plain Counter,
    /// Its value just now.
    #[getter]
    fn value(&self, py: Python<'_>) -> PyResult<u64> {
        self.named.call(py, |it| it.value())
    }

    /// Adds, modulo 2**64; gives what it was.
    #[pyo3(signature = (n = 1))]
    fn add(&self, py: Python<'_>, #[pyo3(from_py_with = natural)] n: u64) -> PyResult<u64> {
        self.named.call(py, |it| it.add(n))
    }

    /// Makes it `new` if it is `old`; gives whether it was.
    fn compare_exchange(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] old: u64,
        #[pyo3(from_py_with = natural)] new: u64,
    ) -> PyResult<bool> {
        self.named.call(py, |it| it.compare_exchange(old, new)).map(|seen| seen == old)
    }

    /// Waits until it is another than `value`; gives what it is.
    #[pyo3(signature = (value, timeout = None))]
    fn wait_while(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] value: u64,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        let counter = self.named.get(py)?;
        patiently(py, timeout, |deadline| counter.wait_while(value, deadline))
    }
}
