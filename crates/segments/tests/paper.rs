//! What the paper says, as cases: sections 5.1 to 5.5, Figures 3 and 4, section 6.

use commonhold_segments::{
    Action, Arena, Entry, Error, Growth, Inheritance, Limits, Machine, ObjectId, Piece, Protection, Record,
    Refused, Relocation, Rules, Run, SegmentId, Source, TaskId, Tlsf, Unmapped,
};

const TASK: TaskId = TaskId(1);
const OTHER: TaskId = TaskId(2);
const READ: Protection = Protection::READ;
const RW: Protection = Protection::READ_WRITE;
const ALL: Protection = Protection::ALL;

fn machine(rules: Rules) -> Machine {
    let limits = Limits { chunk_pages: 8, gap_pages: 4, spacing_pages: 1 << 10 };
    let mut machine = Machine::new(rules, limits, 256, 256);
    machine.create_task(TASK).unwrap();
    machine.create_task(OTHER).unwrap();
    machine
}

fn entry(start: u64, pages: u32, object: ObjectId, offset: u32, protection: Protection) -> Entry {
    Entry { start, pages, object, offset, protection, inheritance: Inheritance::Share }
}

fn segments(machine: &Machine, task: TaskId) -> Vec<(u64, u32)> {
    machine.segments(task).map(|segment| (segment.start, segment.pages)).collect()
}

fn free_runs(arena: &Arena) -> Vec<Run> {
    arena.pieces().filter(|piece| piece.is_free).map(|piece: Piece| piece.run).collect()
}

/// Figure 3: text and data of one file. Returns virtual segments, and map entries.
fn text_and_data(rules: Rules, data_at: u64) -> Result<(usize, usize), Error> {
    let mut machine = machine(rules);
    let mut actions = Vec::new();
    let program = machine.create_object(10, Source::Pager, true, &mut actions)?;
    machine.map(TASK, entry(100, 6, program, 0, READ | Protection::EXECUTE), &mut actions)?;
    machine.map(TASK, entry(data_at, 4, program, 6, RW), &mut actions)?;
    assert_eq!(machine.memory().free_pages(), 246, "one physical segment");
    Ok((machine.segments(TASK).count(), machine.entries(TASK).count()))
}

#[test]
fn figure_3() {
    assert_eq!(text_and_data(Rules::SERVER, 106), Ok((2, 2)), "a: other protections");
    assert_eq!(text_and_data(Rules::SERVER, 500), Ok((2, 2)), "b: apart in the address space");
    assert_eq!(text_and_data(Rules::ONE, 106), Ok((1, 2)), "c: one segment, in line");
    assert_eq!(text_and_data(Rules::ONE, 500), Err(Error::Segments(2)), "not in line");
}

#[test]
fn figure_4_a_gap_is_allocated_and_zeroed_and_nobody_elses() {
    let mut machine = machine(Rules::SERVER);
    let mut actions = Vec::new();
    machine.allocate(TASK, Some(100), 5, RW, &mut actions).unwrap();
    actions.clear();
    machine.allocate(TASK, Some(108), 2, RW, &mut actions).unwrap();
    assert_eq!(segments(&machine, TASK), [(100, 10)]);
    assert_eq!(machine.entries(TASK).count(), 2, "the gap is no entry");
    assert!(actions.contains(&Action::Zero(Run::new(5, 5))), "the gap is zeroed: {actions:?}");
    let file = machine.create_object(1, Source::Pager, true, &mut actions).unwrap();
    assert_eq!(machine.map(TASK, entry(106, 1, file, 0, RW), &mut actions), Err(Error::Occupied));
    machine.allocate(TASK, Some(106), 1, RW, &mut actions).unwrap();
    assert_eq!(segments(&machine, TASK), [(100, 10)], "an allocation uses it");
    machine.allocate(TASK, Some(115), 1, RW, &mut actions).unwrap();
    assert_eq!(segments(&machine, TASK), [(100, 10), (115, 1)], "a gap above the limit");
    machine.allocate(TASK, Some(50), 1, RW, &mut actions).unwrap();
    machine.allocate(TASK, Some(130), 1, RW, &mut actions).unwrap();
    assert_eq!(segments(&machine, TASK).len(), 3, "no segment is left: any gap is bridged");
}

