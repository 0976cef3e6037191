//! Objects, tasks and their segments, over one arena of memory and one of swap space.

use crate::action::Action;
use crate::arena::{Arena, SegmentId, Unmapped};
use crate::error::Refused;
use crate::hardware::{Descriptor, Protection, Rules, TaskId};
use crate::placement::{Placement, Tlsf};
use crate::run::Run;
use crate::space::{Entries, Entry, Inheritance, ObjectId, Space, VirtualSegment};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

/// Why a machine refused a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The arena refused it.
    Arena(Refused),
    /// Something is mapped at the addresses, or a segment has a gap there.
    Occupied,
    /// No such object or task; or the task exists already.
    Name,
    /// Pages beyond the object's end, no pages, or addresses that cannot be.
    Range,
    /// The task would need so many segments; the hardware has fewer.
    Segments(usize),
    /// No segment of the hardware has that part of the object.
    Shape,
    /// The object is in swap space.
    Swapped,
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        Error::Arena(refused)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Arena(refused) => refused.fmt(f),
            Error::Occupied => f.write_str("the addresses are in use"),
            Error::Name => f.write_str("no object or task has that name, or one has it already"),
            Error::Range => f.write_str("the pages are not the object's, or not addresses"),
            Error::Segments(needed) => write!(f, "the task would need {needed} segments"),
            Error::Shape => f.write_str("no segment of this hardware has that size and base"),
            Error::Swapped => f.write_str("the object is in swap space"),
        }
    }
}

impl core::error::Error for Error {}

/// Where an object's contents come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Zeros: anonymous memory.
    Zero,
    /// A pager, asked for every page at once (section 5.1).
    Pager,
}

/// Bounds that a machine keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pages that one action works on at most.
    pub chunk_pages: u32,
    /// Pages of a gap that an allocation bridges rather than take one more of several segments.
    pub gap_pages: u32,
    /// Distance in pages between the addresses of segments that are placed freely.
    pub spacing_pages: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { chunk_pages: 256, gap_pages: 256, spacing_pages: 1 << 20 }
    }
}

/// Where an object's segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Memory(SegmentId),
    Swap(SegmentId),
}

#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub place: Place,
    pub source: Source,
    /// Pages that may be mapped; the segment may be longer ([`Shape`](crate::Shape)).
    pub pages: u32,
    /// The virtual segments that map it.
    pub mappings: Vec<(TaskId, u32)>,
    /// Was mapped, is no longer, and goes as soon as no I/O keeps it.
    pub orphan: bool,
}

/// A machine without pages: what its memory holds, and what its tasks see of it.
///
/// Each call appends what must be done to `actions`. That holds for refused calls too: they change
/// no task's memory, but may have moved segments to find out.
#[derive(Clone, Debug)]
pub struct Machine<P = Tlsf> {
    pub(crate) rules: Rules,
    pub(crate) limits: Limits,
    pub(crate) memory: Arena<P>,
    pub(crate) swap: Arena<P>,
    pub(crate) objects: BTreeMap<ObjectId, Object>,
    pub(crate) tasks: BTreeMap<TaskId, Space>,
    pub(crate) next_object: u64,
}

impl<P: Placement> Machine<P> {
    /// A machine of `memory` pages and `swap` pages of swap space (at least one each).
    pub fn new(rules: Rules, limits: Limits, memory: u32, swap: u32) -> Machine<P> {
        let memory = Arena::new(memory);
        Machine {
            rules,
            limits,
            memory: if rules.translates { memory } else { memory.fixed_when_mapped() },
            swap: Arena::new(swap),
            objects: BTreeMap::new(),
            tasks: BTreeMap::new(),
            next_object: 1,
        }
    }

    /// Physical memory.
    pub fn memory(&self) -> &Arena<P> {
        &self.memory
    }

    /// Swap space.
    pub fn swap(&self) -> &Arena<P> {
        &self.swap
    }

    /// Makes a task, with nothing mapped.
    pub fn create_task(&mut self, task: TaskId) -> Result<(), Error> {
        if self.tasks.contains_key(&task) {
            return Err(Error::Name);
        }
        self.tasks.insert(task, Space::default());
        Ok(())
    }

