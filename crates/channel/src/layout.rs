//! Where everything is in a channel's memory. Memory of zeroes is an empty queue: what else there
//! is to know follows from its size.

/// Bytes before the ring.
pub const HEADER_BYTES: usize = 32 << 10;

/// What [`MAGIC`] holds: "chq" and the version of the layout.
pub(crate) const VERSION_1: u32 = u32::from_le_bytes(*b"chq\x01");

/// The version of a queue whose memory begins with that word, if it is another than this program knows.
pub fn other_version(word: u32) -> Option<u8> {
    let [known, found] = [VERSION_1, word].map(u32::to_le_bytes);
    (known[..3] == found[..3] && known != found).then_some(found[3])
}

// Whoever sends or receives uses all of these: they are one line of the cache.
pub(crate) const MAGIC: usize = 0;
/// The owner's thread number; see `lock`.
pub(crate) const LOCK: usize = 4;
/// Bytes that were ever sent, modulo 2^32. Stored by a sender, as its last step. Receivers sleep on
/// it.
pub(crate) const TAIL: usize = 8;
/// Bytes that were ever received, likewise. Senders sleep on it.
pub(crate) const HEAD: usize = 12;
/// 1: somebody may sleep on `TAIL`.
pub(crate) const RECEIVERS_SLEEP: usize = 16;
/// 1: somebody may sleep on `HEAD`.
pub(crate) const SENDERS_SLEEP: usize = 20;
/// How often a landing was posted or given back. Senders of regions sleep on it.
pub(crate) const POSTS: usize = 24;
/// 1: somebody may sleep on `POSTS`.
pub(crate) const TAKERS_SLEEP: usize = 28;

/// Landings that can be posted at once.
pub const SLOTS: u32 = 28;
const FIRST_SLOT: usize = 1024;
const SLOT_BYTES: usize = NAME + NAME_BYTES;

// Within a slot. A number of 64 bits is two words, the lower first.
pub(crate) const STATE: usize = 0;
pub(crate) const GENERATION: usize = 4;
pub(crate) const OBJECT: usize = 8;
pub(crate) const OFFSET: usize = 16;
pub(crate) const LENGTH: usize = 24;
pub(crate) const NAME_LENGTH: usize = 32;
pub(crate) const NAME: usize = 64;
/// As long as a name may be.
pub(crate) const NAME_BYTES: usize = 1024;

const _: () = assert!(FIRST_SLOT + SLOTS as usize * SLOT_BYTES <= HEADER_BYTES);

/// Where a slot begins.
pub(crate) fn slot(number: u32) -> usize {
    assert!(number < SLOTS, "no slot {number}");
    FIRST_SLOT + number as usize * SLOT_BYTES
}

/// Records begin at multiples of it.
pub(crate) const UNIT: u32 = 8;
/// Length, kind, form, zero.
pub(crate) const RECORD_HEADER: u32 = 16;
/// The smallest ring; of channels it is larger.
const SMALLEST_RING: usize = 32;
/// The largest: a position is 32 bits, and the ring must be well below.
pub(crate) const LARGEST_RING: usize = 1 << 30;

/// Bytes of memory for a ring of at least so many bytes; `None` if there is none as large.
pub fn bytes_for(capacity_bytes: u64) -> Option<u64> {
    let ring = capacity_bytes.checked_next_power_of_two()?.max(4096);
    (ring <= LARGEST_RING as u64).then_some(HEADER_BYTES as u64 + ring)
}

/// Bytes of the ring in memory of that size; `None`: it is no channel's.
pub(crate) fn ring_of(bytes: usize) -> Option<u32> {
    let ring = bytes.checked_sub(HEADER_BYTES)?;
    let fits = ring.is_power_of_two() && (SMALLEST_RING..=LARGEST_RING).contains(&ring);
    fits.then_some(ring as u32)
}
