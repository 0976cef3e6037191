//! `slow-file`: a file system of one file in memory (FUSE) that takes its time with each page.

use crate::failure::{Doing, Result, failed};
use crate::view::PAGE;
use crate::worker;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What the kernel asks, by the numbers in linux/fuse.h.
mod ask {
    pub const LOOKUP: u32 = 1;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const RELEASEDIR: u32 = 29;
    /// FORGET, INTERRUPT, BATCH_FORGET: nobody waits for an answer.
    pub const WITHOUT_ANSWER: [u32; 3] = [2, 36, 42];
}

const HEADER: usize = 40;
const ROOT: u64 = 1;
const FILE: u64 = 2;
/// Requests that are dealt with at the same time.
const THREADS: usize = 4;
/// What a request can be as long as: a write of 64 KiB and its header.
const LONGEST: usize = 1 << 20;

/// Arguments: a directory to mount on, bytes of the file, microseconds for each page. To any line
/// it answers how many pages were read and written. When its input ends it unmounts.
pub fn run(arguments: &[String]) -> Result<()> {
    let [directory, bytes, delay] = arguments else { return failed("slow-file takes three arguments") };
    // Whoever started it may be killed: then its input ends, and it unmounts.
    rustix::process::set_parent_process_death_signal(None)?;
    let device = mount(Path::new(directory))?;
    let file = Arc::new(SlowFile {
        bytes: Mutex::new(vec![0; bytes.parse()?]),
        delay: Duration::from_micros(delay.parse()?),
        read: AtomicU64::new(0),
        written: AtomicU64::new(0),
    });
    let device = Arc::new(device);
    for _ in 0..THREADS {
        let (file, device) = (file.clone(), device.clone());
        std::thread::spawn(move || file.serve(&device));
    }
    let served = serve_lines(&file);
    unmount(Path::new(directory));
    served
}

fn serve_lines(file: &SlowFile) -> Result<()> {
    worker::say("ready")?;
    for line in std::io::stdin().lines() {
        line?;
        let count = |count: &AtomicU64| count.load(Ordering::SeqCst);
        worker::say(&format!("{} {}", count(&file.read), count(&file.written)))?;
    }
    Ok(())
}

fn mount(directory: &Path) -> Result<OwnedFd> {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .doing("opening /dev/fuse")?;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let options =
        format!("fd={},rootmode=40000,user_id={uid},group_id={gid},allow_other", device.as_raw_fd());
    let texts = [
        CString::from(c"commonhold-bench"),
        CString::new(directory.as_os_str().as_encoded_bytes())?,
        CString::from(c"fuse"),
        CString::new(options)?,
    ];
    let [source, target, kind, data] = texts.each_ref().map(|text| text.as_ptr());
    // SAFETY: four texts that live until the call is over.
    match unsafe { libc::mount(source, target, kind, 0, data.cast()) } {
        0 => Ok(device),
        _ => Err(std::io::Error::last_os_error()).doing("mounting a FUSE file system"),
    }
}

/// Ends the connection, and with it every wait.
pub fn unmount(directory: &Path) {
    let Ok(path) = CString::new(directory.as_os_str().as_encoded_bytes()) else { return };
    for flags in [libc::MNT_FORCE, libc::MNT_DETACH] {
        // SAFETY: the text lives until the call is over. Where nothing is mounted any more nothing
        // happens.
        unsafe { libc::umount2(path.as_ptr(), flags) };
    }
}

struct SlowFile {
    bytes: Mutex<Vec<u8>>,
    delay: Duration,
    read: AtomicU64,
    written: AtomicU64,
}

impl SlowFile {
    fn serve(&self, device: &OwnedFd) {
        let mut buffer = vec![0; LONGEST];
        loop {
            match rustix::io::read(device, &mut buffer) {
                Ok(length) if length >= HEADER => self.answer(device, &buffer[..length]),
                Ok(_) | Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => {}
                Err(_) => return, // the connection has ended
            }
        }
    }