    /// Unmaps all that a task maps, and ends it.
    pub fn destroy_task(&mut self, task: TaskId, actions: &mut Vec<Action>) -> Result<(), Error> {
        self.remap(task, Entries::default(), actions)?;
        self.tasks.remove(&task);
        Ok(())
    }

    /// Makes an object of `pages` pages, all of them there at once (section 5.1). A cacheable one
    /// stays when its last mapping goes, until room is short.
    pub fn create_object(
        &mut self,
        pages: u32,
        source: Source,
        cacheable: bool,
        actions: &mut Vec<Action>,
    ) -> Result<ObjectId, Error> {
        let id = self.new_object(pages, source, None, actions)?;
        self.memory.set_cacheable(self.in_memory(id)?, cacheable)?;
        self.keep(id, actions)?;
        Ok(id)
    }

    /// Maps `entry.pages` pages of an object. Takes one more virtual segment, unless the object is
    /// mapped in line with it at a protection that the hardware takes for the same (Figure 3).
    pub fn map(&mut self, task: TaskId, entry: Entry, actions: &mut Vec<Action>) -> Result<(), Error> {
        let object = self.object(entry.object)?;
        let end = self.end_of(entry.start, entry.pages)?;
        if entry.offset.checked_add(entry.pages).is_none_or(|end| end > object.pages) {
            return Err(Error::Range);
        }
        let space = self.space(task)?;
        if !space.is_free(entry.start, end) {
            return Err(Error::Occupied);
        }
        let mut entries = space.entries.clone();
        entries.add(entry);
        self.remap(task, entries, actions)
    }

    /// Changes the protection of all that is mapped between two addresses.
    pub fn protect(
        &mut self,
        task: TaskId,
        start: u64,
        pages: u32,
        protection: Protection,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let end = self.end_of(start, pages)?;
        let mut entries = self.space(task)?.entries.clone();
        for entry in entries.cut(start, end) {
            entries.add(Entry { protection, ..entry });
        }
        self.remap(task, entries, actions)
    }

    /// Makes `child` a task with what `parent` lets it inherit. What is inherited as a copy is
    /// copied at once, a whole object at a time (section 5.1).
    pub fn fork(&mut self, parent: TaskId, child: TaskId, actions: &mut Vec<Action>) -> Result<(), Error> {
        let inherited: Vec<Entry> = self.space(parent)?.entries.iter().copied().collect();
        self.create_task(child)?;
        let result = self.inherit(&inherited, child, actions);
        if result.is_err() {
            self.tasks.remove(&child);
        }
        result
    }

    fn inherit(&mut self, from: &[Entry], child: TaskId, actions: &mut Vec<Action>) -> Result<(), Error> {
        let mut entries = Entries::default();
        let mut copies: BTreeMap<ObjectId, ObjectId> = BTreeMap::new();
        let mut result = Ok(());
        for entry in from.iter().filter(|entry| entry.inheritance != Inheritance::None) {
            let object = match (entry.inheritance, copies.get(&entry.object)) {
                (Inheritance::Share, _) => Ok(entry.object),
                (_, Some(copy)) => Ok(*copy),
                _ => self.copy(entry.object, actions).inspect(|copy| {
                    copies.insert(entry.object, *copy);
                }),
            };
            match object {
                Ok(object) => entries.add(Entry { object, ..*entry }),
                Err(error) => result = Err(error),
            }
        }
        let result = result.and_then(|()| self.remap(child, entries, actions));
        if result.is_err() {
            for copy in copies.into_values() {
                self.discard(copy, actions)?;
            }
        }
        result
    }

    /// The map entries of a task, in order of address.
    pub fn entries(&self, task: TaskId) -> impl Iterator<Item = &Entry> {
        self.tasks.get(&task).into_iter().flat_map(|space| space.entries.iter())
    }

    /// The virtual segments of a task.
    pub fn segments(&self, task: TaskId) -> impl Iterator<Item = &VirtualSegment> {
        self.tasks.get(&task).into_iter().flat_map(Space::segments)
    }

    /// The physical segment of an object that is in memory.
    pub fn segment(&self, object: ObjectId) -> Result<SegmentId, Error> {
        self.in_memory(object)
    }

