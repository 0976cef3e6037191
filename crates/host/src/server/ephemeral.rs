//! Objects whose names go with their last user, or some time after (`docs/OBJECTS.md`, "Ephemeral objects").

use super::object::Object;
use super::{Host, lock};
use crate::clock::Clock;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// After an error, such as a full disk, the name is taken later.
const AGAIN: Duration = Duration::from_secs(1);

/// How long an ephemeral object has been used by nobody.
#[derive(Default)]
pub struct Lingering(Mutex<State>);

#[derive(Default)]
struct State {
    since: Option<Instant>,
    /// It will be looked at again by itself.
    is_due: bool,
}

impl Lingering {
    /// Nobody uses it now. When its name goes.
    fn ends(&self, linger: Duration) -> Instant {
        *lock(&self.0).since.get_or_insert_with(Instant::now) + linger
    }

    fn is_used(&self) {
        lock(&self.0).since = None;
    }

    /// Whether nobody will look at it yet; from now on somebody will.
    fn becomes_due(&self) -> bool {
        !std::mem::replace(&mut lock(&self.0).is_due, true)
    }

    fn is_looked_at(&self) {
        lock(&self.0).is_due = false;
    }
}

impl Host {
    /// Ends an ephemeral object, and takes its name, if nobody has used it for so long. Whether it has ended.
    pub(super) fn ends_with_its_name(self: &Arc<Self>, object: &Arc<Object>, linger_ms: u32) -> bool {
        if self.is_used(object) || self.has_snapshots(object.id) {
            object.lingering.is_used();
            return false;
        }
        let end = object.lingering.ends(Duration::from_millis(linger_ms.into()));
        if end > Instant::now() {
            self.look_again(object, end);
            return false;
        }
        let mut registry = lock(&self.registry);
        // Who has found it by its name by now and comes too late looks for it again, and waits for the registry. (What takes more
        // than that to find out was asked above: who uses it otherwise has had it open.)
        let is_used = || {
            object.opens.load(Ordering::Relaxed) > 0 || object.cache().is_some_and(|cache| cache.is_mapped())
        };
        if !object.end_unless(is_used) {
            return false;
        }
        if let Err(error) = registry.remove_unused(object.id) {
            object.goes_on();
            drop(registry);
            self.machine.log(format_args!("object {}: its name cannot be taken yet: {error}", object.id.0));
            self.look_again(object, Instant::now() + AGAIN);
            return false;
        }
        let is_shared = {
            let mut record = object.record();
            record.name = None;
            record.options.is_shared()
        };
        drop(registry);
        if is_shared {
            self.tell_names();
        }
        true
    }

    fn look_again(self: &Arc<Self>, object: &Arc<Object>, when: Instant) {
        if !object.lingering.becomes_due() {
            return;
        }
        let (this, object) = (Arc::downgrade(self), Arc::downgrade(object));
        let look = move || {
            let (Some(this), Some(object)) = (this.upgrade(), object.upgrade()) else { return };
            object.lingering.is_looked_at();
            let share = this.share_of(object.record().charged_uid);
            let host = this.clone();
            share.run(&this.machine.urgent, move || host.settle_object(object.id));
        };
        match self.lingering_clock() {
            Ok(clock) => clock.at(when, look),
            Err(error) => {
                self.machine.log(format_args!("ephemeral objects stay until they are used again: {error}"));
            }
        }
    }

    fn lingering_clock(&self) -> std::io::Result<Arc<Clock>> {
        let mut clock = lock(&self.lingering_clock);
        match &*clock {
            Some(clock) => Ok(clock.clone()),
            None => Ok(clock.insert(Clock::start()?).clone()),
        }
    }
}
