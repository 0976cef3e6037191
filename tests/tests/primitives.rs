//! Locks by name: `docs/PRIMITIVES.md`. Several processes, and their ends.

use commonhold_tests::wait::until;
use commonhold_tests::{TestHost, Worker};
use std::collections::HashSet;
use std::time::Duration;

/// So many processes with that line done.
fn workers(host: &TestHost, count: usize, line: &str) -> Vec<Worker> {
    let all = Worker::start_many(host.state(), count);
    all.iter().for_each(|worker| worker.all(line));
    all
}

#[test]
fn what_a_mutex_guards_is_one_threads_at_a_time() {
    let host = TestHost::start();
    let first = host.worker();
    first.all("by-name create m mutex /turn mode=0600\ncreate o /sum size=4096\nmap s o rw shared 0 0");
    let others = workers(&host, 3, "by-name open m mutex /turn\nopen o /sum rw\nmap s o rw shared 0 0");
    let all: Vec<&Worker> = others.iter().chain([&first]).collect();
    all.iter().for_each(|worker| worker.send("threads 2 by-name work m s 3000"));
    all.iter().for_each(|worker| drop(worker.answer().unwrap()));
    assert_eq!(first.ok("sum s 0 1"), (4 * 2 * 3000).to_string());
}

#[test]
fn a_mutex_says_who_has_it() {
    let host = TestHost::start();
    let (a, b) = (host.worker(), host.worker());
    a.all("by-name create m mutex /m\nby-name lock m 0");
    b.ok("by-name open m mutex /m");
    let said = b.refused("by-name lock m 0", "TimedOut");
    assert!(said.contains(&format!("of process {} has it", a.pid())), "{said}");
    b.refused("by-name lock m 30", "TimedOut");
    b.refused("by-name unlock m", "NotOwner");
    a.refused("by-name lock m -", "Deadlock");
    b.send("by-name lock m -");
    assert_eq!(b.answer_within(Duration::from_millis(100)), None);
    a.ok("by-name unlock m");
    b.answer().unwrap();
    a.refused("by-name lock m 0", "TimedOut");
    // Another one of the same object is another one.
    a.all("by-name create n mutex /n count=3\nby-name at n 2 as=n2\nby-name lock n 0\nby-name lock n2 0");
    let said = a.refused("by-name at n 3 as=x", "Invalid");
    assert!(said.contains("holds 3"), "{said}");
}

#[test]
fn a_dead_owners_mutex_goes_to_the_next() {
    let host = TestHost::start();
    let b = host.worker();
    b.ok("by-name create m mutex /m");
    for how in ["kill", "exit", "_exit"] {
        let a = host.worker();
        a.all("by-name open m mutex /m\nby-name lock m 0");
        b.send("by-name mend m -");
        assert_eq!(b.answer_within(Duration::from_millis(50)), None);
        match how {
            "kill" => a.kill(),
            _ => a.send(&format!("{how} 0")),
        }
        assert_eq!(b.answer(), Ok("true".into()), "{how}");
        b.ok("by-name unlock m");
        assert_eq!(b.ok("by-name mend m 0"), "false");
        b.ok("by-name unlock m");
    }
    // Who does not mend is told, again and again, and does not have it.
    let a = host.worker();
    a.all("by-name open m mutex /m\nby-name lock m 0");
    a.kill();
    until("it is freed", || b.ask("by-name lock m 0").err().filter(|refused| refused.kind == "OwnerDied"));
    b.refused("by-name lock m 0", "OwnerDied");
    b.refused("by-name unlock m", "NotOwner");
    assert_eq!(b.ok("by-name mend m 0"), "true");
    b.ok("by-name unlock m");
    b.ok("by-name lock m 0");
}

#[test]
fn who_closes_what_it_has_locked_has_died_to_the_others() {
    let host = TestHost::start();
    let (a, b) = (host.worker(), host.worker());
    a.all("by-name create m mutex /m\nby-name lock m 0\nby-name close m");
    b.ok("by-name open m mutex /m");
    until("it is freed", || b.ask("by-name mend m 0").ok().filter(|died| died == "true"));
}

