//! Objects whose home moves to this host, or away from it.

use crate::Registry;
use crate::record::ObjectRecord;
use crate::tree::Node;
use commonhold_object::{CreateOptions, Error, ErrorKind, Name, ObjectId, Result};

impl Registry {
    /// Refuses what could not be the home's record here: of that object, under that name, on that file.
    pub fn check_home_here(&self, uuid: u128, name: &Name, file: (u64, u64)) -> Result<()> {
        let is_it = |id: &ObjectId| self.records.get(*id).is_some_and(|record| record.uuid == uuid);
        let refused = |what: String| Err(Error::new(ErrorKind::Exists, what));
        match self.tree.get(name) {
            Some(Node::Object(id)) if is_it(id) => {}
            Some(_) => {
                return refused(format!("{name} is the name of something else on this host: rename that"));
            }
            None => drop(self.missing_above(name)?),
        }
        let mut others = self.records.on_file(file.0, file.1).filter(|other| other.uuid != uuid);
        match others.next() {
            Some(other) => {
                refused(format!("the file of {name} is that of another object here, {}", other.first_name))
            }
            None => Ok(()),
        }
    }

    /// This host is the object's home from now on. `used`: the record of what is used here, which becomes that of the home;
    /// unless the home's is another beside it.
    pub fn home_here(&mut self, used: Option<ObjectId>, mut record: ObjectRecord) -> Result<ObjectRecord> {
        self.ready()?;
        record.id = used.unwrap_or_else(|| self.store.next_object());
        record.boot_id = self.boot_id.clone();
        let Some(name) = record.name.clone() else { return Err(Error::invalid("a home has a name")) };
        let above = self.missing_above(&name)?;
        self.put_new(name, above, record)
    }

    /// Another host is the object's home: it is known here for as long as it is in use, and has no name of its own.
    pub fn home_elsewhere(&mut self, id: ObjectId, options: CreateOptions) -> Result<()> {
        let Some(mut record) = self.records.get(id).cloned() else { return Ok(()) };
        self.ready()?;
        let name = record.name.take();
        record.options = options;
        record.file = None;
        record.is_elsewhere = true;
        (record.charged_bytes, record.charged_uid) = (0, 0);
        let mut change = self.store.change()?;
        change.put_record(&record)?;
        change.commit()?;
        name.iter().for_each(|name| self.tree.remove(name));
        self.records.insert(record);
        Ok(())
    }
}
