//! Real processes: equal libraries under different inodes, libraries that were deleted or replaced, and processes that
//! come and go meanwhile.

use crate::left_out::left_out;
use crate::support::{Sleeper, copy, file_of, is_root, process, some_library, unseen};
use commonhold_audit::snapshot::{Scope, SnapshotOptions, take};
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

fn of(pid: u32) -> SnapshotOptions {
    SnapshotOptions { scope: Scope::Tree(pid), ..SnapshotOptions::default() }
}

/// This test program and its children.
fn ours() -> SnapshotOptions {
    SnapshotOptions { skip_self: false, ..of(std::process::id()) }
}

#[test]
fn equal_libraries_with_different_inodes_are_two_files_of_one_content_in_different_frames() {
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let copies = folders.each_ref().map(|folder| copy(&some_library(), folder.path()));
    // Two processes have the first copy, one has the second.
    let sleepers = [Sleeper::with(&copies[0]), Sleeper::with(&copies[0]), Sleeper::with(&copies[1])];
    let snapshot = take(&ours()).expect("a snapshot");
    let (first, one) = file_of(&snapshot, sleepers[0].pid(), &copies[0]);
    let (again, _) = file_of(&snapshot, sleepers[1].pid(), &copies[0]);
    let (second, other) = file_of(&snapshot, sleepers[2].pid(), &copies[1]);
    assert_eq!(first, again, "one inode is one file");
    assert_ne!((first, one.key), (second, other.key));
    assert!(one.content.is_some() && one.content == other.content, "{}", unseen(&snapshot));
    let expected = blake3::hash(&std::fs::read(&copies[0]).expect("read"));
    assert_eq!(one.content, Some(*expected.as_bytes()));
    let elf = one.elf.as_ref().expect("an ELF file");
    assert!(!elf.is_program && elf.soname.is_some() && elf.text_bytes > 0);
    assert_eq!(one.elf, other.elf);
    assert_eq!(one.size, Some(std::fs::metadata(&copies[0]).expect("known").len()));
    let cached = one.cached_pages.as_ref().expect("its owner may know");
    assert!(!cached.is_empty());
    assert_eq!(snapshot.has_frames, one.frames.is_some());
    if let (Some(one), Some(other)) = (&one.frames, &other.frames) {
        assert!(is_root());
        let frames =
            |file: &std::collections::BTreeMap<u32, u64>| file.values().copied().collect::<BTreeSet<_>>();
        assert!(!one.is_empty() && !other.is_empty());
        assert!(frames(one).is_disjoint(&frames(other)), "two inodes are two memories");
        assert!(one.keys().any(|page| cached.contains(*page)));
    }
}

#[test]
fn a_process_is_seen_as_the_kernel_shows_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = copy(&some_library(), folder.path());
    let sleeper = Sleeper::with(&library);
    let snapshot = take(&of(sleeper.pid())).expect("a snapshot");
    assert_eq!(snapshot.processes.len(), 1);
    assert_eq!(snapshot.scope, format!("process tree {}", sleeper.pid()));
    let process = process(&snapshot, sleeper.pid());
    assert_eq!((process.name.as_str(), process.parent), ("cat", std::process::id()));
    assert_eq!(process.uid, rustix::process::getuid().as_raw());
    assert!(process.page_table_bytes.is_some_and(|bytes| bytes > 0) && process.start_ticks > 0);
    let program = &snapshot.files[process.program.expect("it runs a program")];
    assert!(program.elf.as_ref().is_some_and(|elf| elf.is_program), "{program:?}");
    assert!(program.path.ends_with("cat") || program.path.ends_with("coreutils"), "{program:?}");
    assert!(process.mappings.is_sorted_by_key(|mapping| mapping.start));
    assert!(process.mappings.iter().any(|mapping| mapping.label == "[stack]" && mapping.resident > 0));
    let of_library = |mapping: &&commonhold_audit::snapshot::Mapping| {
        mapping.file.is_some_and(|file| snapshot.files[file].path == library)
    };
    let text: Vec<_> =
        process.mappings.iter().filter(of_library).filter(|mapping| mapping.is_text()).collect();
    assert!(!text.is_empty() && text.iter().any(|mapping| mapping.resident > 0));
    // Nothing is counted twice or lost when anonymous mappings are put together.
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", sleeper.pid())).expect("readable");
    let resident = rollup.lines().find_map(|line| line.strip_prefix("Rss:")).expect("there");
    let resident: u64 = resident.trim().trim_end_matches(" kB").parse().expect("a number");
    assert_eq!(process.mappings.iter().map(|mapping| mapping.resident).sum::<u64>(), resident << 10);
    assert!(snapshot.machine.memory_bytes > 0 && snapshot.page_bytes >= 4096);
    if snapshot.has_frames {
        let own: u64 =
            process.mappings.iter().map(|mapping| mapping.private_clean + mapping.private_dirty).sum();
        let unique = snapshot.group_unique.get("scope").copied().unwrap_or_default();
        let share: u64 = process.mappings.iter().map(|mapping| mapping.proportional).sum();
        assert!(unique >= own && unique <= share + 65536, "{own} <= {unique} <= {share}");
    }
}

