//! What was thought of after all else: waits for one user's files and memory in which everybody's
//! threads stand, also those that begin and end a host, and how often one waits for one user.

use super::{KILLED, alone, user, user_of, with};
use crate::Attack;
use crate::by_hand::ByHand;
use crate::scene::{Local, SOON, name, open, others_go_on, others_go_on_with, small};
use commonhold_object::wire::Request;
use commonhold_object::{Access, CreateOptions, PagerKind, SyncMode};
use commonhold_tests::raw::bytes_of;
use commonhold_tests::stuck::StuckWrite;
use commonhold_tests::wait;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const ATTACKS: &[Attack] = &[
    user("late.close", "close a removed object while its last sync waits", close),
    user(
        "late.small_budgets",
        "write for ever to many objects of which the host evicts ahead",
        small_budgets,
    ),
    user("late.objects_of_root", "the same to root's objects that everybody may write", objects_of_root),
    user_of(
        with(&["--budget", "16MiB"]),
        "late.many_held",
        "the same to objects from which others need room",
        many_held,
    ),
    user_of(KILLED, "late.lines", "push lines of the host out of its log by lines about many objects", lines),
    alone("late.stop", "hold the file of an object while the host is stopped", stop),
    user_of(KILLED, "late.end", "hold the file of an object that a killed host is writing to", end),
    user_of(KILLED, "late.replacement", "hold the file of an object while the host is replaced", replacement),
    user_of(KILLED, "late.start", "hold the file of an object while the host starts", start),
];

/// A client with an object of a file that syncs as a whole, of which it has written some pages.
fn atomic(scene: &Local, named: &str) -> (ByHand, Arc<OwnedFd>) {
    let options = CreateOptions { pager: PagerKind::File, sync: SyncMode::Atomic, ..small() };
    let file = Arc::new(scene.file(named.trim_start_matches('/'), options.size_bytes));
    let client = ByHand::of_a_file(scene, name(named), options, &file);
    (0..16).for_each(|number| client.memory.page(number).put(1).expect("a page"));
    (client, file)
}

/// Asks for something, and does not wait for the answer.
fn throws(client: &ByHand, number: u64, request: &Request) {
    assert!(client.raw.throw(&bytes_of(number, request), &[]));
    std::thread::sleep(Duration::from_millis(300));
}

fn sync_of(client: &ByHand) -> Request {
    Request::Sync { object: client.object, offset: 0, length: 65_536, freeze: false }
}

fn close(scene: &Local) {
    let (mut client, file) = atomic(scene, "/held");
    client
        .raw
        .ask(&Request::Remove { name: name("/held"), of: None }, &[])
        .expect("an answer")
        .expect("it is removed");
    let never = StuckWrite::new(&file, 0);
    throws(&client, 1000, &sync_of(&client));
    let (address, length) = (client.memory.address as u64, client.memory.length as u64);
    throws(&client, 1001, &Request::Unmap { address, length });
    throws(&client, 1002, &Request::Close { object: client.object });
    others_go_on(scene);
    drop(never);
}

/// Who goes is forgotten at once.
fn ends_do_not_wait(scene: &Local) {
    let before = scene.host.status().clients;
    drop((0..4).map(|_| scene.other()).collect::<Vec<_>>());
    let forgotten = wait::within(SOON, || (scene.host.status().clients <= before).then_some(()));
    assert!(forgotten.is_some(), "ends of sessions wait");
}

/// More than threads for what is urgent.
const MANY: usize = 40;

fn small_budgets(scene: &Local) {
    let options = CreateOptions { size_bytes: 2 << 20, budget_bytes: Some(1 << 20), ..small() };
    let clients: Vec<_> = (0..MANY)
        .map(|number| {
            let client = ByHand::with(scene, name(&format!("/held{number}")), options.clone());
            (0..238).for_each(|number| client.memory.page(number).put(1).expect("a page"));
            client
        })
        .collect();
    let nevers: Vec<_> = clients.iter().map(|client| StuckWrite::new(&client.frames, 0)).collect();
    // Each touch has the host make room before it is needed.
    for client in &clients {
        let memory = client.memory;
        std::thread::spawn(move || (238..512).for_each(|number| drop(memory.page(number).put(1))));
    }
    std::thread::sleep(Duration::from_millis(500));
    others_go_on(scene);
    ends_do_not_wait(scene);
    drop(nevers);
}

