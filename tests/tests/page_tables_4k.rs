//! Objects whose page tables of 4 KiB pages all processes share, by the kernel module segshm: `docs/PAGE-TABLES.md`. Where the
//! module is not loaded they are left out; `./run test-kernel` runs them within its emulated machine.

use commonhold_tables::Module;
use commonhold_tests::host::program;
use commonhold_tests::wait::until;
use commonhold_tests::{MIB, TestHost, Worker, left_out};
use std::process::Command;

const SIZE: u64 = 64 * MIB;
const PAGES: u64 = SIZE / 4096;
/// Page tables of one set of them.
const TABLES: u64 = SIZE / (2 * MIB);

/// None: it is said.
fn module() -> Option<Module> {
    let told = |error| left_out(&format!("objects with shared page tables of 4 KiB pages: {error}"));
    Module::open().map_err(told).ok()
}

fn create(host: &TestHost, more: &str) -> Worker {
    let worker = host.worker();
    worker.ok(&format!("create o /segment size={SIZE} shared-tables-4k {more}"));
    worker.ok("map m o rw shared 0 0");
    worker
}

fn attach(host: &TestHost, access: &str) -> Worker {
    let worker = host.worker();
    worker.all(&format!("open o /segment {access}\nmap m o {access} shared 0 0"));
    worker
}

#[test]
fn without_the_module_nothing_is_made() {
    if Module::open().is_ok() {
        return left_out("an object without the module: it is loaded");
    }
    let host = TestHost::start();
    let said =
        host.worker().refused(&format!("create o /segment size={SIZE} shared-tables-4k"), "Unsupported");
    assert!(said.contains("segshm") && said.contains("shared"), "{said}");
    host.worker().refused("open o /segment r", "NotFound");
}

#[test]
fn processes_share_the_tables_of_the_module() {
    let Some(_module) = module() else { return };
    let host = TestHost::start();
    let first = create(&host, "mode=644");
    first.ok(&format!("fill m 0 {PAGES} 1"));
    let others = [attach(&host, "rw"), attach(&host, "rw")];
    others.iter().for_each(|other| {
        other.ok(&format!("check m 0 {PAGES} 1"));
    });
    others[0].ok(&format!("fill m 0 {PAGES} 2"));
    assert_eq!(first.ok("stat /segment page-tables"), TABLES.to_string(), "however many write");
    let reader = attach(&host, "r");
    for worker in [&first, &others[1], &reader] {
        worker.ok(&format!("check m 0 {PAGES} 2"));
    }
    assert_eq!(
        first.ok("stat /segment page-tables"),
        (2 * TABLES).to_string(),
        "and one set for all who read"
    );
    assert_eq!(first.ok("stat /segment mappings"), "4");
    assert_eq!(first.ok("stat /segment resident"), SIZE.to_string());
    // Tables of a process's own, of a part; and a copy of its own: beside them.
    others[1].ok("map own o rw shared 0 0 own-tables");
    others[1].ok(&format!("check own 0 {PAGES} 2"));
    others[1].ok("map part o rw shared 4096 8192 own-tables");
    others[1].ok("map copy o rw private 0 0");
    others[1].ok("fill copy 0 4 9");
    first.ok(&format!("check m 0 {PAGES} 2"));
    assert_eq!(first.ok("stat /segment mappings"), "7");
    // By calls, too.
    first.ok("write-at o 5000 hello");
    assert_eq!(reader.ok("read-at o 5000 2"), "6865");
    drop((others, reader));
    first.all("drop m\nclose o\nremove /segment");
    drop(first);
    until("nothing of the module is used", || segments_of_all().filter(|bytes| *bytes == 0));
}

/// Bytes of segments that user 0 has by the module.
fn segments_of_all() -> Option<u64> {
    Module::open().and_then(|module| module.bytes_of(0)).ok()
}

