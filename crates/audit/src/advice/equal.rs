//! Copies of one file: hard links, bind mounts and common layers make one memory of them.
//!
//! Ten virtual environments have hundreds of equal files; what is to be done about them is one thing. So groups of equal
//! files that lie at the same places below the same directories are one piece of advice.

use super::alike::why_not;
use super::restart::commands;
use super::word::word;
use super::{ESTIMATED, MEASURED};
use crate::figures::equal::Group;
use crate::figures::view::{FileUse, uses};
use crate::report::words::mib;
use crate::report::{Advice, Proof};
use crate::snapshot::{File, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// With more commands than this the tool that links whole trees is named first.
const MANY_COMMANDS: usize = 8;
/// Processes to restart that are named.
const RESTARTS_NAMED: usize = 12;

/// Groups of equal files below the same directories.
struct Batch<'a> {
    /// What the paths have before the part that they have in common.
    trees: BTreeSet<PathBuf>,
    groups: Vec<&'a Group>,
}

/// One piece of advice for each set of directories with equal files in them.
pub fn advise(snapshot: &Snapshot, groups: &[Group]) -> Vec<Advice> {
    let uses = uses(snapshot);
    batches(snapshot, groups).iter().map(|batch| of(snapshot, &uses, batch)).collect()
}

fn batches<'a>(snapshot: &Snapshot, groups: &'a [Group]) -> Vec<Batch<'a>> {
    let wasted = groups.iter().filter(|group| group.figure.saving_bytes > 0);
    let mut rooted: Vec<(BTreeSet<PathBuf>, &Group)> =
        wasted.map(|group| (trees(&paths(snapshot, group)), group)).collect();
    // Groups in all the trees first: those in some of them belong to the same advice.
    rooted.sort_by_key(|(trees, _)| std::cmp::Reverse(trees.len()));
    let mut batches: Vec<Batch> = Vec::new();
    for (trees, group) in rooted {
        match batches.iter_mut().find(|batch| trees.is_subset(&batch.trees)) {
            Some(batch) => batch.groups.push(group),
            None => batches.push(Batch { trees, groups: vec![group] }),
        }
    }
    batches
}

fn paths<'a>(snapshot: &'a Snapshot, group: &Group) -> Vec<&'a Path> {
    group.apart.iter().flatten().map(|file| snapshot.files[*file].path.as_path()).collect()
}

/// The paths without the last components that all of them have.
fn trees(paths: &[&Path]) -> BTreeSet<PathBuf> {
    let split: Vec<Vec<Component>> = paths.iter().map(|path| path.components().collect()).collect();
    let shortest = split.iter().map(Vec::len).min().unwrap_or(0);
    let same_from_end = |place: usize| {
        let part = |path: &Vec<Component>| path[path.len() - 1 - place].as_os_str().to_owned();
        split.iter().all(|path| part(path) == part(&split[0]))
    };
    // The root itself is no part to strip.
    let common = (0..shortest.saturating_sub(1)).take_while(|place| same_from_end(*place)).count();
    split.iter().map(|path| path[..path.len() - common].iter().collect()).collect()
}

fn of(snapshot: &Snapshot, uses: &[FileUse], batch: &Batch) -> Advice {
    let measured = batch.groups.iter().all(|group| group.figure.proof == Proof::Frames);
    Advice {
        what: what(snapshot, batch),
        saving_bytes: batch.groups.iter().map(|group| group.figure.saving_bytes).sum(),
        mapped_bytes: Some(mapped(batch)),
        certainty: if measured { MEASURED } else { ESTIMATED }.to_owned(),
        how: how(snapshot, uses, batch),
        care: care(snapshot, uses, batch),
    }
}

fn mapped(batch: &Batch) -> u64 {
    batch.groups.iter().map(|group| group.figure.mapped_saving_bytes).sum()
}

fn what(snapshot: &Snapshot, batch: &Batch) -> String {
    let first = batch.groups[0];
    let path = &snapshot.files[first.apart[0][0]].path;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let copies = batch.groups.iter().map(|group| group.apart.len()).max().unwrap_or(0);
    if batch.groups.len() == 1 {
        return format!("{copies} equal copies of {name}");
    }
    let trees: Vec<String> = batch.trees.iter().take(3).map(|tree| tree.display().to_string()).collect();
    let rest = if batch.trees.len() > 3 { ", …" } else { "" };
    format!(
        "{} files ({name}, …) in up to {copies} equal copies: {}{rest}",
        batch.groups.len(),
        trees.join(", ")
    )
}

/// What can make one of the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    Link,
    Mount,
    Layer,
}

