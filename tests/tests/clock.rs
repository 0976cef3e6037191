//! A wall clock that jumps back a year while a host and its clients work.

use commonhold_tests::cluster::{another, free_address, sharers_from};
use commonhold_tests::host::kill;
use commonhold_tests::ledger::Ledger;
use commonhold_tests::{MIB, PAGE, Scratch, TestHost, left_out, page, wait};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Asks for the wall clock give a year less from the moment on at which a file is there.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long back(void) {
    const char *when = getenv("TEST_CLOCK_JUMPS_WHEN");
    return when && access(when, F_OK) == 0 ? 365L * 24 * 3600 : 0;
}
int clock_gettime(clockid_t which, struct timespec *out) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(which, out);
    if (result == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) out->tv_sec -= back();
    return result;
}
int gettimeofday(struct timeval *out, void *zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(out, zone);
    if (result == 0) out->tv_sec -= back();
    return result;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"#;

/// What puts another clock before a host, and the file whose presence makes it jump.
fn shim(scratch: &Scratch) -> Option<(PathBuf, PathBuf)> {
    let (source, library) = (scratch.file_of("clock.c", SHIM.as_bytes()), scratch.join("clock.so"));
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl").status();
    if built.is_ok_and(|status| status.success()) {
        return Some((library, scratch.join("jump")));
    }
    left_out("a C compiler is needed to put another clock before a host");
    None
}

fn jumping<'p>(library: &'p Path, jump: &'p Path) -> [(&'static str, &'p str); 2] {
    let text = |path: &'p Path| path.to_str().expect("a path of this test");
    [("LD_PRELOAD", text(library)), ("TEST_CLOCK_JUMPS_WHEN", text(jump))]
}

#[test]
fn a_clock_that_jumps_back_a_year_changes_nothing() {
    let scratch = Scratch::new();
    let Some((library, jump)) = shim(&scratch) else { return };
    let (state, environment) = (scratch.join("state"), jumping(&library, &jump));
    let host = TestHost::not_started(scratch, state, &[], &environment);
    host.start_again().unwrap();
    let file = host.scratch().file("file", 256 * PAGE as u64);
    let path = host.scratch().join("ledger");
    let ledger = Ledger::open(&path, 1024);
    let worker = host.worker();
    worker.ok(&format!("create o /o file={} sync=atomic", file.display()));
    worker.ok("create p /p size=4194304 budget=1048576 fault-deadline=60000");
    worker.ok("map p p rw shared 0 0");
    worker.ok(&format!("count p 0 1 1024 {} 1", path.display()));
    worker.all("map m o rw shared 0 0\nfill m 0 256 1\nsync o 0 1048576");
    let waits = host.worker();
    waits.ok("create w /w size=65536 pager=/nobody pager-deadline=300");
    let progress = || (0..1024).map(|page| ledger.get(page).0).sum::<u64>();
    let goes_on = || {
        let before = progress();
        wait::until("the writer goes on", || (progress() > before + 500).then_some(()));
    };
    goes_on();
    std::fs::write(&jump, b"").unwrap();
    let said = || host.log().lines().last().unwrap_or_default().to_owned();
    goes_on();
    waits.refused("lock w 0 4096", "Pager"); // a deadline is none the longer
    worker.all("create t /t size=4096\nremove /t\nclose t\nfill m 0 256 2\nsync o 0 1048576");
    assert_eq!(std::fs::read(&file).unwrap(), page::bytes(0, 256, 2));
    // The next host, the next keeper, and the recovery after both, in the year before.
    let before = host.status();
    kill(before.host_pid);
    host.wait_for_other_host(before.host_pid);
    goes_on();
    let year = |line: &str| line.split('-').next().and_then(|year| year.parse::<u32>().ok());
    let first = host.log().lines().next().and_then(year).unwrap();
    assert!(year(&said()) < Some(first), "the host's clock did not jump: {}", said());
    host.kill_keeper();
    goes_on();
    let before = host.status().host_pid;
    host.command(&["host", "restart"], |_| {}).unwrap();
    host.wait_for_other_host(before);
    goes_on();
    worker.all("fill m 0 256 3\nsync o 0 1048576");
    host.kill_both();
    host.start_again().unwrap();
    goes_on();
    worker.all("check m 0 256 3\nfill m 0 256 4\nsync o 0 1048576");
    std::fs::remove_file(&jump).unwrap();
    goes_on(); // forward again, a year in an instant
    waits.refused("lock w 0 4096", "Pager");
    worker.all("check m 0 256 4\nfill m 0 256 5\nsync o 0 1048576");
    assert_eq!(std::fs::read(&file).unwrap(), page::bytes(0, 256, 5));
    worker.ok("halt");
    worker.ok(&format!("counted p 0 1 1024 {}", path.display()));
}

/// A home takes the numbers of its losses from its clock. One that has forgotten them, and whose clock was set back, begins with
/// a smaller one: who opens the object from then on is told of nothing.
#[test]
fn a_home_whose_clock_was_set_back_tells_nobody_twice() {
    let scratch = Scratch::new();
    let Some((library, jump)) = shim(&scratch) else { return };
    let (state, environment) = (scratch.join("state"), jumping(&library, &jump));
    let (list, own) = (free_address(), free_address());
    let words = ["--plain", "--listen", &list, "--name", "home", "--lease", "3"];
    let home = TestHost::not_started(scratch, state, &words, &environment);
    home.start_again().unwrap();
    let other = TestHost::with(&["--plain", "--listen", &own, "--join", &list, "--name", "other"]);
    let hosts = [home, other];
    let file = hosts[0].scratch().file("stored", MIB);
    let workers = sharers_from(&hosts, 0, "/shared", &format!("file={} central", file.display()));
    std::fs::write(&jump, []).unwrap();
    workers[0].kill();
    hosts[0].kill_both();
    hosts[0].start_again().unwrap();
    let sync = format!("sync o 0 {MIB}");
    let told = wait::until("the home answers a sync", || {
        workers[1].ask(&sync).err().filter(|why| why.kind != "Disconnected" && why.kind != "Busy")
    });
    assert_eq!(told.kind, "Lost", "{}", told.message);
    workers[1].ok(&sync);
    another(&hosts[1], "/shared").ok(&sync);
}
