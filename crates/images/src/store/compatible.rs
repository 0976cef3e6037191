//! Whether one version may stand for another: what the older promised, the newer has.

use commonhold_image::{RootKind, Roots};

/// What is promised of one root or export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: RootKind,
    /// Its place in the table of entries, of code; of data: 1 if it is one value, for good.
    pub slot: u32,
    /// Where it is.
    pub address: u64,
    /// Its size.
    pub bytes: u64,
    /// The hash of its type; 0: it has none.
    pub layout: u64,
}

impl Export {
    /// All that an image has.
    pub fn all(roots: Roots<'_>) -> Vec<Export> {
        let one = |root: commonhold_image::Root<'_>| Export {
            name: root.name.to_owned(),
            kind: root.kind,
            slot: root.slot,
            address: root.address,
            bytes: root.bytes,
            layout: root.layout,
        };
        roots.iter().map(one).collect()
    }
}

/// What `newer` takes away of what `older` promised; nothing: it can stand for it.
pub fn breaks(older: &[Export], newer: &[Export]) -> Option<String> {
    older.iter().find_map(|old| {
        let name = &old.name;
        let Some(new) = newer.iter().find(|new| new.name == *name) else {
            return Some(format!("{name:?} is not there any more"));
        };
        if new.kind != old.kind {
            return Some(format!("{name:?} was a {:?} and is a {:?}", old.kind, new.kind));
        }
        if new.layout != old.layout {
            return Some(format!("{name:?} has another layout"));
        }
        if old.kind == RootKind::Data && old.slot == 1 && (new.slot, new.bytes) != (old.slot, old.bytes) {
            return Some(format!("{name:?} was one value and is a run"));
        }
        let linked = old.kind != RootKind::Data;
        if linked && (new.slot, new.address) != (old.slot, old.address) {
            return Some(format!(
                "{name:?} moved from entry {} at {:#x} to entry {} at {:#x}",
                old.slot, old.address, new.slot, new.address
            ));
        }
        (old.kind == RootKind::Variable && new.bytes != old.bytes)
            .then(|| format!("{name:?} had {} bytes and has {}", old.bytes, new.bytes))
    })
}
