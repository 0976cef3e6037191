//! Locks of the kernel that a client can hold for as long as it likes: of its object's memory, by a
//! write whose bytes do not come; of its own address space, by a mapping of a file whose file
//! system does not answer. What the host asks of that memory, or of that address space, waits.
//! Nobody else does, and the host can be replaced.

use super::{KILLED, member, user_of};
use crate::by_hand::ByHand;
use crate::scene::{
    ATTACKER, BYSTANDER, Local, Machine, Members, SOON, name, open, others_go_on_with, small,
};
use crate::{Attack, leave_out};
use commonhold_object::{Access, CreateOptions};
use commonhold_tests::fuse::{Fuse, READ};
use commonhold_tests::host::has_ended;
use commonhold_tests::raw::Raw;
use commonhold_tests::stuck::{StuckWrite, holds_address_space};
use commonhold_tests::user::as_user;
use commonhold_tests::{MIB, PAGE, TestHost, Worker, wait};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) const SMALL: Machine = Machine { options: &["--budget", "16MiB"], ..KILLED };

pub(crate) const ATTACKS: &[Attack] = &[
    user_of(
        SMALL,
        "stuck.a_write",
        "hold the lock of an object's memory while the host is replaced",
        a_write,
    ),
    user_of(
        SMALL,
        "stuck.an_address_space",
        "hold the lock of one's address space while the host is replaced",
        an_address_space,
    ),
    user_of(
        SMALL,
        "stuck.an_address_space_of_holes",
        "have the next host look through a mapping of a tebibyte whose address space one holds",
        an_address_space_of_holes,
    ),
    user_of(
        SMALL,
        "stuck.what_comes_late",
        "let the kernel do late what a killed host had asked for",
        what_comes_late,
    ),
    user_of(
        KILLED,
        "stuck.claim_words",
        "hold the lock of claim words, and of an object's memory, while hosts follow each other",
        claim_words,
    ),
    member(
        "stuck.what_other_hosts_take",
        "hold the locks of many objects' memory while another host takes their pages",
        |scene| what_other_hosts_take(scene, "central"),
    ),
    member(
        "stuck.what_other_hosts_take_by_forwarding",
        "the same of objects that are scheduled by forwarding",
        |scene| what_other_hosts_take(scene, "forwarding"),
    ),
    member(
        "stuck.an_address_space_that_shares",
        "hold the lock of an address space with pages of many objects that another host takes",
        an_address_space_that_shares,
    ),
    member(
        "stuck.an_address_space_of_who_waits",
        "hold the lock of an address space in which a page is to be shown that comes from its home",
        an_address_space_of_who_waits,
    ),
    member(
        "stuck.an_address_space_of_a_sharer",
        "hold the lock of an address space with pages of an object that their home wants back",
        an_address_space_of_a_sharer,
    ),
];

/// What somebody else does, who needs room that the attacker's frames take; and what root asks.
pub(super) fn others_go_on(scene: &Local) {
    others_go_on_with(scene, 2048);
    let start = Instant::now();
    for words in [&["ls", "-l", "/"][..], &["host", "status"]] {
        scene.host.command(words, |_| {}).expect("root is told");
    }
    assert!(start.elapsed() < crate::scene::SOON, "what root asks took {:?}", start.elapsed());
}

/// The host is killed, and the next one serves others.
fn is_replaced(scene: &Local) {
    let before = scene.host.status();
    scene.host.kill_host();
    let after = scene.host.wait_for_other_host(before.host_pid);
    assert_eq!(after.keeper_pid, before.keeper_pid, "the keeper died, too:\n{}", scene.host.log());
    others_go_on(scene);
}

/// An object of the attacker that takes most of the budget, and one that has a deadline: so the
/// host looks at all.
fn fill_the_budget(scene: &Local) -> Worker {
    let attacker = scene.attacker();
    attacker.ok(&format!("create j /jam size={} controlled", 12 * MIB));
    attacker.all("map m j rw shared 0 0\nfill m 0 3072 1");
    attacker.ok("create d /late size=65536 pager=/silent fault-deadline=500 pager-deadline=3600000");
    attacker.ok("map l d rw shared 0 0");
    attacker
}

/// Writes to the last page of that object.
fn write_for_ever(scene: &Local) -> StuckWrite {
    let memory = scene.raw().ask_for(&open("/jam", Access::ReadWrite)).1.remove(0);
    StuckWrite::new(memory, 3071 * PAGE as u64)
}

fn a_write(scene: &Local) {
    let attacker = fill_the_budget(scene);
    let stuck = write_for_ever(scene);
    (0..3).for_each(|_| others_go_on(scene));
    is_replaced(scene);
    attacker.send("get m 8192");
    others_go_on(scene);
    drop(stuck);
    attacker.answer().expect("the page is there when the write is over");
    attacker.ok("check m 0 3071 1");
    others_go_on(scene);
}

