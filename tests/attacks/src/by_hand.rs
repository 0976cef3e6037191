//! A client without the library: it maps an object itself, and does with memory and descriptors
//! what no client does.
//!
//! Its memory belongs to the process of the test. Touches go through the kernel, which gives an
//! error where a program would get SIGBUS. What it mapped stays until the test ends: threads may
//! still touch it.

use crate::scene::Local;
use commonhold_object::wire::{MapRequest, Reply, Request};
use commonhold_object::{CreateOptions, MapFlags, Name, ObjectId};
use commonhold_sys::memory::{self, Wish};
use commonhold_sys::userfaultfd::{Kind, Userfaultfd};
use commonhold_tests::raw::{Raw, map_request};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Such a client of the attacker, with one object.
pub struct ByHand {
    /// Its connection.
    pub raw: Raw,
    /// Its object.
    pub object: ObjectId,
    /// What it was given: the memory of the object.
    pub frames: Arc<OwnedFd>,
    /// What the host serves its faults by.
    pub uffd: Arc<Userfaultfd>,
    /// Where the object is mapped.
    pub memory: Memory,
    /// With in-thread service: the claim words.
    pub words: Option<OwnedFd>,
    kind: Kind,
}

/// A range of this process's memory.
#[derive(Clone, Copy)]
pub struct Memory {
    /// Its first address.
    pub address: usize,
    /// Bytes.
    pub length: usize,
}

impl ByHand {
    /// One that makes an object, and has mapped all of it.
    pub fn with(scene: &Local, name: Name, options: CreateOptions) -> ByHand {
        Self::made(scene, name, options, None, Kind::Asynchronous)
    }

    /// The same, with a file behind it.
    pub fn of_a_file(scene: &Local, name: Name, options: CreateOptions, file: &OwnedFd) -> ByHand {
        Self::made(scene, name, options, Some(file), Kind::Asynchronous)
    }

    /// The same, with in-thread service: its touches fail where no page is.
    pub fn serving_itself(scene: &Local, name: Name, options: CreateOptions) -> ByHand {
        Self::made(scene, name, options, None, Kind::InThread)
    }

    fn made(scene: &Local, name: Name, options: CreateOptions, file: Option<&OwnedFd>, kind: Kind) -> ByHand {
        crate::held::stays();
        let mut raw = scene.raw();
        let (_, device) = raw.ask_for(&Request::Hello { program: "by hand".into() });
        let length = options.size_bytes as usize;
        let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
        let (reply, mut frames) =
            raw.ask_with(&Request::Create { name, options, nonce: 77, in_directory: false }, &files);
        let Ok(Reply::Opened(opened)) = reply else { panic!("{reply:?}") };
        let frames = Arc::new(frames.pop().expect("the object's memory"));
        let (uffd, _) = Userfaultfd::create(kind, device.first().map(AsFd::as_fd)).expect("faults");
        let (memory, object) = (Memory::of(&*frames, length), opened.info.id);
        let mut this = ByHand { raw, object, frames, uffd: Arc::new(uffd), memory, words: None, kind };
        this.map(memory, 0).expect("it may map its own object");
        this
    }

    /// Tells the host that the object is mapped there, from that byte of it on.
    pub fn map(&mut self, memory: Memory, offset: u64) -> Result<(), commonhold_object::Error> {
        let pagemap = std::fs::File::open("/proc/self/pagemap").expect("this process's own");
        let flags = MapFlags { in_thread: self.kind == Kind::InThread, ..MapFlags::default() };
        let map = MapRequest {
            offset,
            flags,
            with_claims: false,
            ..map_request(self.object, memory.address as u64, memory.length as u64)
        };
        let (reply, mut words) =
            self.raw.ask_with(&Request::Map(map), &[(*self.uffd).as_fd(), pagemap.as_fd()]);
        self.words = self.words.take().or(words.pop());
        reply.map(drop)
    }
}

impl Drop for ByHand {
    /// The process lives on: else what it mapped is served on.
    fn drop(&mut self) {
        let (address, length) = (self.memory.address as u64, self.memory.length as u64);
        // It may have been cut off.
        let _ = self.raw.ask(&Request::Unmap { address, length }, &[]);
    }
}

impl Memory {
    /// Maps that much of a file.
    pub fn of(file: impl AsFd, length: usize) -> Memory {
        let wish = Wish {
            hint: std::ptr::null_mut(),
            fixed: false,
            write: true,
            private: false,
            not_inherited: false,
            controlled: true,
        };
        let address = memory::map(file, 0, length, wish).expect("a mapping").as_ptr() as usize;
        Memory { address, length }
    }

    /// Addresses of nothing.
    pub fn nowhere(length: usize) -> Memory {
        let address = memory::reserve(std::ptr::null_mut(), length).expect("addresses").as_ptr() as usize;
        Memory { address, length }
    }

    /// The page of that number.
    pub fn page(self, number: usize) -> Memory {
        Memory { address: self.address + number * PAGE, length: PAGE }
    }

    /// Has the kernel write a byte there, once the page is there.
    pub fn put(self, byte: u8) -> io::Result<()> {
        let file = commonhold_sys::frames::create("put", 1)?;
        rustix::io::pwrite(&file, &[byte], 0)?;
        // SAFETY: the kernel checks the address itself, and fails with EFAULT; nobody takes
        // references to this memory.
        done(unsafe { libc::pread(file.as_raw_fd(), self.address as *mut _, 1, 0) })
    }

    /// Has the kernel read a byte there, once the page is there.
    pub fn get(self) -> io::Result<u8> {
        let file = commonhold_sys::frames::create("get", 1)?;
        self.write_to(&file, 0)?;
        let mut byte = [0];
        rustix::io::pread(&file, &mut byte, 0)?;
        Ok(byte[0])
    }

    /// Has the kernel write a byte from here into a file: as long as the page is not there, under
    /// that file's lock.
    pub fn write_to(self, file: impl AsFd, offset: i64) -> io::Result<()> {
        // SAFETY: as above.
        done(unsafe { libc::pwrite(file.as_fd().as_raw_fd(), self.address as *const _, 1, offset) })
    }

    /// Drops what the page table says of it.
    pub fn forget(self) {
        // SAFETY: nobody takes references to this memory; the kernel refuses what is not mapped.
        unsafe { libc::madvise(self.address as *mut _, self.length, libc::MADV_DONTNEED) };
    }
}

fn done(result: isize) -> io::Result<()> {
    if result == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
