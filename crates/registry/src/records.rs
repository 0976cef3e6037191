//! All records, and what is asked of them at every creation: what a user has, and which objects are on a file. Both are
//! counted as records come and go, so that a creation costs the same with ten objects as with ten thousand.

use crate::record::ObjectRecord;
use commonhold_object::{Fixed, ObjectId, Part, Places};
use std::collections::{HashMap, HashSet};

/// Device and inode.
type File = (u64, u64);

/// Records by identity.
pub struct Records {
    by_id: HashMap<ObjectId, ObjectRecord>,
    /// Objects and counted bytes of each user.
    of_user: HashMap<u32, (u64, u64)>,
    of_file: HashMap<File, HashSet<ObjectId>>,
    /// Addresses of local objects, those of creations that are under way among them; and bytes of them of each user.
    places: Places,
    fixed_of_user: HashMap<u32, u64>,
}

impl Default for Records {
    fn default() -> Self {
        Records {
            by_id: HashMap::new(),
            of_user: HashMap::new(),
            of_file: HashMap::new(),
            places: Places::new(Part::Local, 0),
            fixed_of_user: HashMap::new(),
        }
    }
}

/// The addresses that this host gave an object.
fn fixed_here(record: &ObjectRecord) -> Option<Fixed> {
    record.options.fixed.filter(|fixed| !record.is_elsewhere && fixed.is_of(Part::Local))
}

fn file_of(record: &ObjectRecord) -> Option<File> {
    record.file.as_ref().map(|file| (file.device, file.inode))
}

impl Records {
    pub fn get(&self, id: ObjectId) -> Option<&ObjectRecord> {
        self.by_id.get(&id)
    }

    pub fn values(&self) -> impl Iterator<Item = &ObjectRecord> {
        self.by_id.values()
    }

    /// Adds a record, or puts it in the place of the one before.
    pub fn insert(&mut self, record: ObjectRecord) {
        self.remove(record.id);
        let (objects, bytes) = self.of_user.entry(record.charged_uid).or_default();
        *objects += 1;
        *bytes = bytes.saturating_add(record.charged_bytes);
        if let Some(file) = file_of(&record) {
            self.of_file.entry(file).or_default().insert(record.id);
        }
        self.note_fixed(&record);
        self.by_id.insert(record.id, record);
    }

    /// The addresses of a record are its own; of a damaged file that says so of others too, those have them.
    pub fn note_fixed(&mut self, record: &ObjectRecord) {
        let Some(fixed) = fixed_here(record) else { return };
        self.places.note(fixed);
        *self.fixed_of_user.entry(record.charged_uid).or_default() += fixed.room_bytes;
    }

    /// They are nobody's.
    pub fn free_fixed(&mut self, record: &ObjectRecord) {
        let Some(fixed) = fixed_here(record) else { return };
        self.places.give_back(fixed);
        if let Some(bytes) = self.fixed_of_user.get_mut(&record.charged_uid) {
            *bytes = bytes.saturating_sub(fixed.room_bytes);
        }
        self.fixed_of_user.retain(|_, bytes| *bytes > 0);
    }

    /// Addresses of local objects.
    pub fn places(&mut self) -> &mut Places {
        &mut self.places
    }

    /// Bytes of them that a user has.
    pub fn fixed_of(&self, uid: u32) -> u64 {
        self.fixed_of_user.get(&uid).copied().unwrap_or(0)
    }

    pub fn remove(&mut self, id: ObjectId) {
        let Some(record) = self.by_id.remove(&id) else { return };
        self.free_fixed(&record);
        if let Some((objects, bytes)) = self.of_user.get_mut(&record.charged_uid) {
            *objects -= 1;
            *bytes = bytes.saturating_sub(record.charged_bytes);
            if *objects == 0 {
                self.of_user.remove(&record.charged_uid);
            }
        }
        if let Some(file) = file_of(&record)
            && let Some(ids) = self.of_file.get_mut(&file)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.of_file.remove(&file);
            }
        }
    }

    /// Objects and counted bytes of a user.
    pub fn usage(&self, uid: u32) -> (u64, u64) {
        self.of_user.get(&uid).copied().unwrap_or_default()
    }

    /// The objects on a file.
    pub fn on_file(&self, device: u64, inode: u64) -> impl Iterator<Item = &ObjectRecord> {
        let ids = self.of_file.get(&(device, inode)).into_iter().flatten();
        ids.filter_map(|id| self.by_id.get(id))
    }
}
