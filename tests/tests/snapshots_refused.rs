//! Snapshots that cannot be, or not any more: an error that says what to do, and writers go on.

use commonhold::{Access, CreateOptions, ErrorKind, SnapshotOptions, SyncMode};
use commonhold_tests::scratch::{RamDisk, Scratch};
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, PAGE, TestHost, is_root, left_out};

#[test]
fn what_no_snapshot_can_be_of() {
    let host = TestHost::start();
    let client = host.connect();
    let size_bytes = 4 * PAGE as u64;
    let direct = CreateOptions { size_bytes, ..CreateOptions::default() };
    let controlled = CreateOptions { sync: SyncMode::Ordered, controlled: true, ..direct.clone() };
    let of = SnapshotOptions::default();
    for (name, options) in [("/direct", direct.clone()), ("/controlled", controlled)] {
        let object = client.create(name, &options, None).expect("it is made");
        let error = object.snapshot("/s", &of).expect_err("its writers cannot be held");
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(error.message.contains("--freezable"), "{error}");
    }
    let freezable = CreateOptions { freezable: true, ..direct.clone() };
    let object = client.create("/a", &freezable, None).expect("it is made");
    let part = |offset: u64, length: Option<u64>| SnapshotOptions { offset, length, ..of.clone() };
    for wrong in [
        part(1, None),
        part(PAGE as u64 * 4, None),
        part(0, Some(size_bytes + 1)),
        part(u64::MAX, Some(2)),
        part(0, Some(0)),
    ] {
        let error = object.snapshot("/s", &wrong).expect_err("there is no such part");
        assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    }
    let mode = SnapshotOptions { mode: 0o7777, ..of.clone() };
    assert_eq!(object.snapshot("/s", &mode).expect_err("bits").kind, ErrorKind::Invalid);
    assert_eq!(object.snapshot("/direct", &of).expect_err("it is there").kind, ErrorKind::Exists);
    assert_eq!(object.snapshot("s", &of).expect_err("no name").kind, ErrorKind::Invalid);
    let reader = client.open("/a", Access::Read).expect("it is there");
    let error = reader.snapshot("/s", &of).expect_err("it holds writers");
    assert_eq!(error.kind, ErrorKind::Permission);
    let read_only = CreateOptions { read_only: true, ..freezable };
    assert_eq!(client.create("/r", &read_only, None).expect_err("no such option").kind, ErrorKind::Invalid);
    // Nothing is left of any.
    assert_eq!(host.status().objects, 3);
    client.remove("/a").expect("it has a name");
    let nameless = object.snapshot("/s", &of).expect("it is open");
    drop((object, reader, nameless));
    assert_eq!(client.open("/s", Access::Read).expect("it stays").size_bytes(), size_bytes);
}

#[test]
fn other_users() {
    if !is_root("snapshots of other users' objects") {
        return;
    }
    let host = TestHost::start();
    let (owner, other) = (host.worker_of(65533, 65533), host.worker_of(65532, 65532));
    owner.all("create o /a size=16384 freezable mode=666\nmap m o rw shared 0 0\nfill m 0 4 1");
    other.ok("open o /a rw");
    other.ok("snapshot s o /s");
    // It is whose who took it: not the object's owner's.
    owner.refused("chmod /s 600", "Permission");
    owner.refused("remove /s", "Permission");
    owner.ok("chmod /a 644");
    // What is open stays open; what is opened anew is not for writing.
    other.ok("close o");
    other.refused("open o /a rw", "Permission");
    other.ok("open o /a r");
    other.refused("snapshot t o /t", "Permission");
    other.all("map m s r shared 0 0\ncheck m 0 4 1");
    other.ok("chmod /s 600");
    owner.refused("open s /s r", "Permission");
    other.refused("open w /s rw", "Permission");
}

