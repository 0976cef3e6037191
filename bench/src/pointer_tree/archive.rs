//! The tree as rkyv has it: relative pointers of 32 bits. Once as one writes it without a thought,
//! and once with rkyv's `Niche`, which needs no word to say that there is no child: nodes of 40
//! bytes instead of 48.

use super::{NODES, Node, key, values};
use crate::failure::{Doing, Result};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::path::Path;
use std::ptr::null_mut;

/// Whether rkyv looks at all that is there before it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// It trusts the file, as an inclusion does.
    Trusted,
    /// It does.
    Checked,
}

/// Maps the file, for as long as this process lives.
fn bytes(path: &Path) -> Result<&'static [u8]> {
    let file = std::fs::File::open(path)?;
    let length = file.metadata()?.len() as usize;
    // SAFETY: the kernel chooses the place, so nothing that is used is touched.
    let first = unsafe { mmap(null_mut(), length, ProtFlags::READ, MapFlags::PRIVATE, &file, 0)? };
    // SAFETY: mapped above for reading, for good; this row's file, which nobody changes.
    Ok(unsafe { std::slice::from_raw_parts(first.cast(), length) })
}

macro_rules! tree {
    ($module:ident, $what:literal, $node_bytes:literal $(, $with:meta)?) => {
        #[doc = $what]
        pub mod $module {
            use super::*;
            use rkyv::{Archive as Archived, Deserialize, Serialize};

            /// A node, as it is built.
            #[derive(Archived, Serialize, Deserialize)]
            #[rkyv(serialize_bounds(__S: rkyv::ser::Writer + rkyv::ser::Allocator, __S::Error: rkyv::rancor::Source))]
            #[rkyv(deserialize_bounds(__D::Error: rkyv::rancor::Source))]
            #[rkyv(bytecheck(bounds(__C: rkyv::validation::ArchiveContext, __C::Error: rkyv::rancor::Source)))]
            pub struct Archive {
                key: u64,
                values: [u64; 3],
                #[rkyv(omit_bounds)]
                $(#[$with])?
                left: Option<Box<Archive>>,
                #[rkyv(omit_bounds)]
                $(#[$with])?
                right: Option<Box<Archive>>,
            }

            const _: () = assert!(size_of::<ArchivedArchive>() == $node_bytes);

            impl Node for &ArchivedArchive {
                fn key(self) -> u64 {
                    self.key.to_native()
                }

                fn value(self) -> u64 {
                    self.values[0].to_native()
                }

                fn left(self) -> Option<Self> {
                    self.left.as_ref().map(|child| child.get())
                }

                fn right(self) -> Option<Self> {
                    self.right.as_ref().map(|child| child.get())
                }
            }

            fn build(ranks: std::ops::Range<u64>) -> Option<Box<Archive>> {
                if ranks.is_empty() {
                    return None;
                }
                let middle = ranks.start + (ranks.end - ranks.start) / 2;
                let (left, right) = (build(ranks.start..middle), build(middle + 1..ranks.end));
                let key = key(middle);
                Some(Box::new(Archive { key, values: values(key), left, right }))
            }

            /// Builds and writes it.
            pub fn make(path: &Path) -> Result<()> {
                let Some(top) = build(0..NODES) else { return Ok(()) };
                let bytes = rkyv::to_bytes::<rkyv::rancor::Error>(&*top).doing("writing with rkyv")?;
                std::fs::write(path, &bytes)?;
                std::fs::File::open(path)?.sync_all()?;
                Ok(())
            }

            /// Maps the file and gives its root.
            pub fn map(path: &Path, checks: Checks) -> Result<&'static ArchivedArchive> {
                let bytes = bytes(path)?;
                match checks {
                    // SAFETY: written by `make`, of this type.
                    Checks::Trusted => Ok(unsafe { rkyv::access_unchecked::<ArchivedArchive>(bytes) }),
                    Checks::Checked => {
                        rkyv::access::<ArchivedArchive, rkyv::rancor::Error>(bytes).doing("checking with rkyv")
                    }
                }
            }
        }
    };
}

tree!(plain, "Children as rkyv has an `Option<Box>`.", 48);
tree!(niched, "Children by rkyv's `Niche`.", 40, rkyv(with = rkyv::with::Niche));