#[test]
fn protections_that_the_hardware_cannot_tell_apart_are_one() {
    for (rules, expected) in [(Rules::SERVER, 1), (Rules::UNLIMITED, 2)] {
        let mut machine = machine(rules);
        machine.allocate(TASK, None, 5, RW, &mut Vec::new()).unwrap();
        machine.allocate(TASK, None, 5, ALL, &mut Vec::new()).unwrap();
        assert_eq!((machine.segments(TASK).count(), machine.entries(TASK).count()), (expected, 2));
    }
}

#[test]
fn an_object_that_another_task_maps_is_not_extended() {
    let mut machine = machine(Rules::SERVER);
    let mut actions = Vec::new();
    let start = machine.allocate(TASK, None, 5, RW, &mut actions).unwrap();
    let object = machine.entries(TASK).next().unwrap().object;
    machine.map(OTHER, entry(10, 5, object, 0, RW), &mut actions).unwrap();
    let next = machine.allocate(TASK, None, 5, RW, &mut actions).unwrap();
    assert!(next != start + 5 && machine.segments(TASK).count() == 2);
}

#[test]
fn a_file_is_not_extended() {
    let mut machine = machine(Rules::SERVER);
    let mut actions = Vec::new();
    let file = machine.create_object(10, Source::Pager, true, &mut actions).unwrap();
    machine.map(TASK, entry(10, 10, file, 0, RW), &mut actions).unwrap();
    machine.allocate(TASK, Some(20), 5, RW, &mut actions).unwrap();
    assert_eq!((machine.object_pages(file), machine.segments(TASK).count()), (Ok(10), 2));
    machine.deallocate(TASK, 15, 5, &mut actions).unwrap();
    assert_eq!(machine.object_pages(file), Ok(10), "nor cut off");
}

#[test]
fn pages_out_of_line_are_no_one_entry() {
    let mut machine = machine(Rules::UNLIMITED);
    let mut actions = Vec::new();
    let file = machine.create_object(10, Source::Pager, true, &mut actions).unwrap();
    machine.map(TASK, entry(10, 2, file, 0, RW), &mut actions).unwrap();
    machine.map(TASK, entry(12, 2, file, 5, RW), &mut actions).unwrap();
    assert_eq!((machine.entries(TASK).count(), machine.segments(TASK).count()), (2, 2));
    machine.map(TASK, entry(14, 2, file, 7, RW), &mut actions).unwrap();
    assert_eq!((machine.entries(TASK).count(), machine.segments(TASK).count()), (2, 2), "in line");
}

#[test]
fn an_object_in_pieces_of_one_task_is_extended() {
    let mut machine = machine(Rules::SERVER);
    let mut actions = Vec::new();
    let start = machine.allocate(TASK, None, 9, RW, &mut actions).unwrap();
    machine.protect(TASK, start + 3, 3, READ, &mut actions).unwrap();
    assert_eq!(machine.segments(TASK).count(), 3, "several references");
    assert_eq!(machine.allocate(TASK, None, 5, RW, &mut actions), Ok(start + 9));
    assert_eq!(machine.segments(TASK).count(), 3);
}

