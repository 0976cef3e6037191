//! Creating in two steps: what is checked and promised first, and what is written once the memory is there. A host
//! that dies in between leaves nothing.

use crate::Registry;
use crate::record::{BackingFile, ObjectRecord};
use crate::tree::Node;
use commonhold_object::{
    CreateOptions, Credentials, Error, ErrorKind, Fixed, Name, ObjectId, Ownership, Part, Result, fixed,
    limits, system_v,
};

/// The outcome of the first step.
pub enum Prepared {
    /// A repeated request: this is the object that it made the first time.
    Exists(Box<ObjectRecord>),
    /// Go on.
    New(NewObject),
}

/// An object that is allowed and paid for, but not there yet.
pub struct NewObject {
    record: Box<ObjectRecord>,
    /// Who asked: the directories may have changed by the time of the commit, so their rights are asked again.
    who: Credentials,
    in_directory: bool,
}

impl NewObject {
    /// It becomes known only if its directory is there; else those that are missing are made.
    pub fn only_in_directory(&mut self, in_directory: bool) {
        self.in_directory = in_directory;
    }

    /// What it will be.
    pub fn record(&self) -> &ObjectRecord {
        &self.record
    }

    /// Whoever gives addresses to the objects that hosts share has given it this one.
    pub fn is_at(&mut self, address: u64) {
        if let Some(fixed) = &mut self.record.options.fixed {
            fixed.address = address;
        }
    }
}

impl Registry {
    /// Checks everything and counts the object against its owner's quota.
    pub fn prepare_create(
        &mut self,
        name: &Name,
        who: &Credentials,
        options: CreateOptions,
        file: Option<BackingFile>,
        nonce: u128,
        charged_bytes: u64,
    ) -> Result<Prepared> {
        self.prepare_create_for((who, who), name, options, file, nonce, charged_bytes)
    }

    /// The same by somebody's rights for another, whose it is.
    pub fn prepare_create_for(
        &mut self,
        (who, owner): (&Credentials, &Credentials),
        name: &Name,
        options: CreateOptions,
        file: Option<BackingFile>,
        nonce: u128,
        charged_bytes: u64,
    ) -> Result<Prepared> {
        Name::new(name.as_str())?;
        system_v::check_new(name, who)?;
        self.tree.check_reach(name, who)?;
        match self.tree.get(name) {
            Some(Node::Object(_)) => {
                let found = self.object_at(name)?;
                let its_owner = found.charged_uid == owner.uid && found.ownership.uid == owner.uid;
                if found.nonce == nonce && its_owner {
                    return Ok(Prepared::Exists(Box::new(found.clone())));
                }
                return Err(Error::new(
                    ErrorKind::Exists,
                    format!("{name} exists already: open it, or remove it first"),
                ));
            }
            Some(Node::Directory(_)) => {
                return Err(Error::new(
                    ErrorKind::Mismatch,
                    format!("{name} is a directory: choose another name"),
                ));
            }
            None => {}
        }
        self.tree.check_add(name, who)?;
        self.check_quota(owner.uid, 1, charged_bytes)?;
        self.check_directories(owner.uid, self.missing_above(name)?.len() as u64)?;
        self.check_file_is_free(&options, file.as_ref())?;
        let options = self.with_address(owner.uid, options)?;
        let named = (Some(name.clone()), name.clone());
        let record = self.new_record(owner, named, options, file, (nonce, charged_bytes));
        Ok(Prepared::New(NewObject { record, who: who.clone(), in_directory: false }))
    }

    /// The record of an object that is about to be made, by a name, and by what it is called first. It counts already.
    fn new_record(
        &mut self,
        owner: &Credentials,
        (name, first_name): (Option<Name>, Name),
        options: CreateOptions,
        file: Option<BackingFile>,
        (nonce, charged_bytes): (u128, u64),
    ) -> Box<ObjectRecord> {
        let id = self.store.next_object();
        let record = Box::new(ObjectRecord {
            id,
            uuid: self.identities.draw(nonce, id),
            name,
            first_name,
            ownership: Ownership { uid: owner.uid, gid: owner.gid, mode: options.mode },
            options,
            file,
            nonce,
            charged_bytes,
            charged_uid: owner.uid,
            boot_id: self.boot_id.clone(),
            is_elsewhere: false,
        });
        self.records.note_fixed(&record);
        self.pending.insert(id, ObjectRecord::clone(&record));
        record
    }

