//! Pagers that drive the queues which they share with the host by hand (`docs/PAGERS.md`), and lie
//! in every word of them.

use commonhold_object::wire::{Event, FromHost, PagerReply, Reply, Request};
use commonhold_object::{ErrorKind, Name, PAGE_SIZE_BYTES};
use commonhold_sys::memory::FileWindow;
use commonhold_tests::raw::{Raw, bytes_of};
use commonhold_tests::{PAGE, TestHost, Worker, page, wait};
use rustix::fs::FallocateFlags;
use rustix::thread::futex;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// `crates/queues/src/layout.rs`.
const SUBMITTED: usize = 0;
const PAGER_SLEEPS: usize = 64;
const COMPLETED: usize = 128;
const HOST_SLEEPS: usize = 192;
const ENTRIES: u32 = 64;
const SUBMISSIONS: usize = PAGE;
const COMPLETIONS: usize = SUBMISSIONS + ENTRIES as usize * 256;
const DATA: usize = 6 * PAGE;
const BYTES: usize = DATA + 256 * PAGE;

/// Pages of an object.
const PAGES: u64 = 8192;

type Words = &'static [AtomicU32];

/// A question, and where its answer is to go. None: to the socket.
#[derive(Clone, Copy, Debug)]
struct Asked {
    call: u64,
    offset: u64,
    length: usize,
    place: Option<Place>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    entry: usize,
    slot: u32,
    first_page: u32,
}

/// One end of the queues.
struct Queues {
    file: OwnedFd,
    words: Words,
    taken: u32,
    completed: u32,
}

impl Queues {
    fn map(file: OwnedFd) -> Queues {
        let window = FileWindow::for_writing(&file, 0, BYTES).expect("the queues can be mapped");
        let start = window.as_ptr().cast::<AtomicU32>();
        std::mem::forget(window);
        // SAFETY: mapped shared, readable and writable, aligned and that long until the process
        // ends; it is touched through atomics alone.
        let words = unsafe { std::slice::from_raw_parts(start, BYTES / 4) };
        Queues { file, words, taken: 0, completed: 0 }
    }

    fn load(&self, at: usize) -> u32 {
        self.words[at / 4].load(Ordering::SeqCst)
    }

    fn store(&self, at: usize, value: u32) {
        self.words[at / 4].store(value, Ordering::SeqCst);
    }

    fn load_long(&self, at: usize) -> u64 {
        u64::from(self.load(at)) | u64::from(self.load(at + 4)) << 32
    }

    fn take(&mut self) -> Option<Asked> {
        if self.load(SUBMITTED) == self.taken {
            return None;
        }
        let at = SUBMISSIONS + (self.taken % ENTRIES) as usize * 256;
        self.taken = self.taken.wrapping_add(1);
        let place = Place { entry: at, slot: self.load(at + 20), first_page: self.load(at + 24) };
        Some(Asked {
            call: self.load_long(at),
            offset: self.load_long(at + 8),
            length: self.load(at + 16) as usize,
            place: Some(place),
        })
    }

    /// Puts bytes in the data area.
    fn put(&self, first_page: u32, bytes: &[u8]) {
        let at = DATA + first_page as usize * PAGE;
        for (index, word) in bytes.chunks_exact(4).enumerate() {
            self.store(at + 4 * index, u32::from_le_bytes(word.try_into().expect("4 bytes")));
        }
    }

    /// Says of a call that it is answered, or what one likes.
    fn complete(&mut self, call: u64, slot: u32, outcome: u32) {
        let at = COMPLETIONS + (self.completed % ENTRIES) as usize * 16;
        for (index, word) in [call as u32, (call >> 32) as u32, slot, outcome].into_iter().enumerate() {
            self.store(at + 4 * index, word);
        }
        self.completed = self.completed.wrapping_add(1);
        self.store(COMPLETED, self.completed);
        self.store(HOST_SLEEPS, 0);
        wake(self.words, HOST_SLEEPS);
    }
}

fn wake(words: Words, at: usize) {
    futex::wake(&words[at / 4], futex::Flags::empty(), i32::MAX as u32).expect("a wake");
}

/// A pager that speaks for itself.
struct RawPager {
    raw: Raw,
    name: &'static str,
    queues: Option<Queues>,
    heard: VecDeque<Asked>,
}

