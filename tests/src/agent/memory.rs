//! Lines about the bytes of mappings.

use super::{Agent, Done, Failure, number, wrong};
use crate::ledger::Ledger;
use crate::{PAGE, page};
use commonhold::Mapping;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

impl Agent {
    pub(super) fn on_memory(&mut self, words: &[&str]) -> Done {
        match words {
            ["fill", mapping, first, count, seed] => {
                let (mapping, seed) = (self.mapping(mapping)?, number(seed)?);
                for index in number(first)?..number(first)? + number(count)? {
                    page::fill(page::words(mapping.as_ptr(), index as usize), index, seed);
                }
                Ok(String::new())
            }
            ["check", mapping, first, count, seed] => {
                let (mapping, seed) = (self.mapping(mapping)?, number(seed)?);
                for index in number(first)?..number(first)? + number(count)? {
                    page::check(page::words(mapping.as_ptr(), index as usize), index, seed).map_err(wrong)?;
                }
                Ok(String::new())
            }
            // Faults of this thread while it writes to each of so many pages.
            ["no-faults", mapping, first, count] => {
                match self.on_memory(&["faults", mapping, first, count])?.as_str() {
                    "0" => Ok(String::new()),
                    some => Err(wrong(format!("{some} faults"))),
                }
            }
            ["faults", mapping, first, count] => {
                let (first, count) = (number(first)? as usize, number(count)? as usize);
                let start = self.mapping(mapping)?.as_ptr().wrapping_add(first * 4096);
                // A fork child comes by its code and its stack by faults, too: not while they are counted.
                let mut own = [0u8; 1];
                faults_of(own.as_mut_ptr(), 1);
                Ok(faults_of(start, count).to_string())
            }
            ["counted", mapping, first, stride, pages, ledger] => {
                self.counted(mapping, number(first)?, number(stride)?, number(pages)?, ledger)
            }
            ["put", mapping, offset, byte] => {
                let at = self.mapping(mapping)?.as_ptr().wrapping_add(number(offset)? as usize);
                // SAFETY: tests name bytes of the mapping; where it fails on purpose, the process dies of it.
                unsafe { at.write_volatile(number(byte)? as u8) };
                Ok(String::new())
            }
            ["await", mapping, offset, byte] => {
                let wished = number(byte)?.to_string();
                while self.on_memory(&["get", mapping, offset])? != wished {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                Ok(String::new())
            }
            ["get", mapping, offset] => {
                let at = self.mapping(mapping)?.as_ptr().wrapping_add(number(offset)? as usize);
                // SAFETY: as above.
                Ok(unsafe { at.read_volatile() }.to_string())
            }
            ["read-at", object, offset, length] => {
                let mut bytes = vec![0; number(length)? as usize];
                self.object(object)?.read_at(&mut bytes, number(offset)?)?;
                Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
            }
            ["write-at", object, offset, text] => {
                self.object(object)?.write_at(text.as_bytes(), number(offset)?)?;
                Ok(String::new())
            }
            _ => self.on_raw_memory(words),
        }
    }

    fn on_raw_memory(&mut self, words: &[&str]) -> Done {
        match words {
            ["read-in", mapping, first, count, seed] => {
                let bytes = page::bytes(number(first)?, number(count)?, number(seed)?);
                let part = part(self.mapping(mapping)?, number(first)?, number(count)?);
                read_in(part, &bytes)
            }
            ["read-file-in", mapping, first, count, path] => {
                let file = std::fs::File::open(path)?;
                let (start, length) = part(self.mapping(mapping)?, number(first)?, number(count)?);
                // SAFETY: the kernel checks the address itself, and fails with EFAULT.
                let n = unsafe { libc::pread(file.as_raw_fd(), start.cast(), length, 0) };
                told(n).map(|n| n.to_string())
            }
            ["write-out", mapping, first, count, seed] => {
                let bytes = page::bytes(number(first)?, number(count)?, number(seed)?);
                write_out(part(self.mapping(mapping)?, number(first)?, number(count)?), &bytes)
            }
            ["raw-mmap", mapping, first, count] => {
                let (start, length) = part(self.mapping(mapping)?, number(first)?, number(count)?);
                let (access, kind) = (
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                );
                // SAFETY: what a program may do behind the library's back: memory of its own in the place of the object's.
                let other = unsafe { libc::mmap(start.cast(), length, access, kind, -1, 0) };
                told(if other == libc::MAP_FAILED { -1 } else { 0 }).map(|_| String::new())
            }
            [verb @ ("raw-munmap" | "raw-dontneed"), mapping, first, count] => {
                let (start, length) = part(self.mapping(mapping)?, number(first)?, number(count)?);
                // SAFETY: what a program may do behind the library's back; the test touches it no more.
                let result = unsafe {
                    if *verb == "raw-munmap" {
                        libc::munmap(start.cast(), length)
                    } else {
                        libc::madvise(start.cast(), length, libc::MADV_DONTNEED)
                    }
                };
                told(result as isize).map(|_| String::new())
            }
            ["raw-mremap", mapping] => {
                let (start, length) = (self.mapping(mapping)?.as_ptr(), self.mapping(mapping)?.len());
                let other = std::ptr::null_mut::<libc::c_void>();
                // SAFETY: as above; the new place is anywhere the kernel finds room.
                let moved = unsafe {
                    let room = libc::mmap(
                        other,
                        length,
                        libc::PROT_NONE,
                        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                        -1,
                        0,
                    );
                    libc::mremap(
                        start.cast(),
                        length,
                        length,
                        libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                        room,
                    )
                };
                if moved == libc::MAP_FAILED {
                    Err(std::io::Error::last_os_error().into())
                } else {
                    Ok(String::new())
                }
            }
            ["regain", mapping] => Ok(regain(self.mapping(mapping)?).join(" ")),
            _ => Err(wrong(format!("what is {words:?}?"))),
        }
    }

    /// Checks the counted pages against what their owner noted.
    fn counted(&self, mapping: &str, first: u64, stride: u64, pages: u64, ledger: &str) -> Done {
        let mapping = self.mapping(mapping)?;
        let ledger = Ledger::open(Path::new(ledger), (first + stride * pages) as usize);
        let mut sum = 0;
        for index in (0..pages).map(|n| first + n * stride) {
            let (done, begun) = ledger.get(index as usize);
            page::check_count(page::words(mapping.as_ptr(), index as usize), index, done, begun)
                .map_err(wrong)?;
            sum += done;
        }
        Ok(sum.to_string())
    }
}

fn part(mapping: &Mapping, first: u64, count: u64) -> (*mut u8, usize) {
    (mapping.as_ptr().wrapping_add(first as usize * PAGE), count as usize * PAGE)
}

/// Tries whatever could make a mapping, or a descriptor of memory or of a file behind one, writable.
fn regain(mapping: &Mapping) -> Vec<String> {
    let mut worked = Vec::new();
    let mut tried = |what: &str, result: i64| {
        if result >= 0 {
            worked.push(what.to_owned());
        }
    };
    let (start, length) = (mapping.as_ptr().cast::<libc::c_void>(), mapping.len());
    let descriptors = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let objects = descriptors.filter_map(|entry| {
        let link = std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
        let object = link.starts_with("/memfd:commonhold-object")
            || link.starts_with("/memfd:commonhold-frames")
            || link.contains("commonhold-tests-");
        object.then(|| entry.file_name().to_string_lossy().parse::<i32>().ok()).flatten()
    });
    for fd in objects.collect::<Vec<i32>>() {
        let again = std::fs::File::options().write(true).open(format!("/proc/self/fd/{fd}"));
        tried("reopen", if again.is_ok() { 0 } else { -1 });
        let (write, shared) = (libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: each call is refused, or changes the object, which is what the test looks for; a mapping that is
        // made here is nobody's and stays.
        unsafe {
            tried("pwrite", libc::pwrite(fd, b"x".as_ptr().cast(), 1, 0) as i64);
            tried("ftruncate", i64::from(libc::ftruncate(fd, 4096)));
            let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            tried("punch", i64::from(libc::fallocate(fd, punch, 0, 4096)));
            tried("fchmod", i64::from(libc::fchmod(fd, 0o666)));
            tried(
                "mmap",
                if libc::mmap(std::ptr::null_mut(), 4096, write, shared, fd, 0) == libc::MAP_FAILED {
                    -1
                } else {
                    0
                },
            );
        }
    }
    // SAFETY: this process's own mapping. A private one becomes writable, to a copy: the test looks at the object.
    unsafe {
        libc::madvise(start, length, libc::MADV_REMOVE);
        if libc::mprotect(start, length, libc::PROT_READ | libc::PROT_WRITE) == 0 {
            start.cast::<u8>().write_volatile(0x77);
        }
    }
    worked
}

fn told(result: isize) -> Result<usize, Failure> {
    usize::try_from(result).map_err(|_| std::io::Error::last_os_error().into())
}

/// `read()` straight into the mapping, from a pipe that another thread fills.
fn read_in((start, length): (*mut u8, usize), bytes: &[u8]) -> Done {
    let (read, write) = rustix::pipe::pipe().map_err(std::io::Error::from)?;
    let bytes = bytes.to_vec();
    let filler =
        std::thread::spawn(move || std::io::Write::write_all(&mut std::fs::File::from(write), &bytes));
    let mut done = 0;
    while done < length {
        // SAFETY: the kernel checks the address itself, and fails with EFAULT.
        let n = unsafe { libc::read(read.as_raw_fd(), start.wrapping_add(done).cast(), length - done) };
        match told(n) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(failure) => {
                drop(read); // the filler gets EPIPE and ends
                let _ = filler.join();
                return Err(failure);
            }
        }
    }
    let _ = filler.join();
    Ok(done.to_string())
}

/// `write()` straight out of the mapping, into a pipe that another thread reads and compares.
fn write_out((start, length): (*mut u8, usize), wanted: &[u8]) -> Done {
    let (read, write) = rustix::pipe::pipe().map_err(std::io::Error::from)?;
    let reader = std::thread::spawn(move || -> std::io::Result<Vec<u8>> {
        let mut found = Vec::new();
        std::io::Read::read_to_end(&mut std::fs::File::from(read), &mut found)?;
        Ok(found)
    });
    let result = push(start, length, &write);
    drop(write);
    let found = reader.join().map_err(|_| wrong("the reader panicked"))??;
    result?;
    if found == wanted { Ok(String::new()) } else { Err(wrong("other bytes came out than were written")) }
}

fn push(start: *mut u8, length: usize, pipe: &OwnedFd) -> Result<(), Failure> {
    let mut done = 0;
    while done < length {
        // SAFETY: the kernel checks the address itself, and fails with EFAULT.
        done +=
            told(unsafe { libc::write(pipe.as_raw_fd(), start.wrapping_add(done).cast(), length - done) })?;
    }
    Ok(())
}

/// Faults of this thread while it writes to each of so many pages.
#[inline(never)]
fn faults_of(start: *mut u8, pages: usize) -> i64 {
    let before = faults();
    for page in 0..pages {
        let at = start.wrapping_add(page * 4096);
        // SAFETY: tests name pages of the mapping.
        unsafe { at.write_volatile(at.read_volatile()) };
    }
    faults() - before
}

pub(super) fn faults() -> i64 {
    // SAFETY: a structure that is all numbers is filled.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_minflt + usage.ru_majflt
    }
}
