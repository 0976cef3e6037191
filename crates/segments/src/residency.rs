//! Objects in memory: room for them, growth, moves, swap (section 5.5), and the actions of each.

use crate::action::Action;
use crate::arena::SegmentId;
use crate::compaction::Relocation;
use crate::error::Refused;
use crate::growth::Growth;
use crate::machine::{Error, Machine, Object, Place, Source};
use crate::placement::Placement;
use crate::recovery::{Note, Passage, Record};
use crate::run::Run;
use crate::space::ObjectId;
use crate::swap::Transfer;
use alloc::vec::Vec;

impl<P: Placement> Machine<P> {
    /// Keeps an object where it is while I/O goes to or from it.
    pub fn pin(&mut self, object: ObjectId) -> Result<Run, Error> {
        Ok(self.memory.pin(self.in_memory(object)?)?)
    }

    /// Takes one pin back. An object that nobody maps any more goes with its last pin.
    pub fn unpin(&mut self, object: ObjectId, actions: &mut Vec<Action>) -> Result<(), Error> {
        self.memory.unpin(self.in_memory(object)?)?;
        self.release_unused(object, actions)
    }

    /// Makes one move of at most `at_most` pages towards one large free segment at the top. False
    /// when there is none to make.
    pub fn compact(&mut self, at_most: u32, actions: &mut Vec<Action>) -> Result<bool, Error> {
        let relocation = self.memory.compact(at_most);
        relocation.map_or(Ok(false), |relocation| self.relocate(relocation, actions).map(|()| true))
    }

    /// Copies an object into a new one that nobody maps (section 5.1: nothing is copied later).
    pub fn copy(&mut self, object: ObjectId, actions: &mut Vec<Action>) -> Result<ObjectId, Error> {
        let pages = self.object(object)?.pages;
        self.in_memory(object)?;
        self.new_object(pages, Source::Zero, Some(object), actions)
    }

    /// Makes a new object and fills it: with zeros, from its pager, or with what another has.
    pub(crate) fn new_object(
        &mut self,
        pages: u32,
        source: Source,
        contents: Option<ObjectId>,
        actions: &mut Vec<Action>,
    ) -> Result<ObjectId, Error> {
        let (rounded, align) = self.rules.shape.round(pages).ok_or(Error::Range)?;
        let id = ObjectId(self.next_object);
        let segment = self.room(rounded, align, id, contents, actions)?;
        self.adopt(id, segment, pages, source, contents, actions)
    }

    /// Makes an object of a segment that was allocated for it, and fills it.
    pub(crate) fn adopt(
        &mut self,
        id: ObjectId,
        segment: SegmentId,
        pages: u32,
        source: Source,
        contents: Option<ObjectId>,
        actions: &mut Vec<Action>,
    ) -> Result<ObjectId, Error> {
        let original = contents.map(|other| self.memory.run(self.in_memory(other)?).map_err(Error::from));
        let original = original.transpose()?;
        let run = self.memory.run(segment)?;
        let mut offset = 0;
        for to in run.part(0, pages).chunks(self.limits.chunk_pages) {
            actions.push(match (original, source) {
                (Some(from), _) => Action::Copy { from: from.part(offset, to.pages), to },
                (None, Source::Pager) => Action::PageIn { object: id.0, offset, to },
                (None, Source::Zero) => Action::Zero(to),
            });
            offset += to.pages;
        }
        let rest = run.part(pages, run.pages - pages);
        actions.extend(rest.chunks(self.limits.chunk_pages).map(Action::Zero));
        self.memory.filled(segment, run.pages)?;
        let place = Place::Memory(segment);
        self.objects.insert(id, Object { place, source, pages, mappings: Vec::new(), orphan: false });
        self.next_object += 1;
        self.keep(id, actions)?;
        Ok(id)
    }

