//! Histories that one memory could have given, and histories that none could.

use crate::{Act, EVERYBODY, History, Kept, Loss, OnLoss, Operation, check};

const NEVER: u64 = u64::MAX;

fn operation((host, act, start, end): (u8, Act, u64, u64)) -> Operation {
    Operation { register: 0, host, act, start, end: Some(end).filter(|end| *end != NEVER) }
}

fn history(operations: &[(u8, Act, u64, u64)], losses: &[Loss], on_loss: OnLoss) -> History {
    let operations = operations.iter().copied().map(operation).collect();
    History { operations, losses: losses.to_vec(), on_loss, kept: Kept::AtHome }
}

#[track_caller]
fn good(operations: &[(u8, Act, u64, u64)], losses: &[Loss], on_loss: OnLoss) {
    check(&history(operations, losses, on_loss)).unwrap_or_else(|violation| panic!("{}", violation.text));
}

#[track_caller]
fn bad(operations: &[(u8, Act, u64, u64)], losses: &[Loss], on_loss: OnLoss) {
    check(&history(operations, losses, on_loss)).expect_err("this is no history of one memory");
}

use Act::{Failed, Read, Revert, Sync, Write};
use OnLoss::Error;

#[test]
fn a_read_gives_what_was_written_last() {
    let plain = |operations: &[_]| good(operations, &[], Error);
    plain(&[(0, Read(0), 0, 1), (0, Write(5), 2, 3), (1, Read(5), 4, 5)]);
    // While it is being written both are right, for one after the other.
    plain(&[(0, Write(5), 2, 9), (1, Read(0), 3, 4), (1, Read(5), 5, 6), (2, Read(5), 7, 8)]);
    plain(&[(0, Write(5), 0, 9), (1, Write(6), 0, 9), (2, Read(6), 1, 2), (2, Read(5), 3, 4)]);
    bad(&[(0, Write(5), 2, 3), (1, Read(0), 4, 5)], &[], Error);
    bad(&[(0, Write(5), 2, 9), (1, Read(5), 3, 4), (2, Read(0), 5, 6)], &[], Error);
    bad(&[(0, Read(5), 0, 1), (0, Write(5), 2, 3)], &[], Error);
    bad(&[(0, Write(5), 0, 1), (0, Write(6), 2, 3), (1, Read(5), 4, 5)], &[], Error);
    bad(
        &[
            (0, Write(5), 0, 9),
            (1, Write(6), 0, 9),
            (2, Read(6), 1, 2),
            (2, Read(5), 3, 4),
            (2, Read(6), 5, 6),
        ],
        &[],
        Error,
    );
    bad(&[(0, Read(7), 0, 1)], &[], Error);
    bad(&[(0, Write(5), 0, 1), (1, Write(5), 2, 3)], &[], Error);
}

#[test]
fn what_has_no_end_may_have_happened_once_or_not_at_all() {
    good(&[(0, Write(5), 0, NEVER), (1, Read(0), 10, 11), (1, Read(5), 20, 21)], &[], Error);
    good(&[(0, Write(5), 0, NEVER), (1, Read(0), 10, 11), (0, Read(9), 0, NEVER)], &[], Error);
    bad(&[(0, Write(5), 0, NEVER), (1, Read(5), 10, 11), (1, Read(0), 20, 21)], &[], Error);
    bad(&[(0, Write(5), 10, NEVER), (1, Read(5), 0, 1)], &[], Error);
    let again = [(0, Write(5), 0, NEVER), (1, Read(5), 10, 11), (1, Write(6), 12, 13), (1, Read(5), 20, 21)];
    bad(&again, &[], Error);
}

const LOSS: Loss = Loss { hosts: 1 << 1, start: 100, end: Some(200) };

