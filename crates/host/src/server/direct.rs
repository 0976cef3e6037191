//! Mappings of direct objects. Their clients map them without the host, and need tell nobody: whoever asks how many there
//! are looks at /proc. So attaching costs one question, and the count is the kernel's.

use super::object::Object;
use super::session::Session;
use super::{Host, lock, tables};
use commonhold_object::{MappingId, MappingInfo, Protection, Sharing};
use commonhold_sys::maps::MappedFile;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

impl Host {
    /// The mappings that clients have of a direct object. A process that cannot be looked at (of another user, in an
    /// unprivileged host; of a foreign pid namespace) has none.
    pub(super) fn direct_mappings(&self, object: &Object) -> Vec<MappingInfo> {
        if object.opens.load(Ordering::Relaxed) == 0 {
            return Vec::new(); // nobody need be looked at: there may be thousands of clients, and of objects
        }
        // By shared tables of 4 KiB pages a segment is mapped, by others its memory. What cannot be looked at nobody has mapped.
        let other = tables::is_of_module(object).then(|| tables::memory_of(object).ok().flatten());
        let files: Vec<MappedFile> = [object.descriptor(), other.flatten()]
            .into_iter()
            .flatten()
            .filter_map(|fd| MappedFile::of(&*fd).ok())
            .collect();
        // A client has open what it maps; a process may be several clients.
        let has_open = |session: &Session| lock(&session.opened).contains_key(&object.id);
        let sessions = self.sessions();
        let users: BTreeMap<u32, u32> = sessions
            .iter()
            .filter(|session| has_open(session))
            .map(|session| (session.process.pid, session.credentials.uid))
            .collect();
        let whole = 0..u64::MAX;
        let place = self.place_in_arena(object.id);
        let part = place.map_or(whole, |place| {
            place.offset_bytes..place.offset_bytes + object.record().options.size_bytes
        });
        let mut mappings = Vec::new();
        for (pid, uid) in users {
            for found in files.iter().flat_map(|file| file.mappings_in(pid).unwrap_or_default()) {
                let (from, to) = (found.offset.max(part.start), (found.offset + found.length).min(part.end));
                if from >= to {
                    continue;
                }
                mappings.push(MappingInfo {
                    mapping: MappingId(0),
                    pid,
                    uid,
                    address: found.address + (from - found.offset),
                    length_bytes: to - from,
                    offset_bytes: from - part.start,
                    protection: if found.writable { Protection::ReadWrite } else { Protection::Read },
                    sharing: if found.shared { Sharing::Shared } else { Sharing::Private },
                    faults: 0,
                });
            }
        }
        mappings
    }
}