/// What is to be done about one group of copies.
#[derive(Default)]
struct Steps {
    /// Commands.
    lines: Vec<String>,
    /// Containers that could have a layer in common, by the file that is in it.
    layers: BTreeMap<String, BTreeSet<String>>,
    /// Copies that stay as they are, by the reason: one pair of them, and how many more.
    left: BTreeMap<String, (String, usize)>,
}

impl Steps {
    fn add(&mut self, snapshot: &Snapshot, uses: &[FileUse], group: &Group) {
        let apart = runs_apart(snapshot, uses, group);
        let first = &snapshot.files[group.apart[0][0]];
        // Copies that others are put in the place of: the first of each owner, group and mode.
        let mut kept: Vec<(usize, usize)> = vec![(0, group.apart[0][0])];
        let copies =
            group.apart.iter().enumerate().flat_map(|(set, files)| files.iter().map(move |f| (set, *f)));
        for (set, copy) in copies.filter(|(set, _)| *set > 0) {
            let file = &snapshot.files[copy];
            if remedy(apart, first, file) == Remedy::Layer {
                let containers = group.figure.containers.iter().cloned();
                self.layers.entry(first.path.display().to_string()).or_default().extend(containers);
                continue;
            }
            let fits = |(_, keep): &&(usize, usize)| {
                let keep = &snapshot.files[*keep];
                remedy(apart, keep, file) != Remedy::Layer && why_not(keep, file).is_none()
            };
            match kept.iter().find(fits) {
                Some((of, _)) if *of == set => {} // one memory already
                Some((_, keep)) => self.lines.push(command(snapshot, uses, *keep, copy)),
                None => {
                    let why = why_not(first, file).unwrap_or_default();
                    let pair = || (format!("{} and {}", word(&first.path), word(&file.path)), 0);
                    self.left.entry(why).and_modify(|(_, more)| *more += 1).or_insert_with(pair);
                    kept.push((set, copy));
                }
            }
        }
    }

    fn reasons(&self) -> impl Iterator<Item = String> {
        self.left.iter().map(|(why, (pair, more))| {
            let more = if *more > 0 { format!(", and {more} more copies") } else { String::new() };
            format!("leave {pair}{more} as they are: {why}")
        })
    }
}

/// The command that puts one file in the place of another.
fn command(snapshot: &Snapshot, uses: &[FileUse], kept: usize, copy: usize) -> String {
    let (keep, file) = (&snapshot.files[kept], &snapshot.files[copy]);
    let words = format!("{} {}", word(&keep.path), word(&file.path));
    let tool = if remedy(false, keep, file) == Remedy::Link { "ln -f" } else { "mount --bind" };
    inside(snapshot, uses, kept, format!("{tool} {words}"))
}

fn how(snapshot: &Snapshot, uses: &[FileUse], batch: &Batch) -> Vec<String> {
    let mut steps = Steps::default();
    batch.groups.iter().for_each(|group| steps.add(snapshot, uses, group));
    let mut lines = std::mem::take(&mut steps.lines);
    if lines.len() > MANY_COMMANDS
        && steps.left.is_empty()
        && lines.iter().all(|line| line.starts_with("ln "))
        && let Some(command) = link_trees(&batch.trees)
    {
        lines.insert(
            0,
            format!("{command} (from util-linux; it also links what is not in use), or file by file:"),
        );
    }
    lines.extend(layer_steps(&steps.layers));
    lines.extend(steps.reasons());
    lines
}

fn remedy(runs_apart: bool, keep: &File, file: &File) -> Remedy {
    if keep.mount_namespace != file.mount_namespace || runs_apart {
        return Remedy::Layer;
    }
    let links =
        !matches!(keep.file_system.as_str(), "vfat" | "exfat" | "msdos" | "iso9660" | "squashfs" | "erofs");
    if keep.key.device == file.key.device && links { Remedy::Link } else { Remedy::Mount }
}

/// Whether the copies' users run in several containers, or some in one and some on the machine itself.
fn runs_apart(snapshot: &Snapshot, uses: &[FileUse], group: &Group) -> bool {
    let users = group.apart.iter().flatten().flat_map(|file| &uses[*file].users);
    let places: BTreeSet<Option<&str>> =
        users.map(|user| snapshot.processes[*user].container.as_deref()).collect();
    places.len() > 1
}

/// A command on paths that only another mount namespace has is run in there, by way of a process that is.
fn inside(snapshot: &Snapshot, uses: &[FileUse], file: usize, command: String) -> String {
    match uses[file].users.first() {
        Some(user) if snapshot.files[file].mount_namespace != 0 => {
            format!("nsenter --target {} --mount {command}", snapshot.processes[*user].pid)
        }
        _ => command,
    }
}