#[test]
fn a_loss_takes_back_what_nobody_else_had() {
    let revert = |operations: &[_]| good(operations, &[LOSS], OnLoss::Revert);
    let before = [(0, Write(5), 0, 1), (1, Write(6), 2, 3), (1, Write(7), 4, 5)];
    let with = |more: &[(u8, Act, u64, u64)]| [&before[..], more].concat();
    revert(&with(&[(0, Read(7), 150, 151)]));
    revert(&with(&[(0, Read(6), 150, 151)]));
    revert(&with(&[(0, Read(5), 150, 151), (0, Write(8), 300, 301), (1, Read(8), 302, 303)]));
    revert(&with(&[(1, Read(7), 140, 141), (0, Read(5), 150, 151)]));
    let wrong = |more: &[(u8, Act, u64, u64)]| bad(&with(more), &[LOSS], OnLoss::Revert);
    // Not what was before that.
    wrong(&[(0, Read(0), 150, 151)]);
    // Not before the loss, nor long after it.
    wrong(&[(0, Read(5), 50, 51)]);
    wrong(&[(0, Read(7), 210, 211), (0, Read(5), 300, 301)]);
    // It does not come again.
    wrong(&[(0, Read(5), 150, 151), (0, Read(7), 160, 161)]);
    wrong(&[(0, Read(5), 150, 151), (1, Read(6), 160, 161)]);
    // Another host has it.
    wrong(&[(0, Read(7), 50, 51), (0, Read(6), 150, 151)]);
    wrong(&[(0, Write(8), 50, 51), (0, Read(7), 150, 151)]);
    // It was synced.
    wrong(&[(1, Sync, 50, 51), (0, Read(5), 150, 151)]);
    revert(&with(&[(1, Sync, 50, NEVER), (0, Read(5), 150, 151)]));
    // Another host is lost.
    let other = Loss { hosts: 1 << 2, ..LOSS };
    bad(&with(&[(0, Read(5), 150, 151)]), &[other], OnLoss::Revert);
    // One loss takes once.
    wrong(&[(0, Read(5), 110, 111), (1, Write(8), 120, 121), (0, Read(5), 130, 131)]);
}

#[test]
fn a_lost_page_is_an_error_and_never_an_old_value() {
    let before = [(0, Write(5), 0, 1), (1, Write(6), 2, 3)];
    let with = |more: &[(u8, Act, u64, u64)]| [&before[..], more].concat();
    good(&with(&[(0, Failed, 150, 151), (0, Failed, 300, 301)]), &[LOSS], Error);
    good(&with(&[(0, Read(6), 150, 151)]), &[LOSS], Error);
    good(&with(&[(0, Failed, 150, 151), (0, Revert, 300, 301), (0, Read(5), 302, 303)]), &[LOSS], Error);
    good(&with(&[(0, Read(6), 50, 51), (1, Write(7), 90, NEVER), (0, Failed, 150, 151)]), &[LOSS], Error);
    bad(&with(&[(0, Read(5), 150, 151)]), &[LOSS], Error);
    bad(&with(&[(0, Failed, 150, 151), (0, Read(5), 302, 303)]), &[LOSS], Error);
    bad(&with(&[(0, Failed, 150, 151), (0, Read(6), 302, 303)]), &[LOSS], Error);
    bad(&with(&[(0, Failed, 150, 151), (0, Revert, 300, 301), (0, Read(0), 302, 303)]), &[LOSS], Error);
    bad(&with(&[(0, Failed, 50, 51)]), &[LOSS], Error);
    bad(&with(&[(0, Read(6), 50, 51), (0, Failed, 150, 151)]), &[LOSS], Error);
    bad(&with(&[(0, Failed, 150, 151)]), &[LOSS], OnLoss::Revert);
    bad(&with(&[(0, Failed, 150, 151)]), &[], Error);
}

