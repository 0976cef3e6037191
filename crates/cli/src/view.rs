//! Objects, mappings and hosts as JSON documents. The fields are a promise to programs, so they are written out
//! here and do not follow the types inside.

use crate::people::People;
use commonhold::Sharing;
use commonhold::tags::{Machine, Tagged, Translated};
use commonhold::{
    CreateOptions, EntryInfo, HostStatus, MappingInfo, ObjectInfo, OnLastDeath, Ownership, PAGE_SIZE_BYTES,
    PageSize, PagerKind, Protection,
};
use serde::Serialize;

/// Who an entry belongs to.
#[derive(Debug, Serialize)]
pub struct OwnerView {
    uid: u32,
    gid: u32,
    /// Name of the user; the number where it has none.
    pub user: String,
    /// Name of the group.
    pub group: String,
    /// Octal, four digits.
    mode: String,
}

impl OwnerView {
    fn new(ownership: Ownership, people: &mut People) -> Self {
        OwnerView {
            uid: ownership.uid,
            gid: ownership.gid,
            user: people.user(ownership.uid),
            group: people.group(ownership.gid),
            mode: format!("{:04o}", ownership.mode),
        }
    }
}

/// An object or a directory.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum EntryView {
    /// A directory.
    Directory {
        /// Its name.
        name: String,
        /// Whose it is.
        #[serde(flatten)]
        owner: OwnerView,
    },
    /// An object.
    Object(Box<ObjectView>),
}

/// An object.
#[derive(Debug, Serialize)]
pub struct ObjectView {
    name: Option<String>,
    id: u64,
    #[serde(flatten)]
    owner: OwnerView,
    size_bytes: u64,
    pager: &'static str,
    file: Option<String>,
    pager_name: Option<String>,
    coherence: &'static str,
    /// Of a strict object, bytes.
    page_size: Option<u64>,
    replicas: u32,
    home_moves: bool,
    translation: &'static str,
    /// With shared page tables: how many map each page at most; none where the host is not told.
    page_tables: Option<u64>,
    /// Where it is in all processes, if it was created fixed.
    address: Option<String>,
    /// How many bytes of addresses it has there.
    room_bytes: Option<u64>,
    sync: &'static str,
    controlled: bool,
    freezable: bool,
    read_only: bool,
    reserve: bool,
    on_last_death: &'static str,
    /// So long after its last user its name goes; none: it stays.
    ephemeral_ms: Option<u32>,
    budget_bytes: Option<u64>,
    fault_deadline_ms: Option<u32>,
    pager_deadline_ms: Option<u32>,
    description: String,
    types: Vec<TypesView>,
    /// In the format of which machine type it is stored; none: it has no tags.
    stored_as: Option<&'static str>,
    translated: Translated,
    resident_bytes: u64,
    dirty_bytes: u64,
    spilled_bytes: u64,
    mappings: u64,
    opens: u64,
    charged_to: String,
    warning: Option<String>,
    /// What its home is called; none outside of a cluster.
    home: Option<String>,
    /// Whether that is another host than the one that was asked.
    is_elsewhere: bool,
    lost_pages: u64,
    reverted_pages: u64,
    /// Another one whenever pages went back to an older version.
    loss_generation: u64,
}

/// Pages that have a tag.
#[derive(Debug, Serialize)]
pub struct TypesView {
    offset: u64,
    length: u64,
    tag: String,
    hash: String,
}

impl TypesView {
    fn new(run: &Tagged<'_>) -> TypesView {
        TypesView {
            offset: run.first * PAGE_SIZE_BYTES,
            length: run.count * PAGE_SIZE_BYTES,
            tag: run.tag.to_string(),
            hash: format!("{:016x}", run.tag.hash()),
        }
    }
}

/// The word for what happens after a killed last mapper.
pub fn last_death_word(choice: OnLastDeath) -> &'static str {
    match choice {
        OnLastDeath::Keep => "keep",
        OnLastDeath::Revert => "revert",
    }
}

/// In pages of which size a strict object goes from host to host.
pub fn strict_page_size(options: &CreateOptions) -> Option<PageSize> {
    options.coherence.is_strict().then_some(options.page_size)
}

fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

