//! All records, and what is asked of them at every creation: what a user has, and which objects are on a file. Both are
//! counted as records come and go, so that a creation costs the same with ten objects as with ten thousand.

use crate::record::ObjectRecord;
use commonhold_object::ObjectId;
use std::collections::{HashMap, HashSet};

/// Device and inode.
type File = (u64, u64);

/// Records by identity.
#[derive(Default)]
pub struct Records {
    by_id: HashMap<ObjectId, ObjectRecord>,
    /// Objects and counted bytes of each user.
    of_user: HashMap<u32, (u64, u64)>,
    of_file: HashMap<File, HashSet<ObjectId>>,
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
        self.by_id.insert(record.id, record);
    }

    pub fn remove(&mut self, id: ObjectId) {
        let Some(record) = self.by_id.remove(&id) else { return };
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