/// Under forwarding the home, here host 0, keeps what it had itself. What one other host that is lost alone had goes back
/// by one run; when several are lost, or the home, it may be all since the home had it.
#[test]
fn what_comes_back_under_forwarding_may_be_older() {
    let judge = |more: &[(u8, Act, u64, u64)], loss: Loss, on_loss: OnLoss| {
        let before = [
            (0, Write(4), 0, 1),
            (0, Write(5), 2, 3),
            (1, Write(6), 4, 5),
            (2, Write(7), 6, 7),
            (1, Read(7), 8, 9),
        ];
        check(&History {
            kept: Kept::WhatHomeHad(0),
            ..history(&[&before[..], more].concat(), &[loss], on_loss)
        })
        .is_ok()
    };
    let revert = |more: &[_], loss| judge(more, loss, OnLoss::Revert);
    let (one, two, home) = (LOSS, Loss { hosts: 0b110, ..LOSS }, Loss { hosts: !1, ..LOSS });
    let write = (1, Write(8), 20, 21);
    assert!(revert(&[write, (2, Read(7), 150, 151)], one));
    assert!(!revert(&[write, (2, Read(6), 150, 151)], one));
    assert!(revert(&[write, (2, Read(5), 150, 151)], two) && revert(&[write, (2, Read(6), 150, 151)], two));
    assert!(!revert(&[write, (2, Read(4), 150, 151)], two), "the home had a newer one");
    // What others have read they may have dropped for somebody who wants to write.
    let read = [write, (2, Read(8), 30, 31)];
    assert!(!revert(&[read[0], read[1], (2, Read(7), 150, 151)], one));
    let wanted = [read[0], read[1], (0, Write(9), 90, 160)];
    assert!(revert(&[wanted[0], wanted[1], wanted[2], (2, Read(7), 150, 151)], one));
    assert!(!revert(&[wanted[0], wanted[1], wanted[2], (2, Read(4), 150, 151)], one));
    // Or for the one that is lost, which wrote again.
    let again = [read[0], read[1], (1, Write(9), 40, 41)];
    assert!(revert(&[again[0], again[1], again[2], (2, Read(7), 150, 151)], one));
    assert!(revert(&[again[0], again[1], again[2], (2, Read(8), 150, 151)], one));
    assert!(!revert(&[again[0], again[1], again[2], (2, Read(4), 150, 151)], one));
    assert!(!revert(&[again[0], again[1], (2, Sync, 35, 36), again[2], (2, Read(7), 150, 151)], one));
    // What others have too is lost with the home alone.
    assert!(!revert(&[(2, Read(5), 150, 151)], two) && revert(&[(2, Read(5), 150, 151)], home));
    assert!(!revert(&[(2, Read(5), 50, 51)], home));
    assert!(!revert(&[(2, Read(5), 150, 151), (2, Read(7), 160, 161)], home));
    assert!(!revert(&[(2, Sync, 20, 21), (2, Read(5), 150, 151)], home));
    let error = [write, (2, Failed, 150, 151), (0, Revert, 300, 301), (2, Read(5), 302, 303)];
    assert!(judge(&error, one, Error));
    assert!(!judge(&[write, (2, Read(5), 150, 151)], home, Error), "never an old value unasked");
}

/// Where the home's role moves, what was synced is certain, and what others have read only while no home is lost.
#[test]
fn with_a_home_that_moves_goes_what_was_not_synced() {
    let judge = |more: &[(u8, Act, u64, u64)], loss: Loss| {
        let before = [(0, Write(4), 0, 1), (0, Sync, 2, 3), (1, Write(5), 4, 5), (2, Write(6), 6, 7)];
        let history = history(&[&before[..], more].concat(), &[loss], OnLoss::Revert);
        check(&History { kept: Kept::Synced, ..history }).is_ok()
    };
    let (sharer, home) = (Loss { hosts: 0b100, ..LOSS }, Loss { hosts: EVERYBODY, ..LOSS });
    let read = (0, Read(6), 8, 9);
    for value in [6, 5] {
        assert!(judge(&[(1, Read(value), 150, 151)], sharer), "the last run may be gone");
    }
    assert!(!judge(&[(1, Read(4), 150, 151)], sharer) && !judge(&[read, (1, Read(5), 150, 151)], sharer));
    for value in [6, 5, 4] {
        assert!(judge(&[read, (1, Read(value), 150, 151)], home), "whoever had read it");
    }
    assert!(!judge(&[read, (1, Read(0), 150, 151)], home), "that was before the sync");
    assert!(!judge(&[read, (2, Sync, 10, 11), (1, Read(5), 150, 151)], home));
    assert!(!judge(&[read, (1, Read(4), 150, 151), (1, Read(6), 160, 161)], home), "it does not come again");
    assert!(!judge(&[read, (1, Read(4), 90, 95)], home), "too early");
    assert!(!judge(&[read, (1, Read(6), 210, 211), (1, Read(4), 300, 301)], home), "too late");
}

