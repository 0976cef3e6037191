//! Images in C: arenas to build them in, and inclusion.

use super::image_types::{ch_type, table};
use super::null;
use super::outcome::{guard, guard_code, optional_text, text};
use crate::image::{self, Arena, Image, Options, Store, Types};
use crate::{Error, Result};
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// An image that is being built. Any thread may call, one after the other.
#[allow(non_camel_case_types)]
pub struct ch_arena(Mutex<Arena>);

/// An image that is part of this process, until it ends.
#[allow(non_camel_case_types)]
pub struct ch_image {
    image: Image,
    name: CString,
}

fn with<T>(arena: *mut ch_arena, act: impl FnOnce(&mut Arena) -> Result<T>) -> Result<T> {
    // SAFETY: whoever calls has it from `ch_arena_new`, and has not freed it.
    let arena = unsafe { arena.as_ref() }.ok_or_else(|| null("arena"))?;
    act(&mut arena.0.lock().unwrap_or_else(PoisonError::into_inner))
}

fn image<'a>(image: *const ch_image) -> Result<&'a ch_image> {
    // SAFETY: whoever calls has it from this library, which never frees one.
    unsafe { image.as_ref() }.ok_or_else(|| null("image"))
}

/// Begins an image.
///
/// # Safety
/// Strings are C strings or null, and `imports` has `import_count` images.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_arena_new(
    name: *const c_char,
    store: *const c_char,
    group: *const c_char,
    capacity_bytes: u64,
    imports: *const *const ch_image,
    import_count: usize,
) -> *mut ch_arena {
    guard(null_mut(), || {
        // SAFETY: the caller's promise.
        let (name, store, group) =
            unsafe { (text("name", name)?, optional_text("store", store)?, optional_text("group", group)?) };
        let mut options =
            Options { store: store.map(store_at), group: group.map(str::to_owned), ..Options::default() };
        if capacity_bytes != 0 {
            options.capacity = capacity_bytes;
        }
        if import_count > 0 {
            if imports.is_null() {
                return Err(null("imports"));
            }
            // SAFETY: the caller's promise.
            let all = unsafe { std::slice::from_raw_parts(imports, import_count) };
            options.imports = all.iter().map(|one| Ok(image(*one)?.image)).collect::<Result<_>>()?;
        }
        Ok(Box::into_raw(Box::new(ch_arena(Mutex::new(Arena::with(name, options)?)))))
    })
}

fn store_at(directory: &str) -> Store {
    Store::named(Path::new(directory))
}

/// Memory of the arena, zeroed.
#[unsafe(no_mangle)]
pub extern "C" fn ch_arena_take(arena: *mut ch_arena, bytes: usize, alignment: usize) -> *mut c_void {
    guard(null_mut(), || with(arena, |arena| Ok(arena.take(bytes as u64, alignment as u64)? as *mut c_void)))
}

/// Makes values be found by name.
///
/// # Safety
/// `name` is a C string, `type` as the header describes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_arena_root(
    arena: *mut ch_arena,
    name: *const c_char,
    first: *const c_void,
    count: usize,
    r#type: *const ch_type,
) -> c_int {
    guard_code(|| {
        // SAFETY: the caller's promise.
        let (name, table) = unsafe { (text("name", name)?, table(r#type)?) };
        with(arena, |arena| {
            let found = arena.types(|types| types.add_table(&table))?;
            Ok(arena.root_at(name, first as u64, count as u64, found[0])?)
        })
    })
}

/// Writes and publishes the image.
#[unsafe(no_mangle)]
pub extern "C" fn ch_arena_seal(arena: *mut ch_arena) -> c_int {
    guard_code(|| with(arena, |arena| Ok(arena.try_seal().map(drop)?)))
}

/// Frees the arena, and its memory.
///
/// # Safety
/// `arena` is null or from [`ch_arena_new`], and nobody uses it or its memory any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_arena_free(arena: *mut ch_arena) {
    if !arena.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(arena) });
    }
}

/// What was told to C, so that one image is one pointer.
static GIVEN: Mutex<Vec<&'static ch_image>> = Mutex::new(Vec::new());

fn give(image: Image) -> Result<*const ch_image> {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(there) = given.iter().find(|there| there.image == image) {
        return Ok(*there);
    }
    let name = CString::new(format!("{}@{}", image.name(), image.version()))
        .map_err(|_| Error::invalid("the name of an image has a zero"))?;
    let new = &*Box::leak(Box::new(ch_image { image, name }));
    given.push(new);
    Ok(new)
}

/// Includes an image.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_include(name: *const c_char) -> *const ch_image {
    guard(std::ptr::null(), || {
        // SAFETY: the caller's promise.
        let name = unsafe { text("name", name) }?;
        give(image::include(name)?)
    })
}

/// Includes the newest version of an image.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_include_newest(name: *const c_char) -> *const ch_image {
    guard(std::ptr::null(), || {
        // SAFETY: the caller's promise.
        let name = unsafe { text("name", name) }?;
        give(image::include_newest(name)?)
    })
}

/// Name and version.
#[unsafe(no_mangle)]
pub extern "C" fn ch_image_name(image: *const ch_image) -> *const c_char {
    guard(c"".as_ptr(), || Ok(self::image(image)?.name.as_ptr()))
}

/// What is found by name.
///
/// # Safety
/// `name` is null or a C string, `type` as the header describes it, `count` null or a place to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ch_image_root(
    image: *const ch_image,
    name: *const c_char,
    r#type: *const ch_type,
    count: *mut usize,
) -> *const c_void {
    guard(std::ptr::null(), || {
        // SAFETY: the caller's promise.
        let (name, table) = unsafe { (text("name", name)?, table(r#type)?) };
        let mut types = Types::default();
        let of = types.add_table(&table)?[0];
        let (first, found) = self::image(image)?.image.find_typed(name, &types, of)?;
        if !count.is_null() {
            // SAFETY: the caller's promise.
            unsafe { count.write(found as usize) };
        }
        Ok(first as *const c_void)
    })
}
