//! Lines about the process itself: fork, exec, threads, ends.

use super::{Agent, Done, number, wrong};
use std::os::unix::process::CommandExt;

/// Gives up root, for good.
pub(super) fn become_user(uid: &str, gid: &str) {
    let (uid, gid) = (uid.parse().expect("uid"), gid.parse().expect("gid"));
    // SAFETY: the three only change who this process is; no thread but this one runs yet.
    let result = unsafe {
        libc::setgroups(0, std::ptr::null()) | libc::setresgid(gid, gid, gid) | libc::setresuid(uid, uid, uid)
    };
    assert_eq!(result, 0, "becoming user {uid}: {}", std::io::Error::last_os_error());
    // A change of user clears what was asked before.
    // SAFETY: prctl with these options only sets numbers. Dumpable: /proc/self is this user's again.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::prctl(libc::PR_SET_DUMPABLE, 1);
    }
}

/// Ends without any handler.
pub(super) fn leave(code: i32) -> ! {
    // SAFETY: _exit does not return, and runs nothing of this process.
    unsafe { libc::_exit(code) }
}

impl Agent {
    pub(super) fn on_process(&mut self, words: &[&str]) -> Done {
        match words {
            ["exit", code] => std::process::exit(number(code)? as i32),
            ["_exit", code] => leave(number(code)? as i32),
            ["file-limit", bytes] => {
                let limit = Some(number(bytes)?);
                let limit = rustix::process::Rlimit { current: limit, maximum: limit };
                rustix::process::setrlimit(rustix::process::Resource::Fsize, limit)
                    .map_err(std::io::Error::from)?;
                Ok(String::new())
            }
            ["abort"] => std::process::abort(),
            ["exec", program, arguments @ ..] => {
                Err(std::process::Command::new(program).args(arguments).exec().into())
            }
            ["do", rest @ ..] => {
                rest.split(|word| *word == "then").try_for_each(|line| self.perform(line).map(drop))?;
                Ok(String::new())
            }
            ["forks", rest @ ..] => match self.fork(false, rest)?.as_str() {
                "code 0" => Ok(String::new()),
                other => Err(wrong(format!("a child ended with {other}"))),
            },
            ["pause", ms] => {
                std::thread::sleep(std::time::Duration::from_millis(number(ms)?));
                Ok(String::new())
            }
            ["fork", how @ ("exit" | "_exit"), rest @ ..] => self.fork(*how == "exit", rest),
            ["orphan", pause_ms, rest @ ..] => self.orphan(number(pause_ms)?, rest),
            ["touch-file", path] => {
                let file = std::fs::File::options().write(true).open(path)?;
                file.set_modified(std::time::SystemTime::now())?;
                Ok(String::new())
            }
            ["chdir", path] => {
                std::env::set_current_dir(path)?;
                Ok(String::new())
            }
            ["raw-clone", rest @ ..] => self.raw_clone(rest),
            ["threads", count, rest @ ..] => self.threads(number(count)?, rest),
            ["hold-address-space", path] => {
                crate::stuck::hold_address_space(path)?;
                Ok(String::new())
            }
            ["pid"] => Ok(std::process::id().to_string()),
            ["limit", what, value] => limit(what, number(value)?),
            _ => Err(wrong(format!("what is {words:?}?"))),
        }
    }

    /// A child does the rest of the line and ends; gives how.
    fn fork(&mut self, orderly: bool, rest: &[&str]) -> Done {
        // SAFETY: the child goes on with the one thread that it has; the library's handlers make its state whole,
        // and the allocator's own make it usable (glibc).
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = self.child_does(rest);
            if orderly { std::process::exit(code) } else { leave(code) }
        }
        end_of(child)
    }

    fn child_does(&mut self, rest: &[&str]) -> i32 {
        match self.perform(rest) {
            Ok(_) => 0,
            Err(failure) => {
                eprintln!("fork child: {rest:?}: {} {}", failure.kind, failure.message);
                1
            }
        }
    }

    /// A child does the rest of the line a while later, whether this process lives or not.
    fn orphan(&mut self, pause_ms: u64, rest: &[&str]) -> Done {
        // SAFETY: as in `fork`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            std::thread::sleep(std::time::Duration::from_millis(pause_ms));
            let code = self.child_does(rest);
            leave(code);
        }
        Ok(child.to_string())
    }

    /// As fork, past every handler of the library.
    fn raw_clone(&mut self, rest: &[&str]) -> Done {
        // SAFETY: a plain fork by its system call; the child does one thing and ends without handlers.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as i32;
        if child == 0 {
            let code = self.child_does(rest);
            leave(code);
        }
        end_of(child)
    }

    /// Several threads do the rest of the line, `{}` in it being the thread's number.
    fn threads(&mut self, count: u64, rest: &[&str]) -> Done {
        let this = std::sync::Mutex::new(());
        let agent = AgentPointer(self);
        let results: Vec<Done> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..count)
                .map(|index| {
                    let (agent, _this) = (&agent, &this);
                    let line: Vec<String> =
                        rest.iter().map(|word| word.replace("{}", &index.to_string())).collect();
                    scope.spawn(move || {
                        let words: Vec<&str> = line.iter().map(String::as_str).collect();
                        agent.perform(&words)
                    })
                })
                .collect();
            workers
                .into_iter()
                .map(|w| w.join().unwrap_or_else(|_| Err(wrong("a thread panicked"))))
                .collect()
        });
        results.into_iter().collect::<Result<Vec<String>, _>>().map(|all| all.join(" "))
    }
}

/// The agent, for several threads that only look things up in it.
struct AgentPointer(*mut Agent);

// SAFETY: `threads` is only used for lines that read the agent's maps (fill, check, sync …): none changes them, and
// the objects and mappings in them may be used by any thread.
unsafe impl Sync for AgentPointer {}

impl AgentPointer {
    fn perform(&self, words: &[&str]) -> Done {
        let works = |line: &[&str]| {
            let line = line.strip_prefix(&["forks"]).unwrap_or(line);
            line.starts_with(&["by-name", "work"])
        };
        let all_work =
            words.strip_prefix(&["do"]).is_some_and(|all| all.split(|word| *word == "then").all(works));
        let reads = READING.contains(&words[0]) || works(words) || all_work;
        assert!(reads, "{words:?} would change what other threads read");
        // SAFETY: see above; the agent outlives the scope of the threads.
        unsafe { &mut *self.0 }.perform(words)
    }
}

const READING: [&str; 13] = [
    "fill", "check", "sync", "freeze", "lock", "unlock", "incore", "get", "put", "counted", "read-at",
    "write-at", "prefetch",
];

fn end_of(child: i32) -> Done {
    if child < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    let mut status = 0;
    // SAFETY: waits for the child just made, and writes one int.
    while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error.into());
        }
    }
    if libc::WIFSIGNALED(status) {
        return Ok(format!("signal {}", libc::WTERMSIG(status)));
    }
    Ok(format!("code {}", libc::WEXITSTATUS(status)))
}

fn limit(what: &str, value: u64) -> Done {
    let resource = match what {
        "core" => libc::RLIMIT_CORE,
        "memlock" => libc::RLIMIT_MEMLOCK,
        "data" => libc::RLIMIT_DATA,
        _ => libc::RLIMIT_NOFILE,
    };
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: a limit of this process, from a complete struct.
    let result = unsafe { libc::setrlimit(resource, &limit) };
    if result == 0 { Ok(String::new()) } else { Err(std::io::Error::last_os_error().into()) }
}
