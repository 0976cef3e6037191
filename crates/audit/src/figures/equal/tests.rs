//! Equal files, counted by hand.

use super::*;
use crate::figures::made::{Map, PAGE, World};

/// Copies of one library of 20 pages; each in use by so many processes, of which each has its first `pages` in memory.
fn copies(users: &[usize], pages: u64) -> World {
    let mut world = World::default();
    let first = world.file("/venv0/lib/big.so", 20);
    for (place, count) in users.iter().enumerate() {
        let file = if place == 0 { first } else { world.copy(&format!("/venv{place}/lib/big.so"), first) };
        for _ in 0..*count {
            let process = world.process("python");
            world.map(process, Map::text(file, 0, 20).resident(0..pages));
        }
    }
    world
}

fn only(world: &World) -> Group {
    let mut groups = groups(&world.snapshot());
    assert_eq!(groups.len(), 1);
    groups.remove(0)
}

#[test]
fn two_copies_in_use_are_one_too_many() {
    for frames in [true, false] {
        let group = only(&copies(&[2, 3], 10).frames(frames));
        let figure = &group.figure;
        assert_eq!(figure.proof, if frames { Proof::Frames } else { Proof::Proportional });
        assert_eq!(figure.disk_bytes, 20 * PAGE);
        assert_eq!(figure.paths, ["/venv1/lib/big.so", "/venv0/lib/big.so"], "the one in most use first");
        assert_eq!(figure.users, [3, 2]);
        // Pss of three is rounded down; the least that can be is what one has.
        assert_eq!(figure.resident_bytes, [Some(10 * PAGE); 2]);
        assert_eq!(figure.saving_bytes, 10 * PAGE);
        assert_eq!(figure.by, "content");
        assert!(figure.one_file_system && figure.containers.is_empty());
        assert_eq!(group.apart, [[1], [0]]);
    }
}

#[test]
fn ten_copies_leave_one() {
    let group = only(&copies(&[1; 10], 20).frames(true));
    assert_eq!(group.figure.saving_bytes, 9 * 20 * PAGE);
    assert_eq!(group.figure.disk_bytes, 9 * 20 * PAGE);
    assert_eq!(group.apart.len(), 10);
}

#[test]
fn pages_that_one_copy_alone_has_are_no_waste() {
    let mut world = World::default();
    let one = world.file("/a/x.so", 20);
    let other = world.copy("/b/x.so", one);
    for (file, pages) in [(one, 0..12), (other, 8..20)] {
        let process = world.process("p");
        world.map(process, Map::text(file, 0, 20).resident(pages));
    }
    // 12 + 12 pages, of which 20 are different ones.
    assert_eq!(only(&world.clone().frames(true)).figure.saving_bytes, 4 * PAGE);
    // Those that nobody maps any more are in memory too.
    world.file_mut(one).cached_pages = Some((0..16).collect());
    assert_eq!(only(&world.frames(true)).figure.saving_bytes, 8 * PAGE);
}

#[test]
fn one_layer_in_two_overlay_mounts_is_no_waste() {
    let mut world = World::default();
    let one = world.file("/merged1/x.so", 20);
    let other = world.same_frames("/merged2/x.so", one);
    for file in [one, other] {
        let process = world.process("p");
        world.map(process, Map::text(file, 0, 20));
    }
    let by_frames = only(&world.clone().frames(true)).figure;
    assert_eq!((by_frames.proof, by_frames.saving_bytes, by_frames.disk_bytes), (Proof::SameFrames, 0, 0));
    let by_shares = only(&world).figure;
    assert_eq!((by_shares.proof, by_shares.saving_bytes, by_shares.disk_bytes), (Proof::Unproven, 0, 0));
    assert!(!by_shares.one_file_system);
}

#[test]
fn a_third_copy_beside_two_mounts_of_one_layer_is_waste_once() {
    let mut world = World::default();
    let one = world.file("/merged1/x.so", 20);
    let same = world.same_frames("/merged2/x.so", one);
    let copy = world.copy("/elsewhere/x.so", one);
    for file in [one, same, copy] {
        let process = world.process("p");
        world.process_mut(process).container = (file != copy).then(|| format!("c{file}"));
        world.map(process, Map::text(file, 0, 20).resident(0..10));
    }
    let group = only(&world.frames(true));
    assert_eq!((group.figure.proof, group.figure.saving_bytes), (Proof::Frames, 10 * PAGE));
    assert_eq!(group.figure.disk_bytes, 20 * PAGE);
    assert_eq!(group.figure.containers, ["c0", "c1"]);
    assert_eq!(group.apart, [vec![one, same], vec![copy]]);
}

