//! Asks a host that may not come. Its keeper holds the socket while no host serves, so that clients
//! wait for the next host. A command must not wait for a host that cannot start: the log says why
//! it cannot, and the command says it again.

use commonhold::{Error, ErrorKind, Host, HostStatus, Result};
use commonhold_keeper::lock_state_directory;
use commonhold_object::error::Doing;
use commonhold_sys::process;
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a host may be silent before the log is read, and between two looks at it.
const LOOK: Duration = Duration::from_millis(250);
/// How much of the log is read, from its end: what hosts say that die one after the other.
const TAIL_BYTES: i64 = 64 << 10;
/// How long a keeper may take to end. It is told again all the while: a host that it just starts is
/// told in its place.
const END: Duration = Duration::from_secs(10);

/// Connects and asks for the status. Waits while a host is on its way, and not while the log says
/// why none comes.
pub fn ask(directory: &Path) -> Result<(Host, HostStatus)> {
    let (tell, told) = channel();
    let place = directory.to_owned();
    std::thread::spawn(move || {
        let asked = Host::connect_to(&place).and_then(|host| host.status().map(|status| (host, status)));
        let _ = tell.send(asked); // unheard where it took too long
    });
    loop {
        match told.recv_timeout(LOOK) {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::new(ErrorKind::Disconnected, "the thread that asks the host ended"));
            }
            Err(RecvTimeoutError::Timeout) => match why_none_serves(directory) {
                Some(why) => return Err(Error::new(ErrorKind::Disconnected, why)),
                None => continue,
            },
        }
    }
}

/// Why no host serves, if the keeper waits before it starts the next one, or has ended.
pub fn why_none_serves(directory: &Path) -> Option<String> {
    let path = directory.join("log");
    let mut file = std::fs::File::open(&path).ok()?;
    let _ = file.seek(SeekFrom::End(-TAIL_BYTES)); // of a shorter one all is read
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    let why = why(&String::from_utf8_lossy(&text))?;
    Some(format!("no host serves in {}, and none can be started: {why}", directory.display()))
}

/// What a log says of it: the last word of the keeper, and what the host said before.
fn why(log: &str) -> Option<String> {
    let words = |line: &'_ str, who: &str| {
        let (_, rest) = line.split_once(' ')?;
        rest.strip_prefix(who)?.split_once("]: ").map(|(pid, words)| (pid.to_owned(), words.to_owned()))
    };
    let (_, last) = log.lines().rev().find_map(|line| words(line, "keeper["))?;
    let Some((pid, end)) = last.strip_prefix("host ").and_then(|rest| rest.split_once(" ended after "))
    else {
        return last.starts_with("ended").then(|| format!("its keeper {last}"));
    };
    let said = log.lines().rev().filter_map(|line| words(line, "host["));
    let mut own = said.filter(|(who, _)| who == pid).map(|(_, words)| words);
    let why = own.find_map(|words| words.strip_prefix("ended by an error: ").map(str::to_owned));
    // One that was killed, and the next is on its way.
    let comes = why.is_none() && end.ends_with("the next starts in 0 ms");
    (!comes).then(|| why.unwrap_or_else(|| format!("the last one ended after {end}")))
}

/// Ends the keeper of a directory in which no host can be started. What it alone holds is lost.
pub fn end_keeper(directory: &Path) -> Result<()> {
    let deadline = Instant::now() + END;
    let path = directory.join("lock");
    loop {
        match lock_state_directory(directory) {
            Ok(_lock) => {
                // Clients would wait for the next host as long as its socket is there. (It may be gone already; one that
                // stays the next host replaces.)
                let _ = std::fs::remove_file(directory.join("host.sock"));
                return Ok(());
            }
            Err(error) if error.kind != ErrorKind::Busy || Instant::now() > deadline => return Err(error),
            Err(_) => {}
        }
        if let Some((pid, keeper)) = holder(&path).doing(format!("reading {}", path.display()))? {
            match rustix::process::pidfd_send_signal(keeper, Signal::TERM) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(errno) => {
                    return Err(errno).doing(format!("telling the keeper, process {pid}, to end"));
                }
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The process that a lock names, if it lives. An error: it is not the lock's owner's, who may write there what they like.
fn holder(path: &Path) -> std::io::Result<Option<(u32, OwnedFd)>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let lock = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let mut text = [0; 16];
    let length = lock.read_at(&mut text, 0)?;
    let pid = std::str::from_utf8(&text[..length]).ok().and_then(|text| text.trim().parse::<u32>().ok());
    // It is held before it is looked at: if its number is another's by then, it has ended.
    let Some((pid, held)) = pid.and_then(|pid| Some((pid, process::pidfd(pid).ok()?))) else {
        return Ok(None);
    };
    match process::user(pid) {
        Ok(user) if user == lock.metadata()?.uid() => Ok(Some((pid, held))),
        Ok(_) => Err(std::io::Error::other(format!("process {pid} is not the owner's of that lock"))),
        Err(_) => Ok(None), // it has ended
    }
}

#[cfg(test)]
mod tests {
    use super::why;

    #[test]
    fn the_last_word_of_the_keeper_counts_and_the_host_says_why() {
        let started = "T keeper[1]: started host 2, generation 1, program /p\n";
        let failed = "T host[2]: ended by an error: the disk is full\ncommonhold: the disk is full\n";
        let ended = "T keeper[1]: host 2 ended after 30 ms (exit code 1); the next starts in 100 ms\n";
        let log = [started, failed, ended].concat();
        assert_eq!(why(&log).as_deref(), Some("the disk is full"));
        assert_eq!(why(&(log.clone() + started)), None, "one is on its way");
        let killed = why(&[started, ended].concat()).unwrap();
        assert!(killed.contains("exit code 1") && killed.contains("100 ms"), "{killed}");
        let at_once = ended.replace("100 ms", "0 ms");
        assert_eq!(why(&[started, &at_once].concat()), None, "the next is on its way");
        assert!(why(&(log + "T keeper[1]: ended\n")).unwrap().contains("keeper ended"));
        assert_eq!(why("T host[2]: keeper[1]: ended\nT keeper[1]: started for /s\n"), None);
        assert_eq!(why(""), None);
    }
}
