//! Which of the processes that were counted are in scope.

use super::census::{Census, Target};
use super::options::{Error, Scope};
use super::procdir::{identity, stat};
use super::watch;
use rustix::fs::{AtFlags, CWD, FileType};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

/// Ids that an error lists.
const NAMED: usize = 8;

/// The processes in scope; those of one control group and container together, and what takes most memory first. `root`:
/// device and inode of the root directory that is asked for.
pub fn select(census: Census, scope: &Scope, root: Option<(u64, u64)>) -> Result<Vec<Target>, Error> {
    let targets = census.targets;
    let chosen: Vec<Target> = match scope {
        Scope::Machine => targets,
        Scope::Tree(pid) => tree(targets, *pid)?,
        Scope::ControlGroup(path) => control_group(targets, path)?,
        Scope::Container(prefix) => container(targets, prefix)?,
        Scope::Root(_) => {
            targets.into_iter().filter(|target| root.is_some() && target.root == root).collect()
        }
    };
    Ok(ordered(chosen))
}

/// Device and inode of a directory, if its file system tells in time.
pub fn directory_identity(directory: &Path, deadline: Duration) -> Result<(u64, u64), Error> {
    let path = directory.to_owned();
    let asked = watch::one(deadline, move |_| {
        let about = stat(CWD, &path, AtFlags::empty())?;
        match FileType::from_raw_mode(about.stx_mode.into()) {
            FileType::Directory => Ok(identity(&about)),
            _ => Err(Errno::NOTDIR),
        }
    });
    let known = asked.unwrap_or(Err(Errno::TIMEDOUT));
    known.map_err(|source| Error::NoDirectory { path: directory.to_owned(), source: source.into() })
}

fn tree(targets: Vec<Target>, top: u32) -> Result<Vec<Target>, Error> {
    if !targets.iter().any(|target| target.pid == top) {
        return Err(Error::NoProcess(top));
    }
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for target in &targets {
        children.entry(target.parent).or_default().push(target.pid);
    }
    let mut inside = BTreeSet::from([top]);
    let mut next = vec![top];
    while let Some(pid) = next.pop() {
        // Counted at slightly different times, the links might make a ring.
        next.extend(children.remove(&pid).into_iter().flatten().filter(|child| inside.insert(*child)));
    }
    Ok(targets.into_iter().filter(|target| inside.contains(&target.pid)).collect())
}

