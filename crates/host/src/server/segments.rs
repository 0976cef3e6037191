//! System V segments (the crate `sysv`): the kernel has the twin of each, and says when the last process has left a segment that
//! was removed. Nobody else is sure to be alive then, so the host looks every few seconds, and removes the object.

use super::{Host, lock};
use commonhold_object::error::Doing;
use commonhold_object::system_v::Parts;
use commonhold_object::{Name, Result};
use commonhold_points as points;
use commonhold_sys::system_v::{is_gone, namespace};
use std::sync::Arc;
use std::time::Duration;

/// Between two looks at all segments.
const APART: Duration = Duration::from_secs(10);

/// Looks for as long as this process lives: at those of its own IPC namespace.
pub(super) fn start(host: &Arc<Host>) -> Result<()> {
    let Some(own) = namespace() else { return Ok(()) };
    let host = host.clone();
    let look = move || loop {
        std::thread::sleep(APART);
        host.all_objects().iter().for_each(|object| {
            let name = object.record().name.clone();
            let Some(name) = name else { return };
            let parts = Parts::of(&name).filter(|parts| parts.namespace == own && is_gone(parts.number));
            if let Some(Parts { number, .. }) = parts {
                host.forget_segment(&name, number);
            }
        });
    };
    let name = "segments".to_owned();
    points::thread(|| std::thread::Builder::new().name(name).spawn(look)).doing("starting a thread").map(drop)
}

impl Host {
    /// Removes the object of a segment that is gone, as its owner would.
    fn forget_segment(self: &Arc<Self>, name: &Name, number: i32) {
        let mut registry = lock(&self.registry);
        // A twin is there before its object is.
        if !is_gone(number) {
            return;
        }
        let Ok(record) = registry.remove_segment(name) else { return }; // the next look tries again
        if let Ok(object) = self.object(record.id) {
            object.record().name = None;
        }
        drop(registry);
        self.settle_object(record.id);
    }
}
