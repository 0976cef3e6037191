//! From the roots along every pointer: all of them lead into the arena, or into what it imports.

use super::flat::{Flat, Leads, Leaf};
use super::types::{Shape, TypeRef, Types};
use crate::include::{Image, map};
use crate::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::rc::Rc;

/// Values of one type, one behind the other, that something leads to.
#[derive(Clone, Copy)]
struct Visit {
    first: u64,
    count: u64,
    of: TypeRef,
    from: From,
}

/// What leads there.
#[derive(Clone, Copy)]
enum From {
    /// The root of that number.
    Root(usize),
    /// A place in a value that was visited: which visit, which of its values, which leaf.
    Value { visit: usize, index: u64, leaf: usize },
}

/// A root, by name.
pub struct Start {
    pub name: String,
    pub first: u64,
    pub count: u64,
    pub of: TypeRef,
    /// It was given as one value, and not as a run that may have another length in the next version.
    pub is_one: bool,
}

pub struct Walk<'a> {
    types: &'a Types,
    /// What was written of the arena.
    arena: Range<u64>,
    imports: &'a [Image],
    used: HashSet<usize>,
    roots: &'a [Start],
    flats: HashMap<TypeRef, Rc<Flat>>,
    visits: Vec<Visit>,
    seen: HashSet<(u64, u64, TypeRef)>,
}

