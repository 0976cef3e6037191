//! A heap in an object of a host, and of two: who uses it, who dies, and what is refused.

use commonhold::{Coherence, CreateOptions, ErrorKind, Heap, Host, OnLoss};
use commonhold_tests::TestHost;
use commonhold_tests::cluster::pair;
use std::sync::atomic::Ordering;

const MIB: u64 = 1 << 20;

fn options(size_bytes: u64) -> CreateOptions {
    CreateOptions { size_bytes, ..CreateOptions::default() }
}

fn heap(host: &Host, name: &str) -> Heap {
    Heap::create(host, name, &options(16 * MIB)).expect("a heap")
}

#[test]
fn blocks_of_one_are_found_and_freed_by_another() {
    let host = TestHost::start();
    let (mine, of) = (heap(&host.connect(), "/heap"), "float64");
    let theirs = Heap::open(&host.connect(), "/heap").expect("the same");
    let numbers = mine.type_of(of).expect("a type");
    assert_eq!((theirs.type_of(of), numbers.bytes()), (Ok(numbers), 8));
    let root = mine.root("numbers").expect("a root");
    let at = mine.allocate_into(numbers, 1000, root).expect("room");
    mine.word(at).expect("a word").store(42, Ordering::Release);
    let found = theirs.word(theirs.root("numbers").expect("a root")).expect("a word");
    let found = found.load(Ordering::Acquire);
    assert_eq!((found, theirs.word(found).expect("a word").load(Ordering::Acquire)), (at, 42));
    let address = theirs.address(at, 8000).expect("inside");
    assert_eq!(theirs.offset(address), Ok(at));
    assert_ne!(mine.address(at, 8000), Ok(address));
    theirs.free_from(root).expect("a block");
    // Threads have arenas of their own, and free each other's.
    let blocks: Vec<u64> = std::thread::scope(|scope| {
        let some = || {
            let mut arena = mine.arena().expect("an arena");
            (0..500).map(|n| arena.allocate(numbers, 1 + n % 600).expect("room")).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(some)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(mine.check().expect("whole").blocks, 2000);
    let mut arena = theirs.arena().expect("an arena");
    blocks.iter().for_each(|at| arena.free(*at).expect("a block"));
    let report = mine.check().expect("whole");
    assert_eq!((report.blocks, &report.problems[..]), (0, &[][..]));
}

#[test]
fn bad_input_is_refused_and_the_heap_is_as_it_was() {
    let host = TestHost::start();
    let client = host.connect();
    let too_small = Heap::create(&client, "/small", &options(100_000)).expect_err("no heap fits");
    assert_eq!(too_small.kind, ErrorKind::Invalid);
    assert_eq!(client.stat("/small").expect_err("nothing is left").kind, ErrorKind::NotFound);
    client.create("/other", &options(MIB), None).expect("an object");
    assert_eq!(Heap::open(&client, "/other").expect_err("no heap").kind, ErrorKind::Mismatch);
    let heap = heap(&client, "/heap");
    let bytes = heap.type_of("bytes").expect("a type");
    let kind = |refused: commonhold::Result<()>| refused.expect_err("refused").kind;
    // An allocation larger than the object, and one that no number holds.
    for count in [17 * MIB, u64::MAX] {
        assert_eq!(heap.allocate(bytes, count).expect_err("too large").kind, ErrorKind::NoSpace);
    }
    let doubles = heap.type_of("float64").expect("a type");
    assert_eq!(heap.allocate(doubles, u64::MAX / 4).expect_err("too large").kind, ErrorKind::NoSpace);
    // A second free; what is no block; a pointer of other memory.
    let block = heap.allocate(bytes, 100).expect("room");
    heap.free(block).expect("a block");
    assert_eq!(kind(heap.free(block)), ErrorKind::Invalid);
    for foreign in [0, 64, block + 1, 16 * MIB, u64::MAX] {
        assert_eq!(kind(heap.free(foreign)), ErrorKind::Invalid);
    }
    let local = 0_u64;
    let outside = heap.offset((&raw const local).cast()).expect_err("not of the heap");
    assert_eq!(outside.kind, ErrorKind::Invalid);
    assert!(heap.type_of("int33").is_err() && heap.root("").is_err() && heap.word(12).is_err());
    assert!(heap.word(16 * MIB).is_err() && heap.address(16 * MIB - 8, 9).is_err());
    // Its size stays: whoever maps it relies on that.
    assert_eq!(kind(client.resize("/heap", 8 * MIB)), ErrorKind::Unsupported);
    assert_eq!(kind(client.resize("/heap", 32 * MIB)), ErrorKind::Unsupported);
    let report = heap.check().expect("whole");
    assert_eq!((report.blocks, &report.problems[..]), (0, &[][..]));
}

#[test]
fn a_heap_that_a_broken_program_wrote_to_is_said_to_be_damaged() {
    let host = TestHost::start();
    let heap = heap(&host.connect(), "/heap");
    let bytes = heap.type_of("bytes").expect("a type");
    let mut arena = heap.arena().expect("an arena");
    let blocks: Vec<u64> = (0..10).map(|_| arena.allocate(bytes, 1000).expect("room")).collect();
    let check = || host.command(&["heap", "check", "/heap", "--json"], |_| ());
    assert!(check().is_ok_and(|said| said.replace(" ", "").contains("\"whole\":true")));
    // All of the heap's own words before the first block.
    let before = blocks[0] / 4096 * 4096;
    let saved: Vec<u64> = (0..before / 8)
        .map(|n| heap.word(8 * n).expect("a word").swap(0x7777_7777_7777_7777, Ordering::AcqRel))
        .collect();
    let said = arena.free(blocks[0]).expect_err("it is damaged");
    assert_eq!(said.kind, ErrorKind::Corrupt, "{said}");
    assert_eq!(arena.allocate(bytes, 1000).expect_err("it is damaged").kind, ErrorKind::Corrupt);
    let other = Heap::open(&host.connect(), "/heap").expect("an object");
    assert_eq!(other.allocate(bytes, 8).expect_err("it is damaged").kind, ErrorKind::Corrupt);
    assert!(!heap.check().expect("a report").problems.is_empty());
    check().expect_err("it is damaged");
    // Nothing was changed by those who met it.
    for (n, word) in (0..).zip(saved) {
        let found = heap.word(8 * n).expect("a word").swap(word, Ordering::AcqRel);
        assert_eq!(found, 0x7777_7777_7777_7777, "word {n}");
    }
    blocks.iter().for_each(|at| arena.free(*at).expect("a block"));
    assert_eq!(heap.check().expect("whole").problems, []);
}

#[test]
fn two_hosts_allocate_in_one_heap_and_free_each_others_blocks() {
    let hosts = pair(&[]);
    let strict = CreateOptions { coherence: Coherence::strict(OnLoss::Revert), ..options(16 * MIB) };
    let here = Heap::create(&hosts[0].connect(), "/shared", &strict).expect("a heap");
    let there = Heap::open(&hosts[1].connect(), "/shared").expect("the same");
    let of = here.type_of("int64").expect("a type");
    assert_eq!(there.type_of("int64"), Ok(of));
    let mut mine: Vec<u64> = (0..200).map(|n| here.allocate(of, 1 + n).expect("room")).collect();
    let theirs: Vec<u64> = (0..200).map(|n| there.allocate(of, 1 + n).expect("room")).collect();
    assert!(theirs.iter().all(|at| !mine.contains(at)));
    assert_eq!(there.check().expect("whole").blocks, 400);
    theirs.iter().for_each(|at| here.free(*at).expect("a block"));
    mine.drain(..100).for_each(|at| there.free(at).expect("a block"));
    assert_eq!(there.free(theirs[0]).expect_err("a second time").kind, ErrorKind::Invalid);
    for heap in [&here, &there] {
        let report = heap.check().expect("whole");
        assert_eq!((report.blocks, &report.problems[..]), (100, &[][..]));
    }
}
