//! Recorded trees of procfs: what a live machine shows only now and then.

use crate::support::{Recorded, copy, mapping, mapping_of, some_library, stat, unseen};
use commonhold_audit::snapshot::{Scope, SnapshotOptions, take};
use std::fs;
use std::os::unix::fs::MetadataExt;

const HEAP: &str = "5000-6000 rw-p 00000000 00:00 0 [heap]\nRss: 4 kB\nPss: 4 kB\nPrivate_Dirty: 4 kB\n";

#[test]
fn one_process_of_every_kind() {
    let recorded = Recorded::new();
    let library = copy(&some_library(), recorded.folder.path());
    let good = format!("{}{HEAP}", mapping_of(&library, 0x1000));
    recorded.process(1, 0, 'S', "/init.scope", good.as_bytes());
    recorded.process(2, 0, 'S', "/", b"");
    fs::write(recorded.path(2).join("stat"), stat(2, 0, 'S', 0x0020_0000)).expect("a kernel thread");
    recorded.process(3, 1, 'Z', "/", b"");
    recorded.process(4, 1, 'S', "/", b"this is not smaps\n");
    // It ended after it was counted.
    recorded.process(5, 1, 'S', "/", good.as_bytes());
    fs::remove_file(recorded.path(5).join("smaps")).expect("removed");
    recorded.process(6, 1, 'S', "/", good.as_bytes());
    fs::write(recorded.path(6).join("stat"), "6 (damaged").expect("written");
    let snapshot = take(&recorded.options()).expect("a snapshot");
    let pids: Vec<u32> = snapshot.processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [1]);
    let process = &snapshot.processes[0];
    assert_eq!((process.name.as_str(), process.uid), ("a (b) c", 1000));
    assert_eq!((process.start_ticks, process.page_table_bytes), (1001, Some(44 << 10)));
    assert_eq!(process.cgroup, "/init.scope");
    assert_eq!(process.mappings.len(), 2);
    assert_eq!((process.mappings[0].resident, process.mappings[0].file), (8 << 10, Some(0)));
    assert_eq!((process.mappings[1].label.as_str(), process.mappings[1].private_dirty), ("[heap]", 4 << 10));
    let file = &snapshot.files[0];
    assert!(file.elf.is_some() && file.frames.is_none() && !snapshot.has_frames);
    assert_eq!(file.key.inode, fs::metadata(&library).expect("known").ino());
    let unseen = unseen(&snapshot);
    assert!(unseen.contains("process 4 (a (b) c): it could not be read"), "{unseen}");
    assert!(unseen.contains("process 5 (a (b) c): ended"), "{unseen}");
    assert!(unseen.contains("process 6: its stat could not be read"), "{unseen}");
    assert!(!unseen.contains("process 2") && !unseen.contains("process 3"), "{unseen}");
}

#[test]
fn a_path_that_leads_to_another_inode_is_not_taken_for_the_mapped_file() {
    let recorded = Recorded::new();
    let library = copy(&some_library(), recorded.folder.path());
    let about = fs::metadata(&library).expect("known");
    let smaps = mapping(&library, 0x1000, about.dev(), about.ino() + 1_000_000);
    recorded.process(1, 0, 'S', "/", smaps.as_bytes());
    let snapshot = take(&recorded.options()).expect("a snapshot");
    let file = &snapshot.files[0];
    assert_eq!((file.size, &file.elf, file.content), (None, &None, None));
    assert_eq!(file.key.inode, about.ino() + 1_000_000);
    assert!(unseen(&snapshot).contains("removed or replaced while it was mapped"), "{}", unseen(&snapshot));
}

