//! The memory that the tables compare: the kernel's own, paged objects, wired objects.

use crate::failure::Result;
use crate::view::{PAGE, RawMapping, View};
use commonhold::{CreateOptions, Host, Inherit, MapOptions, Mapping, Translation};

/// Which memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anonymous memory of this process, without an object: what a program has from `malloc`.
    Plain,
    /// An object of ordinary pages, which come with the first touch.
    Paged(Inherit),
    /// A wired object.
    Wired(Inherit),
}

/// Memory of some kind, new and zero.
pub enum Memory {
    /// Without an object.
    Plain(RawMapping),
    /// An object's.
    Object(Mapping),
}

impl Memory {
    /// The memory.
    pub fn view(&self) -> View<'_> {
        match self {
            Memory::Plain(mapping) => mapping.view(),
            Memory::Object(mapping) => View::of(mapping),
        }
    }
}

/// Makes such memory. While it lives, the arena of the wired objects is there and mapped, as the
/// paper's physical memory is: no measurement makes one.
pub struct Maker<'h> {
    host: &'h Host,
    made: usize,
    _kept: Mapping,
}

const KEPT: &str = "/bench/kept";

/// How an object of that kind is made.
pub fn options(translation: Translation, size_bytes: usize) -> CreateOptions {
    // Of wired objects all memory is taken, whatever is asked.
    let reserve = (translation == Translation::Paged).then_some(false);
    CreateOptions { size_bytes: size_bytes as u64, translation, reserve, ..CreateOptions::default() }
}

/// All of an object, of which a fork child has that.
pub fn inherited(inherit: Inherit) -> MapOptions {
    MapOptions { inherit, ..MapOptions::default() }
}

impl<'h> Maker<'h> {
    /// For objects of a host; the arena has room for that many bytes beside what lies in it.
    pub fn new(host: &'h Host, room_bytes: usize) -> Result<Maker<'h>> {
        // An arena is at least as large as its first object, and stays while another is in it.
        super::super::wired::create(host, "/bench/room", room_bytes)?;
        super::super::wired::create(host, KEPT, PAGE)?;
        host.remove("/bench/room")?;
        let kept = host.open(KEPT, commonhold::Access::ReadWrite)?.map(&MapOptions::default())?;
        Ok(Maker { host, made: 0, _kept: kept })
    }

    /// Makes it. A name is of this memory alone; it is removed when [`Maker::end`] is called.
    pub fn make(&mut self, kind: Kind, bytes: usize) -> Result<Memory> {
        self.made += 1;
        let object = |translation, inherit| -> Result<Memory> {
            let object = self.host.create(&name(self.made), &options(translation, bytes), None)?;
            Ok(Memory::Object(object.map(&inherited(inherit))?))
        };
        match kind {
            Kind::Plain => Ok(Memory::Plain(RawMapping::anonymous(bytes)?)),
            Kind::Paged(inherit) => object(Translation::Paged, inherit),
            Kind::Wired(inherit) => object(Translation::Wired, inherit),
        }
    }

    /// Ends what was made last.
    pub fn end(&mut self, memory: Memory) -> Result<()> {
        self.end_all(vec![memory])
    }

    /// Ends what was made last, as many as these, in the order in which they were made.
    pub fn end_all(&mut self, memories: Vec<Memory>) -> Result<()> {
        let first = self.made + 1 - memories.len();
        for (n, memory) in memories.into_iter().enumerate() {
            let is_object = matches!(memory, Memory::Object(_));
            drop(memory);
            if is_object {
                self.host.remove(&name(first + n))?;
            }
        }
        Ok(())
    }
}

fn name(number: usize) -> String {
    format!("/bench/{number}")
}
