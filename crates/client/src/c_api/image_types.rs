//! Types as C describes them, which lead to each other by pointers, made a table.

use super::null;
use super::outcome::text;
use crate::image::{Entry, EntryField, Scalar, What};
use crate::{Error, Result};
use std::collections::HashMap;
use std::ffi::{c_char, c_int};

/// A field of a structure in an image.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct ch_field {
    /// Its name.
    pub name: *const c_char,
    /// Where it begins; of an enumeration, the value.
    pub offset: usize,
    /// Its type.
    pub r#type: *const ch_type,
    /// 0: one; else an array of so many.
    pub count: usize,
}

/// A type in an image.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct ch_type {
    /// What people call it.
    pub name: *const c_char,
    /// One of the `CH_TYPE_` constants.
    pub kind: c_int,
    /// Its size.
    pub bytes: usize,
    /// Its alignment.
    pub alignment: usize,
    /// Of pointers and runs: what they lead to.
    pub of: *const ch_type,
    /// Of structures; of an enumeration its values.
    pub fields: *const ch_field,
    /// How many.
    pub field_count: usize,
}

/// More than any program has.
const MOST_TYPES: usize = 65_536;

/// Types that were found, and where each is in the table.
#[derive(Default)]
struct Found {
    places: HashMap<*const ch_type, usize>,
    order: Vec<*const ch_type>,
}

impl Found {
    fn place(&mut self, of: *const ch_type) -> Result<usize> {
        if of.is_null() {
            return Err(null("a type"));
        }
        if self.order.len() >= MOST_TYPES {
            return Err(Error::invalid(format!("there are more than {MOST_TYPES} types")));
        }
        let next = self.order.len();
        let place = *self.places.entry(of).or_insert(next);
        if place == next {
            self.order.push(of);
        }
        Ok(place)
    }
}

/// The table of a type and of all that it mentions; that type is the first.
///
/// # Safety
/// `of` is null or a type as the header describes it, and so is all that it leads to.
pub(super) unsafe fn table(of: *const ch_type) -> Result<Vec<Entry>> {
    let mut found = Found::default();
    found.place(of)?;
    let mut table = Vec::new();
    while let Some(next) = found.order.get(table.len()).copied() {
        // SAFETY: the caller's promise; it is not null.
        let entry = unsafe { entry(&*next, &mut found) }?;
        table.push(entry);
    }
    Ok(table)
}

/// # Safety
/// As [`table`].
unsafe fn entry(one: &ch_type, found: &mut Found) -> Result<Entry> {
    // SAFETY: the caller's promise.
    let name = unsafe { text("the name of a type", one.name) }?.to_owned();
    let mut fields = Vec::new();
    let what = match one.kind {
        1 => What::Struct,
        2 => What::Scalar(Scalar::Unsigned),
        3 => What::Scalar(Scalar::Signed),
        4 => What::Scalar(Scalar::Float),
        5 => What::Scalar(Scalar::Bool),
        6 => What::Scalar(Scalar::Utf8),
        7 => What::Pointer { to: found.place(one.of)?, nullable: false },
        8 => What::Pointer { to: found.place(one.of)?, nullable: true },
        9 => What::Run { of: found.place(one.of)? },
        10 => What::Scalar(Scalar::Char),
        11 => What::Choice,
        other => {
            return Err(Error::invalid(format!("type {name}: {other} is none of the CH_TYPE_ constants")));
        }
    };
    if matches!(what, What::Struct | What::Choice) && one.field_count > 0 {
        if one.fields.is_null() {
            return Err(null("the fields of a type"));
        }
        // SAFETY: the caller's promise.
        for field in unsafe { std::slice::from_raw_parts(one.fields, one.field_count) } {
            fields.push(EntryField {
                // SAFETY: the caller's promise.
                name: unsafe { text("the name of a field", field.name) }?.to_owned(),
                offset: field.offset,
                of: if what == What::Choice { 0 } else { found.place(field.r#type)? },
                count: field.count,
            });
        }
    }
    Ok(Entry { name, what, bytes: one.bytes, alignment: one.alignment, fields })
}