impl RawPager {
    /// It serves, and has queues.
    fn serve(host: &TestHost, name: &'static str) -> RawPager {
        let mut pager = RawPager { raw: Raw::connect(host), name, queues: None, heard: VecDeque::new() };
        pager.begin(false);
        wait::until("the queues come", || {
            pager.hear();
            pager.queues.is_some().then_some(())
        });
        pager
    }

    fn begin(&self, repeated: bool) {
        let serve = Request::ServePager { pager: Name::new(self.name).unwrap() };
        for (number, request) in [(98, &serve), (99, &Request::PagerQueues)] {
            assert!(self.raw.throw(&self.raw.bytes_for(number, repeated, request), &[]));
        }
    }

    /// Hears a message, if there is one.
    fn hear(&mut self) {
        if !self.raw.has_message() {
            return;
        }
        match self.raw.hear_all().expect("the host stays connected") {
            Some((_, FromHost::Reply(Ok(Reply::Queues)), mut fds)) => {
                self.queues = Some(Queues::map(fds.remove(0)));
            }
            Some((_, FromHost::Event(Event::PageIn { call, offset, length, .. }), _)) => {
                self.heard.push_back(Asked { call, offset, length: length as usize, place: None });
            }
            Some((_, FromHost::Event(Event::HostReplaced { .. }), _)) => {
                self.queues = None;
                self.begin(true);
            }
            Some((_, FromHost::Reply(Err(error)), _)) => panic!("{error:?}"),
            _ => {}
        }
    }

    /// The next question, of the queues or of the socket.
    fn question(&mut self) -> Asked {
        wait::until("it is asked", || {
            let asked = self.queues.as_mut().and_then(Queues::take);
            asked.or_else(|| self.heard.pop_front()).or_else(|| {
                self.hear();
                None
            })
        })
    }

    /// The next question, which comes by the queues.
    fn queued(&mut self) -> (Asked, Place) {
        let asked = self.question();
        (asked, asked.place.expect("there is room in the queues"))
    }

    fn queues(&mut self) -> &mut Queues {
        self.queues.as_mut().expect("it has queues")
    }

    /// Answers rightly, on the way by which the question came.
    fn answer(&mut self, asked: Asked) {
        let (first, count) = (asked.offset / PAGE_SIZE_BYTES, asked.length / PAGE);
        let bytes = page::bytes(first, count as u64, 1);
        if let Some(place) = asked.place {
            self.queues().put(place.first_page, &bytes);
            self.queues().complete(asked.call, place.slot, 0);
        } else {
            self.say(asked.call, PagerReply::Data(bytes));
        }
    }

    /// Answers by the socket.
    fn say(&self, call: u64, result: PagerReply) {
        assert!(self.raw.throw(&bytes_of(0, &Request::PagerAnswer { call, result }), &[]));
    }

    /// Answers whatever is asked until all these have what they wait for.
    fn answer_all(&mut self, waiting: &[Worker]) {
        let mut waiting: Vec<&Worker> = waiting.iter().collect();
        wait::until("all have their pages", || {
            let asked = self.queues.as_mut().and_then(Queues::take).or_else(|| self.heard.pop_front());
            match asked {
                Some(asked) => self.answer(asked),
                None => self.hear(),
            }
            waiting.retain(|worker| match worker.answer_within(std::time::Duration::ZERO) {
                Some(answer) => {
                    answer.expect("the right bytes");
                    false
                }
                None => true,
            });
            waiting.is_empty().then_some(())
        });
    }
}

/// Processes that read an object, which the pager supplies. Its questions come by the queues from
/// now on.
fn readers(host: &TestHost, pager: &mut RawPager, count: usize) -> Vec<Worker> {
    let workers = Worker::start_many(host.state(), count);
    let (name, size) = (pager.name, PAGES * PAGE_SIZE_BYTES);
    workers[0]
        .all(&format!("create o {name}-object size={size} pager={name} pager-deadline=600000 mode=600"));
    workers[0].all("map m o rw shared 0 0");
    for worker in &workers[1..] {
        worker.all(&format!("open o {name}-object rw\nmap m o rw shared 0 0"));
    }
    for number in (PAGES / 2..PAGES).rev().step_by(101) {
        workers[0].send(&format!("check m {number} 1 1"));
        let asked = pager.question();
        pager.answer(asked);
        workers[0].answer().expect("its page");
        if asked.place.is_some() {
            return workers;
        }
    }
    panic!("nothing is asked by the queues");
}