/// Links all equal files below the trees, if they lie apart and none is the whole machine.
fn link_trees(trees: &BTreeSet<PathBuf>) -> Option<String> {
    let nested = trees.iter().any(|one| trees.iter().any(|other| one != other && one.starts_with(other)));
    let whole = trees.iter().any(|tree| tree.parent().is_none());
    let words: Vec<String> = trees.iter().map(|tree| word(tree)).collect();
    (!nested && !whole && trees.len() > 1).then(|| format!("hardlink --ignore-time -- {}", words.join(" ")))
}

fn layer_steps(layers: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let Some((first, _)) = layers.first_key_value() else { return Vec::new() };
    let containers: BTreeSet<&String> = layers.values().flatten().collect();
    // Engines show the first twelve digits of theirs; a mount namespace's number is wanted whole.
    let is_long = |id: &str| id.len() > 12 && id.bytes().all(|letter| letter.is_ascii_hexdigit());
    let names: Vec<&str> =
        containers.iter().map(|id| if is_long(id) { &id[..12] } else { id.as_str() }).collect();
    let files = match layers.len() {
        1 => first.clone(),
        count => format!("{first} and {} more", count - 1),
    };
    let whom = if names.is_empty() { String::new() } else { format!(" of {}", names.join(", ")) };
    vec![
        format!("build the images{whom} FROM one image that has {files}: a layer that several use is in memory once \
                 (with overlay storage; btrfs, zfs and device mapper keep one for each)"),
        "or mount one directory that has them read-only into each: --mount type=bind,src=DIR,dst=DIR,readonly".to_owned(),
    ]
}

