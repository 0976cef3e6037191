//! Runs one attack, and judges it.
//!
//! Each attack has a process of its own: what waits in one (a file system that falls silent) holds
//! up no other.

use crate::bystander::{Bystander, Noticed};
use crate::held::{self, Held};
use crate::scene::{Cluster, Local, Machine, Members};
use crate::{Attack, How, LeftOut};
use commonhold::EntryInfo;
use commonhold_object::Ownership;
use commonhold_tests::{TestHost, host::program};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What came of an attack.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Outcome {
    /// Why it counts as having got through; none: it was held off.
    pub breach: Option<String>,
    /// Why it was not tried.
    pub left_out: Option<String>,
    /// What the bystander noticed, if there was one.
    pub noticed: Option<Noticed>,
    /// How long it took.
    pub seconds: f64,
}

/// Runs an attack in a scene and a process of its own.
pub fn run(attack: &Attack) -> Outcome {
    let mut command = Command::new(program("commonhold-attacks"));
    let output = command.args(["here", attack.id]).stdin(Stdio::null()).env("RUST_BACKTRACE", "0").output();
    let output = output.expect("the suite's program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let outcome = serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_else(|_| {
        let breach = Some(format!("its process ended early: {}", output.status));
        Outcome { breach, ..Outcome::default() }
    });
    // An attack that was held off has panics of its own: of its session, that was ended.
    if outcome.breach.is_some() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
    }
    outcome
}

/// Runs an attack in this process.
pub fn run_here(attack: &Attack) -> Outcome {
    let start = Instant::now();
    let mut noticed = None;
    let judged = catch_unwind(AssertUnwindSafe(|| match attack.how {
        How::User(machine, attack) => noticed = Some(against_a_host(machine, attack)),
        How::Member(cluster, attack) => noticed = Some(against_a_cluster(cluster, attack)),
        How::Alone(attack) => attack(),
    }));
    let (mut breach, mut left_out) = (None, None);
    match judged.map_err(|panic| panic.downcast::<LeftOut>()) {
        Ok(()) => {}
        Err(Ok(why)) => left_out = Some(why.0),
        Err(Err(panic)) => breach = Some(words_of(&*panic)),
    }
    Outcome { breach, left_out, noticed, seconds: start.elapsed().as_secs_f64() }
}

fn against_a_host(machine: Machine, attack: fn(&Local)) -> Noticed {
    let scene = Local::of(machine);
    let mut bystander = Bystander::of_a_user(&scene.host);
    let (before, held, owned) = (processes(&scene.host), Held::by(&scene.host), owned(&scene.host));
    let noticed = bystander.while_runs(|| attack(&scene));
    assert_eq!(self::owned(&scene.host), owned, "the bystander's object was changed");
    if !machine.kills {
        assert_eq!(processes(&scene.host), before, "a process was replaced:\n{}", scene.host.log());
    }
    held::returns_to(&held, &scene.host);
    noticed
}

fn against_a_cluster(cluster: Cluster, attack: fn(&Members)) -> Noticed {
    let scene = Members::of(cluster);
    let before: Vec<_> = scene.hosts.iter().map(processes).collect();
    let mut bystander = Bystander::of(scene.user());
    let held: Vec<_> = scene.hosts.iter().map(Held::by).collect();
    let noticed = bystander.while_runs(|| attack(&scene));
    for (number, (host, before)) in scene.hosts.iter().zip(before).enumerate() {
        if cluster.kills != Some(number) {
            assert_eq!(processes(host), before, "a process was replaced:\n{}", host.log());
        }
        held::processes_return_to(&held[number], host);
    }
    noticed
}

/// The size, owner and mode of the bystander's object.
fn owned(host: &TestHost) -> (u64, Ownership) {
    match host.connect().stat("/bystander").expect("it is there") {
        EntryInfo::Object(info) => (info.options.size_bytes, info.ownership),
        other => panic!("the bystander's object became {other:?}"),
    }
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