/// A page of the lower half of the object, none next to another: nothing is asked for ahead.
fn apart(number: usize) -> u64 {
    number as u64 * 47 % (PAGES / 2)
}

/// Asks for a page, as the `number`th.
fn touch(worker: &Worker, number: usize) {
    worker.send(&format!("check m {} 1 1", apart(number)));
}

/// All that must go on meanwhile: an object of no pager, and one of another pager.
struct Others {
    pager: RawPager,
    readers: Vec<Worker>,
    plain: Worker,
    host: u32,
    round: usize,
}

impl Others {
    fn of(host: &TestHost) -> Others {
        let mut pager = RawPager::serve(host, "/pagers/honest");
        let readers = readers(host, &mut pager, 1);
        let plain = host.worker();
        plain.all("create p /plain size=65536\nmap m p rw shared 0 0");
        Others { pager, readers, plain, host: host.status().host_pid, round: 0 }
    }

    fn go_on(&mut self, host: &TestHost) {
        self.round += 1;
        self.plain.all(&format!("fill m 0 16 {0}\ncheck m 0 16 {0}", self.round));
        touch(&self.readers[0], self.round);
        let asked = self.pager.question();
        self.pager.answer(asked);
        self.readers[0].answer().expect("the right bytes");
        assert_eq!(host.status().host_pid, self.host, "the host has died");
    }
}

#[test]
fn answers_in_any_order_come_to_whoever_asked() {
    let host = TestHost::start();
    let mut pager = RawPager::serve(&host, "/pagers/raw");
    let readers = readers(&host, &mut pager, 8);
    for round in 0..10 {
        readers.iter().enumerate().for_each(|(number, reader)| touch(reader, round * 8 + number));
        let mut asked: Vec<Asked> = readers.iter().map(|_| pager.queued().0).collect();
        asked.rotate_left(round % 8);
        asked.reverse();
        asked.into_iter().for_each(|one| pager.answer(one));
        readers.iter().for_each(|reader| drop(reader.answer().expect("the right bytes")));
    }
}

#[test]
fn answers_twice_and_to_what_nobody_asked_are_nobodys() {
    let host = TestHost::start();
    let mut pager = RawPager::serve(&host, "/pagers/raw");
    let readers = readers(&host, &mut pager, 2);
    for round in 0..20 {
        touch(&readers[0], 2 * round);
        let (first, place) = pager.queued();
        touch(&readers[1], 2 * round + 1);
        let (second, waits) = pager.queued();
        // Were it taken for an answer, these were the bytes.
        pager.queues().put(waits.first_page, &[0xee; PAGE]);
        pager.answer(first);
        readers[0].answer().expect("the right bytes");
        for outcome in [0, 1] {
            pager.queues().complete(first.call, place.slot, outcome);
            pager.queues().complete(first.call, waits.slot, outcome);
            for call in [0, 7, first.call + 1000, u64::MAX] {
                pager.queues().complete(call, waits.slot, outcome);
            }
        }
        pager.answer(second);
        readers[1].answer().expect("the right bytes");
    }
}

