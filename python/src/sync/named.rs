//! What the classes of this folder have in common: one of the primitives of an object, which is
//! found by name.

use crate::errors::{OrRaise, drop_waiting, waiting};
use crate::host::{Host, default_host};
use crate::object::Opened;
use commonhold::{Error, SyncOptions};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A primitive of the client.
pub(super) trait Primitive: Clone + Send + Sync + 'static {
    fn count(&self) -> u32;
    fn at(&self, index: u32) -> commonhold::Result<Self>;
    fn object(&self) -> &commonhold::Object;

    /// Makes this process known to the host as a user of the object, if it came from a fork.
    fn introduce(&self) -> commonhold::Result<()>;
}

/// Whether to make what is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Create {
    No,
    IfMissing,
    New,
}

/// False, True, or `"new"`.
pub(super) fn creating(value: &Bound<'_, PyAny>) -> PyResult<Create> {
    if let Ok(word) = value.extract::<String>() {
        let unknown = || Error::invalid(format!("create={word:?} is none of True, False and \"new\""));
        return (word == "new").then_some(Create::New).ok_or_else(unknown).or_raise(value.py());
    }
    Ok(if value.extract::<bool>()? { Create::IfMissing } else { Create::No })
}

/// How a primitive is opened.
pub(super) struct Opening<'a, 'py> {
    pub(super) host: Option<&'a Bound<'py, PyAny>>,
    pub(super) name: String,
    pub(super) create: Create,
    pub(super) mode: u32,
    pub(super) count: u32,
    /// Processes of all hosts of the cluster use it.
    pub(super) hosts: bool,
}

/// What the client has to open or create a primitive of that name.
pub(super) trait OpensWith<T>:
    FnOnce(&commonhold::Host, &str, Create, &SyncOptions) -> commonhold::Result<T> + Send + 'static
{
}

impl<T, F> OpensWith<T> for F where
    F: FnOnce(&commonhold::Host, &str, Create, &SyncOptions) -> commonhold::Result<T> + Send + 'static
{
}

/// One that is open, and which one that is.
#[derive(Clone)]
struct Open<T> {
    this: T,
    host: commonhold::Host,
    /// Number 0 of the object. Whoever drops the last of these closes the object.
    whole: Arc<T>,
}

/// A primitive that is found by name.
pub(super) struct Named<T: Primitive> {
    /// None once it was closed. Only ever locked for an instant.
    open: Mutex<Option<Open<T>>>,
    name: String,
    index: u32,
    /// The process that the host knows to use it: a fork child is another.
    process: AtomicU32,
}

impl<T: Primitive> Named<T> {
    fn new(open: Open<T>, name: &str, index: u32) -> Self {
        let process = AtomicU32::new(std::process::id());
        Named { open: Mutex::new(Some(open)), name: name.to_owned(), index, process }
    }

    /// Opens it with what the client has for that.
    pub(super) fn open(py: Python<'_>, how: Opening<'_, '_>, call: impl OpensWith<T>) -> PyResult<Self> {
        let host = match how.host {
            Some(host) => host.getattr("_native")?.cast::<Host>()?.get().host.clone(),
            None => default_host(py)?.host,
        };
        let (its, name) = (host.clone(), how.name.clone());
        let options = SyncOptions { mode: how.mode, count: how.count, between_hosts: how.hosts };
        let this = waiting(py, move || call(&its, &name, how.create, &options))?;
        let whole = Arc::new(this.clone());
        Ok(Named::new(Open { this, host, whole }, &how.name, 0))
    }

    fn opened(&self, py: Python<'_>) -> PyResult<Open<T>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        open.ok_or_else(|| Error::invalid(format!("{} was closed by this program: open it again", self.name)))
            .or_raise(py)
    }

    /// What is open, known to the host as this process's: no call waits for the host then.
    pub(super) fn get(&self, py: Python<'_>) -> PyResult<T> {
        let this = self.opened(py)?.this;
        let process = std::process::id();
        if self.process.load(Ordering::Relaxed) != process {
            let its = this.clone();
            waiting(py, move || its.introduce())?;
            self.process.store(process, Ordering::Relaxed);
        }
        Ok(this)
    }

