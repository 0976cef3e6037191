//! At a home that has not begun: it finds everything that was stored, here or with a replica that counts, and makes the others
//! like that.

use super::home::{Home, State};
use super::{Answer, PAGE, busy, kept, unexpected};
use crate::cluster::registry::Homed;
use crate::cluster::wire::Call;
use crate::cluster::{Cluster, PATIENCE};
use crate::newer::Newer;
use crate::server::object::Object;
use commonhold_coherence::HostId;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use roaring::RoaringBitmap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

impl Cluster {
    /// Whether this host could find everything, if it were the home.
    pub(in crate::cluster) fn check_could_find_all(&self, object: u128, homed: &Homed) -> Result<()> {
        let here = self.has_all(&self.replica_path(object)?, object, homed);
        if here || homed.replicas.iter().any(|host| self.lives_as(*host).is_some()) {
            return Ok(());
        }
        let text =
            "the object's home is lost, and so are the hosts that keep its pages: it waits for one of them";
        Err(Error::new(ErrorKind::Disconnected, text))
    }

    /// Whether this host is a replica that counts.
    pub(in crate::cluster) fn keeps_all_of(&self, object: u128, homed: &Homed) -> bool {
        self.replica_path(object).is_ok_and(|path| self.has_all(&path, object, homed))
    }

    /// The file of this home with all that was stored, what is newer than that, and who keeps the same.
    pub(in crate::cluster) fn open_replicated(
        self: &Arc<Self>,
        object: &Arc<Object>,
        homed: &Homed,
    ) -> Result<(File, Newer, Arc<Home>)> {
        // Of the size that this host found it to have: what the registry has may be older.
        let (uuid, size_bytes, path) = {
            let record = object.record();
            let path = record.file.as_ref().map(|file| file.path.clone());
            let path = path.ok_or_else(|| Error::new(ErrorKind::Lost, "it has no file"))?;
            (record.uuid, record.options.size_bytes, path)
        };
        self.keeps_no_more(uuid);
        let host = self.host()?;
        if !self.has_all(&path, uuid, homed) {
            self.fetch_all(&path, uuid, size_bytes, homed)?;
        }
        let (file, mut newer) = host.open_home_file(object)?;
        // Of another size where a change of it was cut short.
        if file.metadata().doing("looking at what is kept")?.len() != size_bytes {
            file.set_len(size_bytes).doing("giving what is kept its size")?;
        }
        // From here on this host counts, too: the registry hears it with what becomes of the others.
        let (before, me) = (newer.whole_as(&host.machine.boot_id).unwrap_or_default(), self.me.host);
        let former = before.into_iter().rev().find(|number| *number != 0 && *number != me.0).unwrap_or(0);
        newer.note_whole(&host.machine.boot_id, [former, me.0])?;
        let copy = file.try_clone().doing("using what is kept")?;
        let state = State::new(copy, size_bytes, newer.pages().clone(), homed.replicas.clone());
        let replicas = Home::new(self, uuid, homed.about.options.replicas, state);
        replicas.take_over(|host: HostId| [former, me.0].contains(&host.0))?;
        newer.kept_by(Some(replicas.clone()));
        Ok((file, newer, replicas))
    }

    fn fetch_all(self: &Arc<Self>, path: &Path, object: u128, size_bytes: u64, homed: &Homed) -> Result<()> {
        let text = "none of the hosts that keep its pages is there: waiting for one of them".to_owned();
        let mut why = busy(text);
        // Those that count first. Of others one may be the next process of such a host that this one has not heard of.
        let count = homed.replicas.iter().chain([&homed.served]);
        let mut asked: Vec<HostId> = count.filter_map(|host| self.lives_as(*host)).collect();
        let others = self.members().into_iter().map(|member| member.host);
        let others: Vec<HostId> = others.filter(|member| !asked.contains(member)).collect();
        asked.extend(others);
        for member in asked.into_iter().filter(|member| *member != self.me.host) {
            match self.fetch_from(member, path, object, size_bytes) {
                Ok(()) => {
                    self.report(format_args!(
                        "object {object:032x}: its pages are those that {} keeps",
                        self.called(member)
                    ));
                    return Ok(());
                }
                Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Permission) => {}
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    fn fetch_from(
        self: &Arc<Self>,
        member: HostId,
        path: &Path,
        object: u128,
        size_bytes: u64,
    ) -> Result<()> {
        self.reach(member)?;
        self.check_may_decide(member)?;
        let mut begun = None;
        let (mut next, mut all) = (Some(0), RoaringBitmap::new());
        while let Some(from_page) = next {
            if self.lease.is_fenced() {
                return Err(busy("this host is fenced"));
            }
            let call = Call::Kept { object, from_page };
            let (Answer::Kept { pages, newer, next: more }, bytes) =
                self.ask_for_bytes(member, call, PATIENCE)?
            else {
                return Err(unexpected());
            };
            self.check_may_decide(member)?; // it may have come back with other rights
            let in_order = pages.is_sorted() && pages.first().is_none_or(|first| *first >= from_page);
            if !in_order || bytes.len() != pages.len() * PAGE || more.is_some_and(|more| more <= from_page) {
                return Err(unexpected());
            }
            let (file, _) = match &mut begun {
                Some(begun) => begun,
                None => begun.insert(kept::make(path, object, size_bytes)?),
            };
            write(file, size_bytes, &pages, &bytes).doing("writing what another host kept")?;
            all.extend(newer);
            next = more;
        }
        if let Some((_, newer)) = &mut begun {
            newer.set(&all)?;
            newer.note_whole(&self.host()?.machine.boot_id, [0; 2])?; // nobody counts on it yet
        }
        Ok(())
    }
}

fn write(file: &File, size_bytes: u64, pages: &[u32], bytes: &[u8]) -> std::io::Result<()> {
    for (page, bytes) in pages.iter().zip(bytes.chunks(PAGE)) {
        let at = u64::from(*page) * PAGE as u64;
        let length = size_bytes.saturating_sub(at).min(PAGE as u64) as usize;
        points::pwrite(|| file.write_all_at(&bytes[..length], at))?;
    }
    Ok(())
}
