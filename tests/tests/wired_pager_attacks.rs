//! Wired objects with a pager, and whoever dies, hangs or runs out of room at the wrong moment.

use commonhold::{Access, CreateOptions, PagerKind, Translation};
use commonhold_tests::host::{signal, stop};
use commonhold_tests::huge::{HugePages, nothing_is_left};
use commonhold_tests::scratch::SmallDisk;
use commonhold_tests::store::Store;
use commonhold_tests::wait::until;
use commonhold_tests::{TestHost, is_root, left_out, page};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

const PAGE: usize = 4096;

fn kill_both(host: &TestHost) {
    let pid = host.status().host_pid;
    host.kill_both();
    host.start_again().unwrap();
    host.wait_for_other_host(pid);
}

#[test]
fn who_dies_while_a_creation_fetches_leaves_nothing() {
    let Some(pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let store = Store::of(page::bytes(0, 16, 1));
    store.hang(true);
    let thread = store.serve(&host, "/slow");
    let (worker, other) = (host.worker(), host.worker());
    let line = "create o /x size=65536 wired pager=/slow pager-deadline=600000";
    worker.send(line);
    until("it is asked", || (store.asked.load(Ordering::SeqCst) > 0).then_some(()));
    worker.kill();
    // Though its pager never answered.
    nothing_is_left(&host, &pool, 2);
    other.refused("stat /x id", "NotFound");
    store.hang(false);
    other.all(line);
    other.all("map m o rw shared 0 0\ncheck m 0 16 1\ndrop m\nclose o\nremove /x");
    nothing_is_left(&host, &pool, 2);
    drop(host);
    thread.join().unwrap();
}

#[test]
fn a_creation_that_waited_for_holders_ends_with_its_client() {
    let Some(_pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let store = Store::of(page::bytes(0, 384, 5));
    store.hang(true);
    let thread = store.serve(&host, "/slow");
    let path = host.scratch().file_of("file", &page::bytes(0, 256, 1));
    let (worker, other, asker) = (host.worker(), host.worker(), host.worker());
    other.ok("create anchor /anchor size=4096 wired");
    worker.all(&format!("create o /x wired file={}\nclose o\nopen-movable o /x rw", path.display()));
    worker.all("guarded o check 0 256 1\nguarded o fill 0 256 2");
    // What lets itself move gives its place up, and only then the pager is asked.
    asker.send("create a /a size=1572864 wired pager=/slow pager-deadline=600000");
    until("it is asked", || (store.asked.load(Ordering::SeqCst) > 0).then_some(()));
    asker.kill();
    // So there is room again, though the pager never answered.
    worker.eventually("guarded o check 0 256 2");
    other.refused("stat /a id", "NotFound");
    assert_eq!(store.answered.load(Ordering::SeqCst), 0);
    store.hang(false);
    drop(host);
    thread.join().unwrap();
}

/// Of an arena that somebody has open, and nothing in it, all that lies in it is waited for.
#[test]
fn who_has_the_arena_alone_brings_what_was_never_synced() {
    let Some(_pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let path = host.scratch().file_of("file", &page::bytes(0, 16, 1));
    let (holder, worker) = (host.worker(), host.worker());
    worker.all(&format!("create o /x wired file={}\nmap m o rw shared 0 0\nfill m 0 16 2", path.display()));
    holder.all("open arena /.arena-1 rw\nmap m arena rw shared 0 0");
    worker.all("drop m\nclose o");
    stop(&[holder.pid()]);
    kill_both(&host);
    worker.eventually("list /");
    worker.send("open o /x rw");
    std::thread::sleep(std::time::Duration::from_millis(100));
    signal(holder.pid(), libc::SIGCONT);
    holder.ok("list /"); // it comes back
    worker.answer().unwrap();
    worker.all("map m o rw shared 0 0\ncheck m 0 16 2\nno-faults m 0 16");
    assert!(std::fs::read(&path).unwrap() == page::bytes(0, 16, 1));
}

/// It was opened by its name, which it has not any more, by users who are not its owner.
#[test]
fn all_users_of_a_removed_object_come_back_with_it() {
    if !is_root("processes of other users") {
        return;
    }
    let Some(pool) = HugePages::more(2) else { return };
    let host = TestHost::start();
    let path = host.scratch().file_of("file", &page::bytes(0, 16, 1));
    let owner = host.worker();
    owner.all(&format!("create o /x wired mode=666 file={}", path.display()));
    let users = [65532, 65533, 65534].map(|uid| host.worker_of(uid, uid));
    users.iter().for_each(|user| user.all("open o /x rw\nmap m o rw shared 0 0"));
    owner.all("remove /x\nclose o");
    users[0].ok("fill m 0 16 2");
    kill_both(&host);
    for (number, user) in (3..).zip(&users) {
        user.all("check m 1 15 2\nno-faults m 0 16");
        user.all(&format!("put m 0 {number}\nsync o 0 65536"));
        assert_eq!(std::fs::read(&path).unwrap()[0], number);
    }
    users.iter().for_each(|user| user.all("drop m\nclose o"));
    owner.ok("list /"); // it comes back when it asks for something, and was noted to have the object
    nothing_is_left(&host, &pool, 2);
}

#[test]
fn memory_of_the_client_is_a_file_that_was_not_removed() {
    let Some(_pool) = HugePages::more(1) else { return };
    let host = TestHost::start();
    let client = host.connect();
    for translation in [Translation::Wired, Translation::Paged] {
        let memory = commonhold_sys::frames::create("mine", 2 * PAGE as u64).unwrap();
        let is_wired = translation == Translation::Wired;
        let options = CreateOptions {
            pager: PagerKind::File,
            translation,
            controlled: !is_wired,
            ..CreateOptions::default()
        };
        let object = client.create("/x", &options, Some(memory.as_fd())).unwrap();
        object.write_at(&[7; 2 * PAGE], 0).unwrap();
        object.sync(0, 2 * PAGE as u64).unwrap();
        let mut bytes = [0; 2 * PAGE];
        std::fs::File::from(memory).read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes == [7; 2 * PAGE], "{translation:?}");
        drop(object);
        client.remove("/x").unwrap();
    }
    assert!(client.open("/x", Access::Read).is_err());
}

#[test]
fn a_full_disk_refuses_a_sync_that_is_done_again() {
    let Some(pool) = HugePages::more(2) else { return };
    let disk = match SmallDisk::new(16) {
        Ok(disk) => disk,
        Err(why) => return left_out(&why),
    };
    let host = TestHost::start();
    let path = disk.path().join("file");
    std::fs::File::create(&path).unwrap().set_len(512 * PAGE as u64).unwrap();
    let worker = host.worker();
    worker.all(&format!("create o /x wired file={}\nmap m o rw shared 0 0\nfill m 0 512 2", path.display()));
    let ballast = disk.use_up(256 << 10);
    let said = worker.refused(&format!("sync o 0 {}", 512 * PAGE), "NoSpace");
    assert!(said.contains("free disk space"), "{said}");
    worker.ok("check m 0 512 2");
    // Nor is it taken for stored by who ends the host.
    worker.all("drop m\nclose o");
    let said = worker.refused("stop no", "Busy");
    assert!(said.contains("never synced"), "{said}");
    std::fs::remove_file(ballast).unwrap();
    worker.all(&format!("open o /x rw\nmap m o rw shared 0 0\ncheck m 0 512 2\nsync o 0 {}", 512 * PAGE));
    assert!(std::fs::read(&path).unwrap() == page::bytes(0, 512, 2));
    worker.all("drop m\nclose o\nremove /x");
    nothing_is_left(&host, &pool, 2);
    drop(host);
}