/// The host is killed while the kernel is to punch frames for it, which it does when the write is over.
fn what_comes_late(scene: &Local) {
    let attacker = fill_the_budget(scene);
    let stuck = write_for_ever(scene);
    others_go_on(scene);
    let before = scene.host.status().host_pid;
    scene.host.kill_host();
    scene.host.wait_for_other_host(before);
    drop(stuck);
    wait::until("the killed host ends", || has_ended(before).then_some(()));
    attacker.all("check m 0 3071 1\nfill m 0 3071 2\ncheck m 0 3071 2");
    others_go_on(scene);
    attacker.ok("check m 0 3071 2");
}

fn an_address_space(scene: &Local) {
    let attacker = fill_the_budget(scene);
    let Some(fuse) = silent_files(&scene.host) else { leave_out("FUSE cannot be mounted here") };
    // Writes to these pages wait for the host, which has to let them in that address space.
    attacker.ok("create f /frozen size=65536 freezable");
    attacker.all("map f f rw shared 0 0\nfill f 0 16 1\nfreeze f 0 65536");
    attacker.ok(&format!("hold-address-space {}", fuse.file().display()));
    wait::until("the mapping waits", || holds_address_space(attacker.pid()).then_some(()));
    attacker.send("put f 4096 7");
    (0..3).for_each(|_| others_go_on(scene));
    is_replaced(scene);
    fuse.end();
    attacker.answer().expect("the write goes on");
    assert_eq!(attacker.ok("get f 4096"), "7");
    attacker.ok("check m 0 3072 1");
    others_go_on(scene);
}

/// The next host waits for a scan by what may be found, and not by how long the mapping is.
fn an_address_space_of_holes(scene: &Local) {
    const BYTES: u64 = 1 << 40;
    let attacker = fill_the_budget(scene);
    let file = scene.new_file("holes", BYTES);
    attacker.ok(&format!("create h /holes size={BYTES} file={} sync=ordered", file.display()));
    attacker.all("map h h rw shared 0 0\nput h 0 7");
    let Some(fuse) = silent_files(&scene.host) else { leave_out("FUSE cannot be mounted here") };
    attacker.ok(&format!("hold-address-space {}", fuse.file().display()));
    wait::until("the mapping waits", || holds_address_space(attacker.pid()).then_some(()));
    is_replaced(scene);
    fuse.end();
    assert_eq!(attacker.ok("get h 0"), "7");
    others_go_on(scene);
}

/// A file system of the attacker's that does not answer.
pub(super) fn silent_files(host: &TestHost) -> Option<Fuse> {
    let below = host.scratch().join("mounts");
    std::fs::create_dir(&below)
        .and_then(|()| std::fs::set_permissions(&below, std::fs::Permissions::from_mode(0o755)))
        .expect("a directory");
    let fuse = Fuse::mount(&below, ATTACKER.0)?;
    fuse.fall_silent(READ);
    Some(fuse)
}

fn claim_words(scene: &Local) {
    let client = ByHand::with(scene, name("/held"), CreateOptions { budget_bytes: Some(1 << 20), ..small() });
    let mut served_by_itself = ByHand::serving_itself(scene, name("/claims"), small());
    let words = Arc::new(served_by_itself.words.take().expect("claim words"));
    (0..16).for_each(|number| client.memory.page(number).put(1).expect("a page"));
    let nevers = [StuckWrite::new(&client.frames, 0), StuckWrite::new(&words, 0)];
    // A call of the host waits.
    let page = client.memory.page(3);
    page.forget();
    std::thread::spawn(move || drop(page.get()));
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..2 {
        let before = scene.host.status().host_pid;
        scene.host.kill_host();
        scene.host.wait_for_other_host(before);
        others_go_on(scene);
    }
    drop(nevers);
}

/// More objects than can have pages on their way out of page tables at once.
const MANY: usize = 40;

/// At their home, what another host takes has to leave page tables: of the attacker's objects it cannot.
fn what_other_hosts_take(scene: &Members, how: &str) {
    let [taker, home] = [&scene.hosts[0], &scene.hosts[1]];
    let attacker = home.worker_of(ATTACKER.0, ATTACKER.1);
    let mut raw = as_user(ATTACKER.0, || Raw::connect(home));
    let mut nevers = Vec::new();
    for number in 0..MANY {
        attacker.eventually(&format!("create o{number} /held{number} size=65536 {how}"));
        attacker.all(&format!("map m{number} o{number} rw shared 0 0\nput m{number} 0 7"));
        let memory = raw.ask_for(&open(&format!("/held{number}"), Access::ReadWrite)).1.remove(0);
        nevers.push(StuckWrite::new(memory, 8 * PAGE as u64));
    }
    let takers = takers(taker, MANY);
    others_share(scene, how);
    drop(nevers);
    takers.iter().for_each(|worker| drop(worker.answer().expect("the page comes when the write is over")));
    (0..MANY).for_each(|number| drop(attacker.ok(&format!("remove /held{number}"))));
}

