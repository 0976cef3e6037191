//! One inclusion: open, look at the header, include what the image calls, map, fill in, construct.

use crate::format::{
    DATA, Fill, HEADER_AT, Header, IMPORTS_AT, Import, NAME_BYTES, READ, Segment, X86_64, ZERO, sum,
};
use crate::open;
use crate::records::Records;
use crate::system::{self, File};
use crate::taken::{self, DONE};
use crate::why::*;
use crate::words::same;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

/// An image that is asked for.
pub struct Place<'a> {
    /// Name and major version, with zeros behind it.
    pub name: &'a [u8; NAME_BYTES],
    /// Where the newest of its major version is, with a zero behind it.
    pub path: &'a [u8],
    /// Its base.
    pub base: u64,
    /// Its lineage.
    pub lineage: u64,
    /// How many slots it must have.
    pub slots: u32,
    /// The program's table of functions.
    pub table: *const u64,
    /// How many it has.
    pub table_count: u32,
    /// Of their names.
    pub table_sum: u64,
    /// The program's records.
    pub records: Records,
    /// Which image calls this one, if it is included for that.
    pub for_whom: Option<&'a Place<'a>>,
}

impl Place<'_> {
    fn why(&self, code: i32) -> Why {
        Why { code, name: *self.name, first: self.base, end: self.base }
    }

    /// Whether it is being included further up.
    fn is_under_way(&self) -> bool {
        let mut above = self.for_whom;
        while let Some(place) = above {
            if place.base == self.base {
                return true;
            }
            above = place.for_whom;
        }
        false
    }
}

/// Includes it. Nothing is changed if that fails. Whether it is whole: false where this very thread is about it further up.
pub fn include(place: &Place<'_>) -> Result<bool, Why> {
    if place.is_under_way() {
        return Ok(false);
    }
    let fail = |code| place.why(code);
    let file = open::newest(place.path).map_err(fail)?;
    let mut raw = MaybeUninit::<Header>::uninit();
    let header = header(place, &file, &mut raw).map_err(fail)?;
    if header.import_count != 0 {
        imports(place, header, &file.0)?;
    }
    match map(&file, header) {
        Ok(()) => {}
        Err(TAKEN) => {
            let end = header.base + header.extent;
            return taken::is_whole(place).map_err(|code| Why { end, ..fail(code) });
        }
        Err(code) => return Err(fail(code)),
    }
    fill(place, header);
    // Whoever finds the addresses in use looks here for who is about it, and whether all is done.
    let say = |state| {
        if header.control_at != 0 {
            // SAFETY: a word of the private data, which is mapped.
            unsafe {
                (*((header.base + header.control_at) as *const AtomicU32)).store(state, Ordering::Release)
            };
        }
    };
    if header.init != 0 || header.init_count != 0 {
        say(system::thread());
        construct(header);
    }
    say(DONE);
    Ok(true)
}

fn header<'a>(
    place: &Place<'_>,
    file: &(File, u64),
    raw: &'a mut MaybeUninit<Header>,
) -> Result<&'a Header, i32> {
    let header = file.0.at(HEADER_AT, raw).ok_or(DAMAGED)?;
    if header.other_version().is_some() {
        return Err(OTHER_VERSION);
    }
    if !header.is_sound(file.1) {
        return Err(DAMAGED);
    }
    if header.arch != X86_64 || !same(&header.name, place.name) || header.base != place.base {
        return Err(ANOTHER);
    }
    if header.lineage != place.lineage {
        return Err(ANOTHER);
    }
    if header.slots < place.slots {
        return Err(OLDER);
    }
    if header.fills > 0 && (header.table > place.table_count || header.table_sum != place.table_sum) {
        return Err(TABLE);
    }
    Ok(header)
}

/// What the image calls comes first.
#[cold]
#[inline(never)]
fn imports(place: &Place<'_>, header: &Header, file: &File) -> Result<(), Why> {
    let mut total = 0;
    for index in 0..u64::from(header.import_count) {
        let mut raw = MaybeUninit::<Import>::uninit();
        let at = IMPORTS_AT + index * size_of::<Import>() as u64;
        let import = file.at(at, &mut raw).ok_or(place.why(DAMAGED))?;
        total = sum(import.bytes()).wrapping_add(total);
        if index + 1 == u64::from(header.import_count) && total != header.imports_sum {
            return Err(place.why(DAMAGED));
        }
        import_one(place, import)?;
    }
    Ok(())
}

