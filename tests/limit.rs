//! What every test is given before it begins: signals as programs expect them, and a limit of time.
//! What starts a host or other processes for a test calls it. Part of several crates' tests.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, Once};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// How long a test may run, unless `COMMONHOLD_TESTS_LIMIT_S` says otherwise: no more than to end
/// what would never end.
const LIMIT_S: u64 = 20 * 60;

/// Tests that run, each in a thread of its own, which has its name; and since when.
static RUNNING: Mutex<BTreeMap<String, (ThreadId, Instant)>> = Mutex::new(BTreeMap::new());

thread_local! {
    static TEST: Test = Test::begin();
}

/// A test that runs, until its thread ends.
struct Test(String);

impl Test {
    fn begin() -> Test {
        let own = thread::current();
        let name = format!("{} ({:?})", own.name().unwrap_or("a thread of a test"), own.id());
        lock().insert(name.clone(), (own.id(), Instant::now()));
        Test(name)
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        lock().remove(&self.0);
    }
}

fn lock() -> std::sync::MutexGuard<'static, BTreeMap<String, (ThreadId, Instant)>> {
    RUNNING.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Begins the limit of the test that calls it, if it has not begun. Where all tests share the main
/// thread, it begins anew.
pub fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        default_signals();
        let given = std::env::var("COMMONHOLD_TESTS_LIMIT_S").ok().and_then(|text| text.parse().ok());
        let limit = Duration::from_secs(given.unwrap_or(LIMIT_S));
        thread::Builder::new().name("limit of tests".into()).spawn(move || watch(limit)).expect("a thread");
    });
    TEST.with(|test| {
        if thread::current().name() == Some("main") {
            lock().insert(test.0.clone(), (thread::current().id(), Instant::now()));
        }
    });
}

/// Whoever runs tests under nohup or in the background of a shell ignores signals, and so would all
/// that tests start.
fn default_signals() {
    unsafe extern "C" {
        fn signal(number: i32, handler: usize) -> usize;
    }
    const DEFAULT: usize = 0;
    const IGNORED: usize = 1;
    // SIGHUP, SIGINT, SIGQUIT, SIGTERM.
    for number in [1, 2, 3, 15] {
        // SAFETY: it replaces a disposition by the default one; a handler that somebody has set is
        // put back.
        unsafe {
            let before = signal(number, DEFAULT);
            if before != IGNORED && before != DEFAULT {
                signal(number, before);
            }
        }
    }
}

fn watch(limit: Duration) {
    loop {
        thread::sleep(Duration::from_millis(200));
        let over: Vec<String> = lock()
            .iter()
            .filter(|(_, (_, since))| since.elapsed() > limit)
            .map(|(name, _)| name.clone())
            .collect();
        if !over.is_empty() {
            let told = format!(
                "\nno test may run for {limit:?}, and these did: {over:?}. All tests of this program end\n"
            );
            // Not by a macro, whose text is kept until a test is over.
            let _ = std::io::stderr().write_all(told.as_bytes());
            std::process::abort();
        }
    }
}
