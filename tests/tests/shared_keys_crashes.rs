//! Programs that share System V segments with another machine, killed at any step of it, and hosts, too.

use commonhold_tests::crash::{Chance, rounds};
use commonhold_tests::host::signal;
use commonhold_tests::machines::{Machines, Program, machines};
use commonhold_tests::wait::until;

const IPC_CREAT: i32 = 0o1000;
const SIZE: usize = 50_000;

fn nothing_is_left(machines: &Machines) {
    // A twin that means nothing any more goes when somebody asks.
    let all_gone = || {
        [0, 1].iter().all(|number| machines.program(*number).get(SIZE, 0) == "ENOENT")
            && machines.hosts.iter().all(|host| host.connect().list("/").is_ok_and(|list| list.is_empty()))
    };
    until("nothing is left", || all_gone().then_some(()));
}

/// Whoever is killed, others find the segment or none, and it is as it was written.
#[test]
fn programs_die_at_any_step() {
    let Some(machines) = machines() else { return };
    let mut chance = Chance::new("shared keys and kills");
    let mut steady = [machines.program(0), machines.program(1)];
    for round in 0..rounds(12) {
        let removes = round % 3 == 2;
        steady.iter_mut().for_each(|program| program.attaches(SIZE, IPC_CREAT | 0o600));
        steady[0].says("swap 0 1", "0");
        let hit = chance.below(2) as usize;
        let mut victim = machines.program(hit);
        let steps: &[&str] = if removes {
            &["get 50000 384", "attach 0 0", "swap 0 1", "remove", "detach"]
        } else {
            &["get 50000 384", "attach 0 0", "swap 0 1", "swap 49999 7", "detach"]
        };
        let waits = chance.below(steps.len() as u64 + 1) as usize;
        for (number, step) in steps.iter().enumerate() {
            victim.send(step);
            if number < waits {
                victim.answer();
            }
        }
        chance.pause(3);
        drop(victim); // killed
        steady[1].says("swap 0 2", "1");
        steady[0].says("swap 0 3", "2");
        for program in &mut steady {
            program.says("detach", "ok");
        }
        let answer = steady[round % 2].ask("remove");
        assert!(["ok", "EIDRM", "EINVAL"].contains(&answer.as_str()), "round {round}: {answer}");
        nothing_is_left(&machines);
    }
}

/// Hosts are killed while programs attach and detach; what is written is seen on the other machine.
#[test]
#[ignore = "a host that has just taken over answers ENOMEM until it has joined the registry again"]
fn hosts_die_while_programs_come_and_go() {
    let Some(machines) = machines() else { return };
    let mut chance = Chance::new("shared keys and kills of hosts");
    let mut all: Vec<Program> = [0, 1].iter().map(|number| machines.program(*number)).collect();
    all[0].attaches(SIZE, IPC_CREAT | 0o600);
    let mut last = 0;
    for round in 0..rounds(10) {
        let hit = chance.below(2) as usize;
        let before = machines.hosts[hit].status().host_pid;
        all[1].send("get 50000 384");
        all[1].send("attach 0 0");
        chance.pause(4);
        signal(before, libc::SIGKILL);
        let said = [all[1].answer(), all[1].answer()];
        assert_eq!(said, ["ok", "ok"], "round {round}, host {hit}");
        let next = round + 1;
        all[round % 2].says(&format!("swap 0 {next}"), &last.to_string());
        all[1 - round % 2].says("see 0", &next.to_string());
        last = next;
        machines.hosts[hit].wait_for_other_host(before);
        all[1].says("detach", "ok");
    }
    all[0].says("remove", "ok");
    drop(all);
    nothing_is_left(&machines);
}
