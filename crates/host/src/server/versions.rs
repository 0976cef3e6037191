//! What snapshots are of, when that changes: a newer one stands between, or what they are of goes.

use super::object::Object;
use super::snapshots::Snapshots;
use super::{Host, lock};
use crate::cache::Cache;
use commonhold_object::{Error, ErrorKind, ObjectId, PAGE_SIZE_BYTES, PageRange, Result};
use commonhold_versions::Link;
use std::sync::{Arc, Weak};

impl Host {
    /// Older snapshots whose pages the new one has too are snapshots of it from now on.
    pub(super) fn stand_between(self: &Arc<Self>, newer: ObjectId) {
        let (of, covered) = {
            let snapshots = lock(&self.snapshots);
            (snapshots.versions.of(newer), snapshots.versions.covered_by(newer))
        };
        let Some(of) = of else { return };
        let about = |id| {
            self.object(id).map(|object| {
                let record = object.record();
                (record.options.size_bytes, record.charged_uid)
            })
        };
        let Ok((has, owner)) = about(newer) else { return };
        for (id, link) in covered {
            // Of its last page the newer one may have less; and nobody's snapshots hang on what another user has room for.
            let can = |(bytes, uid)| link.first_page * PAGE_SIZE_BYTES + bytes <= has && uid == owner;
            if !about(id).is_ok_and(can) {
                continue;
            }
            if let Err(error) = self.move_under(id, of.parent, link) {
                self.machine
                    .log(format_args!("object {}: it stays a snapshot of what it was: {error}", id.0));
            }
        }
    }

    /// A snapshot of `from` is one of another object from now on, which has (or whose own parent has) all that it lacks. Nobody
    /// else moves it meanwhile; it may end, or break.
    fn move_under(self: &Arc<Self>, id: ObjectId, from: ObjectId, link: Link<ObjectId>) -> Result<()> {
        let to = self.object(link.parent)?;
        let moved = to.hold().and_then(|_held| {
            let cache = to.cache().ok_or_else(ended)?;
            let is_of = |snapshots: &Snapshots| snapshots.versions.of(id).is_some_and(|of| of.parent == from);
            if !is_of(&lock(&self.snapshots)) {
                return Err(ended());
            }
            self.note_of(id, link)?;
            let its = self.object(id).ok().and_then(|object| object.cache());
            cache.has_snapshot(id, link, its.as_ref().map_or_else(Weak::new, Arc::downgrade), false);
            // From now on who reads what it lacks asks there.
            let linked = {
                let mut snapshots = lock(&self.snapshots);
                is_of(&snapshots) && snapshots.versions.link(id, link)
            };
            if !linked {
                cache.has_no_snapshot(id);
                self.settle_note(id);
                return Err(ended());
            }
            if let Some(before) = self.object(from).ok().and_then(|parent| parent.cache()) {
                before.has_no_snapshot(id);
            }
            Ok(())
        });
        self.settle_object(link.parent);
        moved
    }

    /// A note was written of a snapshot that ended or broke meanwhile.
    fn settle_note(&self, id: ObjectId) {
        if lock(&self.snapshots).broken.contains_key(&id) {
            self.mark_broken(id);
        } else {
            self.remove_note(id);
        }
    }

    /// Nobody uses the object but its snapshots: they get what they lack, and it ends.
    pub(super) fn collapse_soon(self: &Arc<Self>, middle: &Arc<Object>) {
        let past = lock(&self.snapshots).versions.past(middle.id);
        for (id, link) in past {
            let Ok(child) = self.object(id) else {
                self.forget_snapshot(id); // it is ending, or its memory was lost
                continue;
            };
            if !lock(&self.snapshots).leaving.insert(id) {
                continue;
            }
            let (this, middle) = (self.clone(), middle.clone());
            // It may have to wait for processes that have the snapshot mapped.
            let share = self.share_of(child.record().charged_uid);
            share.run(&self.machine.workers, move || {
                let left = child.hold().and_then(|_held| this.leave(&middle, &child, link));
                let parent = {
                    let mut snapshots = lock(&this.snapshots);
                    snapshots.leaving.remove(&id);
                    snapshots.versions.of(id).map(|link| link.parent)
                };
                this.settle_object(id);
                // If nobody uses what it is a snapshot of by now, that was passed over while this
                // one was leaving.
                if let Some(parent) = parent.filter(|parent| *parent != middle.id) {
                    this.settle_object(parent);
                }
                let is_the_same = || lock(&this.snapshots).versions.past(middle.id).contains(&(id, link));
                match left {
                    // The object stays, as what it is a snapshot of, until it ends.
                    Err(error) if is_the_same() => {
                        let middle = middle.id.0;
                        let text = format_args!("object {middle}: object {} needs it still: {error}", id.0);
                        this.machine.log(text);
                    }
                    _ => this.settle_object(middle.id),
                }
            });
        }
    }

    /// A snapshot of `middle` is one of the object that `middle` is a snapshot of (or of none), when it has what `middle` has.
    fn leave(
        self: &Arc<Self>,
        middle: &Object,
        child: &Arc<Object>,
        link: Option<Link<ObjectId>>,
    ) -> Result<()> {
        let of_middle = lock(&self.snapshots).versions.of(child.id).ok_or_else(ended)?;
        let cache = self.cache_of(child)?;
        let above = link.map(|link| self.object(link.parent)?.cache().ok_or_else(ended)).transpose()?;
        // From now on `middle` gets no page that it does not get.
        if let (Some(above), Some(link)) = (&above, link) {
            above.has_snapshot(child.id, link, Arc::downgrade(&cache), true);
        }
        let moved = bring_what_it_has(middle, &cache, of_middle).and_then(|()| match link {
            Some(link) => self.move_under(child.id, middle.id, link),
            None => child.check_usable().map(|()| self.forget_snapshot(child.id)),
        });
        moved.inspect_err(|_| above.iter().for_each(|above| above.has_no_snapshot(child.id)))
    }
}

/// The snapshot has the pages that `middle` has. What that lacks is zero, or in what it is a snapshot of itself.
fn bring_what_it_has(middle: &Object, cache: &Arc<Cache>, of_middle: Link<ObjectId>) -> Result<()> {
    let whole = PageRange::new(of_middle.first_page, of_middle.pages);
    let Some(middle) = middle.cache() else { return Err(ended()) };
    let has = if middle.pager.is_anonymous() { middle.pages_it_has() } else { vec![whole] };
    let within = has.into_iter().map(|run| run.intersect(whole)).filter(|run| !run.is_empty());
    within
        .map(|run| PageRange::new(run.first - whole.first, run.count))
        .try_for_each(|run| cache.bring_all(run))
}

fn ended() -> Error {
    Error::new(ErrorKind::NotFound, "the object has ended")
}
