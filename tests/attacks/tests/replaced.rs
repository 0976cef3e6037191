//! What a user keeps the kernel from doing keeps no host from being replaced.

use commonhold_attacks::by_hand::{ByHand, Never};
use commonhold_attacks::scene::{Local, name, others_go_on, small};
use commonhold_object::CreateOptions;
use commonhold_tests::root_or_skip;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn a_host_whose_calls_do_not_come_back_is_followed() {
    if !root_or_skip("a host of root, and another user,") {
        return;
    }
    let scene = Local::new();
    let client =
        ByHand::with(&scene, name("/held"), CreateOptions { budget_bytes: Some(1 << 20), ..small() });
    let mut served_by_itself = ByHand::serving_itself(&scene, name("/claims"), small());
    let words = Arc::new(served_by_itself.words.take().expect("claim words"));
    for number in 0..16 {
        client.memory.page(number).put(1).expect("a page");
    }
    let nevers = [Never::held(&client.frames), Never::held(&words)];
    // A call of the host waits.
    let page = client.memory.page(3);
    page.forget();
    std::thread::spawn(move || drop(page.get()));
    std::thread::sleep(Duration::from_millis(300));
    let before = scene.host.status();
    scene.host.kill_host();
    let after = scene.host.wait_for_other_host(before.host_pid);
    others_go_on(&scene);
    scene.host.kill_host();
    scene.host.wait_for_other_host(after.host_pid);
    others_go_on(&scene);
    drop(nevers);
}
