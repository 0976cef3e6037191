//! What `image` answers, for people and for programs.

use crate::output::{columns, count};
use commonhold_images::format::RootKind;
use commonhold_images::ranges::Range;
use commonhold_images::store::{Entry, Export, Found, Opened, Published};
use serde::Serialize;

fn hex(number: u64) -> String {
    format!("{number:#x}")
}

/// `add`.
#[derive(Serialize)]
pub struct Added {
    name: String,
    version: String,
    build_id: String,
    path: String,
    is_new: bool,
    fs_verity: bool,
}

impl Added {
    pub fn new(published: &Published) -> Added {
        Added {
            name: published.name.clone(),
            version: published.version.to_string(),
            build_id: published.id.to_string(),
            path: published.path.display().to_string(),
            is_new: published.is_new,
            fs_verity: published.has_verity,
        }
    }
}

pub fn added(all: &[Added]) -> String {
    let line = |one: &Added| {
        let state = if one.is_new { "published" } else { "was there" };
        format!("{}@{} {state}: {}", one.name, one.version, one.path)
    };
    all.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// `list`.
#[derive(Serialize)]
pub struct Listed {
    name: String,
    newest: String,
    versions: usize,
    kind: Option<&'static str>,
    base: Option<String>,
    bytes: Option<u64>,
    fs_verity: Option<bool>,
    unusable: Option<String>,
}

impl Listed {
    pub fn new(
        name: &str,
        newest: &Entry,
        versions: usize,
        image: commonhold_images::Result<Opened>,
    ) -> Listed {
        let found = image.as_ref().ok();
        Listed {
            name: name.to_owned(),
            newest: newest.version.to_string(),
            versions,
            kind: found.map(|image| image.header().kind().name()),
            base: found.map(|image| hex(image.header().base())),
            bytes: found.map(|image| image.file_bytes),
            fs_verity: found.map(Opened::has_verity),
            unusable: image.err().map(|why| why.to_string()),
        }
    }
}

pub fn listed(all: &[Listed]) -> String {
    let row = |one: &Listed| {
        let verity = match one.fs_verity {
            Some(true) => "yes",
            Some(false) => "no",
            None => "-",
        };
        vec![
            one.name.clone(),
            one.newest.clone(),
            one.versions.to_string(),
            one.kind.unwrap_or("unusable").to_owned(),
            one.base.clone().unwrap_or_else(|| "-".into()),
            one.bytes.map_or_else(|| "-".into(), |bytes| bytes.to_string()),
            verity.to_owned(),
        ]
    };
    let header = ["NAME", "NEWEST", "VERSIONS", "KIND", "BASE", "BYTES", "FS-VERITY"];
    columns(Some(&header), all.iter().map(row).collect(), &[2, 5])
}

/// `versions`.
#[derive(Serialize)]
pub struct Tree {
    name: String,
    versions: Vec<Leaf>,
}

#[derive(Serialize)]
struct Leaf {
    version: String,
    #[serde(skip)]
    numbers: (u32, u32),
    build_id: String,
    withdrawn: bool,
    processes: usize,
}

impl Tree {
    pub fn new(name: &str, versions: impl Iterator<Item = (Entry, usize)>) -> Tree {
        let leaf = |(entry, processes): (Entry, usize)| Leaf {
            version: entry.version.to_string(),
            numbers: (entry.version.major, entry.version.minor),
            build_id: entry.id.to_string(),
            withdrawn: entry.withdrawn,
            processes,
        };
        Tree { name: name.to_owned(), versions: versions.map(leaf).collect() }
    }

    /// Each level is two spaces further in: major, minor, and the versions themselves.
    fn text(&self) -> String {
        let mut lines = vec![self.name.clone()];
        let mut before = None;
        for leaf in &self.versions {
            let (major, minor) = leaf.numbers;
            if before.is_none_or(|(there, _)| there != major) {
                lines.push(format!("  {major}"));
            }
            if before != Some(leaf.numbers) {
                lines.push(format!("    {major}.{minor}"));
            }
            before = Some(leaf.numbers);
            let mut line = format!("      {}  {}", leaf.version, &leaf.build_id[..16]);
            if leaf.processes > 0 {
                line.push_str(&format!("  {} processes", leaf.processes));
            }
            if leaf.withdrawn {
                line.push_str("  withdrawn");
            }
            lines.push(line);
        }
        lines.join("\n")
    }
}

pub fn trees(all: &[Tree]) -> String {
    all.iter().map(Tree::text).collect::<Vec<_>>().join("\n")
}

/// `resolve`.
#[derive(Serialize)]
pub struct Resolved {
    name: String,
    version: String,
    build_id: String,
    path: String,
}

impl Resolved {
    pub fn new(found: &Found) -> Resolved {
        Resolved {
            name: found.name.clone(),
            version: found.entry.version.to_string(),
            build_id: found.entry.id.to_string(),
            path: found.path().display().to_string(),
        }
    }

    pub fn text(&self) -> String {
        format!("{}@{} {}", self.name, self.version, self.path)
    }
}

/// `show`.
#[derive(Serialize)]
pub struct Shown {
    name: String,
    version: String,
    kind: &'static str,
    base: String,
    bytes: u64,
    file_bytes: u64,
    group: Option<String>,
    fs_verity: bool,
    imports: Vec<Import>,
    roots: Vec<Root>,
}

#[derive(Serialize)]
struct Import {
    name: String,
    version: String,
    build_id: String,
    base: String,
}

#[derive(Serialize)]
struct Root {
    name: String,
    kind: String,
    address: String,
    bytes: u64,
    layout: String,
    slot: u32,
}

impl Shown {
    pub fn new(image: &Opened, exports: Vec<Export>) -> Shown {
        let header = image.header();
        let import = |one: commonhold_images::format::Import<'_>| Import {
            name: one.name.to_owned(),
            version: one.version.to_string(),
            build_id: one.id.to_string(),
            base: hex(one.base),
        };
        let root = |one: Export| Root {
            name: one.name,
            kind: format!("{:?}", one.kind).to_lowercase(),
            address: hex(one.address),
            bytes: one.bytes,
            layout: format!("{:016x}", one.layout),
            // Of data it says something else.
            slot: if one.kind == RootKind::Data { 0 } else { one.slot },
        };
        Shown {
            name: header.name().to_owned(),
            version: header.version().to_string(),
            kind: header.kind().name(),
            base: hex(header.base()),
            bytes: header.bytes(),
            file_bytes: image.file_bytes,
            group: header.group().map(str::to_owned),
            fs_verity: image.has_verity(),
            imports: header.imports().map(import).collect(),
            roots: exports.into_iter().map(root).collect(),
        }
    }

    pub fn text(&self) -> String {
        let verity = if self.fs_verity { ", checked by the file system" } else { "" };
        let mut lines = vec![format!(
            "{}@{}: {}, {} bytes at {}{verity}",
            self.name, self.version, self.kind, self.bytes, self.base
        )];
        if let Some(group) = &self.group {
            lines.push(format!("never in one process with others of the group {group}"));
        }
        let import = |one: &Import| format!("leads into {}@{} at {}", one.name, one.version, one.base);
        lines.extend(self.imports.iter().map(import));
        let row = |one: &Root| {
            vec![
                one.name.clone(),
                one.kind.clone(),
                one.address.clone(),
                one.bytes.to_string(),
                one.layout.clone(),
                one.slot.to_string(),
            ]
        };
        let header = ["ROOT", "KIND", "ADDRESS", "BYTES", "LAYOUT", "SLOT"];
        let table = columns(Some(&header), self.roots.iter().map(row).collect(), &[3, 5]);
        lines.extend((!table.is_empty()).then_some(table));
        lines.join("\n")
    }
}

