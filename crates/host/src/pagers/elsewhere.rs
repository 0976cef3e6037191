//! The pager of an object whose home is another host: its pages come by way of its scheduler, and never from here.

use super::Pager;
use commonhold_object::{Error, ErrorKind, Result};

/// No pages.
#[derive(Debug, Default)]
pub struct ElsewherePager;

fn refused() -> Error {
    Error::new(ErrorKind::Lost, "the page is at another host")
}

impl Pager for ElsewherePager {
    fn page_in(&self, _offset: u64, _buffer: &mut [u8]) -> Result<()> {
        Err(refused())
    }

    fn page_out(&self, _offset: u64, _data: &[u8]) -> Result<()> {
        Err(refused())
    }

    fn flush(&self) -> Result<()> {
        Err(refused())
    }
}
