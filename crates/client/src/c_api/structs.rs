//! The structures of the header. Each begins with its size as the caller knows it, so that later versions of
//! the library can add fields at the end.

use super::null;
use crate::{
    Coherence, CreateOptions, EntryInfo, Error, ErrorKind, Fixed, ObjectInfo, OnLastDeath, OnLoss, Ownership,
    PageSize, PagerKind, Result, SyncMode, Translation,
};
use std::ffi::{c_char, c_int};

/// `ch_options`: how to create an object.
#[allow(non_camel_case_types, missing_docs)] // the names of the header, documented there
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ch_options {
    pub struct_bytes: usize,
    pub size_bytes: u64,
    pub budget_bytes: u64,
    pub pager_name: *const c_char,
    pub description: *const c_char,
    pub pager: c_int,
    pub sync: c_int,
    pub on_last_death: c_int,
    pub reserve: c_int,
    pub controlled: c_int,
    pub freezable: c_int,
    pub fault_deadline_ms: u32,
    pub pager_deadline_ms: u32,
    pub mode: u32,
    pub coherence: c_int,
    pub page_size_bytes: u64,
    pub replicas: u32,
    pub home_moves: c_int,
    pub translation: c_int,
    pub fixed: c_int,
    pub room_bytes: u64,
    pub ephemeral: c_int,
    pub linger_ms: u32,
}

const OLDEST_OPTIONS_BYTES: usize = size_of::<ch_options>();

/// `ch_info`: what is known of an object or directory.
#[allow(non_camel_case_types, missing_docs)] // as above
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ch_info {
    pub struct_bytes: usize,
    pub id: u64,
    pub size_bytes: u64,
    pub resident_bytes: u64,
    pub dirty_bytes: u64,
    pub spilled_bytes: u64,
    pub budget_bytes: u64,
    pub mappings: u64,
    pub opens: u64,
    pub is_directory: c_int,
    pub pager: c_int,
    pub sync: c_int,
    pub on_last_death: c_int,
    pub controlled: c_int,
    pub freezable: c_int,
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
    pub unused: u32,
    pub name: [c_char; 1032],
    pub description: [c_char; 4104],
    pub file_path: [c_char; 4096],
    pub warning: [c_char; 512],
    pub home: [c_char; 264],
    pub lost_pages: u64,
    pub reverted_pages: u64,
    pub loss_generation: u64,
    pub is_elsewhere: c_int,
    pub translation: c_int,
    pub page_tables: u64,
    pub address: u64,
    pub room_bytes: u64,
}

const OLDEST_INFO_BYTES: usize = size_of::<ch_info>();

impl ch_options {
    const DEFAULT: ch_options = ch_options {
        struct_bytes: size_of::<ch_options>(),
        size_bytes: 0,
        budget_bytes: 0,
        pager_name: std::ptr::null(),
        description: std::ptr::null(),
        pager: 0,
        sync: 0,
        on_last_death: 0,
        reserve: 0,
        controlled: 0,
        freezable: 0,
        fault_deadline_ms: 0,
        pager_deadline_ms: 0,
        mode: 0o600,
        coherence: 0,
        page_size_bytes: 0,
        replicas: 0,
        home_moves: 0,
        translation: 0,
        fixed: 0,
        room_bytes: 0,
        ephemeral: 0,
        linger_ms: 0,
    };

    /// The Rust form.
    ///
    /// # Safety
    /// `options` is null, or has as many bytes as its first field says, and its strings are null or C strings.
    pub(super) unsafe fn read(options: *const ch_options) -> Result<CreateOptions> {
        if options.is_null() {
            return Err(null("options"));
        }
        let mut known = ch_options::DEFAULT;
        // SAFETY: the caller's promise; the size is the first field.
        let bytes = unsafe { (&raw const (*options).struct_bytes).read_unaligned() };
        check_size("ch_options", bytes, OLDEST_OPTIONS_BYTES)?;
        // SAFETY: the caller's promise.
        unsafe { check_rest("ch_options", options.cast(), bytes, size_of::<ch_options>()) }?;
        // SAFETY: both have at least `bytes.min(size_of::<ch_options>())` bytes.
        unsafe {
            let common = bytes.min(size_of::<ch_options>());
            std::ptr::copy_nonoverlapping(options.cast::<u8>(), (&raw mut known).cast::<u8>(), common);
        }
        // SAFETY: the strings are as the caller promised.
        unsafe { known.to_rust() }
    }