/// Numbers that look like nothing else.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// A few operations at random instants, with values that may or may not fit.
fn any(state: &mut u64) -> Vec<Operation> {
    let count = 2 + random(state) % 5;
    let act = |number: u64, state: &mut u64| match random(state) % 5 {
        0 | 1 => Write(number + 1),
        _ => Read(random(state) % (count + 1)),
    };
    (0..count)
        .map(|number| {
            let start = random(state) % 20;
            let length = 1 + random(state) % 10;
            let end = if random(state).is_multiple_of(8) { NEVER } else { start + length };
            operation((0, act(number, state), start, end))
        })
        .collect()
}

/// Every order that the instants allow is tried, with every choice of what without an end has happened.
fn some_order(left: &[Operation], value: u64) -> bool {
    if left.iter().all(|one| one.end.is_none()) {
        return true;
    }
    (0..left.len()).any(|first| {
        let one = left[first];
        let possible = left.iter().all(|other| other.end.is_none_or(|end| end >= one.start));
        let mut rest = left.to_vec();
        rest.remove(first);
        possible
            && match one.act {
                Write(written) => some_order(&rest, written),
                _ => {
                    (one.act == Read(value) && some_order(&rest, value))
                        || one.end.is_none() && some_order(&rest, value)
                }
            }
    })
}

/// The same verdict as from trying everything, for many small histories.
#[test]
fn the_verdict_is_that_of_trying_every_order() {
    let mut state = 1;
    let (mut yes, mut no) = (0, 0);
    for _ in 0..20_000 {
        let operations = any(&mut state);
        let wanted = some_order(&operations, 0);
        let history = History { operations, losses: Vec::new(), on_loss: Error, kept: Kept::AtHome };
        assert_eq!(check(&history).is_ok(), wanted, "{:#?}", history.operations);
        if wanted { yes += 1 } else { no += 1 }
    }
    assert!(yes > 1000 && no > 1000, "{yes} good and {no} bad ones");
}

/// What a real word gives to real threads is linearizable, and one read of an older value is found.
#[test]
fn threads_of_one_process_and_one_wrong_read_among_many() {
    use crate::load::{Load, Registers};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;
    struct Words([AtomicU64; 2]);
    impl Registers for Words {
        fn read(&self, register: u32) -> u64 {
            self.0[register as usize].load(Ordering::SeqCst)
        }
        fn write(&self, register: u32, value: u64) {
            self.0[register as usize].store(value, Ordering::SeqCst);
        }
        fn sync(&self, _: u32) -> bool {
            true
        }
    }
    let words = Words(Default::default());
    let directory =
        std::env::temp_dir().join(format!("commonhold-linear-{}-{}", std::process::id(), crate::now()));
    std::fs::create_dir(&directory).unwrap();
    let path = |process: u32| directory.join(process.to_string());
    std::thread::scope(|scope| {
        for process in 1..=6 {
            let (words, path) = (&words, path(process));
            let load = Load {
                host: process as u8,
                process,
                registers: 2,
                writes_percent: 40,
                pause: Duration::ZERO,
                sync_every: 100,
            };
            let mut left = 3000;
            scope.spawn(move || {
                load.run(&path, words, || {
                    left -= 1;
                    left < 0
                })
            });
        }
    });
    let mut operations: Vec<Operation> =
        (1..=6).flat_map(|process| crate::record::read(&path(process)).unwrap()).collect();
    std::fs::remove_dir_all(&directory).unwrap();
    let whole = |operations: &[Operation]| {
        check(&History {
            operations: operations.to_vec(),
            losses: Vec::new(),
            on_loss: Error,
            kept: Kept::AtHome,
        })
    };
    whole(&operations).unwrap_or_else(|violation| panic!("{}", violation.text));
    operations.sort_by_key(|one| one.start);
    let last = operations.iter().rposition(|one| matches!(one.act, Read(_)) && one.register == 0).unwrap();
    let old = operations[..last / 2].iter().find(|one| matches!(one.act, Write(_)) && one.register == 0);
    let Some(Write(value)) = old.map(|one| one.act) else { panic!("nobody wrote") };
    operations[last].act = Read(value);
    assert_eq!(whole(&operations).unwrap_err().register, 0);
}

