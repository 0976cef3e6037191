//! Mappings: the classical calls.

use super::null;
use super::objects::{ch_object, object};
use super::outcome::{guard, guard_code};
use crate::mapping::make_all;
use crate::{
    Error, Inherit, MapFlags, MapOptions, Mapping, Object, PageState, Protection, Result, Sharing, classical,
};
use std::ffi::{c_int, c_uchar, c_void};
use std::ptr::null_mut;

const PROT_READ: c_int = 1;
const PROT_WRITE: c_int = 2;
const SHARED: c_int = 0x01;
const PRIVATE: c_int = 0x02;
const FIXED: c_int = 0x10;
const LOCKED_IN: c_int = 0x20;
const PREFETCH: c_int = 0x40;
const IN_THREAD: c_int = 0x80;
const OWN_TABLES: c_int = 0x100;
const ANYWHERE: c_int = 0x800;
const INHERIT_SHARE: c_int = 0;
const INHERIT_COPY: c_int = 0x200;
const INHERIT_NONE: c_int = 0x400;

/// `ch_region`: one part of an object to be mapped together with others.
#[allow(non_camel_case_types, missing_docs)] // the names of the header, documented there
#[repr(C)]
pub struct ch_region {
    pub address: *mut c_void,
    pub length: usize,
    pub protection: c_int,
    pub sharing: c_int,
    pub object: *const ch_object,
    pub offset: u64,
}

fn protection_of(protection: c_int) -> Result<Protection> {
    match protection {
        PROT_READ => Ok(Protection::Read),
        PROT_WRITE => Ok(Protection::ReadWrite),
        both if both == PROT_READ | PROT_WRITE => Ok(Protection::ReadWrite),
        other => Err(Error::invalid(format!(
            "protection {other} is neither CH_PROT_READ nor CH_PROT_READ | CH_PROT_WRITE"
        ))),
    }
}

fn inherit_of(how: c_int) -> Result<Inherit> {
    match how {
        INHERIT_SHARE => Ok(Inherit::Share),
        INHERIT_COPY => Ok(Inherit::Copy),
        INHERIT_NONE => Ok(Inherit::None),
        other => Err(Error::invalid(format!(
            "{other:#x} is none of CH_INHERIT_SHARE, CH_INHERIT_COPY and CH_INHERIT_NONE"
        ))),
    }
}

/// How much to map: 0 is all that there is.
fn length_of(length: usize) -> Option<u64> {
    (length != 0).then_some(length as u64)
}

/// What the bits of `sharing` say; with the rest of the options for the caller to fill in.
fn sharing_of(sharing: c_int) -> Result<MapOptions> {
    let known = SHARED | PRIVATE | FIXED | LOCKED_IN | PREFETCH | IN_THREAD | OWN_TABLES | ANYWHERE;
    let inherit = inherit_of(sharing & (INHERIT_COPY | INHERIT_NONE))?;
    let sharing = sharing & !(INHERIT_COPY | INHERIT_NONE);
    let how = match sharing & (SHARED | PRIVATE) {
        SHARED => Sharing::Shared,
        PRIVATE => Sharing::Private,
        _ => return Err(Error::invalid("sharing must be one of CH_SHARED and CH_PRIVATE")),
    };
    if sharing & !known != 0 {
        return Err(Error::invalid(format!("sharing has the unknown bits {:#x}", sharing & !known)));
    }
    let has = |bit: c_int| sharing & bit != 0;
    let flags = MapFlags {
        lock: has(LOCKED_IN),
        fixed: has(FIXED),
        prefetch: has(PREFETCH),
        in_thread: has(IN_THREAD),
        own_tables: has(OWN_TABLES),
        anywhere: has(ANYWHERE),
    };
    Ok(MapOptions { sharing: how, flags, inherit, ..MapOptions::default() })
}

