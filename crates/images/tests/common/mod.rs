//! A store of its own for each test, and images made byte by byte.
#![allow(dead_code, reason = "each file of tests uses a part of it")]

#[path = "../../../../tests/left_out.rs"]
pub mod left_out;
#[path = "../../../../tests/limit.rs"]
pub mod limit;

use commonhold_image::{
    ARCHITECTURE_HERE, Fault, Fields, Id, Import, Kind, PAGE_BYTES, READ, ROOT_BYTES, RootKind, Segment,
    Version, encode,
};
use commonhold_images::Result;
use commonhold_images::data::{Arena, Options};
use commonhold_images::include::Image;
use commonhold_images::ranges::Owner;
use commonhold_images::store::{Published, Rest, Store};
use std::io::Write;
use tempfile::TempDir;

pub fn version(text: &str) -> Version {
    Version::parse(text).unwrap()
}

/// An image to be made.
#[derive(Clone)]
pub struct Made {
    pub kind: Kind,
    pub name: String,
    pub version: Version,
    pub architecture: u16,
    /// What its second page is full of.
    pub fill: u8,
    /// Name, kind, slot and layout, by name.
    pub roots: Vec<(String, RootKind, u32, u64)>,
    pub imports: Vec<Id>,
    pub base: Option<u64>,
    pub reserved: Option<u64>,
    pub protection: u32,
}

impl Made {
    pub fn data(name: &str, text: &str) -> Made {
        Made {
            kind: Kind::Data,
            name: name.into(),
            version: version(text),
            architecture: ARCHITECTURE_HERE,
            fill: 0,
            roots: Vec::new(),
            imports: Vec::new(),
            base: None,
            reserved: None,
            protection: READ,
        }
    }
}

pub struct Place {
    _folder: Option<TempDir>,
    pub store: Store,
}

impl Place {
    pub fn new() -> Place {
        limit::begin();
        let folder = TempDir::new().unwrap();
        let store = Store::at(&folder.path().join("store"), Owner::Machine);
        store.create().unwrap();
        Place { _folder: Some(folder), store }
    }

    /// A store that is elsewhere.
    pub fn of(store: Store) -> Place {
        Place { _folder: None, store }
    }

    /// First page, one page, roots.
    pub fn try_bytes(&self, made: &Made) -> std::result::Result<Vec<u8>, Fault> {
        let bytes = 1 << 16;
        let base = made
            .base
            .unwrap_or_else(|| self.store.reserve(made.kind, &made.name, made.version, bytes).unwrap().first);
        let mut names: Vec<u8> = Vec::new();
        let mut table = Vec::new();
        for (name, kind, slot, layout) in &made.roots {
            let at = made.roots.len() * ROOT_BYTES + names.len();
            table.extend((at as u32).to_le_bytes());
            table.extend((name.len() as u32).to_le_bytes());
            let address = base + PAGE_BYTES as u64 + u64::from(*slot) * 16;
            for long in [address, 8, *layout] {
                table.extend(long.to_le_bytes());
            }
            table.extend(kind.number().to_le_bytes());
            table.extend(slot.to_le_bytes());
            names.extend(name.as_bytes());
        }
        table.extend(names);
        let roots_at = 2 * PAGE_BYTES as u64;
        let file_bytes = roots_at + table.len() as u64;
        let bytes = file_bytes.next_multiple_of(PAGE_BYTES as u64);
        let there: Vec<_> = made.imports.iter().map(|id| self.store.open(*id).unwrap()).collect();
        let imports: Vec<Import<'_>> = there
            .iter()
            .zip(&made.imports)
            .map(|(image, id)| {
                let header = image.header();
                let (name, version) = (header.name(), header.version());
                Import { name, version, id: *id, base: header.base(), bytes: header.bytes() }
            })
            .collect();
        let page = [made.fill; PAGE_BYTES];
        let mut rest = Rest::default();
        rest.add(&page);
        rest.add(&table);
        let mut image = encode(&Fields {
            kind: made.kind,
            architecture: made.architecture,
            name: &made.name,
            version: made.version,
            base,
            bytes,
            file_bytes,
            layout: 0,
            roots_at: roots_at..file_bytes,
            root_count: made.roots.len() as u32,
            detail_at: 0..0,
            reserved: made.reserved.unwrap_or(bytes),
            rest: rest.sum(),
            group: None,
            segments: &[Segment { offset: 0, address: base, file_bytes, bytes, protection: made.protection }],
            imports: &imports,
        })?
        .to_vec();
        image.extend(page);
        image.extend(table);
        Ok(image)
    }

    pub fn bytes(&self, made: &Made) -> Vec<u8> {
        self.try_bytes(made).unwrap()
    }

    pub fn publish_bytes(&self, bytes: &[u8]) -> Result<Published> {
        let mut draft = self.store.draft().unwrap();
        draft.write_all(bytes).unwrap();
        self.store.publish(draft)
    }

    pub fn publish(&self, made: &Made) -> Result<Published> {
        self.publish_bytes(&self.bytes(made))
    }

    /// The names of all content.
    pub fn content(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.store.root().join("content")).unwrap();
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }
}

/// Memory for an image of that name.
pub fn arena(place: &Place, text: &str, imports: &[Image]) -> Arena {
    let options = Options {
        store: Some(place.store.clone()),
        capacity: 1 << 26,
        group: None,
        imports: imports.to_vec(),
    };
    Arena::with(text, options).unwrap()
}