#[test]
fn a_condition_wakes_who_waits() {
    let host = TestHost::start();
    let first = host.worker();
    first.all("by-name create m mutex /m\nby-name create c condition /c");
    first.refused("by-name wait c m 0", "NotOwner");
    first.all("by-name lock m 0");
    first.refused("by-name wait c m 20", "TimedOut");
    first.all("by-name unlock m"); // it had it again
    let waiting = workers(&host, 3, "by-name open m mutex /m\nby-name open c condition /c");
    for worker in &waiting {
        // It lets the mutex go as it waits, so that the next can take it.
        worker.all("by-name lock m -");
        worker.send("by-name wait c m -");
    }
    first.all("by-name lock m -\nby-name signal c\nby-name unlock m");
    // They have the mutex one after the other.
    let mut asleep: Vec<&Worker> = waiting.iter().collect();
    let mut one_wakes = || {
        until("one wakes", || {
            let moment = Duration::from_millis(5);
            let (index, answer) = asleep
                .iter()
                .enumerate()
                .find_map(|(index, worker)| Some((index, worker.answer_within(moment)?)))?;
            answer.unwrap();
            asleep.remove(index).ok("by-name unlock m");
            Some(asleep.len())
        })
    };
    assert_eq!(one_wakes(), 2);
    first.ok("by-name broadcast c");
    assert_eq!([one_wakes(), one_wakes()], [1, 0]);
}

#[test]
fn several_read_or_one_writes_and_deaths_free_both() {
    let host = TestHost::start();
    let (a, b, c) = (host.worker(), host.worker(), host.worker());
    a.ok("by-name create l rwlock /l");
    [&b, &c].iter().for_each(|worker| drop(worker.ok("by-name open l rwlock /l")));
    a.all("by-name read l 0\nby-name read l 0");
    b.all("by-name read l 0");
    c.refused("by-name write l 20", "TimedOut");
    c.send("by-name write l -");
    assert_eq!(c.answer_within(Duration::from_millis(50)), None);
    // Who waits to write goes before who comes later.
    b.refused("by-name read l 20", "TimedOut");
    b.ok("by-name end l");
    a.kill();
    c.answer().unwrap();
    b.send("by-name read l -");
    assert_eq!(b.answer_within(Duration::from_millis(50)), None);
    c.kill();
    let refused = b.answer().unwrap_err();
    assert_eq!(refused.kind, "OwnerDied");
    assert_eq!(b.ok("by-name mend l 0"), "true");
    b.all("by-name end l\nby-name read l 0\nby-name end l");
    b.refused("by-name end l", "NotOwner");
}

#[test]
fn a_semaphore_has_as_many_places_as_it_was_given() {
    let host = TestHost::start();
    let (a, b) = (host.worker(), host.worker());
    a.ok("by-name create s semaphore /s 2");
    b.ok("by-name open s semaphore /s");
    a.all("by-name acquire s 0\nby-name acquire s 0");
    b.refused("by-name acquire s 0", "TimedOut");
    b.send("by-name acquire s -");
    assert_eq!(b.answer_within(Duration::from_millis(50)), None);
    a.ok("by-name release s 1");
    b.answer().unwrap();
    assert_eq!(a.ok("by-name value s"), "0");
    a.ok("by-name release s 2147483647");
    a.refused("by-name release s 1", "Invalid");
    a.refused("by-name create t semaphore /t 2147483648", "Invalid");
}

#[test]
fn all_leave_a_barrier_together_or_are_told_that_one_ended() {
    let host = TestHost::start();
    let first = host.worker();
    first.ok("by-name create b barrier /b 3");
    let others = workers(&host, 2, "by-name open b barrier /b");
    let all: Vec<&Worker> = others.iter().chain([&first]).collect();
    for _ in 0..20 {
        all.iter().for_each(|worker| worker.send("by-name arrive b -"));
        let last: Vec<String> = all.iter().map(|worker| worker.answer().unwrap()).collect();
        assert_eq!(last.iter().filter(|said| *said == "true").count(), 1);
    }
    // Who gives up was not there.
    first.refused("by-name arrive b 20", "TimedOut");
    all.iter().for_each(|worker| worker.send("by-name arrive b -"));
    all.iter().for_each(|worker| drop(worker.answer().unwrap()));
    // One ends while the others wait.
    others[0].send("by-name arrive b -");
    first.send("by-name arrive b -");
    assert_eq!(first.answer_within(Duration::from_millis(50)), None);
    others[1].kill();
    assert_eq!(first.answer().unwrap_err().kind, "Broken");
    assert_eq!(others[0].answer().unwrap_err().kind, "Broken");
    // A newcomer makes up for it.
    let newcomer = host.worker();
    newcomer.ok("by-name open b barrier /b");
    let all = [&first, &others[0], &newcomer];
    all.iter().for_each(|worker| worker.send("by-name arrive b -"));
    all.iter().for_each(|worker| drop(worker.answer().unwrap()));
    // Who leaves by itself is not missed by who waits already.
    first.send("by-name arrive b -");
    newcomer.ok("by-name close b");
    assert_eq!(first.answer_within(Duration::from_millis(200)), None);
    others[0].ok("by-name abort b");
    assert_eq!(first.answer().unwrap_err().kind, "Broken");
    first.refused("by-name create n barrier /n 0", "Invalid");
}