    /// The options with an address, if it is to be fixed and the object is local: of one that hosts share the cluster gives it.
    fn with_address(&mut self, uid: u32, options: CreateOptions) -> Result<CreateOptions> {
        let Some(asked) = options.fixed else { return Ok(options) };
        if asked.address != 0 {
            return Err(Error::invalid("fixed: the host gives addresses: ask for room alone"));
        }
        let asked = asked.of_size(options.size_bytes);
        asked.check_room(options.size_bytes)?;
        if options.is_shared() {
            return Ok(CreateOptions { fixed: Some(asked), ..options });
        }
        self.check_fixed_quota(uid, asked.room_bytes)?;
        self.look_late();
        let address = self.records.places().take(asked.room_bytes);
        let address = address.ok_or_else(|| fixed::is_full(Part::Local, asked.room_bytes))?;
        let next = self.records.places().next();
        self.store.look_from(next);
        Ok(CreateOptions { fixed: Some(Fixed { address, ..asked }), ..options })
    }

    /// Addresses are looked for behind those that were given last, by an earlier process too. Where none were, a place is drawn:
    /// other hosts of this machine have other addresses then, as far as can be.
    fn look_late(&mut self) {
        let next = self.store.looks_from().unwrap_or_else(|| {
            let all = Part::Local.addresses();
            let drawn = self.identities.draw(0, ObjectId(0)) as u64;
            all.start + drawn % (all.end - all.start) / 2 // not near the end, where a large one has no room
        });
        self.records.places().looks_from(next);
    }

