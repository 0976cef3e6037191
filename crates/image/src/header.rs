//! The first page of an image.
//!
//! ```text
//! 0    magic 8 | format u32 | architecture u16 | kind u16 | version 3 × u32 | number of segments u32
//! 32   base u64 | bytes of addresses u64 | bytes of the file u64 | layout of all roots u64
//! 64   roots at u64 | bytes of roots u64 | number of roots u32 | number of imports u32 | detail at u64 | bytes of detail u64
//! 104  bytes of addresses that are its major version's u64 | group 16
//! 128  name 64
//! 192  segments, 40 bytes each, at most 8: offset u64 | address u64 | bytes in the file u64 | bytes u64 | protection u64
//! 512  imports, 128 bytes each, at most 24: name 64 | version 3 × u32 | 0 u32 | build ID 32 | base u64 | bytes u64
//! 4080 sum of what follows this page u64
//! 4088 sum of what is before u64
//! ```
//! Numbers are little endian; `at` is a place in the file.

use crate::bytes::{half, long, text, word};
use crate::{EXECUTE, Id, READ, Version, WRITE, is_name};
use core::fmt;
use core::ops::Range;

/// The first bytes.
pub const MAGIC: [u8; 8] = *b"CHIMAGE\0";
/// The form of what follows. From the first release on, whoever changes it gives it the next number. Images of builds
/// that were not released have this one, whatever their form was: they are built again.
pub const FORMAT: u32 = 1;
/// The header's.
pub const PAGE_BYTES: usize = 4096;
/// More than any image has.
pub const MOST_SEGMENTS: usize = 8;
/// So many others an image may lead into.
pub const MOST_IMPORTS: usize = 24;
/// This machine's, by the numbers of ELF.
pub const ARCHITECTURE_HERE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// Where the name of the group is, for who reads a page that is mapped.
pub const GROUP_AT: usize = 112;
/// The name of a group has so many at most.
pub const GROUP_BYTES: usize = 16;
pub(crate) const NAME_AT: usize = 128;
pub(crate) const NAME_BYTES: usize = 64;
pub(crate) const SEGMENTS_AT: usize = 192;
pub(crate) const SEGMENT_BYTES: usize = 40;
pub(crate) const IMPORTS_AT: usize = 512;
pub(crate) const IMPORT_BYTES: usize = 128;
pub(crate) const SUM_AT: usize = PAGE_BYTES - 8;
pub(crate) const REST_AT: usize = SUM_AT - 8;

/// What an image has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Data with ordinary pointers.
    Data,
    /// Functions, and each process's own data of theirs.
    Code,
}

impl Kind {
    pub(crate) fn number(self) -> u16 {
        match self {
            Kind::Data => 1,
            Kind::Code => 2,
        }
    }

    /// How it is called.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Data => "data",
            Kind::Code => "code",
        }
    }
}

/// Why these bytes are not an image that can be used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not begin as one.
    Foreign,
    /// Of another Commonhold.
    Format(u32),
    /// Some byte of the first page is not as it was written.
    Damaged,
    /// Some byte behind the first page is not.
    DamagedBehind,
    /// For another processor, by the number of ELF.
    Architecture(u16),
    /// The file is shorter or longer than was written.
    Length {
        /// What was written.
        written: u64,
        /// What is there.
        found: u64,
    },
    /// The page is as it was written, and makes no sense.
    Unsound(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Foreign => write!(to, "it is no image: it does not begin as one"),
            Fault::Format(format) => {
                let way_out = if *format > FORMAT { "upgrade Commonhold" } else { "publish the image again" };
                write!(to, "it has format {format}, and this Commonhold reads format {FORMAT}: {way_out}")
            }
            Fault::Damaged => write!(to, "its first page is damaged: publish the image again"),
            Fault::DamagedBehind => {
                write!(
                    to,
                    "what follows its first page is not what was written: copy or build the image again"
                )
            }
            Fault::Architecture(found) => write!(
                to,
                "it is for another processor (ELF machine {found}; this one is {ARCHITECTURE_HERE}): build it here"
            ),
            Fault::Length { written, found } => {
                write!(to, "it has {found} bytes, and {written} were written: publish the image again")
            }
            Fault::Unsound(what) => write!(to, "its first page makes no sense: {what}"),
        }
    }
}

/// A part of the file that is mapped as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Segment {
    /// Where in the file, on a page.
    pub offset: u64,
    /// Where in memory, on a page.
    pub address: u64,
    /// So many bytes are from the file,
    pub file_bytes: u64,
    /// and the rest of these are zeroes.
    pub bytes: u64,
    /// [`READ`], [`WRITE`], [`EXECUTE`].
    pub protection: u32,
}