/// Processes of the attacker at another host, each of which writes to one of the objects there.
fn takers(host: &TestHost, count: usize) -> Vec<Worker> {
    let take = |number: usize| {
        let worker = host.worker_of(ATTACKER.0, ATTACKER.1);
        worker.eventually(&format!("open o /held{number} rw"));
        worker.ok("map m o rw shared 0 0");
        worker.send("put m 0 8");
        worker
    };
    let takers = (0..count).map(take).collect();
    std::thread::sleep(Duration::from_secs(2));
    takers
}

/// Another user's objects go between the hosts.
fn others_share(scene: &Members, how: &str) {
    for number in 0..16 {
        let name = format!("/theirs{number}");
        let theirs = [1, 0].map(|host: usize| scene.hosts[host].worker_of(BYSTANDER.0, BYSTANDER.1));
        in_time(&theirs[0], &format!("create o {name} size=65536 {how}"));
        in_time(&theirs[1], &format!("open o {name} rw"));
        theirs.iter().for_each(|worker| in_time(worker, "map m o rw shared 0 0"));
        for seed in 1..4 {
            theirs.iter().for_each(|worker| in_time(worker, &format!("fill m 0 16 {seed}")));
        }
        in_time(&theirs[0], &format!("remove {name}"));
    }
}

/// The attacker's address space cannot be changed while its pages are taken at the other host.
fn others_share_meanwhile(
    scene: &Members,
    (host, attacker): (&TestHost, &Worker),
    (taker, count): (&TestHost, usize),
) {
    let Some(fuse) = silent_files(host) else { leave_out("FUSE cannot be mounted here") };
    attacker.ok(&format!("hold-address-space {}", fuse.file().display()));
    wait::until("the mapping waits", || holds_address_space(attacker.pid()).then_some(()));
    let takers = takers(taker, count);
    others_share(scene, "central");
    fuse.end();
    takers.iter().for_each(|worker| drop(worker.answer().expect("the page comes when the lock is free")));
}

/// More than there are threads for scheduling.
const MORE: usize = 70;

/// What another host takes is protected first, in an address space that cannot be changed now.
fn an_address_space_that_shares(scene: &Members) {
    let [taker, home] = [&scene.hosts[0], &scene.hosts[1]];
    let attacker = home.worker_of(ATTACKER.0, ATTACKER.1);
    for number in 0..MORE {
        attacker.eventually(&format!("create o{number} /held{number} size=65536 central"));
        attacker.all(&format!("map m{number} o{number} rw shared 0 0\nput m{number} 0 7"));
    }
    others_share_meanwhile(scene, (home, &attacker), (taker, MORE));
    (0..MORE).for_each(|number| drop(attacker.ok(&format!("remove /held{number}"))));
}

/// The same where the home takes: one thread reads what it says of all objects.
fn an_address_space_of_a_sharer(scene: &Members) {
    const FEW: usize = 3;
    let [sharer, home] = [&scene.hosts[0], &scene.hosts[1]];
    let maker = home.worker_of(ATTACKER.0, ATTACKER.1);
    let attacker = sharer.worker_of(ATTACKER.0, ATTACKER.1);
    for number in 0..FEW {
        maker.eventually(&format!("create o{number} /held{number} size=65536 central"));
        attacker.eventually(&format!("open o{number} /held{number} rw"));
        attacker.all(&format!("map m{number} o{number} rw shared 0 0\nput m{number} 0 7"));
    }
    others_share_meanwhile(scene, (sharer, &attacker), (home, FEW));
    drop(attacker);
    (0..FEW).for_each(|number| drop(maker.ok(&format!("remove /held{number}"))));
}

/// A thread waits for a page that its home holds, and then the address space is held: the page comes, and is shown.
fn an_address_space_of_who_waits(scene: &Members) {
    let [sharer, home] = [&scene.hosts[0], &scene.hosts[1]];
    let maker = home.worker_of(ATTACKER.0, ATTACKER.1);
    let attacker = sharer.worker_of(ATTACKER.0, ATTACKER.1);
    maker.eventually("create o /held size=65536 central");
    maker.all("map m o rw shared 0 0\nput m 4096 1\nlock o 4096 4096");
    attacker.eventually("open o /held rw");
    attacker.all("map m o rw shared 0 0\nput m 0 7");
    let Some(fuse) = silent_files(sharer) else { leave_out("FUSE cannot be mounted here") };
    attacker.ok(&format!("hold-address-space {}", fuse.file().display()));
    attacker.send("put m 4096 2"); // the lock is taken a moment later
    wait::until("the mapping waits", || holds_address_space(attacker.pid()).then_some(()));
    maker.ok("unlock o 4096 4096");
    others_share(scene, "central");
    fuse.end();
    attacker.answer().expect("the page comes when the lock is free");
    maker.ok("remove /held");
}

fn in_time(worker: &Worker, line: &str) {
    worker.send(line);
    let answer = worker.answer_within(SOON).unwrap_or_else(|| panic!("{line}: no answer in {SOON:?}"));
    answer.unwrap_or_else(|why| panic!("{line}: {why:?}"));
}