#[test]
fn a_counter_gives_each_number_once() {
    let host = TestHost::start();
    let first = host.worker();
    first.ok("by-name create n counter /n");
    let others = workers(&host, 3, "by-name open n counter /n");
    let path = |index: usize| host.scratch().path().join(format!("tickets{index}"));
    for (index, worker) in others.iter().enumerate() {
        worker.send(&format!("by-name tickets n 1000 {}", path(index).display()));
    }
    others.iter().for_each(|worker| drop(worker.answer().unwrap()));
    let text: String = (0..3).map(|index| std::fs::read_to_string(path(index)).unwrap()).collect();
    let tickets: HashSet<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(tickets, (0..3000).collect());
    first.refused("by-name while n 3000 20", "TimedOut");
    first.send("by-name while n 3000 -");
    assert_eq!(first.answer_within(Duration::from_millis(50)), None);
    others[0].ok("by-name add n 5");
    assert_eq!(first.answer(), Ok("3005".into()));
}

#[test]
fn a_fork_child_is_a_process_of_its_own() {
    let host = TestHost::start();
    let (a, b) = (host.worker(), host.worker());
    a.all("by-name create m mutex /m\nby-name create l rwlock /l");
    b.all("by-name open m mutex /m\nby-name open l rwlock /l");
    a.all("by-name lock m 0\nby-name read l 0");
    // What its parent has is not the child's; what the child had is freed when it ends.
    assert_eq!(a.ok("fork exit by-name unlock m"), "code 1");
    b.refused("by-name lock m 0", "TimedOut");
    a.all("by-name unlock m\nforks by-name lock m 0");
    until("it is freed", || b.ask("by-name mend m 0").ok().filter(|died| died == "true"));
    b.ok("by-name unlock m");
    a.ok("forks by-name read l 0");
    a.ok("by-name end l");
    b.eventually("by-name write l 0");
    // Of one that was removed, and made anew, it says so.
    b.all("remove /m\nby-name create m mutex /m");
    assert_eq!(a.ok("fork exit by-name lock m 0"), "code 1");
}

#[test]
fn owners_that_die_with_the_host_are_found_by_the_next_one() {
    let host = TestHost::start();
    let (a, b, c) = (host.worker(), host.worker(), host.worker());
    a.all("by-name create m mutex /m count=2\nby-name at m 1 as=m1");
    [&b, &c].iter().for_each(|worker| worker.all("by-name open m mutex /m\nby-name at m 1 as=m1"));
    for both in [false, true] {
        let dead = host.worker();
        dead.all("by-name open m mutex /m\nby-name lock m 0");
        a.ok("by-name lock m1 0");
        let before = host.status().host_pid;
        if both {
            host.kill_both();
            dead.kill();
            host.start_again().unwrap();
        } else {
            host.kill_host();
            dead.kill();
            host.wait_for_other_host(before);
        }
        // While there is no host, locks go on; what the dead one had is freed by the next.
        assert_eq!(b.ok("by-name mend m -"), "true");
        b.ok("by-name unlock m");
        // Who lives keeps what it has.
        c.refused("by-name lock m1 100", "TimedOut");
        a.ok("by-name unlock m1");
        c.all("by-name lock m1 0\nby-name unlock m1");
    }
}

#[test]
fn what_is_none_is_said_to_be_none() {
    let host = TestHost::start();
    let a = host.worker();
    a.all("by-name create m mutex /m\ncreate o /o size=4096\ncreate p /p size=100 description=sync:mutex");
    for (line, kind, says) in [
        ("by-name open x counter /m", "Mismatch", "is no counter: its description is \"sync:mutex\""),
        ("by-name open x mutex /o", "Mismatch", "is no mutex"),
        ("by-name open x mutex /p", "Mismatch", "holds no primitives"),
        ("by-name open x mutex /none", "NotFound", "/none"),
        ("by-name create m2 mutex /m", "Exists", "/m"),
        ("by-name create m2 mutex /n count=0", "Invalid", "1 to 65536"),
        ("by-name create m2 mutex /n count=65537", "Invalid", "1 to 65536"),
        ("resize /m 128", "Unsupported", "keep their number"),
    ] {
        let said = a.refused(line, kind);
        assert!(said.contains(says), "{line}: {said}");
    }
    a.all("by-name create m2 mutex /n count=65536\nby-name at m2 65535 as=last\nby-name lock last 0");
}