    /// Pages of an object that may be mapped.
    pub fn object_pages(&self, object: ObjectId) -> Result<u32, Error> {
        self.object(object).map(|object| object.pages)
    }
}

/// What the other files of the layer share.
impl<P: Placement> Machine<P> {
    pub(crate) fn object(&self, id: ObjectId) -> Result<&Object, Error> {
        self.objects.get(&id).ok_or(Error::Name)
    }

    pub(crate) fn space(&self, task: TaskId) -> Result<&Space, Error> {
        self.tasks.get(&task).ok_or(Error::Name)
    }

    pub(crate) fn in_memory(&self, id: ObjectId) -> Result<SegmentId, Error> {
        match self.object(id)?.place {
            Place::Memory(segment) => Ok(segment),
            Place::Swap(_) => Err(Error::Swapped),
        }
    }

    /// The address behind so many pages; there is at least one, and all are addresses.
    pub(crate) fn end_of(&self, start: u64, pages: u32) -> Result<u64, Error> {
        start.checked_add(u64::from(pages)).filter(|end| *end > start).ok_or(Error::Range)
    }

    /// The virtual segments that entries need, if the hardware has so many.
    pub(crate) fn wanted(&self, entries: &Entries) -> Result<Vec<VirtualSegment>, Error> {
        let wanted = entries.segments(&self.rules);
        match u32::try_from(wanted.len()) {
            Ok(needed) if needed <= self.rules.segments => Ok(wanted),
            _ => Err(Error::Segments(wanted.len())),
        }
    }

    /// What the hardware loads for a virtual segment; nothing while its object is in swap space.
    pub(crate) fn descriptor(&self, segment: &VirtualSegment) -> Result<Option<Descriptor>, Error> {
        let Place::Memory(id) = self.object(segment.object)?.place else {
            return Ok(None);
        };
        let whole = self.memory.run(id)?;
        let run = whole.part(segment.offset, segment.pages);
        let cover = self.rules.shape.cover(run).filter(|cover| whole.contains(*cover));
        let cover = cover.ok_or(Error::Shape)?;
        let start = segment.start.checked_sub(u64::from(run.start - cover.start)).ok_or(Error::Shape)?;
        if !self.rules.translates && start != u64::from(cover.start) {
            return Err(Error::Shape);
        }
        Ok(Some(Descriptor { start, run: cover, protection: segment.protection }))
    }

    /// Gives a task other entries. The virtual segments that are no longer needed go; then those
    /// that get smaller are loaded, which makes room for the others. What nobody maps any more is
    /// freed.
    pub(crate) fn remap(
        &mut self,
        task: TaskId,
        entries: Entries,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let wanted = self.wanted(&entries)?;
        self.check_descriptors(&wanted)?;
        let space = self.space(task)?;
        let (old, new) = (space.slots.clone(), space.assign(&wanted));
        let held = |slot: usize| old.get(slot).copied().flatten();
        let object = |segment: Option<VirtualSegment>| segment.map(|segment| segment.object);
        let is_replaced = |slot: &usize| object(held(*slot)) != object(new[*slot]);
        let replaced: Vec<usize> = (0..new.len()).filter(is_replaced).collect();
        let mut left = Vec::new();
        for slot in &replaced {
            if let Some(was) = object(held(*slot)) {
                if self.in_memory(was).is_ok() {
                    actions.push(Action::Unload { task, slot: *slot as u32 });
                }
                self.forget_mapping(was, task, *slot as u32)?;
                left.push(was);
            }
        }
        for slot in &replaced {
            if let Some(is) = object(new[*slot]) {
                self.add_mapping(is, task, *slot as u32)?;
            }
        }
        let mut changed: Vec<(usize, VirtualSegment)> = (0..new.len())
            .filter_map(|slot| Some((slot, new[slot]?)))
            .filter(|(slot, segment)| held(*slot) != Some(*segment))
            .collect();
        changed.sort_by_key(|(slot, segment)| {
            replaced.contains(slot) || held(*slot).is_none_or(|held| !held.contains(segment))
        });
        // One that gets shorter at one end and longer at the other goes first, and comes back last.
        for (slot, segment) in changed.iter().filter(|(slot, _)| !replaced.contains(slot)) {
            let shifts = held(*slot).is_some_and(|held| !held.contains(segment) && !segment.contains(&held));
            if shifts && self.in_memory(segment.object).is_ok() {
                actions.push(Action::Unload { task, slot: *slot as u32 });
            }
        }
        for (slot, segment) in changed {
            if let Some(descriptor) = self.descriptor(&segment)? {
                actions.push(Action::Load { task, slot: slot as u32, descriptor });
            }
        }
        self.tasks.insert(task, Space { entries, slots: new });
        left.into_iter().try_for_each(|object| self.release_unused(object, actions))
    }

