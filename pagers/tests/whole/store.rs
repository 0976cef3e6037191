//! Chunks in a directory: round trips, and deaths of pager and host in the middle.

use crate::harness::{PAGE, TestHost, content, read_mapped, store_pager, until};
use commonhold::{CreateOptions, Object, SyncMode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NAME: &str = "/pagers/store";
const SIZE: usize = 3 << 20;

fn atomic() -> CreateOptions {
    CreateOptions { sync: SyncMode::Atomic, pager_deadline_ms: Some(20_000), ..CreateOptions::default() }
}

fn sync(object: &Object) -> commonhold::Result<u64> {
    object.sync(0, object.size_bytes())
}

#[test]
fn pages_outlive_mappings_pagers_and_hosts() {
    for mode in [SyncMode::Ordered, SyncMode::Atomic] {
        let host = TestHost::start();
        let place = host.file("chunks");
        std::fs::create_dir(&place).unwrap();
        let pager = store_pager(&host, &place, NAME);
        let options = CreateOptions { sync: mode, ..atomic() };
        let object = host.create("/lab/data", NAME, SIZE as u64, options);
        assert!(read_mapped(&object).iter().all(|b| *b == 0), "never stored");
        object.write_at(&content(SIZE, 1), 0).unwrap();
        assert_eq!(sync(&object).unwrap(), (SIZE / PAGE) as u64);
        object.write_at(&content(3 * PAGE, 2), (1 << 20) - PAGE as u64).unwrap();
        assert_eq!(sync(&object).unwrap(), 3);
        let mut expected = content(SIZE, 1);
        expected[(1 << 20) - PAGE..(1 << 20) + 2 * PAGE].copy_from_slice(&content(3 * PAGE, 2));
        assert!(read_mapped(&object) == expected);
        assert_eq!(std::fs::read_dir(place.join("lab/data")).unwrap().count(), 3);
        drop(object);
        pager.kill();
        let _pager = store_pager(&host, &place, NAME);
        // An object keeps its chunks under another name.
        host.connect().rename("/lab/data", "/lab/moved").unwrap();
        host.settle();
        host.kill_both();
        host.start_again();
        assert!(read_mapped(&host.open("/lab/moved")) == expected, "{mode:?}, after both processes died");
    }
}

/// Pages of one round, all of them, or the object was torn.
fn round_of(bytes: &[u8], pages: &[usize]) -> u64 {
    let round =
        |page: usize| u64::from_le_bytes(bytes[page * PAGE..page * PAGE + 8].try_into().unwrap()) >> 32;
    let first = round(pages[0]);
    for page in pages {
        let expected = content(PAGE, first);
        assert!(
            bytes[page * PAGE..(page + 1) * PAGE] == expected,
            "page {page} is of round {}",
            round(*page)
        );
    }
    first
}

#[test]
fn a_pager_killed_in_the_middle_of_syncs_leaves_whole_ones() {
    let host = TestHost::start();
    let place = host.file("chunks");
    std::fs::create_dir(&place).unwrap();
    let mut pager = Some(store_pager(&host, &place, NAME));
    let object = host.create("/lab/data", NAME, SIZE as u64, atomic());
    // In all three chunks, so that a sync is several page-outs.
    let pages = [0, 1, 100, 255, 256, 300, 511, 512, 700];
    let (attempted, acknowledged) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1.. {
                if stop.load(Ordering::Relaxed) == 1 {
                    return;
                }
                pages.iter().for_each(|p| object.write_at(&content(PAGE, round), (p * PAGE) as u64).unwrap());
                attempted.store(round, Ordering::Relaxed);
                if sync(&object).is_ok() {
                    acknowledged.store(round, Ordering::Relaxed);
                }
            }
        });
        for kill in 0..5u64 {
            let before = acknowledged.load(Ordering::Relaxed);
            until("syncs go on", || (acknowledged.load(Ordering::Relaxed) > before + 1).then_some(()));
            std::thread::sleep(Duration::from_millis(kill * 7 % 11));
            pager.take().unwrap().kill();
            pager = Some(store_pager(&host, &place, NAME));
        }
        stop.store(1, Ordering::Relaxed);
        writer.join().unwrap();
    });
    assert_eq!(round_of(&read_mapped(&object), &pages), attempted.load(Ordering::Relaxed));
    // Now the pager and then host and keeper die in the middle of a sync; the client forgets what it had.
    pages.iter().for_each(|p| object.write_at(&content(PAGE, 1_000_000), (p * PAGE) as u64).unwrap());
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| drop(sync(&object)));
        std::thread::sleep(Duration::from_millis(8));
        drop(pager);
        host.kill_both();
        host.start_again();
        syncing.join().unwrap();
    });
    let _pager = store_pager(&host, &place, NAME);
    let acknowledged = acknowledged.load(Ordering::Relaxed);
    drop(object);
    let found = round_of(&read_mapped(&host.open("/lab/data")), &pages);
    assert!(found >= acknowledged, "{found}, but {acknowledged} was acknowledged");
}

