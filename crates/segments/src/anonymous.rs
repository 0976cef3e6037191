//! Anonymous memory, with as few segments as can be (section 5.3).

use crate::action::Action;
use crate::hardware::{Protection, Shape, TaskId};
use crate::machine::{Error, Machine, Source};
use crate::placement::Placement;
use crate::run::Run;
use crate::space::{Entry, Inheritance, ObjectId, Space, VirtualSegment};
use alloc::vec::Vec;

/// A place for an allocation in an object that the task has already.
struct Extension {
    entry: Entry,
    /// Pages that the object needs.
    pages: u32,
    /// The first page that becomes accessible: the gap's first, or the allocation's.
    first_new: u32,
}

impl<P: Placement> Machine<P> {
    /// Allocates zeroed memory, at an address or anywhere, and returns the address.
    ///
    /// It is made in a segment that the task has, if one is anonymous, of a protection that the
    /// hardware takes for the same, and mapped by nobody else: in what was freed within it, or at
    /// its end, across a gap if need be. The gap is allocated and zeroed too, and no other object
    /// is ever mapped into it. Only where no segment serves does the allocation take a new one.
    pub fn allocate(
        &mut self,
        task: TaskId,
        at: Option<u64>,
        pages: u32,
        protection: Protection,
        actions: &mut Vec<Action>,
    ) -> Result<u64, Error> {
        self.end_of(at.unwrap_or(0), pages)?;
        let space = self.space(task)?;
        if at.is_some_and(|at| space.entries.within(at, at + u64::from(pages)).next().is_some()) {
            return Err(Error::Occupied);
        }
        let inheritance = Inheritance::Copy;
        let wish = Entry { start: 0, pages, object: ObjectId(0), offset: 0, protection, inheritance };
        if let Some(extension) = self.reusable(task, space, at, &wish) {
            let Extension { entry, first_new, .. } = extension;
            let run = self.memory.run(self.in_memory(entry.object)?)?.part(first_new, pages);
            actions.extend(run.chunks(self.limits.chunk_pages).map(Action::Zero));
            return self.enter(task, entry, actions);
        }
        for extension in self.extensions(task, space, at, &wish) {
            let Extension { entry, pages, first_new } = extension;
            if self.lengthen(entry.object, pages, first_new, actions).is_ok() {
                return self.enter(task, entry, actions);
            }
        }
        self.allocate_anew(task, at, &wish, actions)
    }

    /// Frees memory of a task, of any object. Within an object the physical segment stays as it is,
    /// and what was freed may be allocated again (section 5.3); at the end of a task's own
    /// anonymous segment the physical pages are freed.
    pub fn deallocate(
        &mut self,
        task: TaskId,
        start: u64,
        pages: u32,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let end = self.end_of(start, pages)?;
        let mut entries = self.space(task)?.entries.clone();
        let freed = entries.cut(start, end);
        self.remap(task, entries, actions)?;
        let mut objects: Vec<ObjectId> = freed.iter().map(|entry| entry.object).collect();
        objects.dedup();
        objects.into_iter().try_for_each(|object| self.trim(task, object, actions))
    }

    /// Frees what a task's own anonymous object has behind all that is mapped of it.
    fn trim(&mut self, task: TaskId, id: ObjectId, actions: &mut Vec<Action>) -> Result<(), Error> {
        if !self.is_private(task, id) {
            return Ok(());
        }
        let segment = self.in_memory(id)?;
        let used = self.space(task)?.entries.used_pages(id);
        let (rounded, _) = self.rules.shape.round(used).ok_or(Error::Range)?;
        // A region of half the size may need an alignment that it has not: then nothing is freed.
        let run = self.memory.run(segment)?;
        let smaller = run.part(0, rounded.min(run.pages));
        let holds = self.rules.shape.cover(smaller) == Some(smaller);
        if rounded < run.pages && holds && self.memory.shrink(segment, rounded).is_ok() {
            self.objects.get_mut(&id).ok_or(Error::Name)?.pages = used;
            self.keep(id, actions)?;
        }
        Ok(())
    }

    /// Whether an object is anonymous, in memory, and mapped by this task alone: its several
    /// references, if it has several, are pieces of one (section 5.3).
    fn is_private(&self, task: TaskId, id: ObjectId) -> bool {
        self.object(id).is_ok_and(|object| {
            object.source == Source::Zero
                && !object.mappings.is_empty()
                && object.mappings.iter().all(|(other, _)| *other == task)
        }) && self.in_memory(id).is_ok()
    }