#[test]
fn freeing_in_the_middle_is_lazy_and_is_reused() {
    let mut machine = machine(Rules::SERVER);
    let mut actions = Vec::new();
    let start = machine.allocate(TASK, None, 10, RW, &mut actions).unwrap();
    actions.clear();
    machine.deallocate(TASK, start + 3, 4, &mut actions).unwrap();
    assert_eq!(actions, [], "the segments stay as they are");
    assert_eq!(machine.entries(TASK).count(), 2);
    assert_eq!(machine.allocate(TASK, None, 3, RW, &mut actions), Ok(start + 3));
    assert_eq!(actions[0], Action::Zero(Run::new(3, 3)), "memory is allocated zeroed");
    assert_eq!(machine.entries(TASK).count(), 2, "map entries merge");
    machine.deallocate(TASK, start + 5, 5, &mut actions).unwrap();
    assert_eq!(machine.memory().free_pages(), 251, "at the end nothing is lazy");
}

#[test]
fn cacheable_objects_stay_until_room_is_short() {
    let mut machine = machine(Rules::SERVER);
    let mut actions = Vec::new();
    let mut file = |pages, cacheable| {
        let file = machine.create_object(pages, Source::Pager, cacheable, &mut actions).unwrap();
        machine.map(TASK, entry(10, pages, file, 0, READ), &mut actions).unwrap();
        machine.deallocate(TASK, 10, pages, &mut actions).unwrap();
        file
    };
    let (first, second, gone) = (file(50, true), file(50, true), file(50, false));
    assert_eq!(machine.segment(gone), Err(Error::Name));
    machine.map(TASK, entry(10, 50, first, 0, READ), &mut actions).unwrap();
    machine.deallocate(TASK, 10, 50, &mut actions).unwrap();
    machine.allocate(TASK, None, 200, RW, &mut actions).unwrap();
    assert!(machine.segment(first).is_ok(), "used last");
    assert_eq!(machine.segment(second), Err(Error::Name), "the oldest goes");
}

#[test]
fn what_is_being_copied_is_not_dropped_for_room() {
    let mut machine = machine(Rules::SERVER);
    let mut actions = Vec::new();
    let file = machine.create_object(150, Source::Pager, true, &mut actions).unwrap();
    machine.map(TASK, entry(10, 150, file, 0, READ), &mut actions).unwrap();
    machine.deallocate(TASK, 10, 150, &mut actions).unwrap();
    assert!(matches!(machine.copy(file, &mut actions), Err(Error::Arena(Refused::NoRoom { .. }))));
    assert_eq!(machine.object_pages(file), Ok(150));
}

#[test]
fn records_that_cannot_be_are_refused() {
    let record = |start, pages, align| Record {
        object: 1,
        run: Run::new(start, pages),
        filled: 0,
        align,
        cacheable: false,
    };
    let recover = |records: &[Record]| Arena::<Tlsf>::recover(100, records.iter().copied()).map(|_| ());
    assert_eq!(recover(&[record(0, 10, 1), record(90, 10, 1), record(10, 5, 2)]), Ok(()));
    let unfilled = Record { filled: 11, ..record(0, 10, 1) };
    for wrong in [
        &[record(0, 10, 1), record(9, 10, 1)][..],
        &[record(0, 10, 1), record(0, 10, 1)],
        &[record(91, 10, 1)],
        &[record(u32::MAX, 2, 1)],
        &[record(0, 0, 1)],
        &[record(3, 4, 2)],
        &[record(3, 4, 3)],
        &[unfilled],
    ] {
        assert_eq!(recover(wrong), Err(Refused::Records), "{wrong:?}");
    }
}

#[test]
fn what_is_not_restartable_is_never_lazy() {
    let mut machine = machine(Rules::SERVER);
    let mut actions = Vec::new();
    let file = machine.create_object(20, Source::Pager, true, &mut actions).unwrap();
    machine.map(TASK, entry(10, 4, file, 2, READ), &mut actions).unwrap();
    let before = actions.iter().take_while(|action| !matches!(action, Action::Load { .. }));
    let paged: u32 = before
        .map(|action| match action {
            Action::PageIn { to, .. } => to.pages,
            _ => 0,
        })
        .sum();
    assert_eq!(paged, 20, "every page, before any access");
}