    /// Makes a call that does not wait, unless hosts share it: then for its token.
    pub(super) fn call<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&T) -> commonhold::Result<R> + Send,
    ) -> PyResult<R> {
        let this = self.get(py)?;
        let is_shared = this.object().is_controlled();
        let done = if is_shared { py.detach(|| call(&this)) } else { call(&this) };
        done.or_raise(py)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_closed(&self) -> bool {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    pub(super) fn uuid(&self, py: Python<'_>) -> PyResult<u128> {
        Ok(self.opened(py)?.this.object().uuid())
    }

    pub(super) fn count(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.opened(py)?.this.count() as usize)
    }

    /// Another one of the object; from the end, if the number is below zero.
    pub(super) fn nth(&self, py: Python<'_>, index: isize) -> PyResult<Self> {
        let open = self.opened(py)?;
        let count = open.this.count();
        let from_start = if index < 0 { index.saturating_add(count as isize) } else { index };
        let number = u32::try_from(from_start).ok().filter(|number| *number < count);
        let number = number.ok_or_else(|| {
            PyIndexError::new_err(format!("{} holds {count}, and number {index} was asked for", self.name))
        })?;
        let this = open.this.at(number).or_raise(py)?;
        let named = Named::new(Open { this, ..open }, &self.name, number);
        named.process.store(self.process.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(named)
    }

    /// How another process finds it: its host, the name that it has now, the object's identity, and
    /// which one of it.
    pub(super) fn place(&self, py: Python<'_>) -> PyResult<(PathBuf, String, u128, u32)> {
        let open = self.opened(py)?;
        let directory = open.host.state_directory().to_owned();
        let object = Opened { host: open.host, object: open.this.object().clone() };
        Ok((directory, object.name(py)?, object.object.uuid(), self.index))
    }

    pub(super) fn repr(&self, class: &str) -> String {
        let index = if self.index == 0 { String::new() } else { format!("[{}]", self.index) };
        let closed = if self.is_closed() { ", closed" } else { "" };
        format!("<commonhold.{class} {}{index}{closed}>", self.name)
    }

    pub(super) fn close(&self, py: Python<'_>) -> PyResult<()> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).take();
        match open.and_then(last) {
            Some(whole) => crate::interrupts::run(py, || drop(whole)),
            None => Ok(()),
        }
    }
}

/// What is to be closed, unless another of the object is open.
fn last<T>(open: Open<T>) -> Option<T> {
    drop(open.this);
    Arc::into_inner(open.whole)
}

impl<T: Primitive> Drop for Named<T> {
    fn drop(&mut self) {
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(whole) = open.and_then(last) {
            drop_waiting(whole);
        }
    }
}

/// Writes down what the client's types have in common.
macro_rules! primitives {
    ($($kind:ident: $introduce:expr;)*) => {$(
        impl Primitive for commonhold::$kind {
            fn count(&self) -> u32 {
                commonhold::$kind::count(self)
            }

            fn at(&self, index: u32) -> commonhold::Result<Self> {
                commonhold::$kind::at(self, index)
            }

            fn object(&self) -> &commonhold::Object {
                commonhold::$kind::object(self)
            }

            fn introduce(&self) -> commonhold::Result<()> {
                let introduce: fn(&Self) -> commonhold::Result<()> = $introduce;
                introduce(self)
            }
        }
    )*};
}

primitives! {
    Mutex: |mutex| introduced(mutex.consistent());
    RwLock: |lock| introduced(lock.consistent());
    // Who waits in one needs no more than a host that answers.
    Barrier: |barrier| barrier.object().info().map(drop);
    // These belong to nobody.
    Condition: |_| Ok(());
    Semaphore: |_| Ok(());
    Counter: |_| Ok(());
}

/// Of a call that asks who this process is and then, in a thread that has no lock, does nothing.
fn introduced(outcome: commonhold::Result<()>) -> commonhold::Result<()> {
    match outcome {
        Err(error) if error.kind == commonhold::ErrorKind::NotOwner => Ok(()),
        outcome => outcome,
    }
}