    /// Refuses more of the addresses than one user may have.
    fn check_fixed_quota(&self, uid: u32, more: u64) -> Result<()> {
        let (has, most) = (self.records.fixed_of(uid), limits::FIXED_BYTES_PER_ORDINARY_USER);
        if !self.quotas.is_ordinary(uid) || has.saturating_add(more) <= most {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Quota,
            format!(
                "user {uid} has {has} bytes of fixed addresses, and {more} more were asked; the limit is {most}: remove \
                 objects that have some, or give less room"
            ),
        ))
    }

    /// The same of an object that never has a name, and of which the store learns nothing: the host notes it itself. `first` is
    /// what it is called where an object must be called something.
    pub fn prepare_nameless(
        &mut self,
        owner: &Credentials,
        first: Name,
        options: CreateOptions,
        nonce: u128,
        charged_bytes: u64,
    ) -> Result<NewObject> {
        self.check_quota(owner.uid, 1, charged_bytes)?;
        if options.fixed.is_some() {
            return Err(Error::invalid(
                "fixed: an object without a name is nobody's to find again: leave it out",
            ));
        }
        let record = self.new_record(owner, (None, first), options, None, (nonce, charged_bytes));
        Ok(NewObject { record, who: owner.clone(), in_directory: false })
    }

    /// A nameless object that the host noted is there again. None: another has its number.
    pub fn adopt_nameless(&mut self, record: ObjectRecord) -> Option<()> {
        if record.name.is_some() || record.file.is_some() || self.records.get(record.id).is_some() {
            return None;
        }
        self.store.is_past(record.id);
        self.unstored.insert(record.id);
        self.records.insert(record);
        Some(())
    }

    /// Makes an object known whose home is another host, for as long as it is in use here: it has no name of its own.
    pub fn import(
        &mut self,
        uuid: u128,
        name: &Name,
        ownership: Ownership,
        options: CreateOptions,
    ) -> Result<ObjectRecord> {
        self.ready()?;
        let record = ObjectRecord {
            id: self.store.next_object(),
            uuid,
            name: None,
            first_name: name.clone(),
            ownership,
            options,
            file: None,
            nonce: 0,
            charged_bytes: 0,
            charged_uid: 0,
            boot_id: self.boot_id.clone(),
            is_elsewhere: true,
        };
        let mut change = self.store.change()?;
        change.put_record(&record)?;
        change.put_next_object()?;
        change.commit()?;
        self.records.insert(record.clone());
        Ok(record)
    }

    /// The memory could not be had: as if nothing had been asked.
    pub fn abandon_create(&mut self, object: NewObject) {
        self.pending.remove(&object.record.id);
        self.records.free_fixed(&object.record);
    }

    /// Makes the object known, and the directories above it that did not exist (owned by its owner). The name may
    /// have been taken since, or a directory closed to its owner: then it is refused.
    pub fn commit_create(&mut self, object: NewObject) -> Result<ObjectRecord> {
        self.pending.remove(&object.record.id);
        self.records.free_fixed(&object.record); // the record that becomes known has them
        self.make_known(object)
    }

    fn make_known(&mut self, NewObject { record, who, in_directory }: NewObject) -> Result<ObjectRecord> {
        let record = *record;
        let Some(name) = record.name.clone() else {
            self.unstored.insert(record.id);
            self.records.insert(record.clone());
            return Ok(record);
        };
        self.ready()?;
        self.tree.check_add(&name, &who)?;
        if self.tree.get(&name).is_some() {
            return Err(Error::new(
                ErrorKind::Exists,
                format!("{name} was created by somebody else meanwhile"),
            ));
        }
        if in_directory {
            self.check_is_in_directory(&name)?;
        }
        let above = self.missing_above(&name)?;
        self.check_directories(record.ownership.uid, above.len() as u64)?;
        self.put_new(name, above, record)
    }

    /// Puts a record under its name, and makes these directories for it, which belong to its owner. All of it, or nothing.
    pub(crate) fn put_new(
        &mut self,
        name: Name,
        above: Vec<Name>,
        record: ObjectRecord,
    ) -> Result<ObjectRecord> {
        let Ownership { uid, gid, .. } = record.ownership;
        let directory = Ownership { uid, gid, mode: 0o755 };
        let mut change = self.store.change()?;
        for directory_above in &above {
            change.put_directory(directory_above, &directory)?;
        }
        change.put_record(&record)?;
        change.put_next_object()?;
        change.commit()?;
        above.iter().for_each(|above| self.tree.insert(above, Node::Directory(directory)));
        self.tree.insert(&name, Node::Object(record.id));
        self.records.insert(record.clone());
        Ok(record)
    }

    /// The directories above a name that do not exist yet.
    pub(crate) fn missing_above(&self, name: &Name) -> Result<Vec<Name>> {
        let mut missing = Vec::new();
        for above in name.ancestors() {
            match self.tree.get(&above) {
                Some(Node::Directory(_)) => {}
                Some(Node::Object(_)) => {
                    return Err(Error::new(
                        ErrorKind::Mismatch,
                        format!("{above} is an object, not a directory"),
                    ));
                }
                None => missing.push(above),
            }
        }
        Ok(missing)
    }

    /// Two objects on one file would each believe to know what is in it, if the host has frames of either.
    fn check_file_is_free(&self, options: &CreateOptions, file: Option<&BackingFile>) -> Result<()> {
        let Some(file) = file else { return Ok(()) };
        let on_it = |other: &&ObjectRecord| {
            other.file.as_ref().is_some_and(|f| (f.device, f.inode) == (file.device, file.inode))
        };
        let others = self.records.on_file(file.device, file.inode);
        let mut others = others.chain(self.pending.values().filter(on_it));
        let has_pages = |options: &CreateOptions| options.is_controlled() || options.is_fetched();
        let Some(other) = others.find(|other| has_pages(&other.options) || has_pages(options)) else {
            return Ok(());
        };
        let name = other.name.as_ref();
        let name = name.map_or_else(|| "one that was removed and is in use".to_owned(), |n| n.to_string());
        Err(Error::new(
            ErrorKind::Busy,
            format!(
                "{} is the file of another object already, {name}: use that one, or remove it first",
                file.path.display()
            ),
        ))
    }
}
