//! The buffer protocol, both ways: what we show to Python, and what Python shows to us.

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;

/// Fills in a buffer of bytes, owned by `owner`.
///
/// # Safety
/// `view` must be a buffer structure that the interpreter asks to be filled in, and `length` bytes from `address`
/// on must stay mapped (writable, unless `read_only`) as long as `owner` lives.
pub(crate) unsafe fn fill(
    owner: &Bound<'_, PyAny>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
    address: *mut u8,
    length: usize,
    read_only: bool,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("no buffer structure was given"));
    }
    let too_long = |_| PyBufferError::new_err("the mapping is too long for a buffer");
    let length = isize::try_from(length).map_err(too_long)?;
    // SAFETY: the view is the interpreter's own, and the memory is as the caller promises. The buffer takes a
    // reference to the owner.
    let failed = unsafe {
        ffi::PyBuffer_FillInfo(view, owner.as_ptr(), address.cast(), length, c_int::from(read_only), flags)
    };
    if failed != 0 { Err(PyErr::fetch(owner.py())) } else { Ok(()) }
}

/// Whether whoever asks for a buffer with these flags keeps no address after it gave the buffer back.
///
/// NumPy's `ndarray(buffer=…)` does: it releases the buffer at once, and holds a reference to the object instead.
/// What asks like `memoryview`, or like a function that takes bytes for the length of a call, does not.
pub(crate) fn gives_back(flags: c_int) -> bool {
    [ffi::PyBUF_SIMPLE, ffi::PyBUF_WRITABLE, ffi::PyBUF_FULL_RO, ffi::PyBUF_FULL].contains(&flags)
}

/// A buffer that Python shows us, given back when dropped.
pub(crate) struct View<'py> {
    view: Box<ffi::Py_buffer>,
    py: Python<'py>,
}

impl<'py> View<'py> {
    /// Of memory that may lie in strides.
    pub(crate) fn strided(thing: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::get(thing, ffi::PyBUF_STRIDES)
    }

    /// Of memory in one run.
    pub(crate) fn contiguous(thing: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::get(thing, ffi::PyBUF_SIMPLE)
    }

    fn get(thing: &Bound<'py, PyAny>, flags: c_int) -> PyResult<Self> {
        let mut view = Box::new(ffi::Py_buffer::new());
        // SAFETY: the structure is ours, empty, and stays where it is until it is released.
        let failed = unsafe { ffi::PyObject_GetBuffer(thing.as_ptr(), &mut *view, flags) };
        if failed != 0 { Err(PyErr::fetch(thing.py())) } else { Ok(View { view, py: thing.py() }) }
    }

    /// First byte of a contiguous buffer.
    pub(crate) fn start(&self) -> *const u8 {
        self.view.buf.cast()
    }

    /// Bytes, without those that lie between its elements.
    pub(crate) fn nbytes(&self) -> usize {
        self.view.len.unsigned_abs()
    }

    /// First address and number of bytes of the smallest range that covers it; `None` if it is empty.
    pub(crate) fn covering_range(&self) -> Option<(usize, usize)> {
        let start = self.view.buf as usize;
        if self.view.len == 0 {
            return None;
        }
        if self.view.strides.is_null() || self.view.shape.is_null() {
            return Some((start, self.nbytes()));
        }
        let (mut first, mut end) = (start, start + self.view.itemsize.unsigned_abs());
        for axis in 0..usize::try_from(self.view.ndim).unwrap_or(0) {
            // SAFETY: both arrays have as many elements as the buffer has dimensions.
            let (count, stride) = unsafe { (*self.view.shape.add(axis), *self.view.strides.add(axis)) };
            let reach = (count - 1) * stride;
            if reach < 0 {
                first -= reach.unsigned_abs();
            } else {
                end += reach.unsigned_abs();
            }
        }
        Some((first, end - first))
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        let _attached = self.py;
        // SAFETY: filled in by PyObject_GetBuffer, and given back once, by a thread that holds the interpreter.
        unsafe { ffi::PyBuffer_Release(&mut *self.view) };
    }
}
