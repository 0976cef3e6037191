//! Types that C and Python describe by tables, in which they mention each other by their places.

use super::types::{Field, Scalar, TypeRef, Types, Variant};
use crate::{Error, Result};

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Without pointers.
    Scalar(Scalar),
    /// The address of one of the type at that place.
    Pointer {
        /// Its place.
        to: usize,
        /// Whether it may be null.
        nullable: bool,
    },
    /// An address and a count.
    Run {
        /// The place of the type.
        of: usize,
    },
    /// Fields.
    Struct,
    /// An enumeration: its fields are its values, by name, and the value stands in the place of the offset.
    Choice,
}

/// A field in a table.
#[derive(Clone, Debug)]
pub struct EntryField {
    /// Its name.
    pub name: String,
    /// Where it begins; of an enumeration, the value.
    pub offset: usize,
    /// The place of its type.
    pub of: usize,
    /// So many, one behind the other; 0 is one that is no array.
    pub count: usize,
}

/// A type in a table.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What people call it.
    pub name: String,
    /// What it is.
    pub what: What,
    /// Its size.
    pub bytes: usize,
    /// Its alignment.
    pub alignment: usize,
    /// Of a structure, or an enumeration's values.
    pub fields: Vec<EntryField>,
}

struct Adding<'a> {
    types: &'a mut Types,
    table: &'a [Entry],
    found: Vec<Option<TypeRef>>,
    /// Entries that are being looked at, for those that contain themselves.
    under_way: Vec<bool>,
    described: Vec<bool>,
}

impl Types {
    /// Adds the types of a table; gives where each is now.
    pub fn add_table(&mut self, table: &[Entry]) -> Result<Vec<TypeRef>> {
        let count = table.len();
        let (found, under_way, described) = (vec![None; count], vec![false; count], vec![false; count]);
        let mut adding = Adding { types: self, table, found, under_way, described };
        for (place, entry) in table.iter().enumerate() {
            if entry.what == What::Struct {
                adding.found[place] = Some(adding.types.open(&entry.name, entry.bytes, entry.alignment));
            }
        }
        (0..count).map(|place| adding.whole(place)).collect()
    }
}

impl Adding<'_> {
    fn entry(&self, place: usize) -> Result<&Entry> {
        let outside =
            || Error::Invalid(format!("a table of {} types mentions number {place}", self.table.len()));
        self.table.get(place).ok_or_else(outside)
    }

    /// The type at a place, which may be a structure that is not described yet.
    fn named(&mut self, place: usize) -> Result<TypeRef> {
        let what = self.entry(place)?.what;
        if let Some(found) = self.found[place] {
            return Ok(found);
        }
        if std::mem::replace(&mut self.under_way[place], true) {
            return Err(Error::Invalid(format!(
                "type {} leads to nothing but itself",
                self.table[place].name
            )));
        }
        let found = match what {
            What::Scalar(scalar) => self.types.scalar(scalar, self.table[place].bytes)?,
            What::Pointer { to, nullable } => {
                let to = self.named(to)?;
                self.types.pointer(to, nullable)
            }
            What::Run { of } => {
                let of = self.named(of)?;
                self.types.run(of)
            }
            What::Choice => {
                let entry = &self.table[place];
                let variant =
                    |field: &EntryField| Variant { name: field.name.clone(), value: field.offset as u64 };
                self.types.choice(&entry.name, entry.bytes, entry.fields.iter().map(variant).collect())?
            }
            What::Struct => unreachable!("all of them have their places"),
        };
        let (bytes, wanted) = (self.types.get(found).bytes, self.table[place].bytes);
        if bytes != wanted {
            let name = &self.table[place].name;
            return Err(Error::Invalid(format!(
                "type {name} has {wanted} bytes in its table, and is one of {bytes}"
            )));
        }
        self.found[place] = Some(found);
        Ok(found)
    }

    /// The type at a place; a structure with all that is in it.
    fn whole(&mut self, place: usize) -> Result<TypeRef> {
        let of = self.named(place)?;
        let entry = &self.table[place];
        if entry.what != What::Struct || self.described[place] {
            return Ok(of);
        }
        if std::mem::replace(&mut self.under_way[place], true) {
            return Err(Error::Invalid(format!("type {} contains itself: use a pointer", entry.name)));
        }
        let mut fields = Vec::new();
        for field in &entry.fields {
            let inner = self.whole_or_pointer(field.of)?;
            let inner = if field.count == 0 { inner } else { self.types.array(inner, field.count)? };
            fields.push(Field { name: field.name.clone(), offset: field.offset, of: inner });
        }
        self.types.describe(of, fields)?;
        self.described[place] = true;
        Ok(of)
    }

    fn whole_or_pointer(&mut self, place: usize) -> Result<TypeRef> {
        if self.entry(place)?.what == What::Struct { self.whole(place) } else { self.named(place) }
    }
}
