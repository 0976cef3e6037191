//! The kernel makes whoever writes to memory, cuts it off or punches holes in it wait for each
//! other, and a writer waits for the page that it writes from: which never comes, if the writer
//! wants that.

use super::{user, user_of, with};
use crate::Attack;
use crate::by_hand::{ByHand, PAGE};
use crate::scene::{Local, SOON, name, others_go_on, others_go_on_with, small};
use commonhold_object::wire::Request;
use commonhold_object::{CreateOptions, PagerKind};
use commonhold_tests::raw::bytes_of;
use commonhold_tests::stuck::StuckWrite;
use commonhold_tests::wait;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const ATTACKS: &[Attack] = &[
    user("waits.eviction", "write for ever to memory that the host must take pages from", eviction),
    user("waits.size", "the same, while its size changes", size),
    user(
        "waits.size_of_a_file",
        "write for ever to a file, while the size of its object changes",
        size_of_a_file,
    ),
    user_of(
        with(&["--budget", "16MiB"]),
        "waits.saving",
        "write for ever to a file into which the host must evict",
        saving,
    ),
    user_of(
        with(&["--budget", "40MiB"]),
        "waits.ahead",
        "use up the budgets of many objects whose files one writes to for ever",
        ahead,
    ),
    user("waits.removal", "go away from many removed objects whose files one writes to for ever", removal),
];

/// Has threads touch pages of which the page table knows nothing any more.
fn touch(client: &ByHand) {
    for number in 0..4 {
        let page = client.memory.page(number);
        page.forget();
        std::thread::spawn(move || drop(page.get()));
    }
    std::thread::sleep(Duration::from_millis(300));
}

fn eviction(scene: &Local) {
    let options = CreateOptions { size_bytes: 4 << 20, budget_bytes: Some(1 << 20), ..small() };
    let client = ByHand::with(scene, name("/held"), options);
    let pages = client.memory.length / PAGE;
    // As many as there is room for.
    (0..200).for_each(|number| client.memory.page(number).put(1).expect("a page"));
    let never = StuckWrite::new(&client.frames, 0);
    let threads: Vec<_> = (200..pages)
        .step_by(64)
        .map(|first| {
            let memory = client.memory;
            std::thread::spawn(move || {
                for number in first..(first + 64).min(pages) {
                    // Refused or not: what counts is what others notice.
                    let _ = memory.page(number).put(2);
                }
            })
        })
        .collect();
    // Now somebody waits for that lock, and these come after it.
    std::thread::sleep(Duration::from_millis(300));
    touch(&client);
    others_go_on(scene);
    drop((never, threads));
}

/// Asks for another size, and does not wait.
fn resizes(client: &ByHand, named: &str) {
    let resize = Request::Resize { name: name(named), size_bytes: 4096, of: None };
    assert!(client.raw.throw(&bytes_of(1000, &resize), &[]));
    std::thread::sleep(Duration::from_millis(300));
}

fn size(scene: &Local) {
    let client = ByHand::with(scene, name("/held"), small());
    (0..16).for_each(|number| client.memory.page(number).put(1).expect("a page"));
    let never = StuckWrite::new(&client.frames, 0);
    resizes(&client, "/held");
    touch(&client);
    others_go_on(scene);
    drop(never);
}

/// A client with an object of a file, of which it has written all pages.
fn of_a_file(scene: &Local, named: &str, options: CreateOptions) -> (ByHand, Arc<OwnedFd>) {
    let options = CreateOptions { pager: PagerKind::File, ..options };
    let file = Arc::new(scene.file(named.trim_start_matches('/'), options.size_bytes));
    let client = ByHand::of_a_file(scene, name(named), options, &file);
    (client, file)
}

fn size_of_a_file(scene: &Local) {
    let (client, file) = of_a_file(scene, "/held", small());
    (0..16).for_each(|number| client.memory.page(number).put(1).expect("a page"));
    let never = StuckWrite::new(&file, 0);
    resizes(&client, "/held");
    touch(&client);
    others_go_on(scene);
    drop(never);
}

/// Whoever needs room takes it from who has most, and that is the attacker.
fn saving(scene: &Local) {
    let options = CreateOptions { size_bytes: 12 << 20, ..small() };
    let (client, file) = of_a_file(scene, "/held", options);
    (0..3000).for_each(|number| client.memory.page(number).put(1).expect("a page"));
    let never = StuckWrite::new(&file, 0);
    others_go_on_with(scene, 2048);
    others_go_on_with(scene, 2048);
    drop(never);
}

/// More than threads for what is urgent.
const MANY: usize = 40;

/// What is evicted before anybody waits for it.
fn ahead(scene: &Local) {
    let clients: Vec<_> = (0..MANY)
        .map(|number| {
            let path = scene.host.scratch().join(&format!("held{number}"));
            let file = Arc::new(scene.file(&format!("held{number}"), 2 << 20));
            let worker = scene.attacker();
            let options = format!("file={} sync=ordered budget=1048576", path.display());
            worker.ok(&format!("create o /held{number} {options}"));
            worker.ok("map o o rw shared 0 0");
            // One by one, so that each is saved for itself.
            (0..224).for_each(|page| drop(worker.ok(&format!("fill o {} 1 1", 2 * page))));
            (worker, file)
        })
        .collect();
    let nevers: Vec<_> = clients.iter().map(|(_, file)| StuckWrite::new(file, 0)).collect();
    clients.iter().for_each(|(worker, _)| worker.send("fill o 448 64 1"));
    std::thread::sleep(Duration::from_millis(500));
    others_go_on_with(scene, 2048);
    others_go_on_with(scene, 2048);
    drop(nevers);
}

fn removal(scene: &Local) {
    let clients: Vec<_> = (0..MANY)
        .map(|number| {
            let path = scene.host.scratch().join(&format!("held{number}"));
            let file = Arc::new(scene.file(&format!("held{number}"), 65_536));
            let worker = scene.attacker();
            worker.ok(&format!("create o /held{number} file={} sync=atomic", path.display()));
            worker.ok("map o o rw shared 0 0");
            worker.ok("fill o 0 16 1");
            worker.ok(&format!("remove /held{number}"));
            (worker, file)
        })
        .collect();
    let nevers: Vec<_> = clients.iter().map(|(_, file)| StuckWrite::new(file, 0)).collect();
    // It comes into the journal, and waits to come into the file.
    clients.iter().for_each(|(worker, _)| worker.send("sync o 0 65536"));
    std::thread::sleep(Duration::from_millis(500));
    drop(clients);
    std::thread::sleep(Duration::from_millis(500));
    others_go_on(scene);
    // Whoever goes now is forgotten at once.
    let before = scene.host.status().clients;
    drop((0..4).map(|_| scene.other()).collect::<Vec<_>>());
    let forgotten = wait::within(SOON, || (scene.host.status().clients <= before).then_some(()));
    assert!(forgotten.is_some(), "ends of sessions wait");
    drop(nevers);
}
