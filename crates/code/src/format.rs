//! What a code image and a program say to each other: the header of an image's file, and the record that a program has
//! of an image that it was linked to. Also part of `runtime`, which has no standard library: plain numbers and bytes
//! only.
//!
//! An image in memory, from the first address of its range on; in the file everything lies at the same distance:
//!
//! ```text
//! 0            what all images have (crate `commonhold-image`), for the store
//! 4096         the header of code
//! 8192         entry n: at 8192 + 16 n a jump to a function, for who needs an address of code; room for later minors
//! slots        slot n: 8 n further, the address of the same function, which stubs go to
//! library      the segments of the library: small code comes with the slots when they are first read
//! end          in the file only: table of exports, names of the functions that the program hands over
//! ```

/// The first bytes of the header.
pub const MAGIC: [u8; 8] = *b"CHCODE\x03\n";
/// The version in it.
pub const VERSION: u8 = MAGIC[6];
/// Addresses and offsets are multiples of it.
pub const PAGE_BYTES: u64 = 4096;
/// Where in the first page, which all images have, the name of a group is; a zero: it has none.
pub const GROUP_AT: u64 = 112;
/// Where the header is.
pub const HEADER_AT: u64 = PAGE_BYTES;
/// Where the entries begin.
pub const ENTRIES_AT: u64 = 2 * PAGE_BYTES;
/// One slot.
pub const SLOT_BYTES: u64 = 8;
/// One entry.
pub const ENTRY_BYTES: u64 = 16;
/// `NAME@X` with zeros behind it.
pub const NAME_BYTES: usize = 80;
/// A path, with zeros behind it.
pub const PATH_BYTES: usize = 240;
/// The longest path that programs follow, with its zero.
pub const MOST_PATH: usize = 1024;
/// Segments of one image.
pub const MOST_SEGMENTS: usize = 8;
/// Other images that one image calls.
pub const MOST_IMPORTS: usize = 8;
/// For x86-64, as in ELF files (`EM_X86_64`).
pub const X86_64: u32 = 62;

/// `Segment::kind`: read only.
pub const READ: u32 = 1;
/// `Segment::kind`: code. It is mapped with the whole file.
pub const CODE: u32 = 2;
/// `Segment::kind`: private data.
pub const DATA: u32 = 3;
/// `Segment::kind`: private data that is zero at first, and is not in the file.
pub const ZERO: u32 = 4;

/// Whole pages of an image.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// Distance from the base, in memory and in the file.
    pub at: u64,
    /// Bytes.
    pub bytes: u64,
    /// Of which kind.
    pub kind: u32,
    /// Nothing.
    pub unused: u32,
}

/// Another image that has to be included first.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Import {
    /// Its name and major version.
    pub name: [u8; NAME_BYTES],
    /// Where the newest of its major version is.
    pub path: [u8; PATH_BYTES],
    /// Its base.
    pub base: u64,
    /// Its lineage.
    pub lineage: u64,
    /// How many slots it must have.
    pub slots: u32,
    /// Nothing.
    pub unused: u32,
}

/// The beginning of an image's file.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// Of all that follows: [`sum`].
    pub sum: u64,
    /// For which processor.
    pub arch: u32,
    /// How many slots there are.
    pub slots: u32,
    /// Name and major version.
    pub name: [u8; NAME_BYTES],
    /// The whole version.
    pub version: [u32; 4],
    /// Drawn at random with the first of a major version, and kept by those that are made with knowledge of it: with
    /// another, slots and what programs hand over may be other functions'.
    pub lineage: u64,
    /// Of the names that programs hand over: [`sum`].
    pub table_sum: u64,
    /// Its first address.
    pub base: u64,
    /// Addresses that it covers.
    pub extent: u64,
    /// Addresses that its major version has.
    pub reserved: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Distance of the library's own addresses from the base.
    pub library_at: u64,
    /// Where the slots begin: behind the room for entries, which is the same in all minors of a major version.
    pub slots_at: u64,
    /// Words to fill in with addresses from the including program, [`Fill`] each: their distance, 0 if there are none.
    pub fills_at: u64,
    /// How many.
    pub fills: u32,
    /// How many functions of its table the including program must have.
    pub table: u32,
    /// What is read-only once the words are filled in: distance and bytes.
    pub protect_at: u64,
    /// Bytes.
    pub protect_bytes: u64,
    /// A word of private data that says how far inclusion is; 0: the image has no private data.
    pub control_at: u64,
    /// The old constructor, DT_INIT; 0: none.
    pub init: u64,
    /// Constructors: where their addresses are.
    pub init_array_at: u64,
    /// How many.
    pub init_count: u32,
    /// How many segments.
    pub segment_count: u32,
    /// How many imports.
    pub import_count: u32,
    /// Bytes of the names of the functions that the program hands over.
    pub names_bytes: u32,
    /// Where in the file they are, a line each.
    pub names_at: u64,
    /// [`sum`] of the imports, which lie behind the header.
    pub imports_sum: u64,
    /// Segments.
    pub segments: [Segment; MOST_SEGMENTS],
}

/// Where the imports are: apart from the header, because programs rarely need them, and then one by one.
pub const IMPORTS_AT: u64 = HEADER_AT + size_of::<Header>() as u64;

const _: () = assert!(
    IMPORTS_AT as usize + MOST_IMPORTS * size_of::<Import>() <= ENTRIES_AT as usize
        && IMPORTS_AT.is_multiple_of(8)
);

