//! A machine after a crash: its tasks are gone, its objects are not.

use crate::arena::Arena;
use crate::error::Refused;
use crate::machine::{Machine, Object, Place, Source};
use crate::placement::Placement;
use crate::recovery::{Note, Record};
use crate::space::ObjectId;
use alloc::vec::Vec;

/// What a crash left of what the caller kept ([`Action::Keep`](crate::Action::Keep) and
/// [`Action::Note`](crate::Action::Note)).
#[derive(Clone, Debug, Default)]
pub struct Remains {
    /// Records of objects in memory.
    pub memory: Vec<Record>,
    /// Records of objects in swap space.
    pub swap: Vec<Record>,
    /// The note of the transfer in flight, if there is one.
    pub note: Option<Note>,
}

impl<P: Placement> Machine<P> {
    /// Puts the objects that a crash left into a machine that has none, each whole at one place and
    /// mapped by nobody; `source` says where the contents of each come from. The caller discards
    /// those that it does not want.
    ///
    /// Refused if records name a page twice, or pages that the machine has not.
    pub fn recover(
        self,
        mut remains: Remains,
        source: impl Fn(ObjectId) -> Source,
    ) -> Result<Machine<P>, Refused> {
        if !self.objects.is_empty() || !self.tasks.is_empty() {
            return Err(Refused::Records);
        }
        if let Some(note) = remains.note {
            note.settle(&mut remains.memory, &mut remains.swap);
        }
        let mut machine = self;
        let (memory, in_memory) = Arena::recover(machine.memory.pages(), remains.memory)?;
        let (swap, in_swap) = Arena::recover(machine.swap.pages(), remains.swap)?;
        machine.memory = if machine.rules.translates { memory } else { memory.fixed_when_mapped() };
        machine.swap = swap;
        let places = in_memory.into_iter().map(Place::Memory).chain(in_swap.into_iter().map(Place::Swap));
        for place in places {
            let (arena, segment) = match place {
                Place::Memory(segment) => (&machine.memory, segment),
                Place::Swap(segment) => (&machine.swap, segment),
            };
            let record = arena.record(segment)?;
            let (id, pages) = (ObjectId(record.object), record.run.pages);
            let object = Object { place, source: source(id), pages, mappings: Vec::new(), orphan: false };
            if machine.objects.insert(id, object).is_some() {
                return Err(Refused::Records);
            }
            machine.next_object = machine.next_object.max(record.object + 1);
        }
        Ok(machine)
    }
}
