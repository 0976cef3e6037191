//! What was counted and traced of objects, told to those who may read them.

use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use commonhold_object::limits::{COUNTED_OBJECTS, HOTTEST_PAGES, HOTTEST_PAGES_OF_MANY};
use commonhold_object::wire::Reply;
use commonhold_object::{Access, Error, ErrorKind, Name, ObjectCounts, ObjectId, Result, Seen, TracePlace};
use std::collections::HashSet;
use std::sync::Arc;

impl Host {
    pub(super) fn counts(
        &self,
        session: &Session,
        name: Option<&Name>,
        after: Option<ObjectId>,
        hottest: u32,
    ) -> Result<Reply> {
        let hottest = hottest as usize;
        let (objects, more) = match name {
            Some(name) => {
                let object = self.find_counted(session, name)?;
                (vec![counts_of(&object, hottest.min(HOTTEST_PAGES))], false)
            }
            None => {
                let mut objects = self.counted_objects();
                objects.retain(|object| {
                    after.is_none_or(|after| object.id > after) && self.may_see(session, object)
                });
                let more = objects.len() > COUNTED_OBJECTS;
                let hottest = hottest.min(HOTTEST_PAGES_OF_MANY);
                (
                    objects.iter().take(COUNTED_OBJECTS).map(|object| counts_of(object, hottest)).collect(),
                    more,
                )
            }
        };
        Ok(Reply::Counts(Box::new(self.seen(objects, more))))
    }

    /// Objects of which something may have been counted, the oldest first.
    pub(super) fn counted_objects(&self) -> Vec<Arc<Object>> {
        let mut objects = self.all_objects();
        objects.retain(|object| object.cache().is_some());
        // Under explicit coherence the home has what its own processes map apart: it is the same object.
        let is_home = |object: &&Arc<Object>| !object.record().is_elsewhere;
        let homes: HashSet<u128> =
            objects.iter().filter(is_home).map(|object| object.record().uuid).collect();
        objects.retain(|object| {
            let record = object.record();
            !record.is_elsewhere || !homes.contains(&record.uuid)
        });
        objects.sort_by_key(|object| object.id);
        objects
    }

    /// Its readers see an object; root and who runs the host see all, nameless ones too.
    fn may_see(&self, session: &Session, object: &Object) -> bool {
        let who = &session.credentials;
        let (name, is_elsewhere) = {
            let record = object.record();
            (record.name.clone(), record.is_elsewhere)
        };
        if !self.machine.is_ordinary(who.uid) {
            return true;
        }
        if is_elsewhere {
            // Who may read it is for its home to say, which said so to whoever has it open.
            return self.has_open(who.uid, object.id);
        }
        name.is_some_and(|name| lock(&self.registry).lookup(&name, who, Access::Read).is_ok())
    }

    fn has_open(&self, uid: u32, object: ObjectId) -> bool {
        let opened = |other: &Arc<Session>| lock(&other.opened).contains_key(&object);
        self.sessions().iter().any(|other| other.credentials.uid == uid && opened(other))
    }

    /// The object of that name, if the session may see it: of this host, or of another and in use here.
    fn find_counted(&self, session: &Session, name: &Name) -> Result<Arc<Object>> {
        let error = match self.lookup(session, name, Access::Read) {
            Err(error) if error.kind == ErrorKind::NotFound => error,
            other => return other,
        };
        let is_it = |object: &Arc<Object>| {
            let record = object.record();
            record.is_elsewhere && record.first_name == *name
        };
        let found =
            self.all_objects().into_iter().find(|object| is_it(object) && self.may_see(session, object));
        found.ok_or_else(|| {
            if self.may_be_elsewhere() {
                return Error::new(
                    ErrorKind::NotFound,
                    format!("there is no {name} on this host, nor in use here: ask on its home"),
                );
            }
            error
        })
    }

    fn seen(&self, objects: Vec<ObjectCounts>, more: bool) -> Seen {
        let owners = objects.iter().flat_map(|object| object.pages.iter().filter_map(|page| page.owner));
        let host = self.number();
        Seen {
            host,
            process: std::process::id(),
            at_ns: self.started.elapsed().as_nanos() as u64,
            hosts: self.names_of(owners.chain([host])),
            objects,
            more,
        }
    }

    fn number(&self) -> u32 {
        self.cluster.get().map_or(0, |cluster| cluster.me.host.0)
    }

    /// What people call these hosts.
    fn names_of(&self, numbers: impl Iterator<Item = u32>) -> Vec<(u32, String)> {
        let mut numbers: Vec<u32> = numbers.collect();
        numbers.sort_unstable();
        numbers.dedup();
        let Some(cluster) = self.cluster.get().filter(|cluster| cluster.is_up()) else {
            return numbers.into_iter().map(|number| (number, "this host".to_owned())).collect();
        };
        let name = |number| (number, cluster.called(commonhold_coherence::HostId(number)));
        numbers.into_iter().map(name).collect()
    }

    pub(super) fn traced(
        self: &Arc<Self>,
        session: &Session,
        name: &Name,
        place: Option<TracePlace>,
    ) -> Result<Reply> {
        let object = self.find_counted(session, name)?;
        let mut traced = self.cache_to_trace(&object)?.seen.traced(place);
        let me = self.number();
        for line in traced.lines.iter_mut().filter(|line| line.kind.is_none()) {
            (line.from, line.to) = (me, me);
        }
        traced.hosts = self.names_of(traced.lines.iter().flat_map(|line| [line.from, line.to]));
        Ok(Reply::Traced(Box::new(traced)))
    }

    fn cache_to_trace(self: &Arc<Self>, object: &Arc<Object>) -> Result<Arc<crate::cache::Cache>> {
        if object.is_controlled() {
            return self.cache_of(object);
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            "the kernel itself serves the faults of this object, so there is nothing to trace: only controlled and shared \
             objects are traced",
        ))
    }

    /// The numbers of the oldest objects in use, at most so many, and how many more there are: for Prometheus.
    pub fn counts_for_all(&self, most: usize) -> (Vec<ObjectCounts>, usize) {
        let objects = self.counted_objects();
        let told = objects.iter().take(most).map(|object| counts_of(object, 0)).collect();
        (told, objects.len().saturating_sub(most))
    }
}

fn counts_of(object: &Object, hottest: usize) -> ObjectCounts {
    let (counts, messages, pages) = object.cache().map(|cache| cache.seen.told(hottest)).unwrap_or_default();
    let record = object.record();
    ObjectCounts {
        id: object.id,
        // Here an object of another host has no place among the names: it is called as it was when it was opened.
        name: record.name.clone().or_else(|| record.is_elsewhere.then(|| record.first_name.clone())),
        size_bytes: record.options.size_bytes,
        page_size: record.options.page_size,
        shared: record.options.is_shared(),
        elsewhere: record.is_elsewhere,
        counts,
        messages,
        pages,
    }
}