/// Everybody may write to these, and they are root's, who has all threads.
fn objects_of_root(scene: &Local) {
    let root = scene.host.worker();
    let clients: Vec<_> = (0..MANY)
        .map(|number| {
            root.ok(&format!("create r /root{number} size={} budget={} mode=666", 2 << 20, 1 << 20));
            root.ok("close r");
            let client = scene.attacker();
            client.all(&format!("open o /root{number} rw\nmap m o rw shared 0 0\nfill m 0 200 1"));
            let memory = scene.raw().ask_for(&open(&format!("/root{number}"), Access::ReadWrite)).1.remove(0);
            (client, StuckWrite::new(memory, 0))
        })
        .collect();
    clients.iter().for_each(|(client, _)| client.send("fill m 200 312 1"));
    std::thread::sleep(Duration::from_millis(500));
    others_go_on(scene);
    ends_do_not_wait(scene);
    let (clients, nevers): (Vec<_>, Vec<_>) = clients.into_iter().unzip();
    drop(nevers);
    drop(clients);
}

fn many_held(scene: &Local) {
    let options = CreateOptions { size_bytes: 128 << 10, ..small() };
    let clients: Vec<_> = (0..115)
        .map(|number| {
            let client = ByHand::with(scene, name(&format!("/held{number}")), options.clone());
            (0..32).for_each(|number| drop(client.memory.page(number).put(1)));
            client
        })
        .collect();
    let nevers: Vec<_> = clients.iter().map(|client| StuckWrite::new(&client.frames, 0)).collect();
    others_go_on_with(scene, 2048);
    drop(nevers);
}

/// Root's command ends soon.
fn is_soon(what: &str, command: impl FnOnce() -> Result<(), String>) {
    let begun = Instant::now();
    command().unwrap_or_else(|why| panic!("{what}: {why}"));
    assert!(begun.elapsed() < 2 * SOON, "{what} took {:?}", begun.elapsed());
}

fn stops(scene: &Local) -> Result<(), String> {
    scene.host.command(&["host", "stop", "--force"], |_| {}).map(drop)
}

fn stop() {
    let scene = &Local::of(KILLED);
    let (client, file) = atomic(scene, "/held");
    let never = StuckWrite::new(&file, 0);
    throws(&client, 1000, &sync_of(&client));
    let freed = frees_after(never, Duration::from_secs(40));
    is_soon("a stop", || stops(scene));
    freed();
    scene.host.start_again().expect("the host starts again");
}

/// Frees it after so long, if not before: so a host that waits is seen, and ends.
fn frees_after(never: StuckWrite, most: Duration) -> impl FnOnce() {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let _ = told.recv_timeout(most);
        drop(never);
    });
    move || drop(tell)
}

fn start(scene: &Local) {
    let (mut client, file) = atomic(scene, "/held");
    client.raw.ask(&sync_of(&client), &[]).expect("an answer").expect("it is synced");
    scene.host.kill_both();
    let freed = frees_after(StuckWrite::new(&file, 0), Duration::from_secs(40));
    is_soon("a start", || scene.host.start_again());
    others_go_on(scene);
    freed();
}

fn end(scene: &Local) {
    let (client, file) = atomic(scene, "/held");
    let freed = frees_after(StuckWrite::new(&file, 0), Duration::from_secs(40));
    throws(&client, 1000, &sync_of(&client));
    let before = scene.host.status().host_pid;
    scene.host.kill_host();
    others_go_on(scene);
    assert_ne!(scene.host.status().host_pid, before);
    freed();
}

fn replacement(scene: &Local) {
    let (mut client, file) = atomic(scene, "/held");
    client.raw.ask(&sync_of(&client), &[]).expect("an answer").expect("it is synced");
    let freed = frees_after(StuckWrite::new(&file, 0), Duration::from_secs(40));
    let before = scene.host.status().host_pid;
    scene.host.kill_host();
    others_go_on(scene);
    assert_ne!(scene.host.status().host_pid, before);
    freed();
}

/// Lines about each of many objects, whose files their owner has emptied.
fn lines(scene: &Local) {
    let options = CreateOptions { size_bytes: 1 << 20, pager: PagerKind::File, ..small() };
    for number in 0..40 {
        let file = scene.file(&format!("short{number}"), options.size_bytes);
        let client = ByHand::of_a_file(scene, name(&format!("/short{number}")), options.clone(), &file);
        rustix::fs::ftruncate(&file, 0).expect("its own file");
        for number in 0..36 {
            assert!(client.memory.page(number * 7).get().is_err(), "a page of a file that has none");
        }
    }
    let before = scene.host.status().keeper_pid;
    scene.host.kill_keeper();
    wait::until("another keeper", || (scene.host.status().keeper_pid != before).then_some(()));
    wait::until("the log says so", || scene.host.log().contains("starting another").then_some(()));
}
