//! Fault service: from the kernel's message to the object's cache.
//!
//! Follow one fault: `service` reads it, `space` finds mapping and page, `crate::cache::fault` answers it.

pub mod service;
pub mod space;
pub mod stream;