/// Another image that this one leads into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Import<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its version.
    pub version: Version,
    /// Its build ID. A data image needs this very one; a code image this or a later minor version at the same addresses.
    pub id: Id,
    /// Where it is.
    pub base: u64,
    /// How long.
    pub bytes: u64,
}

/// The first page, whose bytes were checked.
#[derive(Clone, Copy)]
pub struct Header<'a> {
    page: &'a [u8; PAGE_BYTES],
}

impl fmt::Debug for Header<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}@{} at {:#x}", self.name(), self.version(), self.base())
    }
}

impl<'a> Header<'a> {
    /// The header in the first bytes of a file: for any processor, and the file's length was not looked at. This and what it calls
    /// become part of who includes: a place of its own in the program would be one more fault of each inclusion.
    #[inline(always)]
    pub fn new(file: &'a [u8]) -> Result<Header<'a>, Fault> {
        if file.get(..8) != Some(&MAGIC) {
            return Err(Fault::Foreign);
        }
        let format = word(file, 8).ok_or(Fault::Foreign)?;
        if format != FORMAT {
            return Err(Fault::Format(format));
        }
        let page = file.first_chunk::<PAGE_BYTES>().ok_or(Fault::Damaged)?;
        if long(page, SUM_AT) != Some(commonhold_record::sum(&page[..SUM_AT])) {
            return Err(Fault::Damaged);
        }
        let header = Header { page };
        header.check().map_err(Fault::Unsound)?;
        Ok(header)
    }

    /// The same header once more, of a page that [`Header::new`] has accepted: nothing is computed again.
    pub fn accepted(page: &'a [u8; PAGE_BYTES]) -> Header<'a> {
        Header { page }
    }

    /// Refuses what this machine cannot use, or a file that is not as long as was written.
    pub fn check_here(&self, file_bytes: u64) -> Result<(), Fault> {
        if self.architecture() != ARCHITECTURE_HERE {
            return Err(Fault::Architecture(self.architecture()));
        }
        if self.file_bytes() != file_bytes {
            return Err(Fault::Length { written: self.file_bytes(), found: file_bytes });
        }
        Ok(())
    }

    fn word(&self, at: usize) -> u32 {
        word(self.page, at).unwrap_or(0)
    }

    fn long(&self, at: usize) -> u64 {
        long(self.page, at).unwrap_or(0)
    }

    fn version_at(&self, at: usize) -> Version {
        Version { major: self.word(at), minor: self.word(at + 4), patch: self.word(at + 8) }
    }

    /// For which processor, by the number of ELF.
    pub fn architecture(&self) -> u16 {
        half(self.page, 12).unwrap_or(0)
    }

    /// Data or code.
    pub fn kind(&self) -> Kind {
        if half(self.page, 14) == Some(Kind::Code.number()) { Kind::Code } else { Kind::Data }
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version_at(16)
    }

    /// Its name.
    #[inline(always)]
    pub fn name(&self) -> &'a str {
        text(self.page, NAME_AT, NAME_BYTES).unwrap_or("")
    }

    /// Its first address.
    pub fn base(&self) -> u64 {
        self.long(32)
    }

    /// How many bytes of addresses it takes: whole pages.
    pub fn bytes(&self) -> u64 {
        self.long(40)
    }

    /// How long the file is.
    pub fn file_bytes(&self) -> u64 {
        self.long(48)
    }

    /// The hash of the types of all its roots.
    pub fn layout(&self) -> u64 {
        self.long(56)
    }

    /// Where in the file the table of roots is.
    pub fn roots_at(&self) -> Range<u64> {
        self.long(64)..self.long(64) + self.long(72)
    }

    /// How many roots there are.
    pub fn root_count(&self) -> usize {
        self.word(80) as usize
    }

    /// Where in the file is what else those need who make images of this kind.
    pub fn detail_at(&self) -> Range<u64> {
        self.long(88)..self.long(88) + self.long(96)
    }

    /// How many bytes of addresses its major version has, of code; of data as many as it takes.
    pub fn reserved(&self) -> u64 {
        self.long(104)
    }

    /// The sum of all that follows the first page, by whom the store computes hashes; looked at when it is published,
    /// and when somebody asks whether all is well.
    pub fn rest(&self) -> u64 {
        self.long(REST_AT)
    }

    /// With images of this group it is never in one process; they may have the same addresses.
    #[inline(always)]
    pub fn group(&self) -> Option<&'a str> {
        text(self.page, GROUP_AT, GROUP_BYTES).filter(|group| !group.is_empty())
    }