#[test]
fn a_copy_at_fork_is_a_new_object_at_once() {
    let mut machine = machine(Rules::SERVER);
    let mut actions = Vec::new();
    machine.allocate(TASK, Some(100), 20, RW, &mut actions).unwrap();
    let file = machine.create_object(5, Source::Pager, true, &mut actions).unwrap();
    machine.map(TASK, entry(10, 5, file, 0, READ), &mut actions).unwrap();
    actions.clear();
    machine.fork(TASK, TaskId(3), &mut actions).unwrap();
    let copied = actions.iter().filter(|action| matches!(action, Action::Copy { .. })).count();
    assert_eq!(copied, 3, "20 pages in chunks of 8");
    let of = |task, at| machine.entries(task).find(|entry| entry.start == at).unwrap().object;
    assert!(of(TASK, 100) != of(TaskId(3), 100) && of(TASK, 10) == of(TaskId(3), 10));
}

#[test]
fn hardware_without_translation_gives_physical_addresses() {
    let mut machine = machine(Rules::CORTEX_M);
    let mut actions = Vec::new();
    machine.allocate(OTHER, None, 3, RW, &mut actions).unwrap();
    let start = machine.allocate(TASK, None, 33, RW, &mut actions).unwrap();
    assert_eq!(start, 64, "40 pages of a region of 64: five parts of eight");
    let run = machine.memory().run(machine.segment(machine.entries(TASK).next().unwrap().object).unwrap());
    assert_eq!(run, Ok(Run::new(64, 40)));
    let object = machine.entries(TASK).next().unwrap().object;
    assert!(machine.swap_out(object, &mut actions).is_err(), "what is mapped stays");
    assert_eq!(machine.allocate(TASK, None, 7, RW, &mut actions), Ok(97), "it grows into the region");
}

// Section 5.5: the arena.

fn arena() -> Arena {
    Arena::new(100)
}

fn filled(arena: &mut Arena, pages: u32) -> SegmentId {
    let id = arena.alloc(pages, 1, 0).unwrap();
    arena.filled(id, pages).unwrap();
    id
}

#[test]
fn a_remainder_is_last_in_its_bucket_so_that_its_neighbour_can_grow() {
    let mut arena = arena();
    let first = filled(&mut arena, 10);
    filled(&mut arena, 10);
    let hole = arena.alloc(33, 1, 0).unwrap();
    filled(&mut arena, 10);
    // Two free segments of one bin: the remainder of 33 pages came second.
    arena.free(hole).unwrap();
    let remainder = arena.alloc(4, 1, 0).unwrap();
    arena.free(remainder).unwrap();
    let again = arena.alloc(33, 1, 0).unwrap();
    assert_eq!(arena.run(again), Ok(Run::new(20, 33)), "the best fit");
    assert_eq!(free_runs(&arena), [Run::new(63, 37)]);
    assert!(arena.plan_growth(first, 11, 1).is_ok());
}

#[test]
fn the_oldest_of_a_bin_is_taken_first() {
    let mut arena: Arena = Arena::new(40);
    let ids: Vec<_> = (0..8).map(|_| filled(&mut arena, 5)).collect();
    arena.free(ids[4]).unwrap();
    arena.free(ids[2]).unwrap();
    let third = arena.alloc(5, 1, 0).unwrap();
    assert_eq!(arena.run(third), Ok(Run::new(20, 5)));
}

