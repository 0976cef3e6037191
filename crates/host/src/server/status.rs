//! What the host says of itself, and small questions to the machine.

use super::Host;
use super::object::Object;
use crate::types::Way;
use commonhold_object::{CreateOptions, Error, ErrorKind, HostStatus, PAGE_SIZE_BYTES, PagerKind, Result};
use commonhold_sys::{cgroup, frames};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};

impl Host {
    /// What the host says of itself.
    pub fn status(&self) -> HostStatus {
        let counters = &self.machine.counters;
        let sessions = self.sessions();
        let me = rustix::process::geteuid().as_raw();
        let root = me == 0;
        let mappings = sessions
            .iter()
            .map(|s| s.space.map.read().unwrap_or_else(PoisonError::into_inner).len() as u64)
            .sum();
        // One lock after the other: who reads twice at once waits for ever, if somebody wants to write in between.
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner).len() as u64;
        let direct_bytes = self.direct_bytes();
        HostStatus {
            version: env!("CARGO_PKG_VERSION").into(),
            host_pid: std::process::id(),
            keeper_pid: self.vault.keeper_pid(),
            uid: me,
            state_directory: self.machine.directory.to_string_lossy().into_owned(),
            uptime_ms: self.started.elapsed().as_millis() as u64,
            generation: self.vault.generation(),
            objects,
            clients: sessions.len() as u64,
            mappings,
            resident_bytes: self.machine.budget.used_pages() * PAGE_SIZE_BYTES,
            budget_bytes: self.machine.budget.limit_pages() * PAGE_SIZE_BYTES,
            faults: counters.faults.load(Ordering::Relaxed),
            pages_installed: counters.installed.load(Ordering::Relaxed),
            pages_evicted: counters.evicted.load(Ordering::Relaxed),
            syncs: counters.syncs.load(Ordering::Relaxed),
            kernel_faults: self.device.is_some(),
            quota_bytes: self.limits.quotas.of(if root { u32::MAX } else { me }).bytes,
            repairs: self.repairs.told(),
            machine: self.machine.types.here().word().to_owned(),
            translated: self.machine.types.count(Way::Received),
            stored_translated: self.machine.types.count(Way::Stored),
            direct_bytes,
            cluster: self.with_cluster().and_then(|cluster| cluster.standing()),
        }
    }

    /// Memory of direct objects that have no file: how much of it there is the kernel tells at once. Files are left out, as
    /// theirs may be anywhere, and who asks for the state must not wait; `ls` and `stat` tell what of each is in memory.
    fn direct_bytes(&self) -> u64 {
        let mut last = super::lock(&self.direct_bytes);
        // Whoever asks without end must not keep the thread that answers counting.
        if let Some((at, bytes)) = *last
            && at.elapsed() < COUNTED_AGAIN
        {
            return bytes;
        }
        let objects = self.all_objects();
        let of = |object: &Arc<Object>| {
            // What lies in an arena is the arena's.
            if object.is_controlled() || !object.is_with_clients() || self.place_in_arena(object.id).is_some()
            {
                return 0;
            }
            let memory = object.descriptor();
            memory.map_or(0, |memory| frames::resident_bytes(&*memory).unwrap_or(0))
        };
        let bytes = objects.iter().map(of).sum();
        *last = (objects.len() > COUNTED_AT_ONCE).then(|| (Instant::now(), bytes));
        bytes
    }
}

/// Of more objects than so many the memory is not counted again for so long.
const COUNTED_AT_ONCE: usize = 1024;
const COUNTED_AGAIN: Duration = Duration::from_millis(250);

/// A line of /proc/meminfo, in bytes.
pub fn meminfo(field: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|l| l.starts_with(field) && l[field.len()..].starts_with(':'))?;
    line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Refuses to take more memory than the machine has free: shared memory has no limit of its own, and taking it
/// all would end other programs.
pub fn check_memory_for(bytes: u64) -> Result<()> {
    let free = meminfo("MemAvailable").unwrap_or(u64::MAX).saturating_add(meminfo("SwapFree").unwrap_or(0));
    let usable = free - free / 16;
    if bytes <= usable {
        return check_groups_for(bytes);
    }
    Err(Error::new(
        ErrorKind::NoSpace,
        format!(
            "{bytes} bytes of memory were asked for and {usable} can be had: make the object smaller, free memory, or \
             give a budget (its pages then spill to disk), or --reserve no, which may run out later"
        ),
    ))
}

/// The same of the control groups that this host is in: the kernel would kill it for taking more.
fn check_groups_for(bytes: u64) -> Result<()> {
    let least = cgroup::limits().into_iter().min_by_key(|limit| limit.free_bytes);
    let Some(limit) = least.filter(|limit| bytes > limit.free_bytes - limit.free_bytes / 16) else {
        return Ok(());
    };
    let usable = limit.free_bytes - limit.free_bytes / 16;
    Err(Error::new(
        ErrorKind::NoSpace,
        format!(
            "{bytes} bytes of memory were asked for, and of the {} that the control group {} may have {usable} can be \
             had: make the object smaller, give the group more memory, or give a budget (its pages then spill to \
             disk), or --reserve no, which may run out later",
            limit.bytes, limit.group
        ),
    ))
}

/// The memory that there is for this host: the machine's, or less where a control group says so.
pub fn memory_bytes() -> u64 {
    let machine = meminfo("MemTotal").unwrap_or(4 << 30);
    cgroup::limits().iter().map(|limit| limit.bytes).fold(machine, u64::min)
}

/// Which control group pays for an object's frames.
pub fn who_pays(options: &CreateOptions) -> String {
    // Whoever lists thousands of objects asks for each; a service stays in the group in which it was started.
    static GROUP: OnceLock<String> = OnceLock::new();
    let group = GROUP.get_or_init(cgroup::own_group);
    if options.is_controlled() {
        format!("the client that faults a page in; the host ({group}) for pages it brings in ahead")
    } else if options.is_wired() || options.pager == PagerKind::Anonymous && options.reserves() {
        format!("the host ({group}), which took all pages at creation")
    } else {
        "whoever touches a page first".into()
    }
}