    /// Its segments, by address.
    #[inline(always)]
    pub fn segments(&self) -> impl Iterator<Item = Segment> + use<'a> {
        let this = *self;
        (0..(this.word(28) as usize).min(MOST_SEGMENTS)).map(
            #[inline(always)]
            move |index| this.segment(index),
        )
    }

    #[inline(always)]
    fn segment(&self, index: usize) -> Segment {
        let at = SEGMENTS_AT + index * SEGMENT_BYTES;
        Segment {
            offset: self.long(at),
            address: self.long(at + 8),
            file_bytes: self.long(at + 16),
            bytes: self.long(at + 24),
            protection: self.word(at + 32),
        }
    }

    /// The images that it leads into.
    pub fn imports(&self) -> impl Iterator<Item = Import<'a>> + use<'a> {
        let this = *self;
        (0..(this.word(84) as usize).min(MOST_IMPORTS)).map(move |index| {
            let at = IMPORTS_AT + index * IMPORT_BYTES;
            let id: [u8; 32] = core::array::from_fn(|byte| this.page[at + 80 + byte]);
            Import {
                name: text(this.page, at, NAME_BYTES).unwrap_or(""),
                version: this.version_at(at + 64),
                id: Id(id),
                base: this.long(at + 112),
                bytes: this.long(at + 120),
            }
        })
    }

    /// Everything that those who use it rely on.
    #[inline(always)]
    fn check(&self) -> Result<(), &'static str> {
        let ensure = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let kind = half(self.page, 14).unwrap_or(0);
        ensure([Kind::Data.number(), Kind::Code.number()].contains(&kind), "it is neither data nor code")?;
        ensure(is_name(self.name()), "its name")?;
        ensure(
            self.word(28) as usize <= MOST_SEGMENTS && self.word(84) as usize <= MOST_IMPORTS,
            "its counts",
        )?;
        let group = text(self.page, GROUP_AT, GROUP_BYTES);
        ensure(group.is_some_and(|group| group.is_empty() || is_name(group)), "its group")?;
        let end = self.base().checked_add(self.bytes());
        let inside = end.is_some_and(|end| end <= 1 << 47) && self.base() >= 1 << 16 && self.bytes() > 0;
        ensure(inside && on_page(self.base()) && on_page(self.bytes()), "its addresses")?;
        let reserved_end = self.base().checked_add(self.reserved());
        let room = reserved_end.is_some_and(|end| end <= 1 << 47) && self.bytes() <= self.reserved();
        ensure(room && (self.kind() == Kind::Code || self.bytes() == self.reserved()), "its room")?;
        let within = |at: usize| {
            let end = self.long(at).checked_add(self.long(at + 8));
            end.is_some_and(|end| end <= self.file_bytes())
        };
        ensure(within(64) && within(88), "its tables")?;
        ensure(self.roots_at().end - self.roots_at().start <= u64::from(u32::MAX), "its table of roots")?;
        self.check_segments()?;
        for import in self.imports() {
            let end = import.base.checked_add(import.bytes);
            let inside = end.is_some_and(|end| end <= 1 << 47) && on_page(import.base);
            ensure(is_name(import.name) && inside, "what it imports")?;
        }
        Ok(())
    }

    #[inline(always)]
    fn check_segments(&self) -> Result<(), &'static str> {
        let mut free = self.base();
        for segment in self.segments() {
            let end = segment.address.checked_add(segment.bytes).ok_or("a segment")?;
            let in_file = segment.offset.checked_add(segment.file_bytes).ok_or("a segment")?;
            let sound = segment.address >= free
                && end <= self.base() + self.bytes()
                && in_file <= self.file_bytes()
                && segment.file_bytes <= segment.bytes
                && segment.bytes > 0
                && on_page(segment.offset)
                && on_page(segment.address)
                && segment.protection & !(READ | WRITE | EXECUTE) == 0
                && segment.protection & (WRITE | EXECUTE) != WRITE | EXECUTE;
            if !sound {
                return Err("a segment");
            }
            free = end.next_multiple_of(PAGE_BYTES as u64);
        }
        let whole = Segment {
            offset: 0,
            address: self.base(),
            file_bytes: self.file_bytes(),
            bytes: self.bytes(),
            protection: READ,
        };
        let mut all = self.segments();
        let is_whole = all.next() == Some(whole) && all.next().is_none();
        if self.kind() == Kind::Data && !is_whole { Err("data that is not one segment") } else { Ok(()) }
    }
}

fn on_page(number: u64) -> bool {
    number.is_multiple_of(PAGE_BYTES as u64)
}