#[test]
fn growth_takes_the_cheapest_way() {
    let mut arena = arena();
    let big = filled(&mut arena, 30);
    let small = filled(&mut arena, 5);
    assert_eq!(
        arena.plan_growth(big, 40, 1),
        Ok(Growth::Neighbours(vec![Relocation { segment: small, to: Run::new(40, 5) }]))
    );
    assert_eq!(arena.plan_growth(small, 20, 1), Ok(Growth::InPlace));
    let huge = filled(&mut arena, 40);
    let to = Run::new(75, 10);
    assert_eq!(arena.plan_growth(small, 10, 1), Ok(Growth::Itself(Relocation { segment: small, to })));
    arena.pin(small).unwrap();
    assert!(matches!(arena.plan_growth(small, 10, 1), Err(Refused::NoRoom { .. })), "it stays");
    arena.unpin(small).unwrap();
    arena.map(huge).unwrap();
    arena.map(huge).unwrap();
    arena.map(small).unwrap();
    assert!(matches!(arena.plan_growth(small, 10, 1), Ok(Growth::Itself(_))), "mapped once");
    arena.map(small).unwrap();
    assert!(arena.plan_growth(small, 10, 1).is_err(), "mapped twice");
    let mut arena = Arena::<Tlsf>::new(100);
    let (light, _heavy) = (filled(&mut arena, 2), filled(&mut arena, 10));
    assert!(matches!(arena.plan_growth(light, 4, 1), Ok(Growth::Itself(_))), "2 pages, and not 10");
}

#[test]
fn no_mapping_before_every_page_has_contents() {
    let mut arena = arena();
    let id = arena.alloc(10, 1, 0).unwrap();
    assert_eq!(arena.fill_next(id, 4), Ok(Some(Run::new(0, 4))));
    arena.filled(id, 4).unwrap();
    assert_eq!(arena.map(id), Err(Refused::NotFilled(4)));
    assert_eq!(arena.fill_next(id, 40), Ok(Some(Run::new(4, 6))));
    arena.filled(id, 6).unwrap();
    assert_eq!((arena.fill_next(id, 1), arena.map(id)), (Ok(None), Ok(Run::new(0, 10))));
    assert_eq!(arena.unmap(id), Ok(Unmapped::Unused));
}

#[test]
fn no_move_while_busy_or_mapped_more_than_once() {
    let mut arena = arena();
    let id = filled(&mut arena, 10);
    let away = Relocation { segment: id, to: Run::new(50, 10) };
    arena.pin(id).unwrap();
    assert_eq!(arena.begin_move(away), Err(Refused::Pinned(id)));
    arena.unpin(id).unwrap();
    arena.map(id).unwrap();
    arena.map(id).unwrap();
    assert_eq!(arena.begin_move(away), Err(Refused::Mapped(2)));
    assert_eq!(arena.make_room(95, 1, u32::MAX), None);
    arena.unmap(id).unwrap();
    let moved = arena.begin_move(away).unwrap();
    assert_eq!(arena.begin_move(away), Err(Refused::Leaving(id)));
    arena.abandon_move(&moved).unwrap();
    assert_eq!(arena.run(id), Ok(Run::new(0, 10)));
    arena.begin_move(Relocation { segment: id, to: Run::new(30, 10) }).unwrap();
    assert_eq!(arena.finish_move(&moved), Err(Refused::NotThere(id)), "another move");
    let mut fixed = Arena::<Tlsf>::new(100).fixed_when_mapped();
    let id = filled(&mut fixed, 10);
    fixed.map(id).unwrap();
    assert_eq!(fixed.begin_move(Relocation { segment: id, to: Run::new(50, 10) }), Err(Refused::Mapped(1)));
}

#[test]
fn a_move_goes_only_into_free_pages_of_its_own_arena() {
    let mut arena = arena();
    let id = filled(&mut arena, 10);
    let overlap = Relocation { segment: id, to: Run::new(5, 10) };
    assert!(arena.begin_move(overlap).is_err(), "its own pages are not free");
    let beyond = Relocation { segment: id, to: Run::new(95, 10) };
    assert!(arena.begin_move(beyond).is_err());
    let moved = arena.begin_move(Relocation { segment: id, to: Run::new(10, 10) }).unwrap();
    assert_eq!((arena.pin(id), arena.free(id)), (Err(Refused::Leaving(id)), Err(Refused::Leaving(id))));
    arena.finish_move(&moved).unwrap();
    assert_eq!(free_runs(&arena), [Run::new(0, 10), Run::new(20, 80)], "beside its old place");
}
