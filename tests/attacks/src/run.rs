//! Runs one attack, and judges it.

use crate::bystander::{Bystander, Noticed};
use crate::scene::{BYSTANDER, Local, Members};
use crate::{Attack, How};
use commonhold_tests::{TestHost, wait};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// What came of an attack.
#[derive(Debug)]
pub struct Outcome {
    /// Why it counts as having got through; none: it was held off.
    pub breach: Option<String>,
    /// What the bystander noticed.
    pub noticed: Noticed,
    /// How long it took.
    pub took: Duration,
}

/// Runs an attack in a scene of its own.
pub fn run(attack: &Attack) -> Outcome {
    let start = Instant::now();
    let mut noticed = Noticed::default();
    let judged = catch_unwind(AssertUnwindSafe(|| match attack.how {
        How::User(attack) => noticed = against_a_host(attack),
        How::Member(attack) => noticed = against_a_cluster(attack),
    }));
    let breach = judged.err().map(|panic| words_of(&*panic));
    Outcome { breach, noticed, took: start.elapsed() }
}

fn against_a_host(attack: fn(&Local)) -> Noticed {
    let scene = Local::new();
    let before = processes(&scene.host);
    let bystander = Bystander::start(&scene.host, BYSTANDER);
    attack(&scene);
    let noticed = bystander.end();
    assert_eq!(processes(&scene.host), before, "a process was replaced:\n{}", scene.host.log());
    wait::until("the attacker's connections are forgotten", || {
        (scene.host.status().clients <= 2).then_some(())
    });
    noticed
}

fn against_a_cluster(attack: fn(&Members)) -> Noticed {
    let scene = Members::new();
    let before: Vec<_> = scene.hosts.iter().map(processes).collect();
    let bystander = Bystander::go_on(scene.user());
    attack(&scene);
    let noticed = bystander.end();
    for (host, before) in scene.hosts.iter().zip(before) {
        assert_eq!(processes(host), before, "a process was replaced:\n{}", host.log());
    }
    noticed
}

/// Host and keeper.
fn processes(host: &TestHost) -> (u32, u32) {
    let status = host.status();
    (status.host_pid, status.keeper_pid)
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().cloned();
    words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned())).unwrap_or_default()
}
