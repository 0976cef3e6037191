//! A file system of one file, served by this process: it answers until it is told not to, and then whoever asks waits.
//!
//! Whoever has a file of it open waits at its close, too, and so does every child between fork and exec: a test that uses
//! this is alone in its process, starts its processes first, and opens files by [`Fuse::open`], which closes them when all
//! is over. The end of this value ends every wait, whatever the test did.

use crate::left_out::left_out;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Bytes of the file.
pub const FILE_BYTES: u64 = 65536;

/// What it is asked, by its numbers in linux/fuse.h.
pub const GETATTR: u32 = 3;
/// To read.
pub const READ: u32 = 15;
/// What statfs asks.
pub const STATFS: u32 = 17;
/// What each close asks.
pub const FLUSH: u32 = 25;

const HEADER: usize = 40;
const ROOT: u64 = 1;
const FILE: u64 = 2;

/// The file system, mounted.
pub struct Fuse {
    directory: PathBuf,
    served: Arc<Served>,
    /// Closed when the connection has ended.
    opened: Mutex<Vec<Arc<OwnedFd>>>,
}

#[derive(Default)]
struct Served {
    /// Of each kind of request: whether it stays without an answer.
    silent: AtomicU64,
    /// Requests without an answer so far.
    waiting: AtomicU32,
    uid: u32,
}

impl Fuse {
    /// Mounts it in a directory of its own below that one, with files of that user. None where this machine has no FUSE.
    pub fn mount(below: &Path, uid: u32) -> Option<Fuse> {
        let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let Ok(device) = device else {
            left_out("there is no /dev/fuse to open");
            return None;
        };
        let directory = below.join("fuse");
        std::fs::create_dir(&directory).expect("a directory to mount on");
        let options =
            format!("fd={},rootmode=40000,user_id={uid},group_id={uid},allow_other", device.as_raw_fd());
        let texts = [
            c"commonhold-tests".to_owned(),
            std::ffi::CString::new(directory.as_os_str().as_encoded_bytes()).expect("a path"),
            c"fuse".to_owned(),
            std::ffi::CString::new(options).expect("options"),
        ];
        let [source, target, kind, data] = texts.each_ref().map(|text| text.as_ptr());
        // SAFETY: four texts that live until the call is over.
        let mounted = unsafe { libc::mount(source, target, kind, 0, data.cast()) };
        if mounted != 0 {
            left_out(&format!("FUSE cannot be mounted here: {}", std::io::Error::last_os_error()));
            return None;
        }
        let served = Arc::new(Served { uid, ..Served::default() });
        let (on, all) = (device, served.clone());
        std::thread::spawn(move || all.serve(&on));
        Some(Fuse { directory, served, opened: Mutex::default() })
    }

    /// The path of the file.
    pub fn file(&self) -> PathBuf {
        self.directory.join("file")
    }

    /// Opens the file. This process does not close it before the file system ends.
    pub fn open(&self) -> Arc<OwnedFd> {
        let file = rustix::fs::open(self.file(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let file = Arc::new(file.expect("the file is opened"));
        self.opened.lock().expect("opened files").push(file.clone());
        file
    }

    /// No request of this kind is answered any more.
    pub fn fall_silent(&self, kind: u32) {
        self.served.silent.fetch_or(1 << kind, Ordering::SeqCst);
    }

    /// How many requests wait for an answer that does not come.
    pub fn waiting(&self) -> u32 {
        self.served.waiting.load(Ordering::SeqCst)
    }

    /// Ends the connection, and with it every wait.
    pub fn end(&self) {
        let path = std::ffi::CString::new(self.directory.as_os_str().as_encoded_bytes()).expect("a path");
        for flags in [libc::MNT_FORCE, libc::MNT_DETACH] {
            // SAFETY: the text lives until the call is over. Where nothing is mounted any more nothing happens.
            unsafe { libc::umount2(path.as_ptr(), flags) };
        }
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.end();
    }
}

fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let mut eight = [0; 8];
    eight[..length].copy_from_slice(&bytes[at..at + length]);
    u64::from_ne_bytes(eight)
}

impl Served {
    fn serve(&self, device: &OwnedFd) {
        let mut buffer = vec![0; 1 << 20];
        loop {
            match rustix::io::read(device, &mut buffer) {
                Ok(length) if length >= HEADER => self.answer(device.as_fd(), &buffer[..length]),
                Ok(_) | Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => {}
                Err(_) => return, // the connection has ended
            }
        }
    }

    fn answer(&self, device: BorrowedFd<'_>, request: &[u8]) {
        let (kind, unique, node) =
            (number(request, 4, 4) as u32, number(request, 8, 8), number(request, 16, 8));
        let body = &request[HEADER..];
        if kind < 64 && self.silent.load(Ordering::SeqCst) & 1 << kind != 0 {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            return;
        }
        let answer = match kind {
            2 | 36 | 42 => return, // FORGET, INTERRUPT, BATCH_FORGET: without an answer
            26 => Ok(words(&[7 | 31 << 32, 0, 16 | 12 << 16 | 65536 << 32, 1, 0, 0, 0, 0])),
            1 => self.lookup(body),
            GETATTR | 4 => Ok([words(&[0, 0]), self.attributes(node)].concat()),
            // Opened with O_SYNC: past the page cache (FOPEN_DIRECT_IO).
            14 | 27 => Ok(words(&[1, u64::from(number(body, 0, 4) as i32 & libc::O_SYNC == libc::O_SYNC)])),
            READ => Ok(read(number(body, 8, 8), number(body, 16, 4))),
            16 => Ok(words(&[number(body, 16, 4)])),
            STATFS => Ok(words(&[1000, 500, 500, 100, 50, 4096 | 255 << 32, 4096, 0, 0, 0])),
            18 | FLUSH | 29 | 20 | 34 | 38 => Ok(Vec::new()),
            _ => Err(-libc::ENOSYS),
        };
        let (error, bytes) = match answer {
            Ok(bytes) => (0, bytes),
            Err(error) => (error, Vec::new()),
        };
        let mut message = Vec::with_capacity(16 + bytes.len());
        message.extend(u32::try_from(16 + bytes.len()).expect("short").to_ne_bytes());
        message.extend(error.to_ne_bytes());
        message.extend(unique.to_ne_bytes());
        message.extend(bytes);
        // Whoever asked may be gone.
        let _ = rustix::io::write(device, &message);
    }

    fn lookup(&self, name: &[u8]) -> Result<Vec<u8>, i32> {
        if name != b"file\0" {
            return Err(-libc::ENOENT);
        }
        Ok([words(&[FILE, 0, 0, 0, 0]), self.attributes(FILE)].concat())
    }

    fn attributes(&self, node: u64) -> Vec<u8> {
        let (size, mode) = match node {
            ROOT => (0, libc::S_IFDIR | 0o777),
            _ => (FILE_BYTES, libc::S_IFREG | 0o666),
        };
        let uid = u64::from(self.uid);
        let times = [0, 0, 0, 0, u64::from(mode) << 32];
        [words(&[node, size, size / 512]), words(&times), words(&[1 | uid << 32, uid, 4096])].concat()
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn read(offset: u64, size: u64) -> Vec<u8> {
    vec![7; size.min(FILE_BYTES.saturating_sub(offset)) as usize]
}