    fn answer(&self, device: &OwnedFd, request: &[u8]) {
        let (kind, unique, node) =
            (number(request, 4, 4) as u32, number(request, 8, 8), number(request, 16, 8));
        if ask::WITHOUT_ANSWER.contains(&kind) {
            return;
        }
        let (error, bytes) = match self.result(kind, node, &request[HEADER..]) {
            Ok(bytes) => (0, bytes),
            Err(error) => (-error, Vec::new()),
        };
        let mut message = Vec::with_capacity(16 + bytes.len());
        message.extend((16 + bytes.len() as u32).to_ne_bytes());
        message.extend(error.to_ne_bytes());
        message.extend(unique.to_ne_bytes());
        message.extend(bytes);
        // Whoever asked may be gone.
        let _ = rustix::io::write(device, &message);
    }

    fn result(&self, kind: u32, node: u64, body: &[u8]) -> std::result::Result<Vec<u8>, i32> {
        match kind {
            // Version 7.31; no reading ahead; 16 requests in the background; writes of 64 KiB.
            ask::INIT => Ok(words(&[7 | 31 << 32, 0, 16 | 12 << 16 | 65536 << 32, 1, 0, 0, 0, 0])),
            ask::LOOKUP if body == b"file\0" => {
                Ok([words(&[FILE, 0, 0, 0, 0]), self.attributes(FILE)].concat())
            }
            ask::LOOKUP => Err(libc::ENOENT),
            ask::GETATTR | ask::SETATTR => Ok([words(&[0, 0]), self.attributes(node)].concat()),
            ask::OPEN | ask::OPENDIR => Ok(words(&[1, 0])),
            ask::READ => Ok(self.read(number(body, 8, 8) as usize, number(body, 16, 4) as usize)),
            ask::WRITE => {
                let (offset, size) = (number(body, 8, 8) as usize, number(body, 16, 4) as usize);
                self.write(offset, &body[40..40 + size])
            }
            ask::STATFS => Ok(words(&[1 << 20, 1 << 19, 1 << 19, 100, 50, 4096 | 255 << 32, 4096, 0, 0, 0])),
            ask::FSYNC => {
                std::thread::sleep(self.delay);
                Ok(Vec::new())
            }
            ask::RELEASE | ask::FLUSH | ask::RELEASEDIR => Ok(Vec::new()),
            _ => Err(libc::ENOSYS),
        }
    }

    /// Takes the time of so many bytes; how many pages they are.
    fn take_time(&self, bytes: usize) -> u64 {
        let pages = bytes.div_ceil(PAGE) as u32;
        std::thread::sleep(self.delay * pages);
        u64::from(pages)
    }

    fn read(&self, offset: usize, size: usize) -> Vec<u8> {
        let part = {
            let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
            bytes.get(offset..bytes.len().min(offset + size)).unwrap_or_default().to_vec()
        };
        self.read.fetch_add(self.take_time(part.len()), Ordering::SeqCst);
        part
    }

    fn write(&self, offset: usize, data: &[u8]) -> std::result::Result<Vec<u8>, i32> {
        self.written.fetch_add(self.take_time(data.len()), Ordering::SeqCst);
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.get_mut(offset..offset + data.len()).ok_or(libc::EFBIG)?.copy_from_slice(data);
        Ok(words(&[data.len() as u64]))
    }

    fn attributes(&self, node: u64) -> Vec<u8> {
        let (size, mode) = match node {
            ROOT => (0, libc::S_IFDIR | 0o777),
            _ => (self.bytes.lock().unwrap_or_else(PoisonError::into_inner).len(), libc::S_IFREG | 0o666),
        };
        let (size, uid) = (size as u64, u64::from(rustix::process::getuid().as_raw()));
        let times = [0, 0, 0, 0, u64::from(mode) << 32];
        [words(&[node, size, size / 512]), words(&times), words(&[1 | uid << 32, uid, 4096])].concat()
    }
}

fn number(bytes: &[u8], at: usize, length: usize) -> u64 {
    let mut eight = [0; 8];
    eight[..length].copy_from_slice(&bytes[at..at + length]);
    u64::from_ne_bytes(eight)
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