#[test]
fn an_answer_is_of_its_own_place_or_of_none() {
    let host = TestHost::start();
    let mut others = Others::of(&host);
    let mut pager = RawPager::serve(&host, "/pagers/raw");
    let readers = readers(&host, &mut pager, 4);
    // Slots that are others' or that are none, outcomes that are none; then the right one.
    touch(&readers[0], 0);
    let (first, place) = pager.queued();
    touch(&readers[1], 1);
    let (second, waits) = pager.queued();
    pager.queues().put(waits.first_page, &[0xee; PAGE]);
    for slot in [waits.slot, 63, 64, 65, 1 << 20, u32::MAX] {
        pager.queues().complete(first.call, slot, 0);
    }
    pager.queues().complete(second.call, place.slot, u32::MAX);
    // What the question says in memory is not read again: another length, another place, or none.
    for lie in [waits.first_page, 255, 256, u32::MAX] {
        let queues = pager.queues();
        [(16, u32::MAX), (20, waits.slot), (24, lie), (28, u32::MAX)]
            .iter()
            .for_each(|(at, word)| queues.store(place.entry + at, *word));
    }
    pager.answer(first);
    readers[0].answer().expect("its own bytes");
    pager.answer(second);
    readers[1].answer().expect("its own bytes");
    // More or fewer bytes can be said by the socket alone.
    for (reader, length) in [(2, PAGE / 2), (3, 2 * PAGE)] {
        touch(&readers[reader], reader);
        let (asked, place) = pager.queued();
        pager.say(asked.call, PagerReply::Data(vec![0xee; length]));
        assert_eq!(readers[reader].wait().signal(), Some(libc::SIGBUS), "{length} bytes");
        pager.queues().complete(asked.call, place.slot, 0);
    }
    // Who asks again has the right ones.
    touch(&readers[0], 2);
    let asked = pager.queued().0;
    pager.answer(asked);
    readers[0].answer().expect("its own bytes");
    others.go_on(&host);
}

/// Hundredths of a second of a processor that the threads of the host have used that take answers
/// from queues.
fn ticks_of_answers(host: &TestHost) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", host.status().host_pid)).expect("the host runs");
    let stats = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let of_one = |stat: String| {
        let (_, after) = stat.split_once("(pager-answers) ")?;
        let numbers: Vec<&str> = after.split(' ').collect();
        Some(numbers[11].parse::<u64>().ok()? + numbers[12].parse::<u64>().ok()?)
    };
    let each: Vec<u64> = stats.filter_map(of_one).collect();
    assert!(!each.is_empty(), "no thread takes answers");
    each.iter().sum()
}

/// Does something again and again, in a thread of its own, while other things are done.
fn during(attack: impl Fn() + Sync, job: impl FnOnce()) {
    struct Ends<'e>(&'e AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                attack();
            }
        });
        job();
    });
}

#[test]
fn garbage_in_all_words_holds_up_nobody_else() {
    let host = TestHost::start();
    let mut others = Others::of(&host);
    let mut pager = RawPager::serve(&host, "/pagers/raw");
    let readers = readers(&host, &mut pager, 6);
    readers[..3].iter().enumerate().for_each(|(number, reader)| touch(reader, number));
    (0..3).for_each(|_| {
        pager.queued();
    });
    let words = pager.queues().words;
    let state = AtomicU32::new(0x9e37_79b9);
    let garbage = || {
        let mut random = state.load(Ordering::Relaxed);
        for word in words {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            word.store(random, Ordering::Relaxed);
        }
        state.store(random, Ordering::Relaxed);
        [HOST_SLEEPS, PAGER_SLEEPS].iter().for_each(|at| wake(words, *at));
    };
    during(garbage, || {
        readers[3..].iter().enumerate().for_each(|(number, reader)| touch(reader, 3 + number));
        (0..200).for_each(|_| others.go_on(&host));
    });
    drop(pager);
    RawPager::serve(&host, "/pagers/raw").answer_all(&readers);
    others.go_on(&host);
}

#[test]
fn answers_that_are_nobodys_without_end_have_the_thread_rest() {
    let host = TestHost::start();
    let mut pager = RawPager::serve(&host, "/pagers/raw");
    let readers = readers(&host, &mut pager, 1);
    let words = pager.queues().words;
    let attack = || {
        words[COMPLETED / 4].fetch_add(1, Ordering::SeqCst);
        words[HOST_SLEEPS / 4].store(0, Ordering::SeqCst);
        wake(words, HOST_SLEEPS);
    };
    during(attack, || {
        let (used, began) = (ticks_of_answers(&host), Instant::now());
        std::thread::sleep(Duration::from_secs(1));
        let (used, passed) = (ticks_of_answers(&host) - used, began.elapsed().as_millis() as u64 / 10);
        assert!(used < passed / 10, "the thread that takes answers used {used} ticks of {passed}");
    });
    touch(&readers[0], 0);
    drop(pager);
    RawPager::serve(&host, "/pagers/raw").answer_all(&readers);
}