/// At start no pager is connected: what the journal holds for its object is redone when somebody needs it, and a
/// host that takes over keeps its clients' pages meanwhile.
#[test]
fn a_host_that_takes_over_while_the_pager_is_away_loses_nothing_and_waits_for_nobody() {
    let host = TestHost::start();
    let place = host.file("chunks");
    std::fs::create_dir(&place).unwrap();
    let pager = store_pager(&host, &place, NAME);
    // Whoever waits for it fails the test.
    let options = CreateOptions { pager_deadline_ms: Some(300_000), ..atomic() };
    let object = host.create("/lab/data", NAME, SIZE as u64, options);
    object.write_at(&content(PAGE, 1), 0).unwrap();
    sync(&object).unwrap();
    object.write_at(&content(PAGE, 2), 40 * PAGE as u64).unwrap();
    pager.kill();
    let before = Instant::now();
    host.kill_host();
    let mut found = [0; PAGE];
    object.read_at(&mut found, 0).unwrap();
    assert!(found == *content(PAGE, 1), "resident pages are there");
    object.read_at(&mut found, 40 * PAGE as u64).unwrap();
    assert!(found == *content(PAGE, 2), "unsynced ones too");
    assert!(before.elapsed() < Duration::from_secs(300), "the new host did not wait for the pager");
    let _pager = store_pager(&host, &place, NAME);
    object.read_at(&mut found, 600 * PAGE as u64).unwrap();
    assert_eq!(found, [0; PAGE]);
    // What the new host could not be sure of counts as written too.
    assert!(sync(&object).unwrap() >= 1);
    // The same where no client is left.
    drop(object);
    host.settle();
    host.kill_both();
    host.start_again();
    let mut expected = vec![0; SIZE];
    expected[..PAGE].copy_from_slice(&content(PAGE, 1));
    expected[40 * PAGE..41 * PAGE].copy_from_slice(&content(PAGE, 2));
    assert!(read_mapped(&host.open("/lab/data")) == expected);
}

#[test]
fn two_objects_of_one_pager_do_not_mix() {
    let host = TestHost::start();
    let place = host.file("chunks");
    std::fs::create_dir(&place).unwrap();
    let _pager = store_pager(&host, &place, NAME);
    let objects = ["/a", "/c/b"].map(|name| host.create(name, NAME, SIZE as u64, atomic()));
    std::thread::scope(|scope| {
        for (n, object) in objects.iter().enumerate() {
            scope.spawn(move || {
                object.write_at(&content(SIZE, n as u64 + 1), 0).unwrap();
                sync(object).unwrap();
            });
        }
    });
    drop(objects);
    host.settle();
    host.kill_both();
    host.start_again();
    for (n, name) in ["/a", "/c/b"].into_iter().enumerate() {
        assert!(read_mapped(&host.open(name)) == content(SIZE, n as u64 + 1), "{name}");
    }
}

#[test]
fn shrinking_is_refused_and_growing_works() {
    let host = TestHost::start();
    let place = host.file("chunks");
    std::fs::create_dir(&place).unwrap();
    let _pager = store_pager(&host, &place, NAME);
    let object = host.create("/x", NAME, 2 * PAGE as u64, atomic());
    object.write_at(&content(2 * PAGE, 1), 0).unwrap();
    sync(&object).unwrap();
    let error = object.resize(PAGE as u64).unwrap_err();
    assert!(error.message.contains("cannot shrink"), "{error}");
    object.resize(4 * PAGE as u64).unwrap();
    let found = read_mapped(&object);
    assert!(found[..2 * PAGE] == content(2 * PAGE, 1) && found[2 * PAGE..].iter().all(|b| *b == 0));
}
