//! The tree as an image: ordinary pointers.

use super::{NODES, Node, key, values};
use crate::failure::{Doing, Result};
use commonhold_images::data::{Arena, Options};
use commonhold_images::include::include_from;
use commonhold_images::layout;
use commonhold_images::ranges::Owner;
use commonhold_images::store::Store;
use std::path::{Path, PathBuf};

layout! {
    /// A node.
    pub struct Sealed<'a> {
        key: u64,
        values: [u64; 3],
        left: Option<&'a Sealed<'a>>,
        right: Option<&'a Sealed<'a>>,
    }
}

impl Node for &Sealed<'_> {
    fn key(self) -> u64 {
        self.key
    }

    fn value(self) -> u64 {
        self.values[0]
    }

    fn left(self) -> Option<Self> {
        self.left
    }

    fn right(self) -> Option<Self> {
        self.right
    }
}

fn store(directory: &Path) -> Store {
    Store::at(directory, Owner::Machine)
}

/// Children before their parent, as rkyv has them.
fn place(arena: &Arena, ranks: std::ops::Range<u64>) -> commonhold_images::Result<Option<&Sealed<'_>>> {
    if ranks.is_empty() {
        return Ok(None);
    }
    let middle = ranks.start + (ranks.end - ranks.start) / 2;
    let left = place(arena, ranks.start..middle)?;
    let right = place(arena, middle + 1..ranks.end)?;
    let key = key(middle);
    Ok(Some(arena.place(Sealed { key, values: values(key), left, right })?))
}

/// Builds and publishes it; gives the file.
pub fn make(directory: &Path) -> Result<PathBuf> {
    let options = Options { store: Some(store(directory)), ..Options::default() };
    let arena = Arena::with("tree@1.0.0", options).doing("making an arena")?;
    if let Some(top) = place(&arena, 0..NODES).doing("placing nodes")? {
        arena.root("tree", top).doing("naming the root")?;
    }
    Ok(arena.seal().doing("sealing")?.path)
}

impl Sealed<'static> {
    /// Includes it, as any program would.
    pub fn include(directory: &Path) -> Result<&'static Sealed<'static>> {
        let image = include_from(&[store(directory)], "tree@1", false).doing("including the tree")?;
        image.root("tree").doing("finding its root")
    }
}