#[test]
fn damaged_and_truncated_libraries_are_told_and_have_no_facts() {
    let recorded = Recorded::new();
    let library = fs::read(some_library()).expect("read");
    let cut = recorded.folder.path().join("cut.so");
    fs::write(&cut, &library[..library.len() / 2]).expect("written");
    let damaged = recorded.folder.path().join("damaged.so");
    let mut bytes = library;
    bytes[4..64].fill(0xff);
    fs::write(&damaged, &bytes).expect("written");
    let smaps = format!("{}{}", mapping_of(&cut, 0x1000), mapping_of(&damaged, 0x9000));
    recorded.process(1, 0, 'S', "/", smaps.as_bytes());
    let snapshot = take(&recorded.options()).expect("a snapshot");
    assert!(snapshot.files.iter().all(|file| file.elf.is_none() && file.size.is_some()));
    let unseen = unseen(&snapshot);
    assert!(unseen.contains("cut.so: truncated ELF file"), "{unseen}");
    assert!(unseen.contains("damaged.so: damaged ELF file"), "{unseen}");
}

#[test]
fn containers_and_control_groups() {
    let recorded = Recorded::new();
    let library = copy(&some_library(), recorded.folder.path());
    let good = mapping_of(&library, 0x1000);
    let (one, two) = ("1a".repeat(32), "2b".repeat(32));
    recorded.process(1, 0, 'S', "/init.scope", good.as_bytes());
    recorded.process(10, 1, 'S', &format!("/system.slice/docker-{one}.scope"), good.as_bytes());
    recorded.process(11, 10, 'S', &format!("/system.slice/docker-{one}.scope/sub"), good.as_bytes());
    recorded.process(20, 1, 'S', &format!("/kubepods/pod1/{two}"), good.as_bytes());
    let pids = |scope: Scope| {
        let snapshot = take(&SnapshotOptions { scope, ..recorded.options() }).expect("a snapshot");
        let mut pids: Vec<u32> = snapshot.processes.iter().map(|process| process.pid).collect();
        pids.sort_unstable();
        pids
    };
    assert_eq!(pids(Scope::Machine), [1, 10, 11, 20]);
    assert_eq!(pids(Scope::Container("1a1a".into())), [10, 11]);
    assert_eq!(pids(Scope::Container(two)), [20]);
    assert_eq!(pids(Scope::ControlGroup("/system.slice".into())), [10, 11]);
    assert_eq!(pids(Scope::Tree(10)), [10, 11]);
    let snapshot = take(&recorded.options()).expect("a snapshot");
    let container = |pid: u32| {
        let process = snapshot.processes.iter().find(|process| process.pid == pid).expect("seen");
        process.container.clone()
    };
    assert_eq!((container(1), container(11)), (None, Some(one)));
}

#[test]
fn ten_thousand_processes() {
    let recorded = Recorded::new();
    let library = copy(&some_library(), recorded.folder.path());
    let smaps = format!("{}{}", mapping_of(&library, 0x1000), HEAP.repeat(5));
    recorded.process(1, 0, 'S', "/many", smaps.as_bytes());
    for pid in 2..=10_000_u32 {
        let path = recorded.path(pid);
        fs::create_dir(&path).expect("made");
        for name in ["stat", "cgroup", "status", "smaps"] {
            fs::hard_link(recorded.path(1).join(name), path.join(name)).expect("linked");
        }
    }
    // Every tenth hides what it maps, each for the same reason.
    for pid in (10..=10_000_u32).step_by(10) {
        fs::remove_file(recorded.path(pid).join("smaps")).expect("removed");
        fs::write(recorded.path(pid).join("smaps"), "damaged\n").expect("written");
    }
    let snapshot = take(&recorded.options()).expect("a snapshot");
    assert_eq!(snapshot.processes.len(), 9000);
    assert_eq!(snapshot.files.len(), 1);
    assert!(snapshot.processes.iter().all(|process| process.mappings.len() == 2), "one heap each");
    let lines: Vec<_> = snapshot.unseen.iter().filter(|unseen| unseen.what.contains("process")).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].what.starts_with("1000 processes (10 (a (b) c), "), "{lines:?}");
}
