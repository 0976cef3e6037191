//! `attach-server`: what a program by hand would have: a server that gives a descriptor to whoever asks.

use crate::failure::{Result, failed};
use crate::view::{RawMapping, memory_file};
use crate::worker;
use commonhold_sys::socket::{self, Wait};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use crate::context::GIB;
use commonhold_tables::Segment;
use rustix::mm::{MapFlags, ProtFlags};

/// The name of its socket.
pub const SOCKET: &str = "attach.sock";
const BYTES: usize = 1 << 20;
const LISTENER: u64 = u64::MAX;
const INPUT: u64 = u64::MAX - 1;

/// Serves on a socket in the folder that is named, until its input ends. As a host does, it waits for all its
/// connections at once, in epoll.
pub fn run(arguments: &[String]) -> Result<()> {
    let (directory, frames, _held) = match arguments {
        [directory] => {
            let frames = memory_file(BYTES)?;
            RawMapping::shared(&frames, BYTES)?.view().write(0, &[1]);
            (directory, frames, None)
        }
        [directory, huge] if huge == "huge" => {
            let frames = commonhold_tables::make("bench-by-hand", GIB as u64)?;
            // As a host does, it has all of it mapped, with all its pages.
            let held = Segment::hold(&frames, GIB as u64)?;
            held.fill()?;
            (directory, frames, Some(held))
        }
        _ => return failed("attach-server takes a folder, and maybe `huge`"),
    };
    let listener = socket::listen(Path::new(directory), SOCKET, 16)?;
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&set, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    epoll::add(&set, std::io::stdin(), EventData::new_u64(INPUT), EventFlags::IN)?;
    worker::say("ready")?;
    let mut connections: HashMap<u64, OwnedFd> = HashMap::new();
    loop {
        let mut events = [const { Event { flags: EventFlags::empty(), data: EventData::new_u64(0) } }; 16];
        let count = epoll::wait(&set, &mut events[..], None)?;
        for event in &events[..count] {
            match event.data.u64() {
                INPUT => return Ok(()),
                LISTENER => {
                    let connection = socket::accept(&listener)?;
                    let key = connection.as_raw_fd() as u64;
                    epoll::add(&set, &connection, EventData::new_u64(key), EventFlags::IN)?;
                    connections.insert(key, connection);
                }
                key => {
                    if connections.get(&key).is_some_and(|connection| !answer(connection, &frames)) {
                        connections.remove(&key);
                    }
                }
            }
        }
    }
}

/// Maps memory of huge pages where a gigabyte begins, with all its pages, and unmaps it.
pub fn map_populated(memory: &OwnedFd, length: usize) -> Result<()> {
    let none = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: the kernel chooses free addresses; what is mapped over them is unmapped with them.
    unsafe {
        let reserved =
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), length + GIB, ProtFlags::empty(), none)?;
        let at = (reserved as usize).next_multiple_of(GIB) as *mut std::ffi::c_void;
        // Without a reservation, as the server has it: only mappings with the same flags share their page tables.
        let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE | MapFlags::NORESERVE;
        let mapped = rustix::mm::mmap(at, length, ProtFlags::READ | ProtFlags::WRITE, flags, memory, 0);
        rustix::mm::munmap(reserved, length + GIB)?;
        mapped?;
    }
    Ok(())
}

/// Answers one request; false: the other end is gone.
fn answer(connection: &OwnedFd, frames: &OwnedFd) -> bool {
    let (mut request, mut descriptors) = ([0; 1024], Vec::new());
    match socket::receive(connection, &mut request, &mut descriptors, Wait::Yes) {
        Ok(length) if length > 0 => socket::send(connection, &[0], &[frames.as_fd()], Wait::Yes).is_ok(),
        _ => false,
    }
}