    /// Whether it has one address in all processes.
    fn fixed(&self) -> Result<Option<Fixed>> {
        match flag("fixed", self.fixed)? {
            true => Ok(Some(Fixed::asked(self.room_bytes))),
            false if self.room_bytes != 0 => Err(Error::invalid(
                "room_bytes is for objects with a fixed address: set fixed, or leave it 0",
            )),
            false => Ok(None),
        }
    }

    unsafe fn to_rust(self) -> Result<CreateOptions> {
        use super::outcome::{optional_text, text};
        let pager = match self.pager {
            0 => PagerKind::Anonymous,
            1 => PagerKind::File,
            // SAFETY: the caller's promise.
            2 => PagerKind::External { pager: unsafe { text("pager_name", self.pager_name) }?.to_owned() },
            other => return Err(Error::invalid(format!("pager {other} is none of the CH_PAGER_ constants"))),
        };
        let sync = match self.sync {
            0 => SyncMode::Plain,
            1 => SyncMode::Ordered,
            2 => SyncMode::Atomic,
            other => return Err(Error::invalid(format!("sync {other} is none of the CH_SYNC_ constants"))),
        };
        let on_last_death = match self.on_last_death {
            0 => OnLastDeath::Keep,
            1 => OnLastDeath::Revert,
            other => {
                return Err(Error::invalid(format!(
                    "on_last_death {other} is neither CH_KEEP nor CH_REVERT"
                )));
            }
        };
        // CH_STRICT and CH_STRICT_REVERT: below, when it is known what else the object is to be.
        let coherence = match self.coherence {
            0..=2 => Coherence::Local,
            3 => Coherence::Explicit,
            4 => Coherence::strict(OnLoss::Error),
            5 => Coherence::strict(OnLoss::Revert),
            6 => Coherence::central(OnLoss::Error),
            7 => Coherence::central(OnLoss::Revert),
            other => {
                return Err(Error::invalid(format!(
                    "coherence {other} is none of CH_LOCAL, CH_STRICT, CH_EXPLICIT and the others of their kind"
                )));
            }
        };
        let reserve = match self.reserve {
            0 => None,
            1 => Some(true),
            2 => Some(false),
            other => {
                return Err(Error::invalid(format!("reserve {other} is none of the CH_RESERVE_ constants")));
            }
        };
        // SAFETY: the caller's promise.
        let description = unsafe { optional_text("description", self.description) }?.unwrap_or("").to_owned();
        let given = |ms: u32| (ms != 0).then_some(ms);
        let options = CreateOptions {
            size_bytes: self.size_bytes,
            pager,
            sync,
            controlled: flag("controlled", self.controlled)?,
            freezable: flag("freezable", self.freezable)?,
            reserve,
            on_last_death,
            budget_bytes: (self.budget_bytes != 0).then_some(self.budget_bytes),
            fault_deadline_ms: given(self.fault_deadline_ms),
            pager_deadline_ms: given(self.pager_deadline_ms),
            mode: self.mode,
            description,
            coherence,
            page_size: match self.page_size_bytes {
                0 => PageSize::SMALLEST,
                bytes => PageSize::new(bytes)?,
            },
            replicas: self.replicas,
            home_moves: flag("home_moves", self.home_moves)?,
            translation: match self.translation {
                0 => Translation::Paged,
                1 => Translation::SharedTables,
                2 => Translation::SharedTables4K,
                3 => Translation::Wired,
                other => {
                    let what = format!(
                        "translation {other} is none of CH_PAGED, CH_SHARED_TABLES, CH_SHARED_TABLES_4K and CH_WIRED"
                    );
                    return Err(Error::invalid(what));
                }
            },
            read_only: false,
            fixed: self.fixed()?,
            types: crate::tags::Types::default(),
            ephemeral_ms: self.ephemeral()?,
        };
        Ok(match self.coherence {
            1 => options.strict(OnLoss::Error),
            2 => options.strict(OnLoss::Revert),
            _ => options,
        })
    }
}