    /// A segment for an object: from what is free, by moves, or from what was cached.
    pub(crate) fn room(
        &mut self,
        pages: u32,
        align: u32,
        object: ObjectId,
        keep: Option<ObjectId>,
        actions: &mut Vec<Action>,
    ) -> Result<SegmentId, Error> {
        loop {
            let refused = match self.memory.alloc(pages, align, object.0) {
                Err(refused @ Refused::NoRoom { .. }) => refused,
                other => return Ok(other?),
            };
            if let Some(room) = self.memory.make_room(pages, align, u32::MAX) {
                room.moves.into_iter().try_for_each(|moved| self.relocate(moved, actions))?;
                return Ok(self.memory.alloc_at(room.run, align, object.0)?);
            }
            self.reclaim(keep, refused, actions)?;
        }
    }

    /// Lengthens an object, and zeroes it from page `from` on. It grows in place, its neighbours
    /// move, it moves itself, or what was cached goes.
    pub(crate) fn lengthen(
        &mut self,
        id: ObjectId,
        pages: u32,
        from: u32,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let (rounded, align) = self.rules.shape.round(pages).ok_or(Error::Range)?;
        let segment = self.in_memory(id)?;
        while self.memory.run(segment)?.pages < rounded {
            match self.memory.plan_growth(segment, rounded, align) {
                Ok(Growth::InPlace) => self.memory.grow(segment, rounded)?,
                Ok(Growth::Itself(relocation)) => self.relocate(relocation, actions)?,
                Ok(Growth::Neighbours(moves)) => {
                    moves.into_iter().try_for_each(|moved| self.relocate(moved, actions))?;
                }
                Err(refused @ Refused::NoRoom { .. }) if self.memory.is_movable(segment)? => {
                    match self.memory.make_room(rounded, align, u32::MAX) {
                        // The plan may move the segment too, out of the room that it then moves
                        // into.
                        Some(room) => {
                            room.moves.into_iter().try_for_each(|moved| self.relocate(moved, actions))?;
                            self.relocate(Relocation { segment, to: room.run }, actions)?;
                        }
                        None => self.reclaim(Some(id), refused, actions)?,
                    }
                }
                Err(refused) => return Err(refused.into()),
            }
        }
        self.memory.set_align(segment, align)?;
        let run = self.memory.run(segment)?;
        let filled = self.memory.filled_pages(segment)?;
        let from = from.min(filled);
        actions.extend(run.part(from, run.pages - from).chunks(self.limits.chunk_pages).map(Action::Zero));
        self.memory.filled(segment, run.pages - filled)?;
        let object = self.objects.get_mut(&id).ok_or(Error::Name)?;
        object.pages = object.pages.max(pages);
        self.keep(id, actions)
    }

    /// Frees the object that has been cached for longest.
    fn reclaim(
        &mut self,
        keep: Option<ObjectId>,
        refused: Refused,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let oldest = self.memory.oldest_cached().ok_or(refused)?;
        let object = ObjectId(self.memory.object(oldest)?);
        if Some(object) == keep {
            return Err(refused.into());
        }
        self.discard(object, actions)
    }

    /// Moves an object's segment: what maps it is invalid meanwhile.
    pub(crate) fn relocate(
        &mut self,
        relocation: Relocation,
        actions: &mut Vec<Action>,
    ) -> Result<(), Error> {
        let id = ObjectId(self.memory.object(relocation.segment)?);
        let moved = self.memory.begin_move(relocation)?;
        let passage = Passage { object: id.0, from: moved.from, to: moved.to, done: false };
        self.unload(id, actions)?;
        self.transfer(Note::Move, passage, moved.pages, |from, to| Action::Copy { from, to }, actions);
        self.memory.finish_move(&moved)?;
        self.keep(id, actions)?;
        actions.push(Action::Forget);
        self.load(id, actions)
    }

