//! What holds of every machine, tried on many made ones.

use super::made::{Map, PAGE, World};
use super::{equal, page_tables, relocation, report, sharing, unique};
use crate::report::{Proof, SharingFigure};
use proptest::prelude::*;

/// What one process does with one file.
#[derive(Clone, Debug)]
struct Use {
    kind: u8,
    file: usize,
    offset: u64,
    length: u64,
    resident: u64,
    copied: u64,
}

#[derive(Clone, Debug)]
struct Plan {
    /// How each file came about: new, a copy, or the same frames as an earlier one.
    files: Vec<(u8, usize, u64)>,
    processes: Vec<(usize, bool, Vec<Use>)>,
    frames: bool,
}

fn plan() -> impl Strategy<Value = Plan> {
    let files = prop::collection::vec((0..3u8, 0..6usize, 4..40u64), 1..6);
    let one = (0..5u8, 0..6usize, 0..8u64, 1..24u64, 0..24u64, 0..6u64).prop_map(
        |(kind, file, offset, length, resident, copied)| Use {
            kind,
            file,
            offset,
            length,
            resident: resident.min(length),
            copied: copied.min(resident).min(length),
        },
    );
    let processes = prop::collection::vec((0..6usize, any::<bool>(), prop::collection::vec(one, 0..6)), 1..8);
    (files, processes, any::<bool>()).prop_map(|(files, processes, frames)| Plan { files, processes, frames })
}

fn build(plan: &Plan) -> World {
    let mut world = World::default();
    for (place, (kind, of, pages)) in plan.files.iter().enumerate() {
        let path = format!("/tree{}/lib{place}.so", place % 2);
        let _ = match kind {
            1 if place > 0 => world.copy(&path, of % place),
            2 if place > 0 => world.same_frames(&path, of % place),
            _ => world.file(&path, *pages),
        };
    }
    for (place, (program, fork, uses)) in plan.processes.iter().enumerate() {
        if *fork && place > 0 {
            world.fork(place - 1);
            continue;
        }
        let process = world.process("p");
        world.program(process, program % plan.files.len());
        world.process_mut(process).container = (place % 3 > 0).then(|| format!("c{}", place % 3));
        for one in uses {
            let file = one.file % plan.files.len();
            let (offset, length) = (one.offset, one.length);
            let map = match one.kind {
                0 | 1 => Map::text(file, offset, length),
                2 => Map::constants(file, offset, length),
                3 => Map::data(file, offset, length),
                _ => Map::heap(length),
            };
            let copied = if one.kind == 4 { one.resident } else { one.copied };
            world.map(process, map.copied(0..copied).resident(0..one.resident));
        }
    }
    world.frames(plan.frames)
}

fn holds(figure: &SharingFigure) {
    assert!(figure.shared <= figure.active);
    assert!(figure.with_sharing_bytes <= figure.without_sharing_bytes);
    assert!(figure.savings_ratio.is_none_or(|ratio| ratio >= 1.0));
    assert!(figure.extent.is_none_or(|extent| (0.0..=1.0).contains(&extent)));
    assert_eq!(figure.active > 0, figure.extent.is_some());
    assert_eq!(figure.active > 0, figure.savings_ratio.is_some());
}

proptest! {
    #[test]
    fn sharing_never_costs(plan in plan()) {
        let sharing = sharing::figure(&build(&plan).snapshot());
        holds(&sharing.programs);
        holds(&sharing.all_text);
        holds(&sharing.all_read_only);
        prop_assert!(sharing.programs.active <= sharing.all_text.active);
        prop_assert!(sharing.all_text.active <= sharing.all_read_only.active);
    }

    #[test]
    fn shares_never_exceed_the_union(plan in plan()) {
        let world = build(&plan).frames(false);
        let snapshot = world.snapshot();
        let text = sharing::figure(&snapshot).all_text;
        // A page at least for each segment, however many share it; and what is the file's of a mapping is the difference of
        // two shares, each rounded down to a KiB.
        let mappings: usize = snapshot.processes.iter().map(|process| process.mappings.len()).sum();
        let rounding = text.active * PAGE + mappings as u64 * 1024;
        prop_assert!(text.with_sharing_bytes <= world.text_union() + rounding);
    }

    #[test]
    fn frames_are_the_union_where_text_does_not_overlap(mut plan in plan()) {
        for one in plan.processes.iter_mut().flat_map(|(_, _, uses)| uses) {
            one.kind = if one.kind == 4 { 4 } else { 0 };
            one.offset = 0;
        }
        let world = build(&plan).frames(true);
        let text = sharing::figure(&world.snapshot()).all_text;
        prop_assert_eq!(text.with_sharing_bytes, world.text_union());
    }

    #[test]
    fn unique_is_within_the_share_and_the_share_within_what_is_resident(plan in plan()) {
        for unique in unique::figure(&build(&plan).snapshot()) {
            prop_assert!(unique.unique_bytes <= unique.proportional_bytes, "{:?}", unique);
            prop_assert!(unique.proportional_bytes <= unique.resident_bytes, "{:?}", unique);
        }
    }

    #[test]
    fn a_saving_is_never_more_than_is_there(plan in plan()) {
        let snapshot = build(&plan).snapshot();
        for group in equal::groups(&snapshot) {
            let figure = &group.figure;
            let resident: u64 = figure.resident_bytes.iter().flatten().sum();
            let largest = figure.resident_bytes.iter().flatten().max().copied().unwrap_or(0);
            prop_assert!(figure.saving_bytes <= resident - largest, "one copy stays: {:?}", figure);
            let proven = matches!(figure.proof, Proof::Frames | Proof::Proportional);
            prop_assert_eq!(figure.saving_bytes > 0, proven, "{:?}", figure);
            prop_assert_eq!(proven, group.apart.len() > 1);
        }
        let relocation = relocation::figure(&snapshot);
        prop_assert!(relocation.libraries.iter().map(|one| one.saving_bytes).sum::<u64>() <= relocation.relro_bytes);
        let tables = page_tables::figure(&snapshot);
        prop_assert!(tables.saving_bytes <= tables.total_bytes);
    }

    #[test]
    fn equal_files_with_the_same_frames_are_never_waste(plan in plan()) {
        let only_mounts = Plan {
            files: plan.files.iter().map(|(kind, of, pages)| (if *kind == 1 { 2 } else { *kind }, *of, *pages)).collect(),
            ..plan
        };
        for group in equal::groups(&build(&only_mounts).snapshot()) {
            prop_assert_eq!(group.figure.saving_bytes, 0);
        }
    }

    #[test]
    fn the_order_of_processes_changes_nothing(plan in plan(), order in prop::collection::vec(any::<u32>(), 8)) {
        let mut snapshot = build(&plan).snapshot();
        let first = report(&snapshot, "machine");
        let mut keyed: Vec<_> = std::mem::take(&mut snapshot.processes).into_iter().zip(order).collect();
        keyed.sort_by_key(|(_, key)| *key);
        snapshot.processes = keyed.into_iter().map(|(process, _)| process).collect();
        let second = report(&snapshot, "machine");
        prop_assert_eq!(first, second);
    }
}