    /// Whether the hardware can load virtual segments (in order of address), and side by side.
    fn check_descriptors(&self, wanted: &[VirtualSegment]) -> Result<(), Error> {
        let mut end = 0;
        for segment in wanted {
            if let Some(descriptor) = self.descriptor(segment)? {
                if descriptor.start < end {
                    return Err(Error::Shape);
                }
                end = descriptor.start + u64::from(descriptor.run.pages);
            }
        }
        Ok(())
    }

    fn add_mapping(&mut self, id: ObjectId, task: TaskId, slot: u32) -> Result<(), Error> {
        let object = self.objects.get_mut(&id).ok_or(Error::Name)?;
        object.mappings.push((task, slot));
        object.orphan = false;
        if let Place::Memory(segment) = object.place {
            self.memory.map(segment)?;
        }
        Ok(())
    }

    fn forget_mapping(&mut self, id: ObjectId, task: TaskId, slot: u32) -> Result<(), Error> {
        let object = self.objects.get_mut(&id).ok_or(Error::Name)?;
        object.mappings.retain(|mapping| *mapping != (task, slot));
        let unused = match object.place {
            Place::Memory(segment) => self.memory.unmap(segment)? == Unmapped::Unused,
            Place::Swap(segment) => object.mappings.is_empty() && !self.swap.busy(segment)?.cacheable,
        };
        object.orphan = unused;
        Ok(())
    }

    /// Frees an object that was mapped and is no longer, if it is not kept as a cache or for I/O.
    pub(crate) fn release_unused(&mut self, id: ObjectId, actions: &mut Vec<Action>) -> Result<(), Error> {
        let Some(object) = self.objects.get(&id) else { return Ok(()) };
        let pinned = matches!(object.place, Place::Memory(segment) if self.memory.busy(segment)?.pins > 0);
        if object.orphan && object.mappings.is_empty() && !pinned {
            self.discard(id, actions)?;
        }
        Ok(())
    }

    /// Frees an object that nobody maps. A pager gets its contents first.
    pub fn discard(&mut self, id: ObjectId, actions: &mut Vec<Action>) -> Result<(), Error> {
        let object = self.object(id)?;
        if !object.mappings.is_empty() {
            return Err(Refused::Mapped(object.mappings.len() as u32).into());
        }
        match object.place {
            Place::Swap(segment) => self.swap.free(segment)?,
            Place::Memory(segment) => {
                let run = self.memory.run(segment)?;
                let pages = object.pages;
                let has_pager = object.source == Source::Pager;
                self.memory.free(segment)?;
                let mut offset = 0;
                for from in run.part(0, pages).chunks(self.limits.chunk_pages).filter(|_| has_pager) {
                    actions.push(Action::PageOut { object: id.0, offset, from });
                    offset += from.pages;
                }
            }
        }
        self.objects.remove(&id);
        actions.push(Action::Drop { object: id.0 });
        Ok(())
    }

    /// The address of a segment that may be anywhere: a distance behind all others, or where it
    /// lies.
    pub(crate) fn free_address(&self, space: &Space, run: Run) -> Result<u64, Error> {
        if !self.rules.translates {
            return Ok(u64::from(run.start));
        }
        let spacing = self.limits.spacing_pages.max(1);
        let end = space.segments().map(VirtualSegment::end).max().unwrap_or(0);
        end.checked_add(1).and_then(|end| end.checked_next_multiple_of(spacing)).ok_or(Error::Range)
    }
}