#[test]
fn such_a_segment_outlives_host_and_keeper() {
    let Some(_module) = module() else { return };
    let host = TestHost::start();
    let first = create(&host, "mode=644");
    first.ok(&format!("fill m 0 {PAGES} 1"));
    let before = host.status().host_pid;
    host.kill_host();
    host.wait_for_other_host(before);
    let other = attach(&host, "rw");
    other.ok(&format!("check m 0 {PAGES} 1"));
    let reader = attach(&host, "r");
    // Of both at once only a reader is left, who brings it back: to be written, too.
    first.kill();
    other.kill();
    let before = host.status().host_pid;
    host.kill_both();
    host.start_again().unwrap();
    host.wait_for_other_host(before);
    reader.eventually("info o size");
    let last = attach(&host, "rw");
    last.ok(&format!("check m 0 {PAGES} 1"));
    last.ok(&format!("fill m 0 {PAGES} 2"));
    reader.ok(&format!("check m 0 {PAGES} 2"));
    assert_eq!(last.ok("stat /segment page-tables"), (2 * TABLES).to_string());
}

#[test]
fn what_the_module_cannot_share_is_refused() {
    let Some(_module) = module() else { return };
    let host = TestHost::start();
    let worker = create(&host, "mode=644");
    for (line, why) in [
        ("map n o rw shared 4096 4096", "map all of it"),
        ("map n o rw shared 0 0 fixed=105553116270592", "the nearest is 0x600000000000"),
        ("unmap m 0 2097152", "unmap all of it"),
        ("resize /segment 134217728", "keeps its size"),
        ("create p /p size=4096 shared-tables-4k sync=atomic", "controlled"),
    ] {
        let said = worker.ask(line).expect_err(line).message;
        assert!(said.contains(why), "{line}: {said}");
    }
    let reader = host.worker();
    reader.ok("open o /segment r");
    let said = reader.refused("map m o rw shared 0 0", "Permission");
    assert!(said.contains("open it for writing"), "{said}");
    // More than there is memory.
    let said = worker.ask("create q /q size=1099511627776 shared-tables-4k").expect_err("1 TiB");
    assert!(said.message.contains("memory"), "{said:?}");
    worker.refused("open q /q r", "NotFound");
    // The module's own limit of a user.
    let limit = "/sys/module/segshm/parameters/user_bytes";
    let before = std::fs::read_to_string(limit).unwrap();
    std::fs::write(limit, SIZE.to_string()).unwrap();
    let said = worker.refused("create q /q size=4096 shared-tables-4k", "Quota");
    std::fs::write(limit, before.trim()).unwrap();
    assert!(said.contains("user_bytes"), "{said}");
    worker.ok("create q /q size=4096 shared-tables-4k");
}

#[test]
fn programs_get_them_where_there_are_no_huge_pages() {
    let Some(_module) = module() else { return };
    let host = TestHost::start();
    let own = std::env::current_exe().unwrap();
    let mut run = Command::new(program("commonhold"));
    run.arg("--host").arg(host.state()).args(["run", "--share-page-tables", "--"]).arg(own);
    run.args(["--ignored", "--exact", "a_program_with_segments", "--nocapture"]);
    let output = run.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("shared: 32"), "{output:?}");
}

/// Is run by [`programs_get_them_where_there_are_no_huge_pages`].
#[test]
#[ignore = "a program for another test"]
fn a_program_with_segments() {
    let size = SIZE as usize;
    // SAFETY: a segment of this program's own, used within its size, which a child writes to before it is read.
    unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, size, libc::IPC_CREAT | 0o600);
        assert!(id >= 0, "{}", std::io::Error::last_os_error());
        let at = libc::shmat(id, std::ptr::null(), 0).cast::<u8>();
        assert_ne!(at as isize, -1, "{}", std::io::Error::last_os_error());
        assert_eq!(at as usize % (2 << 20), 0, "where tables are shared");
        let child = libc::fork();
        if child == 0 {
            at.add(size - 1).write_volatile(7);
            libc::_exit(0);
        }
        assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
        assert_eq!(at.add(size - 1).read_volatile(), 7);
        // Each page of it, and no fault for each.
        (0..size).step_by(4096).for_each(|byte| at.add(byte).write_volatile(1));
        let mut stat: libc::shmid_ds = std::mem::zeroed();
        assert_eq!(libc::shmctl(id, libc::IPC_STAT, &raw mut stat), 0);
        assert_eq!((stat.shm_segsz, stat.shm_nattch), (size, 1));
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        assert!(maps.contains("[segshm]"), "{maps}");
        println!("shared: {}", Module::open().and_then(|module| module.bytes_of(0)).unwrap() >> 21);
        assert_eq!(libc::shmdt(at.cast()), 0);
        assert_eq!(libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()), 0);
    }
}