/// Maps part of an object.
///
/// # Safety
/// `object` is null or a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_map(
    hint: *mut c_void,
    length: usize,
    protection: c_int,
    sharing: c_int,
    object: *const ch_object,
    offset: u64,
) -> *mut c_void {
    guard(null_mut(), || {
        // SAFETY: the caller's promise.
        let object = unsafe { self::object(object) }?;
        let options = MapOptions {
            hint: hint as usize,
            offset,
            length: length_of(length),
            protection: protection_of(protection)?,
            ..sharing_of(sharing)?
        };
        Ok(object.map(&options)?.into_raw().cast())
    })
}

/// Maps several parts: all or none.
///
/// # Safety
/// `regions` is null or has `count` elements, whose objects are null or handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_map_many(regions: *mut ch_region, count: usize) -> c_int {
    guard_code(|| {
        if regions.is_null() || count > isize::MAX as usize / size_of::<ch_region>() {
            return Err(null("regions"));
        }
        // SAFETY: the caller's promise.
        let regions = unsafe { std::slice::from_raw_parts_mut(regions, count) };
        let mut wishes: Vec<(&Object, MapOptions)> = Vec::with_capacity(count);
        for region in regions.iter() {
            let options = MapOptions {
                hint: region.address as usize,
                offset: region.offset,
                length: length_of(region.length),
                protection: protection_of(region.protection)?,
                ..sharing_of(region.sharing)?
            };
            // SAFETY: the caller's promise.
            wishes.push((unsafe { object(region.object) }?, options));
        }
        let mappings = make_all(wishes.iter().map(|(object, options)| (*object, options)))?;
        for (region, mapping) in regions.iter_mut().zip(mappings) {
            if region.length == 0 {
                region.length = mapping.len();
            }
            region.address = Mapping::into_raw(mapping).cast();
        }
        Ok(())
    })
}

/// Unmaps the range.
///
/// # Safety
/// Nothing may use the addresses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_unmap(address: *mut c_void, length: usize) -> c_int {
    guard_code(|| classical::unmap(address.cast(), length))
}

/// Makes the range what is stored.
#[unsafe(no_mangle)]
pub extern "C" fn ch_sync(address: *mut c_void, length: usize) -> c_int {
    guard_code(|| classical::sync(address.cast(), length).map(drop))
}

/// As `ch_sync`, at a true instant.
#[unsafe(no_mangle)]
pub extern "C" fn ch_sync_frozen(address: *mut c_void, length: usize) -> c_int {
    guard_code(|| classical::sync_frozen(address.cast(), length).map(drop))
}

/// Holds the pages.
#[unsafe(no_mangle)]
pub extern "C" fn ch_lock(address: *mut c_void, length: usize) -> c_int {
    guard_code(|| classical::lock(address.cast(), length).map(drop))
}

/// Lets them go.
#[unsafe(no_mangle)]
pub extern "C" fn ch_unlock(address: *mut c_void, length: usize) -> c_int {
    guard_code(|| classical::unlock(address.cast(), length))
}

/// Begins to bring the pages in.
#[unsafe(no_mangle)]
pub extern "C" fn ch_prefetch(address: *mut c_void, length: usize) -> c_int {
    guard_code(|| classical::prefetch(address.cast(), length))
}

/// What a fork child has of the range from now on.
#[unsafe(no_mangle)]
pub extern "C" fn ch_inherit(address: *mut c_void, length: usize, how: c_int) -> c_int {
    guard_code(|| classical::inherit(address.cast(), length, inherit_of(how)?))
}

/// State of each page.
///
/// # Safety
/// `states` is null or has a byte for each page of the range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_incore(address: *mut c_void, length: usize, states: *mut c_uchar) -> c_int {
    guard_code(|| {
        if states.is_null() {
            return Err(null("states"));
        }
        let known = classical::incore(address.cast(), length)?;
        for (i, (state, locked)) in known.into_iter().enumerate() {
            // SAFETY: the caller's promise: one byte for each page, and there are as many states.
            unsafe { states.add(i).write(PageState::encode(state, locked)) };
        }
        Ok(())
    })
}