#[test]
fn entries_that_are_all_full_leave_the_socket_and_the_next_pager() {
    let host = TestHost::start();
    let mut others = Others::of(&host);
    let mut pager = RawPager::serve(&host, "/pagers/raw");
    let readers = readers(&host, &mut pager, ENTRIES as usize + 6);
    readers.iter().enumerate().for_each(|(number, reader)| touch(reader, number));
    let asked: Vec<Asked> = readers.iter().map(|_| pager.question()).collect();
    assert_eq!(asked.iter().filter(|one| one.place.is_some()).count(), ENTRIES as usize);
    (0..5).for_each(|_| others.go_on(&host));
    // By the socket it may answer whatever the queues are full of.
    let by_socket = *asked.iter().find(|one| one.place.is_none()).expect("some come by the socket");
    pager.answer(by_socket);
    (0..5).for_each(|_| others.go_on(&host));
    drop(pager);
    RawPager::serve(&host, "/pagers/raw").answer_all(&readers);
    others.go_on(&host);
}

#[test]
fn holes_wakes_and_other_sizes_hold_up_nobody() {
    let host = TestHost::start();
    let mut others = Others::of(&host);
    let mut pager = RawPager::serve(&host, "/pagers/raw");
    let readers = readers(&host, &mut pager, 6);
    readers[..3].iter().enumerate().for_each(|(number, reader)| touch(reader, number));
    (0..3).for_each(|_| {
        pager.queued();
    });
    let Queues { file, words, .. } = pager.queues();
    let words: Words = words;
    let file = &*file;
    let attack = || {
        for size in [0, PAGE as u64, 2 * BYTES as u64] {
            assert!(rustix::fs::ftruncate(file, size).is_err(), "a size of {size} is refused");
        }
        rustix::fs::fcntl_add_seals(file, rustix::fs::SealFlags::WRITE).expect_err("it is sealed");
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(file, hole, 0, BYTES as u64).expect("a hole");
        for (round, at) in [HOST_SLEEPS, PAGER_SLEEPS, SUBMITTED, COMPLETED].into_iter().enumerate() {
            words[at / 4].fetch_add(round as u32, Ordering::SeqCst);
            wake(words, at);
        }
    };
    during(attack, || {
        readers[3..].iter().enumerate().for_each(|(number, reader)| touch(reader, 3 + number));
        (0..200).for_each(|_| others.go_on(&host));
    });
    drop(pager);
    RawPager::serve(&host, "/pagers/raw").answer_all(&readers);
    others.go_on(&host);
}

#[test]
fn queues_that_are_asked_for_twice_at_once_are_there_once() {
    let host = TestHost::start();
    // Fewer than one user may have: those before may be about to end.
    for _ in 0..12 {
        let mut pager =
            RawPager { raw: Raw::connect(&host), name: "/pagers/raw", queues: None, heard: VecDeque::new() };
        pager.begin(false);
        let more = |number| pager.raw.bytes_for(number, false, &Request::PagerQueues);
        (100..103).for_each(|number| assert!(pager.raw.throw(&more(number), &[])));
        let mut refused = 0;
        wait::until("all are answered", || {
            match pager.raw.hear_all().expect("the host stays connected") {
                Some((_, FromHost::Reply(Ok(Reply::Queues)), mut fds)) => {
                    assert!(pager.queues.replace(Queues::map(fds.remove(0))).is_none(), "only once");
                }
                Some((_, FromHost::Reply(Err(error)), _)) => {
                    assert_eq!(error.kind, ErrorKind::Busy, "{error:?}");
                    refused += 1;
                }
                _ => {}
            }
            (refused == 3 && pager.queues.is_some()).then_some(())
        });
    }
    let mut pager = RawPager::serve(&host, "/pagers/raw");
    readers(&host, &mut pager, 1);
}

#[test]
fn what_was_in_queues_of_a_host_that_died_is_asked_anew() {
    let host = TestHost::start();
    let mut pager = RawPager::serve(&host, "/pagers/raw");
    let readers = readers(&host, &mut pager, 6);
    for round in 0..3 {
        let before = host.status().host_pid;
        readers.iter().enumerate().for_each(|(number, reader)| touch(reader, 6 * round + number));
        let asked: Vec<Asked> = readers.iter().map(|_| pager.question()).collect();
        host.kill_host();
        host.wait_for_other_host(before);
        // Nobody looks at the old ones any more.
        asked.into_iter().for_each(|one| pager.answer(one));
        pager.answer_all(&readers);
    }
}
