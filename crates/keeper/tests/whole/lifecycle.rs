//! Orderly ends, restarts, upgrades, and those that go wrong.

use crate::driver::{Driver, kill_and_wait, signal, wait_for_end};
use commonhold_keeper::{KeeperCommand, KeeperEvent, Key, Serves, Vault, lock_state_directory};
use commonhold_sys::process;
use rustix::process::Signal;
use std::process::Command;
use std::sync::Arc;

#[test]
fn exit_ends_both_and_frees_the_directory() {
    let driver = Driver::start();
    let status = driver.status();
    let both = [status.host, status.keeper].map(|pid| process::pidfd(pid).unwrap());
    assert!(lock_state_directory(driver.state()).is_err());
    assert!(driver.try_ask("exit").is_none());
    both.iter().for_each(wait_for_end);
    lock_state_directory(driver.state()).unwrap();
}

#[test]
fn sigterm_to_the_keeper_ends_both_but_other_signals_do_not() {
    let driver = Driver::start();
    let status = driver.status();
    let both = [status.host, status.keeper].map(|pid| process::pidfd(pid).unwrap());
    signal(status.keeper, Signal::INT);
    signal(status.keeper, Signal::HUP);
    assert_eq!(driver.kill_host().keeper, status.keeper);
    let next = process::pidfd(driver.status().host).unwrap();
    signal(status.keeper, Signal::TERM);
    both.iter().chain([&next]).for_each(wait_for_end);
    lock_state_directory(driver.state()).unwrap();
}

#[test]
fn a_second_keeper_is_refused_and_names_the_first() {
    let driver = Driver::start();
    let keeper = driver.status().keeper;
    let second = || {
        let program = driver.state().join("program");
        Command::new(program).arg("keeper").arg("--state").arg(driver.state()).output().unwrap()
    };
    let said = second();
    assert_eq!(said.status.code(), Some(1));
    let error = String::from_utf8(said.stderr).unwrap();
    assert!(error.contains(&format!("process {keeper}")), "{error}");
    // The next keeper has its own number there.
    let keeper = driver.kill_keeper().keeper;
    let error = String::from_utf8(second().stderr).unwrap();
    assert!(error.contains(&format!("process {keeper}")), "{error}");
}

#[test]
fn a_host_that_leaves_without_a_word_is_started_again() {
    let driver = Driver::start();
    let before = driver.status();
    assert!(driver.try_ask("leave").is_none());
    let after = driver.status_with(|now| now.host != before.host);
    assert_eq!((after.keeper, after.generation), (before.keeper, 2));
}

#[test]
fn restart_and_upgrade_keep_everything() {
    let driver = Driver::start();
    assert_eq!(driver.ask("operate 1 200 50"), "done");
    let (digest, first) = (driver.ask("digest"), driver.status());
    assert!(driver.try_ask("restart").is_none());
    let second = driver.status_with(|now| now.host != first.host);
    let program = driver.script("next program", "");
    assert!(
        driver.try_ask(&format!("restart {}", program.display())).is_some(),
        "a path in two words is no program"
    );
    let program = driver.script("next-program", "");
    assert!(driver.try_ask(&format!("restart {}", program.display())).is_none());
    let third = driver.status_with(|now| now.host != second.host);
    assert_eq!((third.generation, third.keeper, third.complete), (3, first.keeper, true));
    assert_eq!(driver.ask("digest"), digest);
    assert!(driver.log().contains(&format!("generation 3, program {}", program.display())));
    // A program that is not there is refused while the host still lives.
    let said = driver.ask("restart /nonexistent/program");
    assert!(said.contains("/nonexistent/program"), "{said}");
    assert_eq!(driver.ask("replace"), "done");
    let fourth = driver.status();
    assert!(fourth.keeper != third.keeper && fourth.host == third.host);
    assert!(driver.kill_host().complete);
    assert_eq!(driver.ask("digest"), digest);
}

