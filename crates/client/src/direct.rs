//! Direct objects: the kernel serves them, and this process does for itself what a host does for others.

use crate::link::wrong_reply;
use crate::object::Core;
use crate::{Error, ErrorKind, PageState, PagerKind, Result, Translation, segments, wired};
use commonhold_object::error::Doing;
use commonhold_object::wire::{Reply, Request};
use commonhold_object::{PageRange, pages_of};
use commonhold_points as points;
use commonhold_sys::frames::{self, CacheState};
use rustix::fs::Advice;
use std::fmt;
use std::num::NonZeroU64;
use std::os::fd::AsFd;

/// Stores what anybody wrote to the file through any mapping. The kernel knows dirty pages of a file by
/// itself, so this needs no mapping of this process. Gives 0: to have them counted costs more than to store few.
pub(crate) fn sync(core: &Core, offset: u64, length: u64) -> Result<u64> {
    if core.options().pager == PagerKind::Anonymous {
        return Ok(0);
    }
    if core.options().is_wired() {
        return store_wired(core, offset, length);
    }
    store(core.fd(), format_args!("storing object {}", core.label()))?;
    Ok(0)
}

/// Has a file on the disk, and the name that it was given last.
pub(crate) fn store(file: impl AsFd, doing: impl fmt::Display) -> Result<()> {
    points::fsync(|| rustix::fs::fdatasync(&file)).doing(doing)
}

/// Its pages are not those of its file, which the host alone has: that stores the range.
fn store_wired(core: &Core, offset: u64, length: u64) -> Result<u64> {
    core.open_again_if_needed()?;
    match core.ask(&Request::Sync { object: core.id(), offset, length, freeze: false })? {
        Reply::Synced(synced) => Ok(synced.pages),
        _ => Err(wrong_reply()),
    }
}

/// Begins to read the range into the page cache.
pub(crate) fn prefetch(core: &Core, offset: u64, length: u64) -> Result<()> {
    if core.options().pager == PagerKind::Anonymous || core.options().is_wired() {
        return Ok(());
    }
    rustix::fs::fadvise(core.fd(), offset, NonZeroU64::new(length), Advice::WillNeed)
        .doing(format_args!("prefetching object {}", core.label()))
}

/// State of each page, as the kernel's page cache has it.
pub(crate) fn incore(core: &Core, pages: PageRange) -> Result<Vec<(PageState, bool)>> {
    if pages.end() > pages_of(core.size_bytes()) {
        core.info()?;
    }
    let inside = pages.intersect(PageRange::new(0, pages_of(core.size_bytes())));
    let mut states = vec![(PageState::Invalid, false); pages.count as usize];
    ask(core, inside, &mut states[..inside.count as usize])?;
    Ok(states)
}

/// Asks for a whole run at once, and halves it where its pages differ.
fn ask(core: &Core, pages: PageRange, states: &mut [(PageState, bool)]) -> Result<()> {
    if pages.is_empty() {
        return Ok(());
    }
    if core.options().translation != Translation::Paged {
        states.fill((PageState::Clean, false)); // all of it is in memory, always
        return Ok(());
    }
    let cache = frames::cache_state(core.fd(), pages.offset_bytes(), pages.length_bytes())
        .map_err(|error| explain(core, &error))?;
    if let Some(state) = common_state(cache, pages.count) {
        states.fill((state, false));
        return Ok(());
    }
    let half = pages.count / 2;
    let (left, right) = states.split_at_mut(half as usize);
    ask(core, PageRange::new(pages.first, half), left)?;
    ask(core, PageRange::new(pages.first + half, pages.count - half), right)
}

/// The state that all pages of a run have, if they have one.
fn common_state(cache: CacheState, count: u64) -> Option<PageState> {
    let newer = cache.dirty.max(cache.writeback);
    match (cache.cached, newer) {
        (0, _) => Some(PageState::Absent),
        (cached, 0) if cached >= count => Some(PageState::Clean),
        (_, newer) if newer >= count => Some(PageState::Dirty),
        (_, newer) if count == 1 => Some(if newer > 0 { PageState::Dirty } else { PageState::Clean }),
        _ => None,
    }
}

fn explain(core: &Core, error: &std::io::Error) -> Error {
    if error.raw_os_error() == Some(libc::EPERM) {
        let what =
            "the kernel tells the page states of a file only to its owner and to those who may write it";
        return Error::new(ErrorKind::Permission, format!("incore of object {}: {what}", core.label()));
    }
    Error::io(format_args!("asking for the page states of object {}", core.label()), error)
}

/// Copies bytes out of the file or memfd.
pub(crate) fn read(core: &Core, buffer: &mut [u8], offset: u64) -> Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        let at = offset + done as u64;
        match rustix::io::pread(core.fd(), &mut buffer[done..], wired::offset_in_memory(core, at)) {
            Ok(0) => {
                let what =
                    format!("the file under object {} ends at byte {at}: it was truncated", core.label());
                return Err(Error::new(ErrorKind::Lost, what));
            }
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno).doing(format_args!("reading object {}", core.label())),
        }
    }
    Ok(())
}

/// Copies bytes into the file or memfd.
pub(crate) fn write(core: &Core, data: &[u8], offset: u64) -> Result<()> {
    if wired::is_of_huge_pages(core) {
        return segments::write(core, data, offset);
    }
    let mut done = 0;
    while done < data.len() {
        match points::pwrite(|| rustix::io::pwrite(core.fd(), &data[done..], offset + done as u64)) {
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno).doing(format_args!("writing object {}", core.label())),
        }
    }
    Ok(())
}
