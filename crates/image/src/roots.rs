//! The table of roots: what can be found in an image by name. In a code image these are its exports.
//!
//! ```text
//! entries of 40 bytes, by name: name at u32 | bytes of name u32 | address u64 | bytes u64 | layout u64 | kind u32 | slot u32
//! names
//! ```

use crate::bytes::{long, word};
use core::cmp::Ordering;

/// Each entry.
pub const ROOT_BYTES: usize = 40;

/// What a root is, and so what the next minor version must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RootKind {
    /// Data that is found by name each time: layout is kept, the address need not be.
    Data,
    /// A function that others were linked to: slot and address are kept.
    Function,
    /// A variable that others were linked to: slot, address, size and layout are kept.
    Variable,
}

impl RootKind {
    /// As it is written.
    pub fn number(self) -> u32 {
        match self {
            RootKind::Data => 1,
            RootKind::Function => 2,
            RootKind::Variable => 3,
        }
    }

    fn of(number: u32) -> Option<RootKind> {
        [RootKind::Data, RootKind::Function, RootKind::Variable]
            .into_iter()
            .find(|kind| kind.number() == number)
    }
}

/// One root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it is.
    pub address: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// The hash of its type; 0: it has none.
    pub layout: u64,
    /// What it is.
    pub kind: RootKind,
    /// In a code image: its place in the table of entries. In a data image: 1 if it is one value, for good.
    pub slot: u32,
}

/// All roots, in the bytes of an image.
#[derive(Clone, Copy, Debug)]
pub struct Roots<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Roots<'a> {
    /// The table in these bytes; none if an entry does not lie in them, or they are not in order.
    pub fn new(bytes: &'a [u8], count: usize) -> Option<Roots<'a>> {
        let roots = Roots { bytes, count };
        let mut before: Option<&str> = None;
        for index in 0..count {
            let name = roots.get(index)?.name;
            if name.is_empty() || before.is_some_and(|before| before >= name) {
                return None;
            }
            before = Some(name);
        }
        Some(roots)
    }

    /// The table in bytes that [`Roots::new`] has accepted, or that nobody could have changed since: nothing is looked
    /// through again.
    pub fn accepted(bytes: &'a [u8], count: usize) -> Roots<'a> {
        Roots { bytes, count }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// One, by its place.
    #[inline(always)]
    pub fn get(&self, index: usize) -> Option<Root<'a>> {
        if index >= self.count {
            return None;
        }
        let at = index.checked_mul(ROOT_BYTES)?;
        let start = word(self.bytes, at)? as usize;
        let name = self.bytes.get(start..start.checked_add(word(self.bytes, at + 4)? as usize)?)?;
        Some(Root {
            name: core::str::from_utf8(name).ok()?,
            address: long(self.bytes, at + 8)?,
            bytes: long(self.bytes, at + 16)?,
            layout: long(self.bytes, at + 24)?,
            kind: RootKind::of(word(self.bytes, at + 32)?)?,
            slot: word(self.bytes, at + 36)?,
        })
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = Root<'a>> + use<'a> {
        let this = *self;
        (0..this.count).filter_map(move |index| this.get(index))
    }

    /// The one of that name.
    #[inline(always)]
    pub fn find(&self, name: &str) -> Option<Root<'a>> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let root = self.get(middle)?;
            match root.name.cmp(name) {
                Ordering::Equal => return Some(root),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        None
    }
}