    /// Takes an object that is mapped at most once, and not pinned, out of memory.
    pub fn swap_out(&mut self, id: ObjectId, actions: &mut Vec<Action>) -> Result<(), Error> {
        let segment = self.in_memory(id)?;
        let pages = self.memory.run(segment)?.pages;
        let slot = self.swap.alloc(pages, 1, id.0)?;
        let transfer = match Transfer::begin(&mut self.memory, &mut self.swap, segment, slot) {
            Ok(transfer) => transfer,
            Err(refused) => {
                self.swap.free(slot)?;
                return Err(refused.into());
            }
        };
        self.unload(id, actions)?;
        let passage = Passage { object: id.0, from: transfer.from, to: transfer.to, done: false };
        let out = |from, to| Action::SwapOut { from, to };
        self.transfer(Note::SwapOut, passage, transfer.pages, out, actions);
        transfer.finish(&mut self.memory, &mut self.swap)?;
        self.objects.get_mut(&id).ok_or(Error::Name)?.place = Place::Swap(slot);
        self.keep(id, actions)?;
        actions.push(Action::Forget);
        Ok(())
    }

    /// Brings an object back into memory, and makes what maps it valid.
    pub fn swap_in(&mut self, id: ObjectId, actions: &mut Vec<Action>) -> Result<(), Error> {
        let object = self.object(id)?;
        let Place::Swap(slot) = object.place else { return Ok(()) };
        let mapped = object.mappings.len();
        let (pages, align) = self.rules.shape.round(self.swap.run(slot)?.pages).ok_or(Error::Range)?;
        let segment = self.room(pages, align, id, None, actions)?;
        let transfer = Transfer::begin(&mut self.swap, &mut self.memory, slot, segment)?;
        let passage = Passage { object: id.0, from: transfer.from, to: transfer.to, done: false };
        let back = |from, to| Action::SwapIn { from, to };
        self.transfer(Note::SwapIn, passage, transfer.pages, back, actions);
        transfer.finish(&mut self.swap, &mut self.memory)?;
        (0..mapped).try_for_each(|_| self.memory.map(segment).map(|_| ()))?;
        self.objects.get_mut(&id).ok_or(Error::Name)?.place = Place::Memory(segment);
        self.keep(id, actions)?;
        actions.push(Action::Forget);
        self.load(id, actions)
    }

    /// The note, the copies, and the note that all is copied.
    fn transfer(
        &self,
        note: fn(Passage) -> Note,
        passage: Passage,
        pages: u32,
        copy: impl Fn(Run, Run) -> Action,
        actions: &mut Vec<Action>,
    ) {
        actions.push(Action::Note(note(passage)));
        let from = passage.from.part(0, pages).chunks(self.limits.chunk_pages);
        let to = passage.to.part(0, pages).chunks(self.limits.chunk_pages);
        actions.extend(from.zip(to).map(|(from, to)| copy(from, to)));
        actions.push(Action::Note(note(Passage { done: true, ..passage })));
    }

    fn unload(&self, id: ObjectId, actions: &mut Vec<Action>) -> Result<(), Error> {
        let mappings = &self.object(id)?.mappings;
        actions.extend(mappings.iter().map(|(task, slot)| Action::Unload { task: *task, slot: *slot }));
        Ok(())
    }

    fn load(&self, id: ObjectId, actions: &mut Vec<Action>) -> Result<(), Error> {
        for (task, slot) in &self.object(id)?.mappings {
            let segment = self.space(*task)?.slots[*slot as usize];
            if let Some(descriptor) = segment.map_or(Ok(None), |segment| self.descriptor(&segment))? {
                actions.push(Action::Load { task: *task, slot: *slot, descriptor });
            }
        }
        Ok(())
    }

    /// The object's record, as it is now.
    pub(crate) fn keep(&self, id: ObjectId, actions: &mut Vec<Action>) -> Result<(), Error> {
        let (arena, segment, swapped) = match self.object(id)?.place {
            Place::Memory(segment) => (&self.memory, segment, false),
            Place::Swap(segment) => (&self.swap, segment, true),
        };
        let record: Record = arena.record(segment)?;
        actions.push(Action::Keep { record, swapped });
        Ok(())
    }
}