fn care(snapshot: &Snapshot, uses: &[FileUse], batch: &Batch) -> String {
    let others = batch.groups.iter().flat_map(|group| group.apart[1..].iter().flatten());
    let users: BTreeSet<usize> = others.flat_map(|file| &uses[*file].users).copied().collect();
    let users: Vec<usize> = users.into_iter().collect();
    let mut restarts = commands(snapshot, &users);
    let more = restarts.len().saturating_sub(RESTARTS_NAMED);
    restarts.truncate(RESTARTS_NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!(
        "{} MiB of it are mapped by processes, the rest is page cache. One file has one owner and one mode (stat -c \
         '%U:%G %a' FILE…). An upgrade that replaces one of them parts them again; a program that writes \
         into one writes into all. Memory is freed once what uses the other copies was restarted ({}): {}{more}.",
        mib(mapped(batch)),
        if users.len() == 1 { "1 process".to_owned() } else { format!("{} processes", users.len()) },
        restarts.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::equal::groups;
    use crate::figures::made::{Map, PAGE, World};
    use crate::snapshot::Rights;

    /// `count` equal trees of the named files, each in use by one process; the trees' names are odd on purpose.
    fn environments(count: usize, names: &[&str]) -> World {
        let mut world = World::default();
        for tree in 0..count {
            let process = world.process("python3");
            for (place, name) in names.iter().enumerate() {
                let path = format!("/srv/it's {tree}/lib/python3.11/{name}");
                let file = if tree == 0 { world.file(&path, 10) } else { world.copy(&path, place) };
                world.map(process, Map::text(file, 0, 10));
            }
        }
        world
    }

    fn advice(world: &World) -> Vec<Advice> {
        let snapshot = world.clone().frames(true).snapshot();
        advise(&snapshot, &groups(&snapshot))
    }

    #[test]
    fn one_library_is_linked_with_an_exact_command() {
        let advice = advice(&environments(2, &["a.so"]));
        assert_eq!(advice.len(), 1);
        assert_eq!(advice[0].what, "2 equal copies of a.so");
        assert_eq!(advice[0].saving_bytes, 10 * PAGE);
        assert_eq!(advice[0].mapped_bytes, Some(10 * PAGE));
        assert_eq!(advice[0].certainty, "measured");
        assert_eq!(
            advice[0].how,
            [r"ln -f '/srv/it'\''s 0/lib/python3.11/a.so' '/srv/it'\''s 1/lib/python3.11/a.so'"]
        );
        assert!(
            advice[0].care.contains("owner") && advice[0].care.contains("restart python3 (process 1001)")
        );
    }

    #[test]
    fn ten_environments_are_one_piece_of_advice() {
        let names = ["a.so", "site-packages/b.so", "site-packages/c.so"];
        let mut world = environments(10, &names);
        // One more file, in two of the trees alone.
        let one = world.file("/srv/it's 0/lib/extra.so", 10);
        let other = world.copy("/srv/it's 1/lib/extra.so", one);
        world.map(0, Map::text(one, 0, 10));
        world.map(1, Map::text(other, 0, 10));
        let advice = advice(&world);
        assert_eq!(advice.len(), 1);
        assert_eq!(advice[0].saving_bytes, (3 * 9 + 1) * 10 * PAGE);
        assert!(
            advice[0].what.starts_with("4 files (a.so, …) in up to 10 equal copies"),
            "{}",
            advice[0].what
        );
        assert_eq!(advice[0].how.len(), 1 + 28);
        assert!(advice[0].how[0].starts_with(r"hardlink --ignore-time -- '/srv/it'\''s 0' "));
    }

    #[test]
    fn another_file_system_needs_a_bind_mount() {
        let mut world = environments(2, &["a.so"]);
        world.file_mut(1).key.device = 2;
        assert!(advice(&world)[0].how[0].starts_with("mount --bind "));
        world.file_mut(1).key.device = 1;
        for file in [0, 1] {
            world.file_mut(file).file_system = "vfat".to_owned();
        }
        assert!(advice(&world)[0].how[0].starts_with("mount --bind "));
    }

    /// Whoever runs the one would run what the owner of the other writes into it.
    #[test]
    fn no_file_takes_the_place_of_one_with_another_owner_or_mode() {
        let changes: [fn(&mut Rights); 4] = [
            |rights| rights.uid = 1000,
            |rights| rights.gid = 1000,
            |rights| rights.mode = 0o4755,
            |rights| rights.apart_from_others = false,
        ];
        for change in changes {
            for place in [0, 1] {
                let mut world = environments(2, &["a.so"]);
                world.file_mut(place).rights.as_mut().map(change).unwrap();
                for device in [1, 2] {
                    world.file_mut(1).key.device = device;
                    let how = &advice(&world)[0].how;
                    assert!(how.len() == 1 && how[0].starts_with("leave "), "{how:?}");
                }
            }
        }
        let mut world = environments(2, &["a.so"]);
        world.file_mut(1).rights = None;
        assert!(advice(&world)[0].how[0].contains("could not be read"));
    }

    #[test]
    fn copies_of_each_owner_are_linked_among_themselves() {
        let mut world = environments(4, &["a.so"]);
        for place in [1, 3] {
            world.file_mut(place).rights.as_mut().unwrap().uid = 1000;
        }
        let how = &advice(&world)[0].how;
        assert_eq!(how.len(), 3, "{how:?}");
        assert!(how.iter().take(2).all(|line| line.starts_with("ln -f ")), "{how:?}");
        for line in how.iter().take(2) {
            let of = |number: u32| line.contains(&format!("s {number}/lib"));
            assert!(of(0) && of(2) || of(1) && of(3), "{line}");
        }
    }

    #[test]
    fn containers_need_a_common_layer() {
        let mut world = environments(3, &["a.so"]);
        for (process, id) in [(0, "3f2a9c0d1e4b5a69"), (1, "77777777777777777")] {
            world.process_mut(process).container = Some(id.to_owned());
            world.file_mut(process).mount_namespace = 40 + process as u64;
            world.file_mut(process).key.device = 40 + process as u64;
        }
        let advice = advice(&world);
        assert_eq!(advice[0].how.len(), 2);
        assert!(
            advice[0].how[0].contains("of 3f2a9c0d1e4b, 777777777777 FROM one image"),
            "{}",
            advice[0].how[0]
        );
        assert!(advice[0].care.contains("restart container 77777777777777777"));
    }

    #[test]
    fn one_container_with_two_copies_links_inside() {
        let mut world = environments(2, &["a.so"]);
        for place in [0, 1] {
            world.process_mut(place).container = Some("3f2a".to_owned());
            world.file_mut(place).mount_namespace = 40;
        }
        let line = &advice(&world)[0].how[0];
        assert!(line.starts_with("nsenter --target 1000 --mount ln -f '/srv/"), "{line}");
    }

    #[test]
    fn a_root_within_the_machine_is_never_linked_as_a_whole() {
        let mut world = World::default();
        let process = world.process("p");
        for place in 0..10 {
            let name = format!("lib/{place}.so");
            let one = world.file(&format!("/{name}"), 4);
            let other = world.copy(&format!("/srv/root/{name}"), one);
            world.map(process, Map::text(one, 0, 4));
            world.map(process, Map::text(other, 0, 4));
        }
        let advice = advice(&world);
        assert_eq!(advice.len(), 1);
        assert_eq!(advice[0].how.len(), 10);
        assert!(advice[0].how.iter().all(|line| line.starts_with("ln -f ")));
    }

    #[test]
    fn trees_of_paths() {
        let of = |paths: &[&str]| -> Vec<PathBuf> {
            trees(&paths.iter().map(Path::new).collect::<Vec<_>>()).into_iter().collect()
        };
        assert_eq!(of(&["/a/x/l.so", "/b/x/l.so"]), [Path::new("/a"), Path::new("/b")]);
        assert_eq!(of(&["/x/l.so", "/b/x/l.so"]), [Path::new("/"), Path::new("/b")]);
        assert_eq!(of(&["/a/one", "/b/two"]), [Path::new("/a/one"), Path::new("/b/two")]);
    }
}
