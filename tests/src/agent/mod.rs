//! A client process: reads a line, does it, answers with a line (`ok …` or `error KIND …`).
//!
//! Words are separated by spaces. `O` and `M` below are names that the test gives to open objects and mappings;
//! offsets and lengths are bytes, `first` and `count` pages of the mapping.
//!
//! ```text
//! create O /name key=value…      open O /name r|rw         close O
//! snapshot S O /name [writable] [whole] [file=PATH]
//! map M O r|rw shared|private offset length(0: all) [fixed=ADDRESS lock prefetch in-thread inherit=HOW]
//! inherit M all|(offset length) share|copy|none
//! unmap M offset length          drop M                    address M
//! fill M first count seed        check M first count seed  put M offset byte      get M offset
//! sync O offset length           freeze …   lock …  unlock …  prefetch …  incore …
//! revert|remove /name            rename /a /b   chmod /a mode  chown /a uid gid   resize /a size
//! stat /name field               stop force|gently          info O field
//! read-in M offset length seed   write-out M offset length seed  (the kernel's own accesses, through a pipe)
//! raw-mmap|raw-munmap|raw-dontneed M first count   raw-mremap M    exit|_exit code   exec path word…
//! regain M     (every way to write what this process may only read; gives those that worked)
//! fork exit|_exit line…          raw-clone line…            threads n line…            orphan ms line…
//! forks line…    (refused, unless the child ends well)      do line… then line…             pause ms
//! await M offset byte     open-movable O /name r|rw     guarded O fill|check first count seed     guard O     leave O
//! work O pages ms    (counts under guards)
//! pin M first count              unpin      (for I/O, as a registered buffer)
//! hold-address-space path     (nothing that needs it goes on, until the file's file system ends)
//! chdir path     touch-file path                limit what value           pid                        abort
//! count M first stride pages ledger threads    round M O pages ledger    pair M …    follow M …    halt
//! counted M first stride pages ledger
//! link M count seed     walk ADDRESS seed     occupy ADDRESS length     still-own ADDRESS length
//! tag O offset length TYPE       tag-name /name offset length TYPE       tags O
//! numbers fill|check M first count seed MACHINE TYPE    (as that machine has them)
//! channel verb C …     (see `channels`)     by-name verb …     (see `primitives`)     watching verb … (see `watches`)
//! record M O registers path host process writes% pause-us sync-every      (notes every read and write; see `history`)
//! ```

mod activity;
mod channels;
mod fixed;
mod history;
mod memory;
mod movable;
mod objects;
mod pinned;
mod primitives;
mod process;
mod typed;
mod watches;

use commonhold::{Channel, Host, Mapping, Object, Watch};
use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::os::fd::OwnedFd;

/// What went wrong: the kind of an error, and what it says.
pub struct Failure {
    kind: String,
    message: String,
}

impl From<commonhold::Error> for Failure {
    fn from(error: commonhold::Error) -> Self {
        Failure { kind: format!("{:?}", error.kind), message: error.message }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let kind = error.raw_os_error().map_or_else(|| "Io".to_owned(), |number| format!("errno{number}"));
        Failure { kind, message: error.to_string() }
    }
}

/// What was found is not what was expected.
pub fn wrong(message: impl Into<String>) -> Failure {
    Failure { kind: "Wrong".into(), message: message.into() }
}

type Done = Result<String, Failure>;

/// What the process holds.
pub struct Agent {
    host: Option<Host>,
    objects: HashMap<String, Object>,
    mappings: HashMap<String, Mapping>,
    channels: HashMap<String, Channel>,
    primitives: HashMap<String, primitives::Primitive>,
    watches: HashMap<String, Watch>,
    activities: Vec<activity::Activity>,
    /// Rings with buffers in mappings.
    pinned: Vec<OwnedFd>,
}

/// Runs until the input ends.
pub fn run() {
    // The process must not outlive the test that started it.
    // SAFETY: prctl with this option only sets a signal number.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [_, uid, gid] = &words[..] {
        process::become_user(uid, gid);
    }
    let mut agent = Agent {
        host: None,
        objects: HashMap::new(),
        mappings: HashMap::new(),
        channels: HashMap::new(),
        primitives: HashMap::new(),
        watches: HashMap::new(),
        activities: Vec::new(),
        pinned: Vec::new(),
    };
    match Host::connect_to(std::path::Path::new(&words[0])) {
        Ok(host) => agent.host = Some(host),
        Err(error) => return answer(Err(error.into())),
    }
    answer(Ok("ready".into()));
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let done = agent.perform(&words);
        answer(done);
    }
    // An end without `exit` is not an orderly one.
    process::leave(0);
}

fn answer(done: Done) {
    let line = match done {
        Ok(text) if text == "ready" => "ok ready\n".to_owned(),
        Ok(text) => format!("ok {text}\n"),
        Err(failure) => format!("error {} {}\n", failure.kind, failure.message.replace('\n', "\\n")),
    };
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
}

fn number(word: &str) -> Result<u64, Failure> {
    let parsed =
        word.strip_prefix("0x").map_or_else(|| word.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok());
    parsed.ok_or_else(|| wrong(format!("{word:?} is no number")))
}

impl Agent {
    fn host(&self) -> Result<&Host, Failure> {
        self.host.as_ref().ok_or_else(|| wrong("not connected"))
    }

    fn object(&self, name: &str) -> Result<&Object, Failure> {
        self.objects.get(name).ok_or_else(|| wrong(format!("no object {name} here")))
    }

    fn mapping(&self, name: &str) -> Result<&Mapping, Failure> {
        self.mappings.get(name).ok_or_else(|| wrong(format!("no mapping {name} here")))
    }

    fn perform(&mut self, words: &[&str]) -> Done {
        match words[0] {
            "create" | "create-nameless" | "open" | "snapshot" | "close" | "map" | "unmap" | "drop"
            | "address" | "sync" | "freeze" | "lock" | "unlock" | "prefetch" | "incore" | "revert"
            | "remove" | "rename" | "chmod" | "chown" | "resize" | "stat" | "info" | "stop" | "list"
            | "map-many" | "inherit" => self.on_objects(words),
            "fill" | "check" | "faults" | "no-faults" | "put" | "get" | "read-in" | "write-out"
            | "read-file-in" | "raw-mmap" | "raw-munmap" | "raw-dontneed" | "raw-mremap" | "counted"
            | "read-at" | "write-at" | "regain" | "await" => self.on_memory(words),
            "tag" | "tag-name" | "tags" | "numbers" => self.on_types(words),
            "channel" => self.on_channels(&words[1..]),
            "watching" => self.on_watches(&words[1..]),
            "by-name" => self.on_primitives(&words[1..]),
            "record" => self.on_history(words),
            "pin" | "unpin" => self.on_pinned(words),
            "count" | "round" | "add" | "turns" | "sum" | "pair" | "follow" | "halt" | "watch" => {
                self.on_activity(words)
            }
            "link" | "walk" | "occupy" | "still-own" => self.on_fixed(words),
            "open-movable" | "guarded" | "guard" | "leave" | "work" => self.on_movable(words),
            _ => self.on_process(words),
        }
    }
}