/// A word that is another in each program.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// Distance of the word from the base.
    pub at: u64,
    /// What is added.
    pub addend: i64,
    /// Which function of the table.
    pub index: u32,
    /// Nothing.
    pub unused: u32,
}

/// What a program has of an image that it was linked to, in its section [`SECTION`]. `path` follows it.
#[repr(C)]
pub struct Record {
    /// Not 0 when the image is there and its constructors have run: the first byte, at which every stub looks.
    pub ready: core::sync::atomic::AtomicU32,
    /// Of the first record: the thread that includes one of them, and whether others wait for it.
    pub lock: core::sync::atomic::AtomicU32,
    /// Of the record with its path.
    pub bytes: u32,
    /// How many slots there were when the program was linked.
    pub slots: u32,
    /// The image's base.
    pub base: u64,
    /// Its lineage.
    pub lineage: u64,
    /// Of the names of the program's table of functions.
    pub table_sum: u64,
    /// Distance from here to the program's table of functions; 0: none.
    pub table: i32,
    /// How many functions it has.
    pub table_count: u32,
    /// Distance from here to the first of the program's records.
    pub first: i32,
    /// Distance from here to the end of the last.
    pub end: i32,
    /// Name and major version.
    pub name: [u8; NAME_BYTES],
}

/// The section of records.
pub const SECTION: &str = "commonhold_images";

/// A sum over whole words: finds damage, proves nothing.
pub fn sum(bytes: &[u8]) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64 ^ bytes.len() as u64;
    for word in bytes.as_chunks().0 {
        sum = (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    }
    sum
}

/// [`sum`] of the names of a table of functions, a line each.
pub fn table_sum(names: &[u8]) -> u64 {
    // Whole words are summed, and what is left as one.
    let (words, rest) = names.as_chunks::<8>();
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    sum(words.as_flattened()) ^ sum(&last).rotate_left(1) ^ names.len() as u64
}

/// The bytes in front of the zeros.
pub fn text(bytes: &[u8]) -> &[u8] {
    let mut length = 0;
    while length < bytes.len() && bytes[length] != 0 {
        length += 1;
    }
    &bytes[..length]
}

impl Import {
    /// As bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `repr(C)`, plain numbers, and no byte of it is padding: all fields lie at multiples of their size.
        unsafe { core::slice::from_raw_parts((self as *const Import).cast(), size_of::<Import>()) }
    }
}

impl Header {
    /// As bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `repr(C)`, plain numbers, and no byte of it is padding: all fields lie at multiples of their size.
        unsafe { core::slice::from_raw_parts((self as *const Header).cast(), size_of::<Header>()) }
    }

    /// The header at the beginning of these bytes; none if they are too few, or do not begin at a multiple of 8.
    pub fn at(bytes: &[u8]) -> Option<&Header> {
        let raw = bytes.get(..size_of::<Header>())?;
        let header = raw.as_ptr().cast::<Header>();
        // SAFETY: so many bytes, aligned, and every pattern of bits is a header.
        header.is_aligned().then(|| unsafe { &*header })
    }

    /// Its version, if that is another than this program knows.
    pub fn other_version(&self) -> Option<u8> {
        let [found, known] = [self.magic, MAGIC].map(u64::from_le_bytes);
        let is_code = found | 0xff << 48 == known | 0xff << 48;
        (is_code && found != known).then_some((found >> 48) as u8)
    }

    /// What `sum` has to be: of all that follows it.
    pub fn right_sum(&self) -> u64 {
        sum(self.bytes().get(16..).unwrap_or_default())
    }

    /// Whether it is whole, and all it says lies within what it says to be: nothing of a damaged or hostile header
    /// leads out of the image's own range. The file has `file_bytes` bytes.
    pub fn is_sound(&self, file_bytes: u64) -> bool {
        let within = |at: u64, bytes: u64| at.checked_add(bytes).is_some_and(|end| end <= self.extent);
        let whole = self.magic == MAGIC && self.sum == self.right_sum() && self.file_bytes == file_bytes;
        let counts =
            self.segment_count as usize <= MOST_SEGMENTS && self.import_count as usize <= MOST_IMPORTS;
        if !whole || !counts {
            return false;
        }
        let on_pages = |number: u64| number.is_multiple_of(PAGE_BYTES);
        let addresses = on_pages(self.base)
            && on_pages(self.extent)
            && self.base != 0
            && self.extent <= self.reserved
            && self.base.checked_add(self.reserved).is_some_and(|end| end < 1 << 47);
        let slots = u64::from(self.slots);
        let entries = ENTRIES_AT + slots * ENTRY_BYTES <= self.slots_at
            && within(self.slots_at, slots * SLOT_BYTES)
            && self.slots_at.is_multiple_of(SLOT_BYTES);
        let segments = self.segments.iter().take(self.segment_count as usize).all(|segment| {
            let in_file = segment.kind == ZERO || segment.at.saturating_add(segment.bytes) <= file_bytes;
            on_pages(segment.at) && on_pages(segment.bytes) && within(segment.at, segment.bytes) && in_file
        });
        let fills = within(self.fills_at, u64::from(self.fills) * size_of::<Fill>() as u64);
        let protect = on_pages(self.protect_at)
            && on_pages(self.protect_bytes)
            && within(self.protect_at, self.protect_bytes);
        let rest = within(self.control_at, 8)
            && within(self.init, 1)
            && within(self.init_array_at, u64::from(self.init_count) * 8);
        addresses && entries && segments && fills && protect && rest
    }
}