impl ch_options {
    fn ephemeral(&self) -> Result<Option<u32>> {
        let is_ephemeral = flag("ephemeral", self.ephemeral)?;
        if self.linger_ms != 0 && !is_ephemeral {
            return Err(Error::invalid(
                "linger_ms is for ephemeral objects: set ephemeral to 1, or leave it out",
            ));
        }
        Ok(is_ephemeral.then_some(self.linger_ms))
    }
}

fn check_size(what: &str, bytes: usize, oldest: usize) -> Result<()> {
    if bytes < oldest {
        return Err(Error::invalid(format!(
            "struct_bytes of {what} is {bytes}, less than the {oldest} of the oldest version: initialise the \
             structure as commonhold.h says"
        )));
    }
    Ok(())
}

/// More than any version of a structure will have.
const MOST_BYTES: usize = 1 << 16;

/// Refuses what a later version of the structure says and this one does not know: it may be all zeros alone.
///
/// # Safety
/// `structure` has `bytes` bytes.
unsafe fn check_rest(what: &str, structure: *const u8, bytes: usize, known: usize) -> Result<()> {
    if bytes > MOST_BYTES {
        return Err(Error::invalid(format!(
            "struct_bytes of {what} is {bytes}: initialise it as commonhold.h says"
        )));
    }
    // SAFETY: the caller's promise; the range ends within the structure.
    let is_set = |at: &usize| unsafe { structure.add(*at).read() } != 0;
    match (known..bytes).find(is_set) {
        Some(at) => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "byte {at} of {what} is set, which this version of libcommonhold ({}) does not know: use the library of \
                 the header that the program was built with, or leave that option 0",
                env!("CARGO_PKG_VERSION")
            ),
        )),
        None => Ok(()),
    }
}

fn flag(what: &str, value: c_int) -> Result<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Error::invalid(format!("{what} {other} is neither 0 nor 1"))),
    }
}

/// Fills the structure with defaults.
///
/// # Safety
/// `options` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_options_init(options: *mut ch_options) {
    if !options.is_null() {
        // SAFETY: the caller's promise.
        unsafe { options.write(ch_options::DEFAULT) };
    }
}

impl ch_info {
    /// The C form of what is known.
    pub(super) fn of(entry: &EntryInfo) -> Box<ch_info> {
        // SAFETY: integers and arrays of them, for which all zeroes are valid.
        let mut info: Box<ch_info> = unsafe { Box::new_zeroed().assume_init() };
        info.struct_bytes = size_of::<ch_info>();
        match entry {
            EntryInfo::Directory { name, ownership } => {
                info.is_directory = 1;
                fill(&mut info.name, name.as_str());
                info.own(*ownership);
            }
            EntryInfo::Object(object) => info.describe(object),
        }
        info
    }

    fn own(&mut self, ownership: Ownership) {
        (self.uid, self.gid, self.mode) = (ownership.uid, ownership.gid, ownership.mode);
    }

