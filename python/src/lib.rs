//! The native part of the `commonhold` Python package: hosts, objects, mappings and calls by address range.
//!
//! What needs no system call (arrays, data types, handles for other processes) is Python, in `commonhold/`.
//! Every call that may wait lets go of the interpreter lock. No lock of this crate is held while it waits for
//! the interpreter, nor the other way round, so that a fork from Python meets all of them free.

mod channel;
mod errors;
mod exports;
mod guard;
mod heap;
mod host;
mod images;
mod interrupts;
mod mapping;
mod object;
mod options;
mod pager;
mod pages;
mod patience;
mod ranges;
mod records;
mod second_interrupt;
mod sync;
mod watch;

use pyo3::prelude::*;

/// Named memory objects of one machine. Use the package `commonhold`: this module is its inside.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::channel::Channel;
    #[pymodule_export]
    use crate::guard::Guard;
    #[pymodule_export]
    use crate::heap::{Heap, HeapMemory};
    #[pymodule_export]
    use crate::host::{Host, connect, default_host};
    #[pymodule_export]
    use crate::images::{Arena, Image, include_image};
    #[pymodule_export]
    use crate::mapping::Mapping;
    #[pymodule_export]
    use crate::object::Object;
    #[pymodule_export]
    use crate::pager::{serve_pager, stop_pagers};
    #[pymodule_export]
    use crate::pages::Pages;
    #[pymodule_export]
    use crate::ranges::{address_range, incore, inherit, lock, prefetch, sync, unlock};

    #[pymodule_export]
    use crate::watch::{Watch, notify, wait, watch};

    #[pymodule_export]
    use crate::sync::{Barrier, Condition, Counter, Holding, Mutex, RwLock, Semaphore};

    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    const PAGE_SIZE_BYTES: u64 = commonhold::PAGE_SIZE_BYTES;
}
