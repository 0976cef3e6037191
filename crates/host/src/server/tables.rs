//! Objects whose page tables all processes share: their memory, and the tables that outlive every process that attaches it.
//! `docs/PAGE-TABLES.md`.

use super::object::Object;
use super::{Host, lock};
use commonhold_object::error::Doing;
use commonhold_object::{CreateOptions, Error, ErrorKind, Result, Translation, limits};
use commonhold_sys::{frames, plain};
use commonhold_tables::{Engine, GIGABYTE, HUGE, Module, Segment, tables_of_page};
use commonhold_wired::{ARENA_MEMORY, DESCRIPTION};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The size in whole units of 2 MiB. One that is too large stays so, and is refused as such.
pub(super) fn whole_pages(size_bytes: u64) -> u64 {
    size_bytes.checked_next_multiple_of(HUGE).unwrap_or(size_bytes)
}

/// What the memory is called: that of an arena is told from others, in which a fault may happen (`commonhold faults`).
const LABEL: &str = "commonhold-segment";

pub(super) fn is_arena(options: &CreateOptions) -> bool {
    options.translation == Translation::SharedTables && options.description == DESCRIPTION
}

fn label(options: &CreateOptions) -> &'static str {
    if is_arena(options) { ARENA_MEMORY } else { LABEL }
}

/// Makes the object's memory: of huge pages, or by the module, which makes the tables, too. What clients get is its descriptor.
/// `owner`: the user whose it is.
pub(super) fn make(options: &CreateOptions, owner: u32) -> Result<OwnedFd> {
    let made = match options.is_of_huge_pages() {
        true => commonhold_tables::make(label(options), options.size_bytes),
        false => make_by_module(options.size_bytes, owner),
    };
    made.map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => Error::new(ErrorKind::NoSpace, error.to_string()),
        io::ErrorKind::Unsupported => Error::new(ErrorKind::Unsupported, error.to_string()),
        io::ErrorKind::QuotaExceeded => {
            let text = format!(
                "user {owner} may have no more memory in such segments: make the object smaller, or raise the module's \
                 limit, user_bytes in /sys/module/segshm/parameters"
            );
            Error::new(ErrorKind::Quota, text)
        }
        _ => Error::io("making memory for the object", &error),
    })
}

fn make_by_module(size_bytes: u64, owner: u32) -> io::Result<OwnedFd> {
    let module = Module::open().map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel module segshm serves root alone, and this host is another user's: use the machine's host, or share \
             page tables of huge pages (shared-tables)",
        ),
        _ => error,
    })?;
    Ok(module.make(LABEL, size_bytes, owner)?.descriptor)
}

/// Whether what clients get for it is a segment of the module, which has its memory.
pub(super) fn is_of_module(object: &Object) -> bool {
    object.record().options.translation == Translation::SharedTables4K
}

/// What the bytes of a direct object are read from and written to by calls.
pub(super) fn memory_of(object: &Object) -> io::Result<Option<Arc<OwnedFd>>> {
    match object.descriptor() {
        Some(segment) if is_of_module(object) => {
            Module::memory(segment.as_fd()).map(|memory| Some(Arc::new(memory)))
        }
        other => Ok(other),
    }
}

/// What a reader gets in place of a descriptor: the same, and nobody writes by it.
pub(super) fn for_readers(object: &Object, whole: &OwnedFd) -> Result<OwnedFd> {
    let opened = match is_of_module(object) {
        true => Module::without_device().for_readers(whole.as_fd()),
        false => frames::reopen_read_only(whole),
    };
    opened.doing("opening the object for reading")
}

/// A segment that a client brings back must be one that a host of this user made. A reader's descriptor is opened again for
/// writing, which the maker may.
pub(super) fn own_segment(options: &CreateOptions, fd: OwnedFd) -> Result<OwnedFd> {
    if !options.is_of_huge_pages() {
        // The module opens what is its own, and that root's host has made.
        return Module::open()
            .and_then(|module| module.reopen(fd.as_fd()))
            .doing("opening the segment for writing");
    }
    let me = rustix::process::geteuid().as_raw();
    if !plain::is_huge_made_by(&fd, me, label(options)).unwrap_or(false) {
        return Err(Error::new(ErrorKind::Permission, "this is no segment that this host made"));
    }
    super::returning::open_for_writing(fd)
}

/// Makes the tables of a new object of huge pages.
pub(super) fn begin(options: &CreateOptions, memory: Option<&OwnedFd>) -> Result<Option<Segment>> {
    let memory = memory.filter(|_| options.is_of_huge_pages());
    let segment = memory.map(|fd| Segment::hold(fd, options.size_bytes)).transpose();
    let segment = segment.doing("making the object's page tables")?;
    segment.iter().try_for_each(Segment::fill).doing("filling the object's page tables")?;
    Ok(segment)
}

impl Host {
    /// Joins the tables of an object that the host before made, or a client brought back; without one they are begun again, and
    /// fill when they are used: whoever punched its memory has nobody wait for that here.
    pub(super) fn hold_tables(&self, object: &Object) {
        let options = object.record().options.clone();
        let is_one = options.is_of_huge_pages();
        let Some(memory) = object.descriptor().filter(|_| is_one) else { return };
        match Segment::hold(&*memory, options.size_bytes) {
            Ok(segment) => {
                segment.join();
                *lock(&object.tables) = Some(segment);
            }
            // It can be used without, and then its tables go with the last who has it attached.
            Err(error) => {
                self.repaired(format!("the page tables of object {} are not held: {error}", object.id.0))
            }
        }
    }

    /// Each takes a part of the addresses and mappings that the host may have.
    pub(super) fn check_room_for_tables(&self, options: &CreateOptions, uid: u32) -> Result<()> {
        if !options.is_of_huge_pages() {
            return Ok(());
        }
        let all = self.all_objects();
        let is_one = |object: &&Arc<Object>| object.record().options.is_of_huge_pages();
        let (most, whose, count) = match self.machine.is_ordinary(uid) {
            true => {
                let own = |object: &&Arc<Object>| object.record().charged_uid == uid;
                let count = all.iter().filter(is_one).filter(own).count() as u64;
                (limits::SEGMENTS_PER_ORDINARY_USER, "your user", count)
            }
            false => (limits::SEGMENTS, "this host", all.iter().filter(is_one).count() as u64),
        };
        if count < most {
            return Ok(());
        }
        let text = format!(
            "{whose} has {count} objects with shared page tables, which is the limit: make fewer and larger ones"
        );
        Err(Error::new(ErrorKind::TooMany, text))
    }
}

/// By the module, how many page tables it has. Of huge pages, how many map the first page of a gigabyte of it, in all processes,
/// of that which most do; zero: it has none that are shared, or the kernel does not tell.
pub(super) fn count(object: &Object) -> u64 {
    let size_bytes = object.record().options.size_bytes;
    if is_of_module(object) {
        let info = object.descriptor().and_then(|segment| Module::info(segment.as_fd()).ok());
        return info.map_or(0, |info| info.tables);
    }
    let tables = lock(&object.tables);
    let Some(segment) = tables.as_ref() else { return 0 };
    let pages = (0..size_bytes).step_by(GIGABYTE as usize);
    pages
        .filter_map(|page| tables_of_page(segment.place(page)?).ok())
        .map(|tables| tables.0)
        .max()
        .unwrap_or(0)
}
