//! userfaultfd and what stands on it: each thing is really tried.

use super::probe::{PAGE, Probe};
use super::report::Check;
use crate::place::HostPlace;
use commonhold_sys::pagemap::Pagemap;
use commonhold_sys::userfaultfd::{Kind, Userfaultfd};
use std::io;
use std::os::fd::AsFd;

const CONTAINER_ADVICE: &str = "in a container, allow the system call `userfaultfd` in its seccomp profile or pass \
     /dev/userfaultfd in; elsewhere the kernel needs CONFIG_USERFAULTFD";

/// Descriptors of every kind can be made, so that controlled objects work.
pub fn works() -> Check {
    let device = Userfaultfd::open_device().ok();
    for kind in Kind::ALL {
        if let Err(error) = Userfaultfd::create(kind, device.as_ref().map(AsFd::as_fd)) {
            return Check::fail("userfaultfd", format!("no {kind:?} descriptor: {error}"), CONTAINER_ADVICE);
        }
    }
    let through = if device.is_some() { "/dev/userfaultfd" } else { "the system call" };
    Check::ok("userfaultfd", format!("every kind of descriptor can be made, through {through}"))
}

/// `read()` straight into a missing page can be served: by the host that runs, or by one that this user would start.
pub fn kernel_accesses(place: &HostPlace) -> Check {
    const NAME: &str = "kernel accesses";
    let setting = std::fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    let setting = format!("vm.unprivileged_userfaultfd = {}", setting.trim());
    let running = place.running().and_then(|(_, host)| host?.status());
    if running.is_ok_and(|status| status.kernel_faults) {
        return Check::ok(NAME, format!("served by the host that runs; {setting}"));
    }
    if Userfaultfd::open_device().is_ok() {
        return Check::ok(NAME, format!("served: this user may open /dev/userfaultfd; {setting}"));
    }
    match Userfaultfd::create(Kind::Asynchronous, None) {
        Ok((_, true)) => {
            Check::ok(NAME, format!("served: this user's faults are noticed in the kernel too; {setting}"))
        }
        _ => Check::warn(
            NAME,
            format!("a host of this user cannot serve read() into a page not in memory (EFAULT); {setting}"),
            "use a host that root started, or let this user open /dev/userfaultfd, or (as root) \
             sysctl vm.unprivileged_userfaultfd=1",
        ),
    }
}

/// Writes to protected pages are found by a scan, and only they.
pub fn dirty_tracking() -> Check {
    const NAME: &str = "dirty tracking";
    match written_pages() {
        Ok(pages) if pages == [1] => Check::ok(NAME, "a scan finds the page that was written, and only it"),
        Ok(pages) => Check::fail(
            NAME,
            format!("page 1 was written, a scan found {pages:?}"),
            "this kernel's PAGEMAP_SCAN cannot be relied on: use Linux 6.7 or later as released",
        ),
        Err(error) => Check::fail(
            NAME,
            format!("a scan is not possible: {error}"),
            "Linux 6.7 or later with CONFIG_PROC_PAGE_MONITOR and CONFIG_PTE_MARKER_UFFD_WP is needed, and a \
             mounted /proc",
        ),
    }
}

/// Installs three protected pages, writes to the middle one, and scans.
fn written_pages() -> io::Result<Vec<usize>> {
    let probe = Probe::new(3)?;
    probe.install(0, 3, 7)?;
    probe.write(1, 8);
    let mut written = Vec::new();
    Pagemap::of_self()?.scan(probe.at(0), probe.at(3), |found| {
        if found.written {
            let page = |address| (address - probe.at(0)) as usize / PAGE;
            written.extend(page(found.start)..page(found.end));
        }
    })?;
    Ok(written)
}

/// A page that is lost can be made to fail, so that nobody ever reads zeros in its place.
pub fn poison() -> Check {
    const NAME: &str = "poison";
    const FIX: &str = "UFFDIO_POISON came with Linux 6.6: use 6.7 or later";
    match poisoned_read() {
        Ok(Err(_)) => Check::ok(NAME, "a page that is lost fails when touched"),
        Ok(Ok(byte)) => Check::fail(NAME, format!("a poisoned page could be read ({byte})"), FIX),
        Err(error) => Check::fail(NAME, format!("a page cannot be poisoned: {error}"), FIX),
    }
}

fn poisoned_read() -> io::Result<io::Result<u8>> {
    let probe = Probe::new(2)?;
    probe.install(0, 1, 7)?;
    if probe.read_by_kernel(0)? != 7 {
        return Err(io::Error::other("an installed page does not hold what was put there"));
    }
    let progress = probe.userfaultfd.poison(probe.at(1), PAGE as u64);
    match progress.stopped_by {
        Some(errno) => Err(errno.into()),
        None => Ok(probe.read_by_kernel(1)),
    }
}