#[test]
fn users_out_of_scope_leave_it_unproven_by_shares() {
    let mut world = copies(&[2, 2], 16);
    for file in [0, 1] {
        for _ in 0..2 {
            let hidden = world.process("somebody else");
            world.map(hidden, Map::text(file, 0, 20).resident(0..16));
            world.outside(hidden);
        }
    }
    assert_eq!(only(&world.clone()).figure.proof, Proof::Unproven);
    assert_eq!(only(&world.frames(true)).figure.saving_bytes, 16 * PAGE);
}

#[test]
fn a_copy_that_nobody_maps_is_not_proven_to_be_apart() {
    let mut world = copies(&[1, 1], 10);
    let idle = world.copy("/old/lib/big.so", 0);
    world.file_mut(idle).cached_pages = Some((0..20).collect());
    let group = only(&world.frames(true));
    assert_eq!(group.figure.saving_bytes, 10 * PAGE);
    assert_eq!(group.figure.paths.len(), 3);
    assert_eq!(group.figure.resident_bytes[2], Some(20 * PAGE));
    assert_eq!(group.figure.disk_bytes, 2 * 20 * PAGE);
}

#[test]
fn disjoint_pages_prove_nothing() {
    let mut world = World::default();
    let one = world.file("/a/x.so", 20);
    let other = world.copy("/b/x.so", one);
    for (file, pages) in [(one, 0..10), (other, 10..20)] {
        let process = world.process("p");
        world.map(process, Map::text(file, 0, 20).resident(pages));
    }
    let figure = only(&world.frames(true)).figure;
    assert_eq!((figure.proof, figure.saving_bytes), (Proof::Unproven, 0));
}

#[test]
fn build_ids_name_a_group_and_stand_in_for_content_that_was_not_read() {
    let mut world = copies(&[1, 1], 10);
    for file in [0, 1] {
        world.file_mut(file).elf.as_mut().expect("an ELF file").build_id = Some(vec![0xab, 0x01]);
    }
    let figure = only(&world.clone().frames(true)).figure;
    assert_eq!((figure.identity.as_str(), figure.by.as_str()), ("ab01", "build ID"));
    for file in [0, 1] {
        world.file_mut(file).content = None;
    }
    let figure = only(&world.frames(true)).figure;
    assert_eq!((figure.by.as_str(), figure.proof), ("build ID, content not compared", Proof::Unproven));
    assert_eq!(figure.saving_bytes, 0);
}

#[test]
fn files_that_differ_are_deleted_or_are_written_make_no_group() {
    let mut world = World::default();
    let first = world.file("/a", 4);
    world.file("/b", 4);
    let deleted = world.copy("/c", first);
    world.file_mut(deleted).deleted = true;
    let written = world.copy("/d", first);
    let process = world.process("database");
    world.map(process, Map::shared(written, 0, 4));
    let empty = world.file("/e", 0);
    world.copy("/f", empty);
    assert!(groups(&world.frames(true).snapshot()).is_empty());
}

#[test]
fn the_largest_waste_comes_first() {
    let mut world = copies(&[1, 1], 3);
    let small = world.file("/venv0/lib/more.so", 30);
    let other = world.copy("/venv1/lib/more.so", small);
    for file in [small, other] {
        let process = world.process("p");
        world.map(process, Map::text(file, 0, 30));
    }
    let savings: Vec<u64> =
        groups(&world.frames(true).snapshot()).iter().map(|group| group.figure.saving_bytes).collect();
    assert_eq!(savings, [30 * PAGE, 3 * PAGE]);
}

#[test]
fn what_nobody_maps_is_told_from_what_processes_map() {
    for frames in [true, false] {
        let mut world = copies(&[1, 1], 8);
        // Somebody read both files whole: twelve pages of each are page cache alone.
        for file in [0, 1] {
            world.file_mut(file).cached_pages = Some((0..20).collect());
        }
        let figure = only(&world.frames(frames)).figure;
        assert_eq!(figure.saving_bytes, 20 * PAGE, "frames known: {frames}");
        assert_eq!(figure.mapped_saving_bytes, 8 * PAGE, "frames known: {frames}");
    }
}