#[test]
fn a_program_that_cannot_serve_gives_way_to_the_one_before() {
    let driver = Driver::start();
    assert_eq!(driver.ask("operate 1 200 50"), "done");
    let digest = driver.ask("digest");
    for (mode, code) in [("broken", 3), ("foreign", 7), ("rude", 9)] {
        let before = driver.status();
        let program = driver.script(mode, mode);
        assert!(driver.try_ask(&format!("restart {}", program.display())).is_none());
        let after = driver.status_with(|now| now.host != before.host);
        assert_eq!((after.generation, after.keeper), (before.generation + 2, before.keeper));
        assert_eq!(driver.ask("digest"), digest);
        let log = driver.log();
        assert!(log.contains(&format!("exit code {code})")), "{mode}: {log}");
        assert!(log.contains(&format!("{} ended before it was ready", program.display())), "{log}");
    }
    assert_eq!(driver.ask("blob stream/0"), "after rudeness");
    assert_eq!(driver.ask("blob stream/1"), "from the deaf");
}

#[test]
fn the_keeper_keeps_trying() {
    let driver = Driver::start();
    assert_eq!(driver.ask("operate 1 200 50"), "done");
    let (digest, status) = (driver.ask("digest"), driver.status());
    std::fs::write(driver.state().join("die"), "").unwrap();
    kill_and_wait(status.host);
    driver.wait("ten deaths", || (driver.log().matches("exit code 4)").count() >= 10).then_some(()));
    std::fs::remove_file(driver.state().join("die")).unwrap();
    let after = driver.status();
    assert!(after.generation > 10 && after.keeper == status.keeper);
    assert_eq!(driver.ask("digest"), digest);
}

#[test]
fn a_vault_without_a_keeper_mirrors_and_can_start_one() {
    let driver = Driver::start();
    assert!(driver.try_ask("exit").is_none());
    let lock = driver.wait("the lock", || lock_state_directory(driver.state()).ok());
    let command = KeeperCommand {
        serves: Serves::Host,
        program: driver.state().join("program"),
        state_directory: driver.state().to_owned(),
        host_arguments: Vec::new(),
    };
    let vault = Vault::alone().unwrap();
    let key = Key::new("object/1/frames");
    vault.put(&key, b"blob", None).unwrap();
    assert_eq!((vault.keeper_pid(), vault.next_event()), (0, None));
    assert!(vault.restart_me(None).is_err(), "nobody would start it again");
    let error = vault.replace_keeper(&command).unwrap_err();
    assert!(error.message.contains("lock"), "{error}");
    vault.put(&Key::new("lock"), b"", Some(Arc::new(lock))).unwrap();
    vault.replace_keeper(&command).unwrap();
    let first = vault.keeper_pid();
    assert!(!process::readable_within(vault.watch_fd(), 0).unwrap());
    kill_and_wait(first);
    assert!(process::readable_within(vault.watch_fd(), 20_000).unwrap());
    assert!(matches!(vault.next_event(), Some(KeeperEvent::Gone(_))));
    assert_eq!((vault.next_event(), vault.keeper_pid()), (None, 0));
    assert!(!process::readable_within(vault.watch_fd(), 0).unwrap());
    assert!(process::pidfd(first).is_err(), "the dead keeper was a child, and is reaped");
    vault.replace_keeper(&command).unwrap();
    assert_eq!(vault.get(&key).unwrap().blob, b"blob");
    // Replaced while it lives, as by an upgrade: who hears that it is gone leaves the next one alone.
    let second = vault.keeper_pid();
    vault.replace_keeper(&command).unwrap();
    let third = vault.keeper_pid();
    vault.replace_gone_keeper(&command).unwrap();
    assert!(second != third && vault.keeper_pid() == third);
    kill_and_wait(third);
    assert!(vault.next_event().is_some());
    vault.replace_gone_keeper(&command).unwrap();
    assert!(vault.keeper_pid() != third);
    kill_and_wait(vault.keeper_pid());
    assert!(vault.next_event().is_some());
}
