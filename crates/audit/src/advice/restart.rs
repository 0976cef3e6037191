//! How to restart processes, and which restarts free memory: those of users of deleted libraries whose newer version is
//! in memory already.

use super::ESTIMATED;
use super::word::word;
use crate::figures::deleted;
use crate::figures::view::{FileUse, in_memory, uses};
use crate::report::Advice;
use crate::snapshot::{File, Process, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Process names in a line; the rest are counted.
const NAMED: usize = 12;

/// One piece of advice for all deleted files: who uses one mostly uses several.
pub fn advise(snapshot: &Snapshot) -> Option<Advice> {
    let uses = uses(snapshot);
    let mut saving = 0;
    let mut files = Vec::new();
    let mut users = BTreeSet::new();
    for place in deleted::files(snapshot, &uses) {
        let of_file = saving_of(snapshot, &uses, place);
        if of_file > 0 {
            saving += of_file;
            files.push(&snapshot.files[place]);
            users.extend(&uses[place].users);
        }
    }
    let first = files.first()?;
    let name = first.path.file_name().unwrap_or(first.path.as_os_str()).to_string_lossy();
    let what = match files.len() {
        1 => format!("the old version of {name}, which {} processes still hold", users.len()),
        count => {
            format!("old versions of {count} files ({name}, …), which {} processes still hold", users.len())
        }
    };
    Some(Advice {
        what,
        saving_bytes: saving,
        mapped_bytes: None,
        certainty: ESTIMATED.to_owned(),
        how: commands(snapshot, &users.into_iter().copied().collect::<Vec<_>>()),
        care: "The old pages are freed when the last of these processes ends; the newer version is in memory already. \
               Until then they also run without the fixes of the newer version."
            .to_owned(),
    })
}

/// What ends with the last user and does not come back: as much as the newer version has in memory already. A version
/// that is not in memory comes in at the restart, and nothing is gained.
fn saving_of(snapshot: &Snapshot, uses: &[FileUse], place: usize) -> u64 {
    let old = &snapshot.files[place];
    let held = in_memory(old, &uses[place], snapshot.page_bytes).unwrap_or(0);
    let newer = snapshot.files.iter().zip(uses).filter(|(file, _)| is_newer(old, file));
    let there = newer.filter_map(|(file, of_file)| in_memory(file, of_file, snapshot.page_bytes)).max();
    held.min(there.unwrap_or(0))
}

/// It has the old one's path, or its soname in the same folder: that is what a restart will load.
fn is_newer(old: &File, file: &File) -> bool {
    let soname = |file: &File| file.elf.as_ref().and_then(|elf| elf.soname.clone());
    let same_name = file.path == old.path
        || (soname(old).is_some() && soname(old) == soname(file) && file.path.parent() == old.path.parent());
    !file.deleted && file.mount_namespace == old.mount_namespace && same_name
}

/// Commands or steps that restart these processes, each a line.
pub fn commands(snapshot: &Snapshot, processes: &[usize]) -> Vec<String> {
    let mut lines: BTreeSet<String> = BTreeSet::new();
    let mut others: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for process in processes.iter().map(|place| &snapshot.processes[*place]) {
        match (&process.container, service(process)) {
            (Some(container), _) => _ = lines.insert(format!("restart container {container}")),
            (None, Some(command)) => _ = lines.insert(command),
            (None, None) => others.entry(process.name.as_str()).or_default().push(process.pid),
        }
    }
    let mut lines: Vec<String> = lines.into_iter().collect();
    for (name, mut pids) in others {
        pids.sort_unstable();
        let shown: Vec<String> = pids.iter().take(NAMED).map(u32::to_string).collect();
        let rest =
            if pids.len() > NAMED { format!(" and {} more", pids.len() - NAMED) } else { String::new() };
        lines.push(format!("restart {name} (process {}{rest})", shown.join(", ")));
    }
    lines
}

/// The command for a process of a systemd service, by its control group.
fn service(process: &Process) -> Option<String> {
    let mut parts = process.cgroup.split('/');
    let unit = parts.rfind(|part| part.ends_with(".service"))?;
    if unit.starts_with("user@") {
        return None;
    }
    let user = if parts.any(|part| part.starts_with("user@")) { "--user " } else { "" };
    // A user may call a control group of theirs what systemctl takes for an option.
    let end = if unit.starts_with('-') { "-- " } else { "" };
    Some(format!("systemctl {user}restart {end}{}", word(Path::new(unit))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{Map, PAGE, World};

    /// Two nginx hold the old version of a library; `newer` pages of the new one are in use.
    fn upgraded(newer: u64) -> World {
        let mut world = World::default();
        let old = world.file("/lib/ssl.so.3", 20);
        let new = world.file("/lib/ssl.so.3", 20);
        world.file_mut(old).deleted = true;
        world.file_mut(old).replaced = true;
        for (name, file) in [("nginx", old), ("nginx", old), ("sshd", new)] {
            let process = world.process(name);
            world.process_mut(process).cgroup = format!("/system.slice/{name}.service");
            let pages = if file == old { 10 } else { newer };
            world.map(process, Map::text(file, 0, 20).resident(0..pages));
        }
        world
    }

    #[test]
    fn old_pages_go_where_the_new_ones_are_there_already() {
        let advice = advise(&upgraded(16).frames(true).snapshot()).expect("advice");
        assert_eq!(advice.saving_bytes, 10 * PAGE);
        assert_eq!(advice.how, ["systemctl restart nginx.service"]);
        let half = advise(&upgraded(4).frames(true).snapshot()).expect("advice");
        assert_eq!(half.saving_bytes, 4 * PAGE, "six pages would come in anew");
    }

    #[test]
    fn a_restart_that_only_exchanges_pages_is_not_advised() {
        assert_eq!(advise(&upgraded(0).frames(true).snapshot()), None);
    }

    #[test]
    fn a_version_of_another_name_is_known_by_its_soname() {
        let mut world = World::default();
        for (path, deleted) in [("/lib/libz.so.1.2", true), ("/lib/libz.so.1.3", false)] {
            let file = world.file(path, 8);
            world.file_mut(file).deleted = deleted;
            world.file_mut(file).elf.as_mut().expect("an ELF file").soname = Some("libz.so.1".to_owned());
            let process = world.process("p");
            world.map(process, Map::text(file, 0, 8));
        }
        let advice = advise(&world.frames(true).snapshot()).expect("advice");
        assert_eq!(advice.saving_bytes, 8 * PAGE);
        assert_eq!(advice.how, ["restart p (process 1000)"]);
    }

    #[test]
    fn services_containers_and_the_rest() {
        let mut world = World::default();
        for (cgroup, container) in [
            ("/system.slice/cron.service", None),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/editor.service", None),
            ("/user.slice/user-1000.slice/user@1000.service/init.scope", None),
            ("/docker/3f2a", Some("3f2a")),
            ("/docker/3f2a", Some("3f2a")),
            (r"/system.slice/odd\x2dname.service", None),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/-Hevil.service", None),
        ] {
            let process = world.process("p");
            world.process_mut(process).cgroup = cgroup.to_owned();
            world.process_mut(process).container = container.map(str::to_owned);
        }
        let lines = commands(&world.snapshot(), &[0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(
            lines,
            [
                "restart container 3f2a",
                "systemctl --user restart -- -Hevil.service",
                "systemctl --user restart editor.service",
                r"systemctl restart 'odd\x2dname.service'",
                "systemctl restart cron.service",
                "restart p (process 1002)",
            ]
        );
    }
}