/// `verify`.
#[derive(Serialize)]
pub struct Verified {
    looked_at: usize,
    wrong: Vec<Wrong>,
}

#[derive(Serialize)]
struct Wrong {
    image: String,
    why: String,
}

impl Verified {
    pub fn new(looked_at: usize, wrong: &[(String, commonhold_images::Error)]) -> Verified {
        let one = |(image, why): &(String, commonhold_images::Error)| Wrong {
            image: image.clone(),
            why: why.to_string(),
        };
        Verified { looked_at, wrong: wrong.iter().map(one).collect() }
    }
}

/// `rollback`.
#[derive(Serialize)]
pub struct RolledBack {
    withdrawn: String,
    had: Option<String>,
    is_new: bool,
}

impl RolledBack {
    pub fn new(name: &str, done: &commonhold_images::store::RolledBack) -> RolledBack {
        let full = |version| format!("{name}@{version}");
        RolledBack { withdrawn: full(done.withdrawn), had: done.had.map(full), is_new: done.is_new }
    }

    pub fn text(&self) -> String {
        let is = if self.is_new { "is withdrawn" } else { "was withdrawn already" };
        format!("{} {is}, {} is had", self.withdrawn, self.had.as_deref().unwrap_or("none"))
    }
}

/// `restore`.
#[derive(Serialize)]
pub struct Restored {
    restored: String,
}

impl Restored {
    pub fn new(full_name: &str) -> Restored {
        Restored { restored: full_name.to_owned() }
    }
}

/// `remove`.
#[derive(Serialize)]
pub struct Removed {
    pub removed: Vec<String>,
    pub bytes: u64,
}

impl Removed {
    pub fn text(&self) -> String {
        if self.removed.is_empty() {
            return String::new();
        }
        format!("removed {}: {} bytes are free", count(self.removed.len() as u64, "version"), self.bytes)
    }
}

/// `ranges`.
#[derive(Serialize)]
pub struct RangeRow {
    first: String,
    end: String,
    bytes: u64,
    region: &'static str,
    group: Option<String>,
    holder: String,
}

pub fn ranges(all: &[Range]) -> Vec<RangeRow> {
    let row = |range: &Range| RangeRow {
        first: hex(range.first),
        end: hex(range.end()),
        bytes: range.bytes,
        region: range.region.name(),
        group: range.group.clone(),
        holder: range.name.clone(),
    };
    all.iter().map(row).collect()
}

pub fn ranges_text(all: &[RangeRow]) -> String {
    let row = |one: &RangeRow| {
        vec![
            one.first.clone(),
            one.end.clone(),
            one.bytes.to_string(),
            one.region.to_owned(),
            one.holder.clone(),
        ]
    };
    columns(Some(&["FIRST", "END", "BYTES", "REGION", "HOLDER"]), all.iter().map(row).collect(), &[2])
}