#[test]
fn snapshots_of_snapshots_without_end() {
    let host = TestHost::start();
    let client = host.connect();
    let options = CreateOptions { size_bytes: PAGE as u64, freezable: true, ..CreateOptions::default() };
    let first = client.create("/0", &options, None).expect("it is made");
    first.write_at(&[7; PAGE], 0).expect("it is written");
    let mut last = first.clone();
    let writable = SnapshotOptions { writable: true, ..SnapshotOptions::default() };
    let refused = (1..100).find_map(|number| match last.snapshot(&format!("/{number}"), &writable) {
        Ok(next) => {
            last = next;
            None
        }
        Err(error) => Some((number, error)),
    });
    let (number, error) = refused.expect("it ends");
    assert_eq!((number, error.kind), (65, ErrorKind::TooMany), "{error}");
    first.write_at(&[8; PAGE], 0).expect("it is written");
    let mut bytes = [0; PAGE];
    last.read_at(&mut bytes, 0).expect("it is read");
    assert_eq!(bytes, [7; PAGE]);
    // A hundred of one object.
    for number in 0..100 {
        first.write_at(&[number; PAGE], 0).expect("it is written");
        drop(
            first.snapshot(&format!("/of-first/{number}"), &SnapshotOptions::default()).expect("a snapshot"),
        );
    }
    for number in 0..100 {
        let one = client.open(&format!("/of-first/{number}"), Access::Read).expect("it is there");
        one.read_at(&mut bytes, 0).expect("it is read");
        assert_eq!(bytes, [number; PAGE]);
    }
}

/// Of an object that is removed, or made smaller, just then.
#[test]
fn while_the_object_goes() {
    let host = TestHost::start();
    let (client, other) = (host.connect(), host.worker());
    for round in 0..60 {
        let options =
            CreateOptions { size_bytes: 64 * PAGE as u64, freezable: true, ..CreateOptions::default() };
        let object = client.create("/a", &options, None).expect("it is made");
        object.write_at(&[7; 64 * PAGE], 0).expect("it is written");
        other.send(if round % 2 == 0 { "remove /a" } else { "resize /a 4096" });
        for _ in 0..round % 7 {
            std::thread::yield_now();
        }
        match object
            .snapshot("/s", &SnapshotOptions { writable: round % 3 == 0, ..SnapshotOptions::default() })
        {
            Ok(snapshot) => {
                let mut bytes = vec![0; snapshot.size_bytes() as usize];
                assert!([PAGE, 64 * PAGE].contains(&bytes.len()));
                snapshot.read_at(&mut bytes, 0).expect("it is whole");
                assert!(bytes.iter().all(|byte| *byte == 7), "round {round}");
                client.remove("/s").expect("it has a name");
            }
            Err(error) => assert!(matches!(error.kind, ErrorKind::Mismatch | ErrorKind::Invalid), "{error}"),
        }
        other.answer().expect("it is done");
        if round % 2 == 1 {
            client.remove("/a").expect("it has a name");
        }
        drop(object);
    }
    until("nothing is left", || (host.status().objects == 0).then_some(()));
}

#[test]
fn without_room_the_snapshot_ends_and_writers_go_on() {
    let disk = match RamDisk::new(48) {
        Ok(disk) => disk,
        Err(why) => return left_out(&why.to_string()),
    };
    // Room for 4 MiB in frames.
    let host = TestHost::at(Scratch::new(), disk.path().join("state"), &["--budget", "4MiB"]);
    let worker = host.worker();
    let pages = 8 * MIB / PAGE as u64;
    worker.ok(&format!("create o /a size={} freezable", 8 * MIB));
    worker.all(&format!("map m o rw shared 0 0\nfill m 0 {pages} 1\nsnapshot s o /s\nmap n s r shared 0 0"));
    worker.all("check n 0 8 1\nsnapshot t o /t");
    // The object has room for all of its pages, the snapshots have none.
    let ballast = disk.use_up(0);
    worker.all(&format!("fill m 0 {pages} 2\ncheck m 0 {pages} 2"));
    let said = host.log();
    assert!(said.contains("the snapshot is not whole"), "{said}");
    std::fs::remove_file(ballast).expect("it is there");
    let reader = host.worker();
    let refused = reader.refused("open t /t r", "Lost");
    assert!(refused.contains("remove it, and take another"), "{refused}");
    // Also after the host's death.
    let before = host.status().host_pid;
    host.kill_host();
    host.wait_for_other_host(before);
    reader.refused("open t /t r", "Lost");
    worker.all(&format!("check m 0 {pages} 2\nremove /t\nsnapshot t o /t\nmap k t r shared 0 0"));
    worker.all(&format!("fill m 0 16 3\ncheck k 0 {pages} 2"));
    worker.dies(&format!("check n 0 {pages} 1"), libc::SIGBUS);
}
