//! What has a length: a run of values and text, with a layout that C and Python know too. Rust does not say how it lays out
//! `&[T]`.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

/// Values one behind the other; used as a slice.
#[repr(C)]
pub struct Run<'a, T> {
    first: *const T,
    count: usize,
    of: PhantomData<&'a [T]>,
}

// SAFETY: it is a shared slice.
unsafe impl<T: Sync> Send for Run<'_, T> {}
// SAFETY: it is a shared slice.
unsafe impl<T: Sync> Sync for Run<'_, T> {}

impl<T> Clone for Run<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Run<'_, T> {}

impl<'a, T> Run<'a, T> {
    /// None.
    pub const EMPTY: Run<'a, T> = Run { first: std::ptr::null(), count: 0, of: PhantomData };

    /// For as long as it is there.
    pub fn as_slice(&self) -> &'a [T] {
        if self.count == 0 {
            return &[];
        }
        // SAFETY: made from a slice, or read from an image whose arena followed the pointer.
        unsafe { std::slice::from_raw_parts(self.first, self.count) }
    }
}

impl<'a, T> From<&'a [T]> for Run<'a, T> {
    fn from(slice: &'a [T]) -> Run<'a, T> {
        Run { first: slice.as_ptr(), count: slice.len(), of: PhantomData }
    }
}

impl<T> Deref for Run<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T: fmt::Debug> fmt::Debug for Run<'_, T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(to)
    }
}

/// Text; used as `&str`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text<'a>(Run<'a, u8>);

impl<'a> Text<'a> {
    /// None.
    pub const EMPTY: Text<'a> = Text(Run::EMPTY);

    /// For as long as it is there.
    pub fn as_str(&self) -> &'a str {
        // SAFETY: made from text, or read from an image whose arena checked that it is.
        unsafe { std::str::from_utf8_unchecked(self.0.as_slice()) }
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Text<'a> {
        Text(text.as_bytes().into())
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(to)
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(to)
    }
}
