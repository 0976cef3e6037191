//! The embedded default: the first client of a user with no host running starts one in the background.

use crate::{Error, ErrorKind, Result, locate};
use commonhold_sys::environment;
use commonhold_sys::ownership::who_else_writes;
use std::ffi::{CStr, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Names the `commonhold` program, where it lies in none of the usual places.
const PROGRAM_VARIABLE: &str = "COMMONHOLD_PROGRAM";
const PROGRAM_NAME: &str = "commonhold";
/// How long a host that was started may take until it answers.
const START_DEADLINE: Duration = Duration::from_secs(10);
/// How long another host, started at the same time, may take to answer after ours gave way.
const RACE_GRACE: Duration = Duration::from_secs(3);
/// How long to wait for the starting command to end once its host answers, so that it leaves no zombie.
const REAP_MS: u64 = 250;

/// Connects to the host in `directory`, starting one if nothing answers. Two clients that start one at once
/// are harmless: the host's lock lets one live, and both connect to it.
pub(crate) fn connect_or_start(directory: &Path, give_up: Option<Instant>) -> Result<OwnedFd> {
    let error = match locate::connect(directory) {
        Ok(socket) => return Ok(socket),
        Err(error) => error,
    };
    if environment::has_foreign_rights() {
        // A host with these rights would be what the caller's variables make it.
        return Err(locate::no_host(directory, &error));
    }
    let program = find_program()?;
    let mut started = Started::launch(&program, directory)?;
    let mut deadline = Instant::now() + START_DEADLINE;
    deadline = give_up.map_or(deadline, |give_up| give_up.min(deadline));
    let mut pause = Duration::from_millis(1);
    loop {
        let failed = started.has_failed();
        if failed {
            // It may have lost the race against another host, which answers soon.
            deadline = deadline.min(Instant::now() + RACE_GRACE);
        }
        match locate::connect(directory) {
            Ok(socket) => return Ok(socket),
            Err(error) if Instant::now() > deadline => return Err(started.explain(directory, &error, failed)),
            Err(_) => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// The program that is both the command and the host.
fn find_program() -> Result<PathBuf> {
    if let Some(named) = environment::variable(PROGRAM_VARIABLE) {
        let path = PathBuf::from(named);
        if is_program(&path) {
            return Ok(path);
        }
        let what = format!("{PROGRAM_VARIABLE} names {}, which is not a program", path.display());
        return Err(Error::new(ErrorKind::NotFound, what));
    }
    let mut passed_over = String::new();
    for origin in [std::env::current_exe().ok(), own_library()].into_iter().flatten() {
        let beside = origin.parent().into_iter();
        let candidates =
            beside.flat_map(|place| [place.join(PROGRAM_NAME), place.join("../bin").join(PROGRAM_NAME)]);
        for path in candidates.filter(|path| is_program(path)) {
            match who_could_plant(&path, &origin) {
                None => return Ok(path),
                Some(who) => {
                    passed_over = format!(" ({} is not run, because {who} can write it)", path.display())
                }
            }
        }
    }
    // Of directories that are named from the root on: not of the one where the caller happens to be.
    let paths = environment::variable("PATH").unwrap_or_default();
    let mut in_path = std::env::split_paths(&paths).filter(|place| place.is_absolute());
    let found = in_path.find_map(|place| Some(place.join(PROGRAM_NAME)).filter(|path| is_program(path)));
    found.ok_or_else(|| {
        let what = format!(
            "no host is running, and the program `commonhold` that would be one is neither beside this program or \
             library nor in PATH{passed_over}: install it, name it in COMMONHOLD_PROGRAM, or name a running host's \
             state directory in COMMONHOLD_HOST"
        );
        Error::new(ErrorKind::Disconnected, what)
    })
}

/// Who could have put that program beside this one: nobody of root, the caller, and whose code this already is.
fn who_could_plant(path: &Path, origin: &Path) -> Option<String> {
    let owner = std::fs::metadata(origin).map(|found| found.uid());
    let trusted = [rustix::process::geteuid().as_raw(), owner.unwrap_or(0)];
    who_else_writes(path, &trusted).unwrap_or_else(|error| Some(format!("nobody knows who ({error})")))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// The file that this code was loaded from: the program itself, or libcommonhold.so.
fn own_library() -> Option<PathBuf> {
    let mut found = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: the address is this function's own, and `found` outlives the call that fills it.
    let known = unsafe { libc::dladdr(own_library as *const libc::c_void, &mut found) };
    if known == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gave a C string that lives as long as the library is loaded, and this code is in it.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Path::new(OsStr::from_bytes(name.to_bytes())).canonicalize().ok()
}

/// A host that was started, and what it says if it cannot serve.
struct Started {
    child: Child,
    says: std::fs::File,
    exited: Option<bool>,
}

impl Started {
    fn launch(program: &Path, directory: &Path) -> Result<Started> {
        let doing = || format!("starting {} host start", program.display());
        let says =
            commonhold_sys::frames::create("commonhold-start", 0).map_err(|e| Error::io(doing(), &e))?;
        let says = std::fs::File::from(says);
        let copy = says.try_clone().map_err(|e| Error::io(doing(), &e))?;
        let child = Command::new(program)
            .args(["host", "start", "--state"])
            .arg(directory)
            .arg("--quiet")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(copy)
            .process_group(0)
            .spawn()
            .map_err(|e| Error::io(doing(), &e))?;
        Ok(Started { child, says, exited: None })
    }

    /// Whether the command has ended without success. That somebody else reaped it means nothing.
    fn has_failed(&mut self) -> bool {
        if self.exited.is_none() {
            self.exited = match self.child.try_wait() {
                Ok(Some(status)) => Some(!status.success()),
                Ok(None) => None,
                Err(_) => Some(false),
            };
        }
        self.exited == Some(true)
    }

    fn explain(&self, directory: &Path, error: &std::io::Error, failed: bool) -> Error {
        let mut text = vec![0; 2048];
        let length = self.says.read_at(&mut text, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..length]);
        let said = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        let what = if failed { "it ended" } else { "it does not answer after 10 s" };
        let place = directory.display();
        let what = format!("a host was started in {place} but {what} ({said}): {error}; see {place}/log");
        Error::new(ErrorKind::Disconnected, what)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Never killed: its host may be serving others by now.
        for _ in 0..REAP_MS {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn what_another_user_put_beside_a_program_is_not_run() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let (origin, planted) = (directory.path().join("own"), directory.path().join("commonhold"));
        for path in [&origin, &planted] {
            std::fs::write(path, "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        assert_eq!(who_could_plant(&planted, &origin), None);
        // As in /tmp, or beside a program in a directory of /tmp.
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(who_could_plant(&planted, &origin), None);
        chown(&planted, Some(65_533), None).unwrap();
        assert_eq!(who_could_plant(&planted, &origin).unwrap(), "user 65533");
        // Whose program this is, that user's code it runs already.
        chown(&origin, Some(65_533), None).unwrap();
        assert_eq!(who_could_plant(&planted, &origin), None);
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(who_could_plant(&planted, &origin).unwrap().contains("everybody, who can write in"));
    }
}