/// What hosts did to a register that takes back what is lost: an operation each, at random instants, and which losses.
fn lossy(state: &mut u64, kept: Kept) -> History {
    let hosts = [0b001, 0b100, 0b101];
    let loss = |state: &mut u64| {
        let (hosts, start) = (hosts[random(state) as usize % 3], random(state) % 400);
        Loss { hosts, start, end: Some(start + 20 + random(state) % 100) }
    };
    let mut losses: Vec<Loss> = (0..3).map(|_| loss(state)).collect();
    losses.sort_by_key(|loss| loss.start);
    let (mut lost, mut free_at) = (losses.iter().peekable(), [0; 5]);
    // Each version with its writer, and whether another host has it.
    let (mut versions, mut operations) = (vec![(0, None, true)], Vec::new());
    let mut instants: Vec<u64> = (0..60).map(|_| random(state) % 500).collect();
    instants.sort_unstable();
    for at in instants {
        while let Some(loss) = lost.next_if(|loss| loss.start <= at) {
            let is_lost = |version: &mut (u64, Option<u8>, bool)| {
                !version.2 && version.1.is_some_and(|host| loss.hosts & (1 << host) != 0)
            };
            while !random(state).is_multiple_of(4) && versions.pop_if(|last| is_lost(last)).is_some() {}
            versions.last_mut().expect("the first stays").2 = true;
        }
        let Some(client) = free_at.iter().position(|free| *free <= at) else { continue };
        let (host, last) = (client as u8 % 3, *versions.last().expect("the first stays"));
        if last.1 != Some(host) {
            versions.last_mut().expect("it was there").2 = true;
        }
        let act = match random(state) % 10 {
            0 => Sync,
            1..=4 => Write(1000 + operations.len() as u64),
            _ => Read(last.0),
        };
        match act {
            Sync => versions = vec![(last.0, last.1, true)],
            Write(value) => versions.push((value, Some(host), kept == Kept::WhatHomeHad(host))),
            _ => {}
        }
        let (start, end) =
            (at.saturating_sub(random(state) % 8).max(free_at[client]), at + 1 + random(state) % 30);
        free_at[client] = end + 1;
        operations.push(operation((host, act, start, end)));
    }
    History { operations, losses, on_loss: OnLoss::Revert, kept }
}

/// Such histories are good; with one read of another value most are not.
#[test]
fn what_a_register_does_that_loses_is_accepted() {
    let mut state = 7;
    let mut found = 0;
    for round in 0..600 {
        let kept = [Kept::AtHome, Kept::WhatHomeHad(1), Kept::Synced][round % 3];
        let mut history = lossy(&mut state, kept);
        check(&history).unwrap_or_else(|violation| panic!("{kept:?}: {}", violation.text));
        let all = history.operations.clone();
        let reads: Vec<&mut Operation> =
            history.operations.iter_mut().filter(|one| matches!(one.act, Read(_))).collect();
        let writes: Vec<&Operation> = all.iter().filter(|one| matches!(one.act, Write(_))).collect();
        let write = writes[random(&mut state) as usize % writes.len()];
        let Write(value) = write.act else { unreachable!("a write") };
        let which = random(&mut state) as usize % reads.len();
        reads.into_iter().nth(which).expect("one of them").act = Read(value);
        found += u32::from(check(&history).is_err());
    }
    assert!(found > 300, "{found} of 600 wrong reads found");
}

#[test]
fn too_many_ways_are_no_reason_to_look_for_ever() {
    let at_once =
        |count: u64| -> Vec<_> { (0..count).map(|n| (n as u8, Write(n + 1), 0, 1000 + n)).collect() };
    good(&at_once(8), &[], Error);
    let violation = check(&history(&at_once(30), &[], Error)).unwrap_err();
    assert!(violation.text.contains("undecided"), "{}", violation.text);
}