fn import_one(place: &Place<'_>, import: &Import) -> Result<(), Why> {
    let other = Place {
        name: &import.name,
        path: &import.path,
        base: import.base,
        lineage: import.lineage,
        slots: import.slots,
        table: core::ptr::null(),
        table_count: 0,
        table_sum: 0,
        records: place.records,
        for_whom: Some(place),
    };
    // The program may have a stub of it, with what it needs.
    match place.records.find(&import.name) {
        Some(_) if other.is_under_way() => Ok(()),
        Some(record) if record.slots() >= import.slots => record.include(Some(place)),
        _ => include(&other).map(|_| ()),
    }
}

/// The whole range at once, if nobody has any of it, as code, which it begins with; then what is not code over it.
fn map(file: &(File, u64), header: &Header) -> Result<(), i32> {
    let (base, extent) = (header.base, header.extent);
    // SAFETY: only where nothing is.
    let at = unsafe { system::map(&file.0, base, extent, 0, system::EXECUTABLE, false) };
    match at {
        _ if at == base as isize => {}
        system::IN_USE => return Err(TAKEN),
        _ if at < 0 => return Err(refused(at)),
        elsewhere => {
            // A kernel that does not know the flag.
            // SAFETY: mapped just now.
            unsafe { system::unmap(elsewhere as u64, extent) };
            return Err(TAKEN);
        }
    }
    let count = header.segment_count as usize;
    for segment in header.segments.iter().take(count) {
        let done = one(file, base, segment);
        if done < 0 {
            // SAFETY: mapped just now, and nobody was told.
            unsafe { system::unmap(base, extent) };
            return Err(refused(done));
        }
    }
    Ok(())
}

fn refused(error: isize) -> i32 {
    if matches!(error, system::NO_MEMORY | system::TRY_AGAIN) { NO_ROOM } else { NO_EXEC }
}

fn one(file: &(File, u64), base: u64, segment: &Segment) -> isize {
    let address = base + segment.at;
    // SAFETY: all of them lie within the range that was mapped just now, by the header's own word, which was checked.
    unsafe {
        match segment.kind {
            READ => system::map(&file.0, address, segment.bytes, segment.at, system::READABLE, true),
            DATA => system::map(&file.0, address, segment.bytes, segment.at, system::WRITABLE, true),
            ZERO => system::map_zeros(address, segment.bytes),
            _ => 0,
        }
    }
}

/// Addresses of the program's functions, where the image calls them.
fn fill(place: &Place<'_>, header: &Header) {
    let fills = (header.base + header.fills_at) as *const Fill;
    for index in 0..header.fills as usize {
        // SAFETY: the header says so many, within the image.
        let fill = unsafe { fills.add(index).read() };
        if fill.index >= place.table_count || fill.at > header.extent - 8 {
            continue;
        }
        // SAFETY: the table has so many; the word lies in the image's private data.
        unsafe {
            let value = place.table.add(fill.index as usize).read().wrapping_add_signed(fill.addend);
            ((header.base + fill.at) as *mut u64).write_unaligned(value);
        }
    }
    if header.protect_bytes != 0 {
        // SAFETY: what is read-only after relocation.
        unsafe { system::protect(header.base + header.protect_at, header.protect_bytes) };
    }
}

type Constructor = unsafe extern "C" fn(i32, *const *const u8, *const *const u8);

/// Constructors, in the order of the loader. They get no arguments.
fn construct(header: &Header) {
    let nothing = [core::ptr::null::<u8>(); 2];
    let array = (header.base + header.init_array_at) as *const u64;
    let old = (header.init != 0).then_some(header.base + header.init);
    for index in 0..=header.init_count as usize {
        let address = match index {
            0 => old,
            // SAFETY: the header says so many, within the image.
            _ => Some(unsafe { array.add(index - 1).read_unaligned() }),
        };
        if let Some(address) = address.filter(|address| !matches!(*address, 0 | u64::MAX)) {
            // SAFETY: a constructor of the image, whose code is mapped.
            unsafe {
                let constructor = core::mem::transmute::<u64, Constructor>(address);
                constructor(0, nothing.as_ptr(), nothing.as_ptr());
            }
        }
    }
}