fn control_group(targets: Vec<Target>, asked: &str) -> Result<Vec<Target>, Error> {
    let wanted = names(asked);
    let is_below = |path: &String| {
        wanted.iter().any(|group| {
            group.is_empty()
                || path
                    .strip_prefix(group.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    let chosen: Vec<_> = targets.into_iter().filter(|target| target.cgroups.iter().any(is_below)).collect();
    if chosen.is_empty() { Err(Error::NoControlGroup(asked.to_owned())) } else { Ok(chosen) }
}

/// How a control group may be meant: as in /proc/PID/cgroup, or with the path where it is mounted, which has the
/// controller's name in it in version 1.
fn names(asked: &str) -> Vec<String> {
    let path = asked.trim_end_matches('/');
    let Some(below) = path.strip_prefix("/sys/fs/cgroup") else {
        return vec![if path.is_empty() {
            String::new()
        } else {
            format!("/{}", path.trim_start_matches('/'))
        }];
    };
    let without_controller =
        below.trim_start_matches('/').split_once('/').map(|(_, rest)| format!("/{rest}"));
    [Some(below.to_owned()), without_controller].into_iter().flatten().collect()
}

fn container(targets: Vec<Target>, asked: &str) -> Result<Vec<Target>, Error> {
    let all: BTreeSet<&String> = targets.iter().flat_map(|target| &target.containers).collect();
    let meant: Vec<&&String> = all.iter().filter(|id| id.starts_with(asked)).collect();
    let list = |ids: &mut dyn Iterator<Item = &String>| {
        let mut named: Vec<String> = ids.take(NAMED + 1).map(|id| id.chars().take(12).collect()).collect();
        if named.len() > NAMED {
            named[NAMED] = "…".into();
        }
        if named.is_empty() { "none".to_owned() } else { named.join(", ") }
    };
    match meant.len() {
        0 => Err(Error::NoContainer { asked: asked.to_owned(), known: list(&mut all.iter().copied()) }),
        1 => {
            let id = (*meant[0]).clone();
            Ok(targets.into_iter().filter(|target| target.containers.contains(&id)).collect())
        }
        _ => Err(Error::ManyContainers {
            asked: asked.to_owned(),
            known: list(&mut meant.into_iter().copied()),
        }),
    }
}

fn ordered(mut targets: Vec<Target>) -> Vec<Target> {
    let mut sums: HashMap<(String, Option<String>), u64> = HashMap::new();
    for target in &targets {
        *sums.entry(target.group()).or_default() += target.resident_pages;
    }
    targets.sort_by_cached_key(|target| {
        let group = target.group();
        (std::cmp::Reverse(sums[&group]), group, std::cmp::Reverse(target.resident_pages), target.pid)
    });
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(pid: u32, parent: u32, resident_pages: u64, cgroup: &str) -> Target {
        let containers: Vec<String> =
            super::super::container::ids(cgroup).into_iter().map(str::to_owned).collect();
        Target {
            pid,
            parent,
            resident_pages,
            cgroup: cgroup.into(),
            cgroups: vec![cgroup.into(), "/".into()],
            container: containers.last().cloned(),
            containers,
            ..Target::default()
        }
    }

    fn pids(scope: &Scope, targets: Vec<Target>) -> Result<Vec<u32>, Error> {
        Ok(select(Census { targets, ..Census::default() }, scope, None)?
            .into_iter()
            .map(|target| target.pid)
            .collect())
    }

    fn some() -> Vec<Target> {
        let one = format!("/system.slice/docker-{}.scope", "a1".repeat(32));
        let two = format!("/system.slice/docker-{}.scope", "a2".repeat(32));
        vec![
            target(1, 0, 10, "/init.scope"),
            target(2, 1, 20, "/system.slice/ssh.service"),
            target(3, 2, 30, "/user.slice"),
            target(4, 3, 5, "/user.slice"),
            target(5, 1, 100, &one),
            target(6, 5, 1, &one),
            target(7, 1, 2, &two),
        ]
    }

    #[test]
    fn trees_are_descendants_and_rings_end() {
        assert_eq!(pids(&Scope::Tree(2), some()).expect("there"), [3, 4, 2]);
        assert!(matches!(pids(&Scope::Tree(99), some()), Err(Error::NoProcess(99))));
        let ring = vec![target(1, 2, 0, ""), target(2, 1, 0, "")];
        assert_eq!(pids(&Scope::Tree(1), ring).expect("there"), [1, 2]);
    }

    #[test]
    fn control_groups_with_those_below_in_every_spelling() {
        for asked in [
            "/system.slice",
            "system.slice/",
            "/sys/fs/cgroup/system.slice",
            "/sys/fs/cgroup/memory/system.slice",
        ] {
            assert_eq!(
                pids(&Scope::ControlGroup(asked.into()), some()).expect(asked),
                [5, 6, 2, 7],
                "{asked}"
            );
        }
        assert!(matches!(
            pids(&Scope::ControlGroup("/system".into()), some()),
            Err(Error::NoControlGroup(_))
        ));
    }

    #[test]
    fn containers_by_the_start_of_an_id_that_means_one() {
        assert_eq!(pids(&Scope::Container("a1a1".into()), some()).expect("there"), [5, 6]);
        let error = pids(&Scope::Container("a".into()), some()).expect_err("two");
        assert!(error.to_string().contains("a1a1a1a1a1a1, a2a2a2a2a2a2"), "{error}");
        let error = pids(&Scope::Container("ff".into()), some()).expect_err("none");
        assert!(error.to_string().contains("there are: a1a1a1a1a1a1"), "{error}");
    }

    #[test]
    fn groups_stay_together_and_the_largest_come_first() {
        assert_eq!(pids(&Scope::Machine, some()).expect("all"), [5, 6, 3, 4, 2, 1, 7]);
    }
}
