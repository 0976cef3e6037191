//! Objects that hosts share, as the server sees them: found by their identity, opened from elsewhere.

use super::object::Object;
use super::session::Session;
use super::{Host, lock};
use crate::cache::Cache;
use crate::cache::kept::Lent;
use crate::cluster::claims::Claiming;
use crate::cluster::wire::{Claim, Member, Shared};
use crate::cluster::{Cluster, PATIENCE, options_here};
use commonhold_object::{
    Access, ClusterHost, Coherence, CreateOptions, Credentials, Error, ErrorKind, Name, PageRange, Part,
    Result, SessionId, Synced,
};
use commonhold_points as points;
use commonhold_registry::ObjectRecord;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

fn wider(one: Access, other: Access) -> Access {
    if one.writes() { one } else { other }
}

impl Host {
    pub(super) fn with_cluster(&self) -> Option<&Arc<Cluster>> {
        self.cluster.get()
    }

    /// The hosts of this one's cluster.
    pub(super) fn cluster_hosts(&self) -> Vec<ClusterHost> {
        let Some(cluster) = self.with_cluster().filter(|cluster| cluster.is_up()) else { return Vec::new() };
        let list = cluster.list_kept_by();
        let view = |member: Member| ClusterHost {
            number: member.host.0,
            is_this: member.host == cluster.me.host,
            keeps_list: Some(member.host) == list,
            is_unreachable: cluster.is_unreachable(member.host),
            through: cluster.through(member.host).map(|relay| cluster.called(relay)),
            waits: member.host == cluster.me.host && !cluster.has_joined_a_cluster(),
            trouble: match member.host == cluster.me.host {
                true => cluster.own_trouble(),
                false => cluster.trouble_with(member.host),
            },
            name: member.name,
            address: member.address,
        };
        let mut members = cluster.members();
        if !members.iter().any(|member| member.host == cluster.me.host) {
            members.push(cluster.me.clone());
        }
        members.into_iter().map(view).collect()
    }