    /// The segments of a task that an allocation may become a part of.
    fn candidates<'a>(
        &'a self,
        task: TaskId,
        space: &'a Space,
        wish: &'a Entry,
    ) -> impl Iterator<Item = &'a VirtualSegment> {
        space
            .segments()
            .filter(|segment| self.rules.equal(segment.protection, wish.protection))
            .filter(move |segment| self.is_private(task, segment.object))
    }

    /// What was freed in a segment: it is accessible still, and has the object's pages.
    fn reusable(&self, task: TaskId, space: &Space, at: Option<u64>, wish: &Entry) -> Option<Extension> {
        self.candidates(task, space, wish).find_map(|segment| {
            let mut from = segment.start;
            let holes = space.entries.within(segment.start, segment.end()).map(|entry| {
                let hole = (from, entry.start);
                from = entry.end();
                hole
            });
            let pages = u64::from(wish.pages);
            let mut fitting = holes.filter_map(|(start, end)| {
                let start = at.unwrap_or(start).max(start);
                (at.is_none_or(|at| at == start) && end.checked_sub(start)? >= pages).then_some(start)
            });
            let start = fitting.next()?;
            let offset = segment.offset + (start - segment.start) as u32;
            (!space.entries.covers(segment.object, offset, offset + wish.pages)).then(|| Extension {
                entry: Entry { start, offset, object: segment.object, ..*wish },
                pages: segment.offset + segment.pages,
                first_new: offset,
            })
        })
    }

    /// The segments that may grow to hold an allocation, the nearest below it first.
    fn extensions(&self, task: TaskId, space: &Space, at: Option<u64>, wish: &Entry) -> Vec<Extension> {
        let has_slot = space.segments().count() < self.rules.segments as usize;
        let mut extensions: Vec<(u64, Extension)> = self
            .candidates(task, space, wish)
            .filter_map(|segment| {
                let start = at.unwrap_or(segment.end());
                let gap = start.checked_sub(segment.end())?;
                let end = start.checked_add(u64::from(wish.pages))?;
                let first_new = segment.offset + segment.pages;
                let offset = u32::try_from(u64::from(first_new) + gap).ok()?;
                let pages = offset.checked_add(wish.pages)?;
                // A region of a fixed shape grows from its first page on.
                let whole = self.rules.shape == Shape::Any || segment.offset == 0;
                let bridged = gap <= u64::from(self.limits.gap_pages) || !has_slot;
                let alone = space.is_free(segment.end(), end)
                    && !space.entries.covers(segment.object, first_new, u32::MAX);
                let entry = Entry { start, offset, object: segment.object, ..*wish };
                (whole && bridged && alone).then_some((gap, Extension { entry, pages, first_new }))
            })
            .collect();
        extensions.sort_by_key(|(gap, _)| *gap);
        extensions.into_iter().map(|(_, extension)| extension).collect()
    }

    /// Takes a new object and a new segment.
    fn allocate_anew(
        &mut self,
        task: TaskId,
        at: Option<u64>,
        wish: &Entry,
        actions: &mut Vec<Action>,
    ) -> Result<u64, Error> {
        let space = self.space(task)?;
        if at.is_some_and(|at| !space.is_free(at, at + u64::from(wish.pages))) {
            return Err(Error::Occupied);
        }
        let needed = space.segments().count() + 1;
        if needed > self.rules.segments as usize {
            return Err(Error::Segments(needed));
        }
        let object = match at {
            Some(at) if !self.rules.translates => self.new_object_at(at, wish.pages, actions)?,
            _ => self.new_object(wish.pages, Source::Zero, None, actions)?,
        };
        let run = self.memory.run(self.in_memory(object)?)?;
        let start = at.map_or_else(|| self.free_address(self.space(task)?, run), Ok);
        let entered = start.and_then(|start| self.enter(task, Entry { start, object, ..*wish }, actions));
        if entered.is_err() {
            self.discard(object, actions)?;
        }
        entered
    }

    /// A new object at a physical address.
    fn new_object_at(&mut self, at: u64, pages: u32, actions: &mut Vec<Action>) -> Result<ObjectId, Error> {
        let (rounded, align) = self.rules.shape.round(pages).ok_or(Error::Range)?;
        let start = u32::try_from(at).map_err(|_| Error::Range)?;
        let id = ObjectId(self.next_object);
        let segment = self.memory.alloc_at(Run::new(start, rounded), align, id.0)?;
        self.adopt(id, segment, pages, Source::Zero, None, actions)
    }

    fn enter(&mut self, task: TaskId, entry: Entry, actions: &mut Vec<Action>) -> Result<u64, Error> {
        let mut entries = self.space(task)?.entries.clone();
        entries.add(entry);
        self.remap(task, entries, actions)?;
        Ok(entry.start)
    }
}
