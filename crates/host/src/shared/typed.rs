//! Bytes of pages that come from hosts of other machine types. A host sends what is in its memory, and who receives it
//! translates it, once, before anything else is done with it (`docs/TYPES.md`).

use super::driver::{Driver, PAGE};
use super::part::Said;
use super::turn::{STAMP, stamped};
use crate::types::Way;
use commonhold_coherence::{HostId, Span};
use commonhold_tags::{Machine, Translated, Types};
use std::sync::PoisonError;

impl Driver {
    /// What is in the object's pages. Said before anything of it comes here, and at the home where no other host has it.
    pub fn has_types(&self, types: &Types) {
        *self.types.write().unwrap_or_else(PoisonError::into_inner) = types.clone();
    }

    /// How often the object's tags were changed, as far as this host knows.
    pub fn types_version(&self) -> u32 {
        self.types.read().unwrap_or_else(PoisonError::into_inner).version()
    }

    /// The bytes that lie behind messages of that host become this host's.
    pub(super) fn translate_messages(&self, from: HostId, messages: &[Said], bytes: &mut [u8]) {
        let Some(from) = self.foreign(from).filter(|_| !bytes.is_empty()) else { return };
        let (mut begin, mut done) = (0, Translated::default());
        for message in messages {
            for page in message.carries().pages() {
                let frames = self.frames(Span::one(page));
                let end = begin + frames.length_bytes() as usize;
                done = done.and(self.translate(from, frames.first, &mut bytes[begin..end]));
                begin = end;
            }
            begin += if stamped(message) { STAMP } else { 0 };
        }
        self.machine.types.translated(&self.seen, Way::Received, done);
    }

    /// The same of pages of 4 KiB that were asked of it.
    pub fn translate_frames(&self, from: HostId, frames: impl IntoIterator<Item = u32>, bytes: &mut [u8]) {
        let Some(from) = self.foreign(from).filter(|_| !bytes.is_empty()) else { return };
        let mut done = Translated::default();
        for (frame, bytes) in frames.into_iter().zip(bytes.chunks_mut(PAGE)) {
            done = done.and(self.translate(from, frame.into(), bytes));
        }
        self.machine.types.translated(&self.seen, Way::Received, done);
    }

    /// The type of that host's machine, if it is another than this one's.
    fn foreign(&self, host: HostId) -> Option<Machine> {
        self.carrier.machine_of(host).filter(|machine| *machine != self.machine.types.here())
    }

    fn translate(&self, from: Machine, first: u64, bytes: &mut [u8]) -> Translated {
        let types = self.types.read().unwrap_or_else(PoisonError::into_inner);
        types.translate(from, self.machine.types.here(), first, bytes)
    }
}