    fn describe(&mut self, object: &ObjectInfo) {
        let options = &object.options;
        self.id = object.id.0;
        self.size_bytes = options.size_bytes;
        self.resident_bytes = object.resident_bytes;
        self.dirty_bytes = object.dirty_bytes;
        self.spilled_bytes = object.spilled_bytes;
        self.budget_bytes = options.budget_bytes.unwrap_or(0);
        self.mappings = object.mappings;
        self.opens = object.opens;
        self.pager = match options.pager {
            PagerKind::Anonymous => 0,
            PagerKind::File => 1,
            PagerKind::External { .. } => 2,
        };
        self.sync = match options.sync {
            SyncMode::Plain => 0,
            SyncMode::Ordered => 1,
            SyncMode::Atomic => 2,
        };
        self.on_last_death = c_int::from(options.on_last_death == OnLastDeath::Revert);
        self.controlled = c_int::from(object.controlled);
        self.freezable = c_int::from(options.freezable);
        self.own(object.ownership);
        self.translation = match options.translation {
            Translation::Paged => 0,
            Translation::SharedTables => 1,
            Translation::SharedTables4K => 2,
            Translation::Wired => 3,
        };
        self.page_tables = object.page_tables;
        let fixed = options.fixed.unwrap_or_default();
        (self.address, self.room_bytes) = (fixed.address, fixed.room_bytes);
        fill(&mut self.name, object.name.as_ref().map_or("", |name| name.as_str()));
        fill(&mut self.description, &options.description);
        fill(&mut self.file_path, &object.file_path);
        fill(&mut self.warning, &object.warning);
        fill(&mut self.home, &object.home);
        self.lost_pages = object.losses.lost_pages;
        self.reverted_pages = object.losses.reverted_pages;
        self.loss_generation = object.losses.generation;
        self.is_elsewhere = c_int::from(object.is_elsewhere);
    }

    /// Gives it to a caller, who may know a shorter version.
    ///
    /// # Safety
    /// `target` is null, or has as many bytes as its first field says.
    pub(super) unsafe fn give(&self, target: *mut ch_info) -> Result<()> {
        if target.is_null() {
            return Err(null("info"));
        }
        // SAFETY: the caller's promise; the size is the first field.
        let bytes = unsafe { (&raw const (*target).struct_bytes).read_unaligned() };
        check_size("ch_info", bytes, OLDEST_INFO_BYTES)?;
        let common = bytes.min(size_of::<ch_info>());
        // SAFETY: both have at least `common` bytes, and the target is the caller's alone.
        unsafe {
            std::ptr::copy_nonoverlapping((&raw const *self).cast::<u8>(), target.cast::<u8>(), common);
            (&raw mut (*target).struct_bytes).write_unaligned(bytes);
        }
        Ok(())
    }
}

/// Writes text as a C string, cut at a character where it is too long.
fn fill(target: &mut [c_char], text: &str) {
    let mut end = text.len().min(target.len() - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (slot, byte) in target.iter_mut().zip(text.as_bytes()[..end].iter().filter(|byte| **byte != 0)) {
        *slot = *byte as c_char;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a program sees it that was built with a later header.
    #[repr(C)]
    struct Later {
        known: ch_options,
        unknown: [u64; 4],
    }

    fn read(later: &Later) -> Result<CreateOptions> {
        // SAFETY: its first field says how many bytes it has, and it names no strings.
        unsafe { ch_options::read(std::ptr::from_ref(later).cast()) }
    }

    #[test]
    fn options_that_this_version_does_not_know_are_refused_unless_they_are_zero() {
        let mut later = Later { known: ch_options::DEFAULT, unknown: [0; 4] };
        later.known.struct_bytes = size_of::<Later>();
        read(&later).unwrap();
        for place in 0..4 {
            later.unknown = [0; 4];
            later.unknown[place] = 1;
            let refused = read(&later).unwrap_err();
            assert!(refused.message.contains("does not know") && refused.kind == ErrorKind::Unsupported);
        }
        // What lies behind the structure is not looked at.
        later.known.struct_bytes = size_of::<ch_options>();
        read(&later).unwrap();
        later.known.struct_bytes = usize::MAX;
        read(&later).unwrap_err();
        later.known.struct_bytes = size_of::<ch_options>();
        later.known.controlled = 2;
        assert!(read(&later).unwrap_err().message.contains("controlled 2"));
    }
}
