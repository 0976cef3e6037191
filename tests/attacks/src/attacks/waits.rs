//! The kernel makes whoever writes to memory, cuts it off or punches holes in it wait for each other, and a writer waits
//! for the page that it writes from: which never comes, if the writer wants that.

use super::user;
use crate::Attack;
use crate::by_hand::{ByHand, Memory, PAGE};
use crate::scene::{Local, name, others_go_on, small};
use commonhold_object::CreateOptions;
use commonhold_sys::userfaultfd::{Kind, Modes, Userfaultfd};
use commonhold_tests::wait;
use std::time::Duration;

pub(crate) const ATTACKS: &[Attack] = &[
    user("waits.eviction", "write for ever to memory that the host must take pages from", eviction),
];

/// A page that never comes, for as long as this lives.
struct Never {
    memory: Memory,
    uffd: Userfaultfd,
}

impl Never {
    fn new() -> Never {
        let file = commonhold_sys::frames::create("never", PAGE as u64).expect("a memfd");
        let memory = Memory::of(&file, PAGE);
        let (uffd, _) = Userfaultfd::create(Kind::Asynchronous, None).expect("faults");
        let modes = Modes { missing: true, minor: true, write_protect: false };
        uffd.register(memory.address as u64, PAGE as u64, modes).expect("it is registered");
        Never { memory, uffd }
    }

    /// Waits until somebody waits for it.
    fn is_waited_for(&self) {
        let mut faults = Vec::new();
        wait::until("somebody waits for the page", || {
            self.uffd.read_faults(&mut faults).ok()?;
            (!faults.is_empty()).then_some(())
        });
    }
}

/// Has a thread hold the lock of the memory until what this gives is dropped.
fn held(client: &ByHand) -> Never {
    let never = Never::new();
    let (memory, frames) = (never.memory, client.frames.clone());
    std::thread::spawn(move || drop(memory.write_to(&*frames, 0)));
    never.is_waited_for();
    never
}

fn eviction(scene: &Local) {
    let options = CreateOptions { size_bytes: 4 << 20, budget_bytes: Some(1 << 20), ..small() };
    let client = ByHand::with(scene, name("/held"), options);
    let pages = client.memory.length / PAGE;
    // As many as there is room for.
    (0..200).for_each(|number| client.memory.page(number).put(1).expect("a page"));
    let never = held(&client);
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
    for number in 0..4 {
        let page = client.memory.page(number);
        page.forget();
        std::thread::spawn(move || drop(page.get()));
    }
    std::thread::sleep(Duration::from_millis(300));
    others_go_on(scene);
    drop((never, threads));
}