    /// The object of that identity whose home is this host, or (`elsewhere`) another.
    pub fn object_of(&self, uuid: u128, elsewhere: bool) -> Option<Arc<Object>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        let is_it = |object: &&Arc<Object>| {
            let record = object.record();
            record.uuid == uuid && record.is_elsewhere == elsewhere
        };
        objects.values().find(is_it).cloned()
    }

    /// Names and identities of the shared objects whose home this host is.
    pub fn shared_claims(&self) -> Vec<Claim> {
        let named = |object: &Arc<Object>| {
            let record = object.record().clone();
            let shared = record.options.is_shared() && !record.is_elsewhere;
            self.claim_of(&record).filter(|_| shared)
        };
        self.all_objects().iter().filter_map(named).collect()
    }

    /// What is to be said of an object that has fewer hosts than its replicas need.
    pub(super) fn lacks_hosts(&self, uuid: u128) -> Option<String> {
        let cluster = self.with_cluster()?;
        cluster.lacks_replicas(uuid).or_else(|| cluster.driver(uuid)?.lacks_hosts())
    }

    /// A cache of a shared object begins to speak with the object's scheduler.
    pub(super) fn take_part(&self, record: &ObjectRecord, cache: &Arc<Cache>, lent: Lent) {
        if let Some(cluster) = self.with_cluster().filter(|_| record.options.is_shared()) {
            cluster.take_part(record, cache, lent);
        }
    }

    /// Refuses what this host cannot take part in.
    pub(super) fn check_page_size(&self, options: &CreateOptions) -> Result<()> {
        self.with_cluster().map_or(Ok(()), |cluster| cluster.check_page_size(options))
    }

    /// After a host before: what it had allowed is not known, only which pages it had lent.
    pub(super) fn take_part_again(self: &Arc<Self>) -> Result<()> {
        let shared = |object: &Arc<Object>| object.record().options.is_shared();
        let mut objects: Vec<_> = self.all_objects().into_iter().filter(shared).collect();
        // Homes first: what processes use of an explicit object is attached to its home's.
        objects.sort_by_cached_key(|object| object.record().is_elsewhere);
        for object in objects {
            let Some(cache) = object.cache() else { continue };
            // Before anybody hears that this host has the object: what is said of tokens then is heard.
            self.take_tokens_over(&object)?;
            self.take_part_anew(&object, &cache)?;
        }
        self.with_cluster().map_or(Ok(()), |cluster| cluster.nothing_to_fence())
    }

    /// The same for one object.
    pub(super) fn take_part_anew(&self, object: &Object, cache: &Arc<Cache>) -> Result<()> {
        let record = object.record().clone();
        let lent = match record.options.coherence {
            // What was written here and not synced stays; the home says what else there is.
            Coherence::Explicit if record.is_elsewhere => cache.keep_written().map(|_| Lent::default()),
            Coherence::Explicit => Ok(Lent::default()),
            _ => cache.begin_anew(!record.is_elsewhere),
        }?;
        self.take_part(&record, cache, lent);
        Ok(())
    }

    /// While clients may still have what a host that died with its keeper gave them, this one does not say that nothing is
    /// left of it.
    pub fn check_all_returned(&self, wait: bool) -> Result<()> {
        if wait && (!self.returning.nobody_is_missing() || self.returning.is_under_way()) {
            return Err(Error::new(
                ErrorKind::Busy,
                "clients of the host before are not back yet, and may have old pages",
            ));
        }
        Ok(())
    }

    /// This host is fenced: its process ends, and the next joins under another number.
    pub fn begin_anew(&self) {
        while let Err(error) = self.vault.restart_me(None) {
            self.machine.log(format_args!("the next host process cannot be started yet: {error}"));
            std::thread::sleep(Duration::from_secs(1));
        }
        std::process::exit(0);
    }

    /// The others need not wait for the end of this host's lease.
    pub(super) fn leave_cluster(&self) {
        if let Some(cluster) = self.with_cluster().filter(|cluster| cluster.is_up()) {
            cluster.leave();
        }
    }

    /// An object ends: from now on, and until [`leave_off`](Self::leave_off) is done with it, nobody begins with it anew.
    pub(super) fn is_about_to_leave(&self, object: &Object) {
        let record = object.record().clone();
        let leaves = record.options.is_shared() && object.cache().is_some();
        if let Some(cluster) = self.with_cluster().filter(|_| leaves) {
            cluster.is_leaving(record.uuid);
        }
    }

    /// An object is not in use here any more, and ends. Of another host's what is newest here goes home first, which may take
    /// long: until then the keeper has it.
    pub(super) fn leave_off(self: &Arc<Self>, object: &Arc<Object>, cache: Option<Arc<Cache>>) {
        let record = object.record().clone();
        if record.is_elsewhere {
            self.leave_tokens(object); // before its home hears that this host leaves
        }
        let cluster = self.with_cluster().filter(|_| record.options.is_shared()).cloned();
        let (Some(cluster), Some(cache)) = (cluster, cache.clone()) else {
            return self.end_object(object, cache.as_deref());
        };
        let uuid = record.uuid;
        cluster.is_leaving(uuid); // if it was not yet
        if !record.is_elsewhere {
            let leaving = cluster.clone();
            self.machine.workers.run(move || {
                leaving.leave_at_once(uuid);
                leaving.has_left(uuid);
            });
            return self.end_object(object, Some(&cache));
        }
        let object = object.clone();
        let leave = Arc::new(move || {
            if cluster.leave_off(uuid, &cache)
                && let Ok(host) = cluster.host()
            {
                host.end_object(&object, Some(&cache));
                cluster.has_left(uuid);
            }
        });
        let leaving = leave.clone();
        let thread = std::thread::Builder::new().name("leaving".into());
        if points::thread(|| thread.spawn(move || leaving())).is_err() {
            self.machine.workers.run(move || leave());
        }
    }

    /// What goes home has gone, before this host ends.
    pub(super) fn wait_all_left(&self, by_force: bool) -> Result<()> {
        self.with_cluster().map_or(Ok(()), |cluster| cluster.wait_all_left(by_force))
    }

    /// The same of what processes here use still: from then on they do not.
    pub(super) fn send_all_home(&self) {
        if let Some(cluster) = self.with_cluster().filter(|cluster| cluster.is_up()) {
            cluster.send_all_home();
        }
    }

    /// Whether processes of other hosts have an object of this one open.
    pub(super) fn is_used_elsewhere(&self, object: &Object) -> bool {
        let record = object.record().clone();
        let home = record.options.is_shared() && !record.is_elsewhere;
        let used = || {
            self.object_of(record.uuid, true).is_some()
                || self.with_cluster().is_some_and(|cluster| cluster.is_used_elsewhere(record.uuid))
        };
        home && used()
    }

    /// Other hosts have let go of objects: those whose names were removed may end now.
    pub fn settle_removed(self: &Arc<Self>) {
        for object in self.all_objects().iter().filter(|object| object.record().options.is_shared()) {
            self.settle_object(object.id);
        }
    }

    /// Nobody else in the cluster may have the name of a new shared object.
    pub(super) fn claim_name(&self, record: &ObjectRecord) -> Result<Option<Claiming>> {
        match (self.with_cluster(), self.claim_of(record)) {
            (Some(cluster), Some(claim)) if record.options.is_shared() && cluster.is_up() => {
                cluster.claim(claim).map(Some)
            }
            _ if record.options.home_moves => Err(Error::new(
                ErrorKind::Unsupported,
                "home_moves: this host is in no cluster: start it with --listen and --registry etcd://..., or leave it out",
            )),
            _ => Ok(None),
        }
    }

    /// Names of shared objects changed: others may have those that are free now.
    pub(super) fn tell_names(&self) {
        if let Some(cluster) = self.with_cluster().filter(|cluster| cluster.is_up()) {
            cluster.tell_names();
        }
    }

    /// Something changed that the next home of an object must know.
    pub fn tell_of_moving(&self) {
        if self.all_objects().iter().any(|object| object.record().options.home_moves) {
            self.tell_names();
        }
    }

    /// Another name for a shared object must be nobody else's.
    pub(super) fn claim_new_name(
        &self,
        from: &Name,
        to: &Name,
        session: &Session,
    ) -> Result<Option<Claiming>> {
        let Some(cluster) = self.with_cluster().filter(|cluster| cluster.is_up()) else { return Ok(None) };
        let Ok(object) = self.lookup(session, from, Access::Read) else { return Ok(None) };
        let record = object.record().clone();
        let claim = self.claim_of(&ObjectRecord { name: Some(to.clone()), ..record.clone() });
        match claim.filter(|_| record.options.is_shared()) {
            Some(claim) => cluster.claim(claim).map(Some),
            None => Ok(None),
        }
    }

    /// Pages whose newest version was lost with a host serve again. Gives how many they were.
    pub(super) fn revert_lost(self: &Arc<Self>, object: &Arc<Object>) -> Result<u64> {
        self.cache_of(object)?;
        let uuid = object.record().uuid;
        let Some(cluster) = self.with_cluster() else { return Ok(0) };
        let Some(driver) = cluster.driver(uuid) else { return Ok(0) };
        // What others had of a home before is asked back first: only then it is known what is lost.
        let deadline = Instant::now() + PATIENCE;
        while driver.home().is_none() {
            if Instant::now() > deadline {
                let text = "the object's home begins anew, and waits for other hosts: try again later";
                return Err(Error::new(ErrorKind::Busy, text));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let reverted = driver.revert();
        // Who is told that it is done may say so to somebody elsewhere.
        cluster.wait_heard(&driver);
        Ok(reverted)
    }

    /// The object of that name, here or elsewhere, if the session may have it so. May wait for other hosts.
    pub(super) fn look_everywhere(
        self: &Arc<Self>,
        session: &Session,
        name: &Name,
        access: Access,
    ) -> Result<Arc<Object>> {
        let here = self.lookup(session, name, access);
        match (here, self.with_cluster()) {
            (Err(error), Some(cluster)) if error.kind == ErrorKind::NotFound && cluster.is_up() => {
                self.import(cluster, session, name, access)
            }
            (here, _) => here,
        }
    }

    /// Whether a name that is not known here may be known elsewhere.
    pub(super) fn may_be_elsewhere(&self) -> bool {
        self.with_cluster().is_some_and(|cluster| cluster.is_up())
    }

    /// Makes pages what is stored, wherever the object's home is.
    pub(super) fn store(
        &self,
        cache: &Arc<Cache>,
        record: &ObjectRecord,
        pages: PageRange,
        freeze: bool,
    ) -> Result<Synced> {
        match self.with_cluster().filter(|_| record.options.coherence.is_strict()) {
            Some(cluster) if record.is_elsewhere => cluster.sync_elsewhere(record.uuid, pages, freeze),
            Some(cluster) => cluster.store_shared(cache, pages, freeze),
            None => cache.sync(pages, freeze).map(|pages| Synced { pages, ..Synced::default() }),
        }
    }

    /// On whose behalf this host uses an object of another: somebody who reads it, and somebody who writes. Who has closed it
    /// may map it still.
    pub fn openers(&self, uuid: u128) -> Vec<(Credentials, Access)> {
        let Some(object) = self.object_of(uuid, true) else { return Vec::new() };
        let mut maps: HashMap<SessionId, Access> = HashMap::new();
        for (mapping, _) in object.cache().map_or_else(Vec::new, |cache| cache.views()) {
            let access = if mapping.writes_object() { Access::ReadWrite } else { Access::Read };
            let known = maps.entry(mapping.session).or_insert(access);
            *known = wider(*known, access);
        }
        let mut found: Vec<(Credentials, Access)> = Vec::new();
        for session in self.sessions() {
            let both = [session.uses(object.id), maps.get(&session.id).copied()];
            let Some(access) = both.into_iter().flatten().reduce(wider) else { continue };
            if found.iter().all(|(_, other)| *other != access) {
                found.push((session.credentials.clone(), access));
            }
        }
        found
    }

    /// A session is about to have an object open, and is noted as such: if its home is another host, that knows it.
    pub(super) fn begins_to_use(&self, session: &Session, object: &Object, access: Access) -> Result<()> {
        let (uuid, is_elsewhere) = {
            let record = object.record();
            (record.uuid, record.is_elsewhere)
        };
        match self.with_cluster().filter(|_| is_elsewhere) {
            Some(cluster) => cluster.begins_to_use(uuid, &session.credentials, access),
            None => Ok(()),
        }
    }

    fn import(
        self: &Arc<Self>,
        cluster: &Arc<Cluster>,
        session: &Session,
        name: &Name,
        access: Access,
    ) -> Result<Arc<Object>> {
        let found = cluster.open_elsewhere(name, &session.credentials, access)?;
        self.import_known(cluster, &found)
    }

    /// What processes of this host use of an object: under explicit coherence not its home's own, even here.
    pub(super) fn as_used(self: &Arc<Self>, object: &Arc<Object>) -> Result<Arc<Object>> {
        let record = object.record().clone();
        match self.with_cluster() {
            Some(cluster) if record.options.coherence == Coherence::Explicit && !record.is_elsewhere => {
                let name = record.name.unwrap_or(record.first_name);
                let (ownership, options) = (record.ownership, record.options);
                let object = record.uuid;
                self.import_known(cluster, &Shared { object, name, ownership, options, loss_generation: 0 })
            }
            _ => Ok(object.clone()),
        }
    }

    fn import_known(self: &Arc<Self>, cluster: &Arc<Cluster>, found: &Shared) -> Result<Arc<Object>> {
        let mut registry = loop {
            cluster.wait_left(found.object)?;
            let registry = lock(&self.registry);
            if let Some(object) = self.object_of(found.object, true) {
                if found.loss_generation != 0 {
                    object.losses_told.store(found.loss_generation, Ordering::Relaxed);
                }
                return Ok(object);
            }
            // Else its last process has closed it since.
            if !cluster.leaves(found.object) {
                break registry;
            }
        };
        let options = options_here(&found.options);
        if let Some(fixed) = options.fixed {
            fixed.check_given(Part::Shared, options.size_bytes)?;
        }
        let record = registry.import(found.object, &found.name, found.ownership, options)?;
        let object = Object::new(record, None, String::new());
        // Before anybody finds it: who opens it must not think that its home is lost.
        object.losses_told.store(found.loss_generation, Ordering::Relaxed);
        self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(object.id, object.clone());
        Ok(object)
    }
}
