//! What hosts tell each other of their objects for people and programs to see: names, numbers, pages that are lost.
//! Every host is asked what it has itself, so that names of local objects are seen too, whichever registry the cluster
//! has.

use super::wire::{Answer, Call};
use super::{Cluster, PATIENCE, unexpected};
use commonhold_coherence::HostId;
use commonhold_object::{
    Credentials, EntryInfo, Error, ErrorKind, Name, ObjectInfo, PageRange, PagerKind, Result, limits,
};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How long another host may take to say what it has: who does not answer is left out.
const LOOK: Duration = Duration::from_secs(2);
/// Most bytes of each text that another host says of an object: a path is the longest.
const LONGEST_TEXT: usize = 4096;

impl Cluster {
    /// What another host, or this one, asks to see.
    pub(super) fn seen_by_other(&self, from: HostId, call: Call) -> Result<Answer> {
        let host = self.host()?;
        match call {
            Call::About(object) => {
                self.check_admitted(object, from, false)?;
                Ok(Answer::About(Box::new(host.info(&*self.record_of(object)?))))
            }
            Call::Lost { object, pages: (first, count) } => {
                self.check_admitted(object, from, false)?;
                let pages = PageRange::new(first, count.min(u64::MAX - first));
                let lost = self.driver(object).map_or_else(Vec::new, |driver| driver.lost_in(pages));
                Ok(Answer::Lost(lost.into_iter().map(|run| (run.first, run.count)).collect()))
            }
            Call::Look { name, who } => {
                self.check_belongs(from, LOOK / 2)?;
                Ok(Answer::Entry(Box::new(host.stat_own(&name, &who)?)))
            }
            Call::List { directory, after, who } => {
                self.check_belongs(from, LOOK / 2)?;
                let (entries, more) = host.list_own(&directory, after.as_ref(), &who)?;
                Ok(Answer::Entries { entries, more })
            }
            _ => Err(unexpected()),
        }
    }

    /// What an object's home, which may be another host, knows of it.
    pub fn about(self: &Arc<Self>, object: u128) -> Result<ObjectInfo> {
        let home = self.home_now(object)?;
        match self.ask(home, Call::About(object), LOOK)? {
            Answer::About(info) => Ok(self.told_by(home, *info)),
            _ => Err(unexpected()),
        }
    }

    /// Which of these pages have lost their newest version, as their home knows.
    pub fn lost_in(self: &Arc<Self>, object: u128, pages: PageRange) -> Result<Vec<PageRange>> {
        let call = Call::Lost { object, pages: (pages.first, pages.count) };
        match self.ask(self.home_now(object)?, call, LOOK)? {
            Answer::Lost(runs) => {
                let run = |(first, count): (u64, u64)| PageRange::new(first, count.min(u64::MAX - first));
                let runs: Vec<PageRange> = runs.into_iter().map(run).collect();
                if !runs.is_sorted_by(|a, b| a.end() <= b.first) {
                    return Err(unexpected()); // each page once: it is gone through page by page
                }
                Ok(runs.into_iter().map(|run| run.intersect(pages)).filter(|run| !run.is_empty()).collect())
            }
            _ => Err(unexpected()),
        }
    }

