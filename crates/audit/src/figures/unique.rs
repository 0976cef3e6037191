//! What ends with a process, a container, a control group, or all that was asked for (USS).

use super::view::process_name;
use crate::report::Unique;
use crate::snapshot::{Process, Snapshot};
use std::collections::BTreeMap;

/// Every process, container and control group, and what was asked for as a whole unless that is the machine: what would
/// free most first.
pub fn figure(snapshot: &Snapshot) -> Vec<Unique> {
    let mut all: Vec<Unique> = snapshot.processes.iter().map(of_process).collect();
    all.extend(groups(snapshot, "container", |process| process.container.clone()));
    all.extend(groups(snapshot, "control group", |process| {
        (!process.cgroup.is_empty()).then(|| process.cgroup.clone())
    }));
    if !snapshot.processes.is_empty() && !snapshot.scope.is_empty() && snapshot.scope != "machine" {
        all.push(group(snapshot, "scope", &snapshot.scope, &snapshot.processes.iter().collect::<Vec<_>>()));
    }
    all.sort_by(|one, other| {
        let key = |unique: &Unique| unique.unique_bytes + unique.swap_bytes;
        (key(other), &one.kind, &one.name).cmp(&(key(one), &other.kind, &other.name))
    });
    all
}

fn of_process(process: &Process) -> Unique {
    let mut unique = Unique {
        kind: "process".to_owned(),
        name: process_name(process),
        processes: 1,
        // The kernel says of each page whether somebody else maps it.
        exact: true,
        ..Unique::default()
    };
    for mapping in &process.mappings {
        unique.unique_bytes += mapping.private_clean + mapping.private_dirty;
        unique.proportional_bytes += mapping.proportional;
        unique.resident_bytes += mapping.resident;
        // A slot that several have counts for half a one at most, so this much at least is this process's own.
        unique.swap_bytes += (2 * mapping.swap_proportional).saturating_sub(mapping.swap);
    }
    unique
}

fn groups(snapshot: &Snapshot, kind: &str, of: impl Fn(&Process) -> Option<String>) -> Vec<Unique> {
    let mut members: BTreeMap<String, Vec<&Process>> = BTreeMap::new();
    for process in &snapshot.processes {
        if let Some(name) = of(process) {
            members.entry(name).or_default().push(process);
        }
    }
    members.iter().map(|(name, members)| group(snapshot, kind, name, members)).collect()
}

/// One group: counted by frames where the snapshot has that, else the sum of what is its processes' own, which misses
/// what they share among themselves alone.
fn group(snapshot: &Snapshot, kind: &str, name: &str, members: &[&Process]) -> Unique {
    let mut unique = Unique {
        kind: kind.to_owned(),
        name: name.to_owned(),
        exact: members.len() == 1,
        ..Unique::default()
    };
    for process in members {
        let own = of_process(process);
        unique.processes += 1;
        unique.unique_bytes += own.unique_bytes;
        unique.proportional_bytes += own.proportional_bytes;
        unique.resident_bytes += own.resident_bytes;
        unique.swap_bytes += own.swap_bytes;
    }
    let key = if kind == "scope" { kind.to_owned() } else { format!("{kind} {name}") };
    if let Some(counted) = snapshot.group_unique.get(&key) {
        // Frames were read later than smaps: what was each process's own before stays the least.
        unique.unique_bytes = unique.unique_bytes.max(*counted);
        unique.exact = true;
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{Map, PAGE, World};

    /// A container of two that share a library, one process outside that shares another with them.
    fn container_host() -> World {
        let mut world = World::default();
        let inside = world.file("/layer/a.so", 10);
        let everywhere = world.file("/lib/c.so", 20);
        for container in [Some("3f2a"), Some("3f2a"), None] {
            let process = world.process("p");
            world.process_mut(process).container = container.map(str::to_owned);
            world.process_mut(process).cgroup = format!("/{}", container.unwrap_or("system.slice"));
            world.map(process, Map::heap(3));
            world.map(process, Map::text(everywhere, 0, 20));
            if container.is_some() {
                world.map(process, Map::text(inside, 0, 10));
            }
        }
        world
    }

    fn find<'a>(all: &'a [Unique], kind: &str, name: &str) -> &'a Unique {
        all.iter().find(|unique| unique.kind == kind && unique.name == name).expect("it is there")
    }

    #[test]
    fn a_process_owns_what_nobody_else_maps() {
        let all = figure(&container_host().snapshot());
        let process = find(&all, "process", "p (1000)");
        assert_eq!((process.unique_bytes, process.resident_bytes), (3 * PAGE, 33 * PAGE));
        assert!(process.exact);
        assert_eq!(find(&all, "control group", "/system.slice").unique_bytes, 3 * PAGE);
        assert!(find(&all, "control group", "/system.slice").exact, "one process alone");
    }

    #[test]
    fn a_containers_own_is_a_lower_bound_until_frames_were_counted() {
        let mut snapshot = container_host().snapshot();
        let bound = find(&figure(&snapshot), "container", "3f2a").clone();
        assert_eq!((bound.processes, bound.unique_bytes, bound.exact), (2, 6 * PAGE, false));
        assert_eq!(bound.resident_bytes, 66 * PAGE);
        snapshot.group_unique.insert("container 3f2a".to_owned(), 16 * PAGE);
        let counted = find(&figure(&snapshot), "container", "3f2a").clone();
        assert_eq!((counted.unique_bytes, counted.exact), (16 * PAGE, true));
        assert!(counted.unique_bytes <= counted.proportional_bytes);
    }

    #[test]
    fn what_was_asked_for_is_a_group_too() {
        let mut snapshot = container_host().snapshot();
        assert!(figure(&snapshot).iter().all(|unique| unique.kind != "scope"));
        snapshot.scope = "process tree 1000".to_owned();
        snapshot.group_unique.insert("scope".to_owned(), 39 * PAGE);
        let scope = find(&figure(&snapshot), "scope", "process tree 1000").clone();
        assert_eq!((scope.processes, scope.unique_bytes, scope.exact), (3, 39 * PAGE, true));
    }

    #[test]
    fn swap_that_is_surely_its_own() {
        let mut snapshot = container_host().snapshot();
        let heap = &mut snapshot.processes[0].mappings[0];
        // Ten slots, four of them shared by two: 6 + 4 ÷ 2 by share.
        (heap.swap, heap.swap_proportional) = (10 * PAGE, 8 * PAGE);
        assert_eq!(find(&figure(&snapshot), "process", "p (1000)").swap_bytes, 6 * PAGE);
        assert_eq!(figure(&snapshot)[0].name, "3f2a", "its container, which has two heaps, comes before it");
    }
}