#[test]
fn what_two_processes_share_alone_is_theirs_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = copy(&some_library(), folder.path());
    // A shell and its child: one tree, and the only two that map this copy.
    let mut shell = Command::new("sh");
    shell.args(["-c", "cat; true"]).env("LD_PRELOAD", &library);
    let child = shell.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn();
    let sleeper = Sleeper(child.expect("a shell"));
    sleeper.wait_for(&library.display().to_string());
    let mut snapshot = take(&of(sleeper.pid())).expect("a snapshot");
    for _ in 0..1000 {
        if snapshot.processes.iter().any(|process| process.name == "cat") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        snapshot = take(&of(sleeper.pid())).expect("a snapshot");
    }
    assert_eq!(snapshot.processes.len(), 2, "{}", unseen(&snapshot));
    if !snapshot.has_frames {
        return left_out("what a process has for itself, by its frames (pagemap has none for this user)");
    }
    let own: u64 = snapshot
        .processes
        .iter()
        .flat_map(|process| &process.mappings)
        .map(|m| m.private_clean + m.private_dirty)
        .sum();
    let (_, file) = file_of(&snapshot, sleeper.pid(), &library);
    let shared = file.frames.as_ref().expect("frames").len() as u64 * snapshot.page_bytes;
    let unique = snapshot.group_unique.get("scope").copied();
    if let Some(unique) = unique {
        // The pages of the library that both have are nobody else's, and private to neither.
        assert!(unique > own && shared > 0, "{unique} > {own}");
    } else {
        assert!(unseen(&snapshot).contains("permission denied"), "{}", unseen(&snapshot));
    }
}

#[test]
fn libraries_that_were_deleted_or_replaced_while_they_were_mapped() {
    let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
    let [deleted, replaced] = folders.each_ref().map(|folder| copy(&some_library(), folder.path()));
    let sleepers = [Sleeper::with(&deleted), Sleeper::with(&replaced)];
    std::fs::remove_file(&deleted).expect("removed");
    let newer = copy(&some_library(), folders[0].path());
    std::fs::rename(&newer, &replaced).expect("replaced");
    let snapshot = take(&ours()).expect("a snapshot");
    for (sleeper, path, is_replaced) in [(&sleepers[0], &deleted, false), (&sleepers[1], &replaced, true)] {
        let (_, file) = file_of(&snapshot, sleeper.pid(), path);
        assert_eq!((file.deleted, file.replaced), (true, is_replaced), "{file:?}");
        if is_root() {
            assert!(file.elf.is_some() && file.size.is_some(), "root opens the mapped file itself: {file:?}");
        } else {
            assert!(file.elf.is_none() && file.size.is_none() && file.content.is_none());
            assert!(
                unseen(&snapshot).contains("removed or replaced while it was mapped"),
                "{}",
                unseen(&snapshot)
            );
        }
    }
}

#[test]
fn processes_that_come_and_go_are_no_failure() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let spawner = std::thread::spawn(|| {
        let mut count = 0_u32;
        while !STOP.load(Ordering::Relaxed) {
            let children: Vec<_> = (0..8).filter_map(|_| Command::new("true").spawn().ok()).collect();
            for mut child in children {
                let _ = child.wait();
                count += 1;
            }
        }
        count
    });
    for _ in 0..8 {
        let snapshot = take(&SnapshotOptions { hash: false, ..ours() }).expect("a snapshot");
        for process in &snapshot.processes {
            assert!(!process.mappings.is_empty() && process.start_ticks > 0, "{process:?}");
            let files = process.mappings.iter().filter_map(|mapping| mapping.file);
            assert!(files.chain(process.program).all(|file| file < snapshot.files.len()));
        }
        assert!(snapshot.unseen.len() < 20, "one line for each reason:\n{}", unseen(&snapshot));
    }
    STOP.store(true, Ordering::Relaxed);
    assert!(spawner.join().expect("it ends") > 0);
}

#[test]
fn a_spent_budget_leaves_out_and_says_so() {
    let sleeper = Sleeper::with(&some_library());
    let options = SnapshotOptions { budget: Some(std::time::Duration::ZERO), ..of(sleeper.pid()) };
    let snapshot = take(&options).expect("a snapshot");
    assert!(snapshot.processes.is_empty() && snapshot.group_unique.is_empty());
    let unseen = unseen(&snapshot);
    assert!(unseen.contains(&format!("process {} (cat): the budget of 0 s", sleeper.pid())), "{unseen}");
}

#[test]
fn what_does_not_exist_is_an_error_that_says_what_to_do() {
    let error = take(&of(4_000_000)).expect_err("no such process").to_string();
    assert!(error.contains("4000000") && error.contains("ps -e"), "{error}");
    let options =
        SnapshotOptions { scope: Scope::ControlGroup("/no/such/group".into()), ..SnapshotOptions::default() };
    assert!(take(&options).expect_err("none").to_string().contains("/no/such/group"));
    let options = SnapshotOptions { proc_root: "/no/such/proc".into(), ..SnapshotOptions::default() };
    assert!(take(&options).expect_err("none").to_string().contains("is procfs mounted there?"));
    let options =
        SnapshotOptions { scope: Scope::Root("/no/such/root".into()), ..SnapshotOptions::default() };
    assert!(take(&options).expect_err("none").to_string().contains("/no/such/root"));
}
