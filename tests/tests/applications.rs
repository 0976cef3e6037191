//! The four applications of docs/APPLICATIONS.md, at sizes that are done at once: in one process, in several, on several hosts.

use commonhold_tests::applications::{APPLICATIONS, Applications, Running, Said, run};
use commonhold_tests::cluster::cluster;
use commonhold_tests::{PAGE, TestHost};
use std::collections::BTreeSet;

/// A size of each, and words for it: several pages for each activity.
fn small(name: &str) -> &'static str {
    match name {
        "matrix" => "--size 70",
        "path" => "--size 80",
        "locus" => "--size 700 --steps 2",
        _ => "--size 2000 --steps 4",
    }
}

/// As `app_random` of `app.h`.
fn random(seed: u64, number: u64) -> u64 {
    let z = seed
        .wrapping_mul(0xd134_2543_de82_ef95)
        .wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn digest(numbers: impl Iterator<Item = u64>) -> String {
    let one = |digest: u64, number: u64| {
        (digest ^ number).wrapping_mul(0x100_0000_01b3).wrapping_add(0x9e37_79b9_7f4a_7c15)
    };
    format!("{:016x}", numbers.fold(0, one))
}

/// The product, column by column, in whole numbers.
fn product(seed: u64, size: u64) -> String {
    let element = |seed: u64, i: u64, j: u64| (random(seed, i * size + j) % 16) as i64 - 8;
    let mut all = vec![0; (size * size) as usize];
    for k in 0..size {
        for j in 0..size {
            let b = element(seed + 1, k, j);
            for i in 0..size {
                all[(i * size + j) as usize] += element(seed, i, k) * b;
            }
        }
    }
    digest(all.into_iter().map(|sum: i64| sum as u64))
}

/// All distances, by one ordered set of points that are to be looked at.
fn distances(seed: u64, size: u64) -> String {
    let length =
        |x: u64, y: u64, edge: u64| 1 + ((random(seed, y * size + x) >> (8 * edge)) & 0xff) as u32 % 255;
    let mut all = vec![u32::MAX; (size * size) as usize];
    let mut open = BTreeSet::from([(0u32, 0u64, 0u64)]);
    all[0] = 0;
    while let Some((distance, x, y)) = open.pop_first() {
        let mut next = Vec::new();
        for (edge, (dx, dy)) in [(1, 0), (0, 1), (1, 1)].into_iter().enumerate() {
            if x + dx < size && y + dy < size {
                next.push((distance + length(x, y, edge as u64), x + dx, y + dy));
            }
            if x >= dx && y >= dy {
                next.push((distance + length(x - dx, y - dy, edge as u64), x - dx, y - dy));
            }
        }
        for (distance, x, y) in next {
            let known = &mut all[(y * size + x) as usize];
            if distance < *known {
                open.remove(&(*known, x, y));
                *known = distance;
                open.insert((distance, x, y));
            }
        }
    }
    digest(all.into_iter().map(u64::from))
}

/// What the first activity must say besides; where results are equal, that of another way to compute them.
fn solved(name: &str) -> Option<String> {
    match name {
        "matrix" => Some(product(5, 70)),
        "path" => Some(distances(5, 80)),
        _ => None,
    }
}

fn check(name: &str, said: Said) {
    let said = said.is_right();
    if let Some(digest) = solved(name) {
        assert_eq!(said.member("digest"), digest, "{said:?}");
    }
    if name == "locus" {
        let (cost, sequential) = (said.number("cost"), said.number("sequential_cost"));
        assert!(cost as f64 <= 1.03 * sequential as f64 && cost > 0, "{said:?}");
    }
}

#[test]
fn each_is_right_in_one_process_and_in_several() {
    let programs = Applications::new();
    for name in APPLICATIONS {
        for activities in [1, 2, 3, 7] {
            let words = format!("--seed 5 --activities {activities} {}", small(name));
            let said = run(programs.command(name, &words));
            assert_eq!(said.lines.len(), activities, "{said:?}");
            check(name, said);
        }
    }
}

#[test]
fn each_is_right_in_processes_of_one_host_whatever_they_wait_by() {
    let (programs, host) = (Applications::new(), TestHost::start());
    for name in APPLICATIONS {
        for sync in ["memory", "named"] {
            for scheduler in ["local", "forwarding", "central"] {
                let words = format!(
                    "--seed 5 --memory /lab/{name} --activities 3 --sync {sync} --scheduler {scheduler} {}",
                    small(name)
                );
                check(name, run(programs.on(&host, name, &words)));
            }
        }
    }
    // They leave nothing behind.
    let said = host.command(&["ls", "/lab"], |_| {});
    assert_eq!(said.as_deref().map(str::trim), Ok(""), "{said:?}");
}

#[test]
fn each_is_right_on_two_hosts_and_on_three() {
    let (programs, hosts) = (Applications::new(), cluster(3));
    let kinds = [(3, ""), (2, "--scheduler central"), (2, "--page-size 16384")];
    for name in APPLICATIONS {
        for (count, more) in kinds {
            let words = format!("--seed 5 --memory /lab/{name} {} {more}", small(name));
            check(name, programs.run_on_each(&hosts[..count], name, &words));
        }
    }
}

#[test]
fn locks_with_names_go_between_hosts() {
    let (programs, hosts) = (Applications::new(), cluster(2));
    for name in APPLICATIONS {
        let words = format!("--seed 5 --memory /lab/{name} --sync named --deadline 20 {}", small(name));
        check(name, programs.run_on_each(&hosts, name, &words));
    }
}

/// Runs two activities of a host to where they are done, changes a number of what they share, and lets them look at it.
fn spoiled(name: &str, words: &str, offset: usize, spoil: impl Fn(&[u8; 8]) -> [u8; 8]) {
    let (programs, host) = (Applications::of(&[name]), TestHost::start());
    let words = format!("--stepped --memory /lab/{name} --activities 2 {words}");
    let mut running = Running::start(programs.on(&host, name, &words));
    running.await_word("ready");
    running.go_on();
    running.await_done();
    let object = host.connect().open(&format!("/lab/{name}"), commonhold::Access::ReadWrite).unwrap();
    let mut number = [0; 8];
    object.read_at(&mut number, offset as u64).unwrap();
    object.write_at(&spoil(&number), offset as u64).unwrap();
    running.go_on();
    let said = running.end();
    assert!(!said.status.success() && said.member("right") == "false", "{said:?}");
}

#[test]
fn a_wrong_element_of_the_product_is_found() {
    // The product is the first of the matrices; its rows have 256 bytes.
    spoiled("matrix", "--size 64", 3 * PAGE + 63 * 256, |number| {
        let mut other = *number;
        let first = f32::from_le_bytes(other[..4].try_into().unwrap());
        other[..4].copy_from_slice(&(first + 1.0).to_le_bytes());
        other
    });
}

#[test]
fn a_distance_that_is_too_long_or_too_short_is_found() {
    let distances = 6 * PAGE + 64 * 64 * 4;
    for change in [1i32, -1] {
        spoiled("path", "--size 64", distances + 4 * 63 * 64, |number| {
            let mut other = *number;
            let first = i32::from_le_bytes(other[..4].try_into().unwrap());
            other[..4].copy_from_slice(&(first + change).to_le_bytes());
            other
        });
    }
}

#[test]
fn a_cost_that_no_route_has_is_found() {
    spoiled("locus", "--size 512 --steps 1", 5 * PAGE + 4 * 16 * 100, |number| {
        (u64::from_le_bytes(*number) + 1).to_le_bytes()
    });
}

#[test]
fn a_particle_that_was_lost_slowed_down_or_not_counted_is_found() {
    let (places, velocities) = (19 * PAGE, 19 * PAGE + 512 * 24);
    let cells = velocities + 512 * 24;
    let words = "--size 512 --steps 3";
    spoiled("mp3d", words, places + 24 * 500, |_| f64::NAN.to_le_bytes());
    spoiled("mp3d", words, velocities + 24 * 500, |number| {
        (f64::from_le_bytes(*number) + 1e-3).to_le_bytes()
    });
    spoiled("mp3d", words, cells + 16 * 9 + 8, |number| (u64::from_le_bytes(*number) + 1).to_le_bytes());
}
