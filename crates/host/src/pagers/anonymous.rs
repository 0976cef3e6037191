//! The pager of anonymous objects: zero until written. What must leave memory goes to the spill file.

use super::Pager;
use commonhold_object::Result;

/// No stored copy.
#[derive(Debug, Default)]
pub struct AnonymousPager;

impl Pager for AnonymousPager {
    fn page_in(&self, _offset: u64, buffer: &mut [u8]) -> Result<()> {
        buffer.fill(0);
        Ok(())
    }

    fn page_out(&self, _offset: u64, _data: &[u8]) -> Result<()> {
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn is_anonymous(&self) -> bool {
        true
    }
}
