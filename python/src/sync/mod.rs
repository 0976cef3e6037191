//! Locks by name: the classes `Mutex`, `RwLock`, `Condition`, `Semaphore`, `Barrier` and `Counter`.
//!
//! They are classes of this crate, and not of Python around it: Python looks for signals between
//! instructions of its own, so a `KeyboardInterrupt` cannot come between a lock that is taken and
//! the `with` block that lets it go.

mod condition;
mod mutex;
mod named;
mod rwlock;
mod simple;

pub(crate) use condition::Condition;
pub(crate) use mutex::Mutex;
pub(crate) use rwlock::{Holding, RwLock};
pub(crate) use simple::{Barrier, Counter, Semaphore};

/// The methods of a class in this folder: those that all have, and its own. Rust allows one block of
/// them for each class.
macro_rules! methods {
    // One that is created with no more than its name.
    (plain $class:ident, $($own:tt)*) => {
        methods! { $class,
            /// Opens it; creates it if there is none, unless told otherwise.
            #[new]
            #[pyo3(signature = (name, create = Create::IfMissing, *, mode = 0o600, count = 1, hosts = false, host = None))]
            fn new(
                py: Python<'_>,
                #[pyo3(from_py_with = object_name)] name: String,
                #[pyo3(from_py_with = creating)] create: Create,
                #[pyo3(from_py_with = natural)] mode: u32,
                #[pyo3(from_py_with = natural)] count: u32,
                hosts: bool,
                host: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<$class> {
                let how = Opening { host, name, create, mode, count, hosts };
                let named = Named::open(py, how, |host, name, create, options| match create {
                    Create::No => commonhold::$class::open(host, name),
                    Create::IfMissing => commonhold::$class::open_or_create(host, name, options),
                    Create::New => commonhold::$class::create(host, name, options),
                })?;
                Ok($class { named })
            }

            $($own)*
        }
    };
    ($class:ident, $($own:tt)*) => {
        #[pymethods]
        impl $class {
            /// As it was opened.
            #[getter]
            fn name(&self) -> &str {
                self.named.name()
            }

            /// Whether it was closed here.
            #[getter]
            fn closed(&self) -> bool {
                self.named.is_closed()
            }

            /// What no other object has, of any host.
            #[getter]
            fn _uuid(&self, py: Python<'_>) -> PyResult<u128> {
                self.named.uuid(py)
            }

            /// Gives it up; the object stays. Who has it lets it go before.
            fn close(&self, py: Python<'_>) -> PyResult<()> {
                self.named.close(py)
            }

            fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
                self.named.count(py)
            }

            fn __getitem__(&self, py: Python<'_>, index: isize) -> PyResult<$class> {
                Ok(self.like(py, self.named.nth(py, index)?))
            }

            fn __repr__(&self) -> String {
                self.named.repr(stringify!($class))
            }

            /// Pickled as its host, name and identity: another process opens it by name, and refuses
            /// another object.
            fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                let py = slf.py();
                let this = slf.get();
                let (host, name, uuid, index) = this.named.place(py)?;
                let open_same = py.import("commonhold._sync")?.getattr("open_same")?;
                let how = (slf.get_type(), host, name, uuid, index, this.others(py)?);
                (open_same, how).into_pyobject(py).map(Bound::into_any)
            }

            $($own)*
        }
    };
}
use methods;
