//! Code images (docs/IMAGES.md): shared libraries at fixed addresses, with entries that never move within a major
//! version.
//!
//! Govindan, *Read-only Sharing in Operating Systems* (1989), sections 4.1, 4.2 and 6.6: with uniform addresses
//! references are resolved before a program runs; private data has one place in every address space too.
//!
//! * [`make`]: from a shared library to an image. [`refuse`] says what cannot be one, [`exports`] gives slots, [`bind`]
//!   resolves what the library itself calls, [`layout`] puts everything in its place.
//! * [`mod@stub`]: what programs are linked to.
//! * [`mod@format`]: what image and program say to each other.
//! * `runtime`: the code in each stub that includes images, without libc.

pub mod bind;
mod error;
pub mod existing;
pub mod exports;
pub mod format;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod layout;
pub mod make;
pub mod refuse;
mod store_page;
pub mod stub;

pub use error::{Error, Result};

use commonhold_images::format::Wanted as WantedName;
use commonhold_images::store::{Published, Store};
use existing::Existing;
use std::io::Write;
use std::path::Path;
use stub::When;

/// Makes an image of a library and publishes it in a store.
pub fn build(wanted: &make::Wanted, store: &Store) -> Result<(make::Made, Published)> {
    // What a build reserved that was refused, or killed, the next change frees.
    let building = store.building(&wanted.name, wanted.version)?;
    let made = make::make(wanted, store)?;
    let mut draft = store.draft()?;
    draft.write_all(&made.bytes).map_err(Error::file(store.root()))?;
    let published = store.publish(draft)?;
    building.settle();
    Ok((made, published))
}

/// Publishes the file of an image that was made elsewhere, of data or of code.
pub fn add(store: &Store, path: &Path) -> Result<Published> {
    let draft = store.draft_of(path)?;
    Existing::check_draft(store, &draft, path)?;
    Ok(store.publish(draft)?)
}

/// The newest image of that name in these stores.
pub fn find(stores: &[Store], text: &str) -> Result<Existing> {
    if WantedName::parse(text).is_some_and(|wanted| wanted.major().is_none()) {
        return Err(Error::Invalid(format!(
            "{text}: programs are linked to a major version: name it, as in {text}@1"
        )));
    }
    Existing::open(&Store::resolve_in(stores, text)?)
}

/// All images that one calls, and those that they call, each once.
fn closure(stores: &[Store], image: &Existing) -> Result<Vec<Existing>> {
    let mut all: Vec<Existing> = Vec::new();
    let mut names = image.imports.clone();
    while let Some(name) = names.pop() {
        if all.iter().any(|other| other.major_name() == name) {
            continue;
        }
        let other = find(stores, &name)?;
        names.extend(other.imports.clone());
        all.push(other);
    }
    Ok(all)
}

/// The stub of the newest image of that name, as an object file; and the symbols in it.
pub fn stub(stores: &[Store], text: &str, when: When) -> Result<(Vec<u8>, Existing)> {
    let image = find(stores, text)?;
    let imports = closure(stores, &image)?;
    Ok((stub::object(&image, &imports, when)?, image))
}