    /// What has that name on another host. Who claimed it is asked first; a local object's name nobody claims.
    pub fn look(self: &Arc<Self>, name: &Name, who: &Credentials) -> Result<EntryInfo> {
        let call = || Call::Look { name: name.clone(), who: who.clone() };
        let is_it = |entry: &EntryInfo| entry.name() == Some(name);
        match self.registry()?.look_up(name) {
            Ok((home, _)) if home != self.me.host => {
                self.reach(home)?;
                return match self.ask(home, call(), LOOK)? {
                    Answer::Entry(entry) if is_it(&entry) => Ok(self.entry_told_by(home, *entry)),
                    _ => Err(unexpected()),
                };
            }
            Ok(_) => {}
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut refused = None;
        for (host, answer) in self.ask_all(&call()) {
            match answer {
                Ok(Answer::Entry(entry)) if is_it(&entry) => return Ok(self.entry_told_by(host, *entry)),
                Err(error) if error.kind == ErrorKind::Permission => refused = Some(error),
                _ => {}
            }
        }
        Err(refused.unwrap_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no {name}"))))
    }

    /// Asks the home of an object that hosts share to remove its name.
    pub fn remove_elsewhere(
        self: &Arc<Self>,
        name: &Name,
        who: &Credentials,
        of: Option<u128>,
    ) -> Result<()> {
        let home = match self.registry()?.look_up(name) {
            Ok((home, _)) if home != self.me.host => home,
            Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
            _ => {
                let gone = || Error::new(ErrorKind::NotFound, format!("there is no {name}"));
                return Err(self.local_to(name, who).map_or_else(gone, |host| {
                    let text = format!("{name} is local to {}: remove it there", self.called(host));
                    Error::new(ErrorKind::Unsupported, text)
                }));
            }
        };
        self.reach(home)?;
        self.ask(home, Call::Remove { name: name.clone(), who: who.clone(), of }, PATIENCE).map(drop)
    }

    /// The host that has a local object of that name, which can be used there alone.
    pub(super) fn local_to(self: &Arc<Self>, name: &Name, who: &Credentials) -> Option<HostId> {
        let call = Call::Look { name: name.clone(), who: who.clone() };
        let is_local = |answer: &Result<Answer>| {
            matches!(answer, Ok(Answer::Entry(entry)) if matches!(&**entry, EntryInfo::Object(info)
                if info.name.as_ref() == Some(name) && !info.options.is_shared()))
        };
        self.ask_all(&call).into_iter().find(|(_, answer)| is_local(answer)).map(|(host, _)| host)
    }

    /// What other hosts have in that directory, each in the order of names, and whether it has more behind that.
    pub fn lists(
        self: &Arc<Self>,
        directory: &Name,
        after: Option<&Name>,
        who: &Credentials,
    ) -> Vec<(Vec<EntryInfo>, bool)> {
        let call = Call::List { directory: directory.clone(), after: after.cloned(), who: who.clone() };
        let is_good = |entries: &[EntryInfo]| {
            let below = |entry: &EntryInfo| entry.name().is_some_and(|name| name.parent() == *directory);
            entries.len() <= limits::LIST_ENTRIES
                && entries.iter().all(below)
                && entries.is_sorted_by(|a, b| a.name() < b.name())
                && entries.first().is_none_or(|first| after.is_none() || first.name() > after)
        };
        let list = |(host, answer): (HostId, Result<Answer>)| match answer {
            Ok(Answer::Entries { entries, more }) if is_good(&entries) => {
                let entries = entries.into_iter().map(|entry| self.entry_told_by(host, entry));
                Some((entries.collect(), more))
            }
            _ => None,
        };
        self.ask_all(&call).into_iter().filter_map(list).collect()
    }

    /// The home of an object that this host uses, if it is known.
    fn home_now(&self, object: u128) -> Result<HostId> {
        let away = || Error::new(ErrorKind::Disconnected, "the object's home cannot be reached now");
        self.driver(object).and_then(|driver| driver.home()).ok_or_else(away)
    }

    /// What a host says of an object whose home it is, as it is to be told here.
    fn told_by(&self, host: HostId, mut info: ObjectInfo) -> ObjectInfo {
        info.is_elsewhere = host != self.me.host;
        if let Ok(here) = self.host() {
            info.translated = here.machine.seen_of(info.uuid).all_translated(); // each host's is its own
        }
        info.home = if info.is_elsewhere { self.called(host) } else { self.me.name.clone() };
        for text in
            [&mut info.file_path, &mut info.charged_to, &mut info.warning, &mut info.options.description]
        {
            text.truncate(text.floor_char_boundary(LONGEST_TEXT)); // it is another host's
        }
        if let PagerKind::External { pager } = &mut info.options.pager {
            pager.truncate(pager.floor_char_boundary(LONGEST_TEXT));
        }
        info
    }

    fn entry_told_by(&self, host: HostId, entry: EntryInfo) -> EntryInfo {
        match entry {
            EntryInfo::Object(info) => EntryInfo::Object(Box::new(self.told_by(host, *info))),
            directory @ EntryInfo::Directory { .. } => directory,
        }
    }

    /// What all other hosts answer, in the order of their names, but for those that are away or take too long.
    fn ask_all(self: &Arc<Self>, call: &Call) -> Vec<(HostId, Result<Answer>)> {
        let members = self.members().into_iter().map(|member| member.host);
        let others: Vec<HostId> =
            members.filter(|host| *host != self.me.host && !self.is_unreachable(*host)).collect();
        let (tell, told) = channel();
        let deadline = Instant::now() + LOOK;
        for host in others.iter().copied() {
            let (this, call, tell) = (self.clone(), call.clone(), tell.clone());
            self.pools.looking.run(move || {
                // Where hosts hang, questions to them must not pile up before those to others.
                let left = deadline.saturating_duration_since(Instant::now());
                if !left.is_zero() {
                    let answer = this.reach(host).and_then(|()| this.ask(host, call, left));
                    let _ = tell.send((host, answer)); // nobody may wait any more
                }
            });
        }
        drop(tell);
        let next = || told.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
        let mut answers: Vec<_> = std::iter::from_fn(next).collect();
        answers.sort_by_key(|(host, _)| others.iter().position(|other| other == host));
        answers
    }
}
