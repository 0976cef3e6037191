//! Heaps, as `commonhold/_heap.py` uses them, and memory in them as a buffer.

use crate::errors::{OrRaise, drop_waiting, waiting};
use crate::exports;
use crate::host::Host;
use crate::options::natural;
use commonhold::{CreateOptions, Error, HeapType};
use pyo3::ffi;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

/// An open heap.
#[pyclass(module = "commonhold._native", frozen)]
pub(crate) struct Heap {
    /// None once it was closed. Only ever locked for an instant.
    heap: Mutex<Option<commonhold::Heap>>,
    types: Mutex<HashMap<String, HeapType>>,
}

/// Some bytes of a heap, which stays mapped as long as this lives, and all that shows them.
#[pyclass(module = "commonhold._native", frozen, weakref)]
pub(crate) struct HeapMemory {
    /// There until it is dropped.
    heap: Option<commonhold::Heap>,
    address: usize,
    offset: u64,
    nbytes: usize,
}

/// Blocks, their bytes, and problems.
type Checked = (u64, u64, Vec<(u64, &'static str)>);

impl Heap {
    fn new(heap: commonhold::Heap) -> Self {
        Heap { heap: Mutex::new(Some(heap)), types: Mutex::default() }
    }

    fn get(&self, py: Python<'_>) -> PyResult<commonhold::Heap> {
        let heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner).clone();
        heap.ok_or_else(|| Error::invalid("the heap was closed by this program: open it again")).or_raise(py)
    }

    fn type_of(&self, py: Python<'_>, heap: &commonhold::Heap, text: String) -> PyResult<HeapType> {
        let known = self.types.lock().unwrap_or_else(PoisonError::into_inner).get(&text).copied();
        if let Some(of) = known {
            return Ok(of);
        }
        let (its, asked) = (heap.clone(), text.clone());
        let of = waiting(py, move || its.type_of(&asked))?;
        self.types.lock().unwrap_or_else(PoisonError::into_inner).insert(text, of);
        Ok(of)
    }
}

#[pymethods]
impl Heap {
    #[staticmethod]
    fn open(py: Python<'_>, host: &Host, name: String) -> PyResult<Heap> {
        let host = host.host.clone();
        Ok(Heap::new(waiting(py, move || commonhold::Heap::open(&host, &name))?))
    }

    #[staticmethod]
    fn create(
        py: Python<'_>,
        host: &Host,
        name: String,
        #[pyo3(from_py_with = natural)] size_bytes: u64,
        #[pyo3(from_py_with = natural)] mode: u32,
        if_missing: bool,
    ) -> PyResult<Heap> {
        let options = CreateOptions { size_bytes, mode, ..CreateOptions::default() };
        let host = host.host.clone();
        Ok(Heap::new(waiting(py, move || match if_missing {
            true => commonhold::Heap::open_or_create(&host, &name, &options),
            false => commonhold::Heap::create(&host, &name, &options),
        })?))
    }

    fn close(&self) {
        let heap = self.heap.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop_waiting(heap);
    }

    fn allocate(
        &self,
        py: Python<'_>,
        of: String,
        #[pyo3(from_py_with = natural)] count: u64,
    ) -> PyResult<u64> {
        let heap = self.get(py)?;
        let of = self.type_of(py, &heap, of)?;
        waiting(py, move || heap.allocate(of, count))
    }

    fn allocate_into(
        &self,
        py: Python<'_>,
        of: String,
        #[pyo3(from_py_with = natural)] count: u64,
        #[pyo3(from_py_with = natural)] word: u64,
    ) -> PyResult<u64> {
        let heap = self.get(py)?;
        let of = self.type_of(py, &heap, of)?;
        waiting(py, move || heap.allocate_into(of, count, word))
    }

    fn free(&self, py: Python<'_>, #[pyo3(from_py_with = natural)] offset: u64) -> PyResult<()> {
        let heap = self.get(py)?;
        waiting(py, move || heap.free(offset))
    }

    fn free_from(&self, py: Python<'_>, #[pyo3(from_py_with = natural)] word: u64) -> PyResult<()> {
        let heap = self.get(py)?;
        waiting(py, move || heap.free_from(word))
    }

    fn root(&self, py: Python<'_>, name: String) -> PyResult<u64> {
        let heap = self.get(py)?;
        waiting(py, move || heap.root(&name))
    }

    fn load(&self, py: Python<'_>, #[pyo3(from_py_with = natural)] word: u64) -> PyResult<u64> {
        let heap = self.get(py)?;
        heap.word(word).map(|word| word.load(Ordering::SeqCst)).or_raise(py)
    }

    fn store(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] word: u64,
        #[pyo3(from_py_with = natural)] value: u64,
    ) -> PyResult<()> {
        let heap = self.get(py)?;
        heap.word(word).map(|word| word.store(value, Ordering::SeqCst)).or_raise(py)
    }

    fn offset(&self, py: Python<'_>, #[pyo3(from_py_with = natural)] address: u64) -> PyResult<u64> {
        self.get(py)?.offset(address as *const u8).or_raise(py)
    }

    fn memory(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = natural)] offset: u64,
        #[pyo3(from_py_with = natural)] nbytes: u64,
    ) -> PyResult<HeapMemory> {
        let heap = self.get(py)?;
        let address = heap.address(offset, nbytes).or_raise(py)? as usize;
        Ok(HeapMemory { heap: Some(heap), address, offset, nbytes: nbytes as usize })
    }

    /// Blocks in use, their bytes, and what is wrong: places and words.
    fn check(&self, py: Python<'_>) -> PyResult<Checked> {
        let heap = self.get(py)?;
        let report = waiting(py, move || heap.check())?;
        let problems = report.problems.iter().map(|problem| (problem.at, problem.what)).collect();
        Ok((report.blocks, report.bytes, problems))
    }
}

#[pymethods]
impl HeapMemory {
    /// Offset of the first byte in the heap's object.
    #[getter]
    fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes shown.
    #[getter]
    fn nbytes(&self) -> usize {
        self.nbytes
    }

    // SAFETY: the interpreter gives a buffer structure to be filled in.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        // SAFETY: these bytes are inside of a heap that `slf` keeps mapped, and to which the buffer holds a reference; the
        // rest is the interpreter's promise.
        unsafe { exports::fill(slf.as_any(), view, flags, this.address as *mut u8, this.nbytes, false) }
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        drop_waiting(self.heap.take());
    }
}