impl<'a> Walk<'a> {
    /// # Safety
    /// The arena is memory of this process, which nobody else uses now.
    pub unsafe fn new(
        types: &'a Types,
        arena: Range<u64>,
        imports: &'a [Image],
        roots: &'a [Start],
    ) -> Walk<'a> {
        let (used, flats, visits, seen) = Default::default();
        Walk { types, arena, imports, used, roots, flats, visits, seen }
    }

    /// Follows everything. Padding on the way is zeroed, so that equal structures are equal bytes and nothing of this
    /// process is told. Gives the places of the imports that it leads into.
    pub fn run(mut self) -> Result<HashSet<usize>> {
        let roots = self.roots;
        for (number, root) in roots.iter().enumerate() {
            self.types.check(root.of)?;
            self.visit(Visit {
                first: root.first,
                count: root.count,
                of: root.of,
                from: From::Root(number),
            })?;
        }
        let mut next = 0;
        while next < self.visits.len() {
            self.look(next)?;
            next += 1;
        }
        Ok(self.used)
    }

    fn flat(&mut self, of: TypeRef) -> Rc<Flat> {
        let types = self.types;
        self.flats.entry(of).or_insert_with(|| Rc::new(Flat::of(types, of))).clone()
    }

    /// Checks where something leads, and notes it down to be looked at.
    fn visit(&mut self, visit: Visit) -> Result<()> {
        if visit.count == 0 {
            return Ok(());
        }
        let one = self.types.get(visit.of);
        let bytes = (one.bytes as u64).checked_mul(visit.count);
        let end = bytes.and_then(|bytes| visit.first.checked_add(bytes));
        if !visit.first.is_multiple_of(one.alignment as u64) {
            let why =
                format!("{:#x} is not aligned to {}, as a {} must be", visit.first, one.alignment, one.name);
            return Err(self.wrong(visit.from, why));
        }
        let inside = |range: Range<u64>| {
            range.contains(&visit.first) && end.is_some_and(|end| visit.first <= end && end <= range.end)
        };
        if !inside(self.arena.clone()) {
            let import =
                self.imports.iter().position(|image| inside(image.base()..image.base() + image.bytes()));
            let Some(import) = import else { return Err(self.outside(visit)) };
            self.used.insert(import);
            return Ok(());
        }
        if !self.flat(visit.of).is_plain() && self.seen.insert((visit.first, visit.count, visit.of)) {
            self.visits.push(visit);
        }
        Ok(())
    }

    fn long(&self, at: u64) -> u64 {
        // SAFETY: inside the arena, which is memory of this process that nobody changes now.
        unsafe { (at as *const u64).read_unaligned() }
    }

    fn byte(&self, at: u64) -> u8 {
        // SAFETY: as above.
        unsafe { (at as *const u8).read() }
    }

    fn zero(&self, at: u64, bytes: usize) {
        // SAFETY: as above; what is there belongs to no field.
        unsafe { (at as *mut u8).write_bytes(0, bytes) };
    }

    /// Follows what was noted down.
    fn look(&mut self, number: usize) -> Result<()> {
        let visit = self.visits[number];
        let flat = self.flat(visit.of);
        if flat.is_text {
            return self.look_at_text(visit);
        }
        let bytes = self.types.get(visit.of).bytes as u64;
        for index in 0..visit.count {
            let value = visit.first + index * bytes;
            for (at, length) in &flat.gaps {
                self.zero(value + *at as u64, *length);
            }
            for (leaf, place) in flat.leaves.iter().enumerate() {
                let from = From::Value { visit: number, index, leaf };
                self.follow(value + place.offset as u64, place, from)?;
            }
        }
        Ok(())
    }

    fn follow(&mut self, at: u64, place: &Leaf, from: From) -> Result<()> {
        match place.leads {
            Leads::Bool if self.byte(at) > 1 => {
                Err(self.wrong(from, format!("{} is neither true nor false", self.byte(at))))
            }
            Leads::Bool => Ok(()),
            Leads::Char => {
                let number = u32::from_le_bytes(std::array::from_fn(|byte| self.byte(at + byte as u64)));
                let wrong = || self.wrong(from, format!("{number:#x} is no character of Unicode"));
                char::from_u32(number).map(drop).ok_or_else(wrong)
            }
            Leads::Choice { of } => self.look_at_choice(at, of, from),
            Leads::Pointer { to, nullable } => match self.long(at) {
                0 if nullable => Ok(()),
                0 => Err(self.wrong(from, "it is null, and its type says that it never is".into())),
                first => self.visit(Visit { first, count: 1, of: to, from }),
            },
            Leads::Run { of } => match self.long(at + 8) {
                0 => {
                    self.zero(at, 8);
                    Ok(())
                }
                count => self.visit(Visit { first: self.long(at), count, of, from }),
            },
        }
    }

    fn look_at_choice(&self, at: u64, of: TypeRef, from: From) -> Result<()> {
        let one = self.types.get(of);
        let Shape::Choice(variants) = &one.shape else { return Ok(()) };
        let value =
            (0..one.bytes as u64).rev().fold(0, |value, byte| value << 8 | u64::from(self.byte(at + byte)));
        match variants.binary_search_by_key(&value, |variant| variant.value) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.wrong(from, format!("{value} is none of the values of {}", one.name))),
        }
    }

    fn look_at_text(&self, visit: Visit) -> Result<()> {
        // SAFETY: inside the arena, as it was checked when it was noted down.
        let bytes = unsafe { std::slice::from_raw_parts(visit.first as *const u8, visit.count as usize) };
        std::str::from_utf8(bytes)
            .map(drop)
            .map_err(|error| self.wrong(visit.from, format!("it is text, and not UTF-8: {error}")))
    }

    fn outside(&self, visit: Visit) -> Error {
        let one = self.types.get(visit.of);
        let arena = &self.arena;
        let at = visit.first;
        let why = if arena.contains(&at) {
            format!(
                "{at:#x} and {} times {} bytes reach beyond the end of the arena, {:#x}",
                visit.count, one.bytes, arena.end
            )
        } else {
            let what =
                map::who_is_at(at, at.saturating_add(1)).unwrap_or_else(|| "nothing that is mapped".into());
            format!(
                "{at:#x} leads out of the arena ({:#x} to {:#x}) and of the {} it imports; it is in {what}. Place a copy in \
                 the arena, or import the image that it is in",
                arena.start,
                arena.end,
                match self.imports.len() {
                    1 => "image".into(),
                    count => format!("{count} images"),
                }
            )
        };
        self.wrong(visit.from, why)
    }

    fn wrong(&self, from: From, why: String) -> Error {
        Error::LeadsOut { path: self.path(from), why }
    }

    /// `root "tree" -> left -> children[3] -> word`.
    fn path(&self, mut from: From) -> String {
        let mut steps = Vec::new();
        loop {
            match from {
                From::Root(number) => {
                    steps.push(format!("root {:?}", self.roots[number].name));
                    break;
                }
                From::Value { visit, index, leaf } => {
                    let visit = &self.visits[visit];
                    let path = self.flats.get(&visit.of).map_or("", |flat| &flat.leaves[leaf].path);
                    // A value that is a pointer itself adds nothing to the way.
                    steps.push(path.to_owned());
                    if visit.count > 1 {
                        steps.push(format!("[{index}]"));
                    }
                    from = visit.from;
                }
            }
        }
        steps.reverse();
        let mut text = String::new();
        for step in steps {
            let arrow = if text.is_empty() || step.is_empty() || step.starts_with('[') { "" } else { " -> " };
            text.push_str(arrow);
            text.push_str(&step);
        }
        text
    }
}