impl ObjectView {
    /// The view of an object.
    pub fn new(info: &ObjectInfo, people: &mut People) -> Self {
        let options = &info.options;
        ObjectView {
            name: info.name.as_ref().map(|n| n.as_str().to_owned()),
            id: info.id.0,
            owner: OwnerView::new(info.ownership, people),
            size_bytes: options.size_bytes,
            pager: options.pager.word(),
            file: given(&info.file_path),
            pager_name: match &options.pager {
                PagerKind::External { pager } => Some(pager.clone()),
                _ => None,
            },
            coherence: options.coherence.word(),
            page_size: strict_page_size(options).map(PageSize::bytes),
            replicas: options.replicas,
            home_moves: options.home_moves,
            translation: options.translation.word(),
            page_tables: Some(info.page_tables).filter(|tables| *tables > 0),
            address: options.fixed.map(|fixed| format!("{:#x}", fixed.address)),
            room_bytes: options.fixed.map(|fixed| fixed.room_bytes),
            sync: options.sync.word(),
            controlled: info.controlled,
            freezable: options.freezable,
            read_only: options.read_only,
            reserve: options.reserves(),
            on_last_death: last_death_word(options.on_last_death),
            ephemeral_ms: options.ephemeral_ms,
            budget_bytes: options.budget_bytes,
            fault_deadline_ms: options.fault_deadline(),
            pager_deadline_ms: options.pager_deadline_ms,
            description: options.description.clone(),
            types: options.types.all().map(|run| TypesView::new(&run)).collect(),
            stored_as: options.types.format().map(Machine::word),
            translated: info.translated,
            resident_bytes: info.resident_bytes,
            dirty_bytes: info.dirty_bytes,
            spilled_bytes: info.spilled_bytes,
            mappings: info.mappings,
            opens: info.opens,
            charged_to: info.charged_to.clone(),
            warning: given(&info.warning),
            home: given(&info.home),
            is_elsewhere: info.is_elsewhere,
            lost_pages: info.losses.lost_pages,
            reverted_pages: info.losses.reverted_pages,
            loss_generation: info.losses.generation,
        }
    }
}

impl EntryView {
    /// The view of an entry.
    pub fn new(entry: &EntryInfo, people: &mut People) -> Self {
        match entry {
            EntryInfo::Object(info) => EntryView::Object(Box::new(ObjectView::new(info, people))),
            EntryInfo::Directory { name, ownership } => EntryView::Directory {
                name: name.as_str().to_owned(),
                owner: OwnerView::new(*ownership, people),
            },
        }
    }
}

/// A mapping.
#[derive(Debug, Serialize)]
pub struct MappingView {
    /// Process.
    pub pid: u32,
    /// Its program, where it can be seen.
    pub program: Option<String>,
    /// User, by number.
    pub uid: u32,
    /// User, by name.
    pub user: String,
    /// Address in that process.
    pub address: String,
    /// Bytes.
    pub length_bytes: u64,
    /// First byte of the object.
    pub offset_bytes: u64,
    /// `read` or `read-write`.
    pub protection: &'static str,
    /// `shared` or `private`.
    pub sharing: &'static str,
    /// Faults served for it.
    pub faults: u64,
}

impl MappingView {
    /// The view of a mapping.
    pub fn new(info: &MappingInfo, people: &mut People) -> Self {
        let program = std::fs::read_to_string(format!("/proc/{}/comm", info.pid)).ok();
        MappingView {
            pid: info.pid,
            program: program.map(|name| name.trim_end().to_owned()),
            uid: info.uid,
            user: people.user(info.uid),
            address: format!("{:#x}", info.address),
            length_bytes: info.length_bytes,
            offset_bytes: info.offset_bytes,
            protection: match info.protection {
                Protection::Read => "read",
                Protection::ReadWrite => "read-write",
            },
            sharing: match info.sharing {
                Sharing::Shared => "shared",
                Sharing::Private => "private",
            },
            faults: info.faults,
        }
    }
}

/// A host. Its status is a document already; only whether there is one is added.
#[derive(Debug, Serialize)]
pub struct HostView {
    /// Whether a host answers.
    pub running: bool,
    /// Where it was looked for, or is.
    pub state_directory: String,
    /// What it says of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<HostStatus>,
}
