//! What the home of an object whose role moves without a common file asks of the hosts that keep its pages (`docs/LEASES.md`,
//! "Without a common file: replicas").

use commonhold_object::Result;
use roaring::RoaringBitmap;

/// All replicas of one object that count. What returns without an error all of them have, or those that have it not count no
/// more, and whoever becomes the next home knows that. Calls wait for other hosts, but `clear_newer`: that one waits for nobody.
pub trait Replicas: Send + Sync {
    /// They keep these bytes, from that offset on.
    fn store(&self, offset: u64, data: &[u8]) -> Result<()>;
    /// These pages may be newer than what they keep from now on.
    fn set_newer(&self, pages: &RoaringBitmap) -> Result<()>;
    /// These pages are not any more: said to them by [`settle`](Self::settle) at the latest.
    fn clear_newer(&self, pages: &RoaringBitmap);
    /// They know of no page any more that it is newer which is not.
    fn settle(&self) -> Result<()>;
    /// The object has another size.
    fn resize(&self, size_bytes: u64) -> Result<()>;
}
