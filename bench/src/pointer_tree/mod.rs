//! A million-node search tree of 45 MiB, as an image and as rkyv archives: the same nodes, of 48
//! bytes and, with rkyv's `Niche`, of 40, placed in the same order (children before their parent),
//! mapped in the same way, and searched by the same code.

mod archive;
mod image;
pub mod worker;

pub use archive::{Checks, niched, plain};
pub use image::Sealed;

use crate::context::{Context, Random};
use crate::failure::Result;
use rand::RngExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, compiler_fence};

/// Nodes of the tree: 48 bytes each.
pub const NODES: u64 = 1_000_000;

/// The key of the node of that rank.
fn key(rank: u64) -> u64 {
    3 * rank + 1
}

/// What is stored under a key.
fn values(key: u64) -> [u64; 3] {
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    [mixed, mixed ^ key, !mixed]
}

/// A node of either side.
pub trait Node: Copy {
    /// Its key.
    fn key(self) -> u64;
    /// What is stored under it.
    fn value(self) -> u64;
    /// Smaller keys.
    fn left(self) -> Option<Self>;
    /// Larger keys.
    fn right(self) -> Option<Self>;
}

/// The sum of what is stored under these keys, which are all there. `FENCED`: whether the compiler is kept from making one
/// load of two.
#[inline(never)]
pub fn look_up<N: Node, const FENCED: bool>(top: N, keys: &[u64]) -> u64 {
    let mut sum = 0_u64;
    for key in keys {
        let mut at = Some(top);
        while let Some(node) = at {
            if *key == node.key() {
                sum = sum.wrapping_add(node.value());
                break;
            }
            at = if *key < node.key() {
                let left = node.left();
                // No instruction. Without it the compiler makes one load of the two of an image, at a computed place, and the
                // processor cannot begin with the next node before it has compared this one; rkyv's two stay two. So both
                // sides branch.
                if FENCED {
                    compiler_fence(Ordering::SeqCst);
                }
                left
            } else {
                node.right()
            };
        }
    }
    sum
}

/// What [`look_up`] must give.
pub fn expected(keys: &[u64]) -> u64 {
    keys.iter().fold(0, |sum, key| sum.wrapping_add(values(*key)[0]))
}

/// So many keys, at random.
pub fn keys(random: &mut Random, count: usize) -> Vec<u64> {
    (0..count).map(|_| key(random.random_range(0..NODES))).collect()
}

/// Both forms of the tree, made once for a row.
pub struct Both {
    /// The store with the image.
    pub store: PathBuf,
    /// Its file.
    pub image: PathBuf,
    /// The archive.
    pub archive: PathBuf,
    /// The archive with smaller nodes.
    pub niched: PathBuf,
}

impl Both {
    /// Makes them.
    pub fn make(context: &Context) -> Result<Both> {
        let store = context.directory.join("images");
        let archive = context.directory.join("tree.rkyv");
        let image = image::make(&store)?;
        plain::make(&archive)?;
        let niched = context.directory.join("niched.rkyv");
        niched::make(&niched)?;
        Ok(Both { store, image, archive, niched })
    }

    /// Takes a file out of the page cache.
    pub fn forget(file: &Path) -> Result<()> {
        let file = std::fs::File::open(file)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        Ok(())
    }

    /// Brings a file into the page cache.
    pub fn warm(file: &Path) -> Result<()> {
        std::fs::read(file).map(drop)?;
        Ok(())
    }
}
