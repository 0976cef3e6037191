//! Made reports for tests of what becomes of a report.

use super::*;
use crate::snapshot::Unseen;

/// Bytes of so many tenths of a MiB.
pub fn tenths(number: u64) -> u64 {
    number * (1 << 20) / 10
}

fn sharing(active: u64, shared: u64, without: u64, with: u64) -> SharingFigure {
    SharingFigure {
        active,
        shared,
        extent: Some(shared as f64 / active as f64),
        without_sharing_bytes: tenths(without),
        with_sharing_bytes: tenths(with),
        savings_ratio: Some(without as f64 / with as f64),
    }
}

/// Ten environments with a library each, of which `copies` are files of their own.
fn equal(name: &str, copies: usize, saving: u64, proof: Proof) -> EqualFiles {
    EqualFiles {
        identity: format!("{name}-build"),
        by: "build ID".to_owned(),
        size_bytes: tenths(60),
        paths: (0..copies).map(|copy| format!("/srv/env{copy}/lib/{name}")).collect(),
        users: (0..copies).map(|copy| 3 - copy.min(2) as u64).collect(),
        resident_bytes: (0..copies).map(|copy| (copy != 1).then_some(tenths(50))).collect(),
        saving_bytes: tenths(saving),
        mapped_saving_bytes: tenths(saving) / 2,
        disk_bytes: tenths(60) * (copies as u64 - 1),
        proof,
        containers: vec!["3f2a".to_owned()],
        one_file_system: true,
    }
}

fn advice(what: &str, saving: u64, how: &[&str], care: &str) -> Advice {
    Advice {
        what: what.to_owned(),
        saving_bytes: tenths(saving),
        mapped_bytes: None,
        certainty: "measured".to_owned(),
        how: how.iter().map(|line| (*line).to_owned()).collect(),
        care: care.to_owned(),
    }
}

fn unique(kind: &str, name: &str, bytes: u64, exact: bool) -> Unique {
    Unique {
        kind: kind.to_owned(),
        name: name.to_owned(),
        processes: if kind == "process" { 1 } else { 7 },
        unique_bytes: tenths(bytes),
        swap_bytes: tenths(bytes / 10),
        proportional_bytes: tenths(bytes + 20),
        resident_bytes: tenths(bytes + 100),
        exact,
    }
}

fn findings(report: &mut Report) {
    report.equal_files = vec![
        equal("libpython3.11.so.1.0", 10, 450, Proof::Frames),
        equal("libcrypto.so.3", 4, 91, Proof::Proportional),
        equal("libz.so.1", 2, 0, Proof::Unproven),
        equal("libc.so.6", 2, 0, Proof::SameFrames),
    ];
    report.relocation = Relocation {
        relro_bytes: tenths(123),
        data_bytes: tenths(456),
        libraries: ["libLLVM.so", "libQt.so", "libstdc++.so.6", "libgtk.so"]
            .iter()
            .enumerate()
            .map(|(place, name)| RelocatedLibrary {
                path: format!("/usr/lib/{name}"),
                users: 20 - place as u64,
                relro_bytes: tenths(40 - place as u64),
                data_bytes: tenths(90),
                saving_bytes: tenths(38 - place as u64),
            })
            .collect(),
    };
    report.page_tables = PageTables {
        total_bytes: tenths(302),
        machine_bytes: tenths(561),
        saving_bytes: tenths(201),
        segments: vec![SharedSegment {
            path: "/dev/zero".to_owned(),
            users: 64,
            size_bytes: tenths(40_960),
            table_bytes: tenths(210),
            saving_bytes: tenths(201),
        }],
    };
    report.deleted = vec![Deleted {
        path: "/usr/lib/libssl.so.3".to_owned(),
        users: vec!["nginx (812)".to_owned(), "nginx (813)".to_owned(), "sshd (500)".to_owned()],
        resident_bytes: tenths(7),
        replaced: true,
    }];
}

/// A machine with something of everything.
pub fn machine() -> Report {
    let mut report = Report {
        format: FORMAT,
        version: "0.1.0".to_owned(),
        scope: "machine".to_owned(),
        machine: "alpha, Linux 6.12.5".to_owned(),
        taken_at: 1_795_242_742,
        took_ms: 1_240,
        cpu_ms: 910,
        processes: 312,
        memory: Memory {
            resident_bytes: tenths(90_001),
            proportional_bytes: tenths(51_203),
            private_bytes: tenths(30_004),
            anonymous_bytes: tenths(28_000),
            machine_bytes: tenths(160_000),
            available_bytes: tenths(80_001),
        },
        sharing: Sharing {
            programs: sharing(87, 23, 3_456, 1_234),
            all_text: sharing(412, 301, 28_800, 4_000),
            all_read_only: sharing(1_200, 800, 40_000, 8_000),
        },
        kernel_means: KernelMeans {
            merged_bytes: 0,
            merged_saving_bytes: None,
            swapped_bytes: tenths(40),
            huge_bytes: tenths(2_040),
            hugetlb_bytes: 0,
            huge_text_bytes: tenths(20),
        },
        unique: vec![
            unique("container", "3f2a9c", 9_000, true),
            unique("control group", "/system.slice", 5_000, false),
            unique("process", "postgres (700)", 3_000, true),
            unique("process", "python (901)", 200, true),
            unique("process", "python (902)", 190, true),
        ],
        unseen: vec![Unseen {
            what: "12 processes (17 (nginx), 18 (nginx), 19 (sh), …)".to_owned(),
            why: "permission denied: run as root to see other users' processes".to_owned(),
        }],
        ..Report::default()
    };
    findings(&mut report);
    report.advice = vec![
        advice(
            "12 files (libpython3.11.so.1.0, …) in up to 10 equal copies: /srv/env0, /srv/env1, /srv/env2, …",
            541,
            &[
                "hardlink --ignore-time -- /srv/env0 /srv/env1 (from util-linux), or file by file:",
                "ln -f /srv/env0/lib/libpython3.11.so.1.0 /srv/env1/lib/libpython3.11.so.1.0",
                "ln -f /srv/env0/lib/libcrypto.so.3 /srv/env1/lib/libcrypto.so.3",
            ],
            "Restart its users: restart python (process 901, 902).",
        ),
        advice(
            "page tables of 64 processes for the 4096 MiB of /dev/zero",
            201,
            &["sysctl vm.nr_hugepages=2048"],
            "Restart its users: a mapping keeps the pages it has. Memory for huge pages has to be free in whole 2 MiB, \
             best right after boot, and the segment grows to whole huge pages.",
        ),
        advice(
            "the old version of libssl.so.3, which 3 processes still hold",
            7,
            &["systemctl restart nginx"],
            "",
        ),
        advice("relocations of /usr/bin/clang in 20 processes", 3, &["link it with -z now"], ""),
    ];
    report
}

/// The same machine after the first advice was followed, an upgrade, and a restart.
pub fn after() -> Report {
    let mut report = machine();
    report.taken_at += 7_200;
    report.processes = 310;
    report.memory.proportional_bytes -= tenths(541);
    report.sharing.all_text = sharing(402, 301, 28_800, 3_600);
    report.equal_files.remove(0);
    report.equal_files[0].saving_bytes = tenths(30);
    report.advice.remove(0);
    report.deleted[0].resident_bytes += tenths(2);
    report.deleted.push(Deleted { path: "/usr/lib/libxml2.so.2".to_owned(), ..report.deleted[0].clone() });
    report.relocation.libraries.pop();
    report.unique[3].name = "python (1901)".to_owned();
    report.unique[4].name = "python (1902)".to_owned();
    report
}

/// A sampled report with a measured set.
pub fn sampled() -> Report {
    let mut report = machine();
    let figure = |name: &str, mean: f64, half: f64| SampledFigure {
        name: name.to_owned(),
        count: 72,
        mean,
        low: Some(mean - half),
        high: Some(mean + half),
        batches: 18,
        dependent: false,
        min: mean - 2.0 * half,
        max: mean + 2.0 * half,
    };
    report.samples = Some(Samples {
        count: 72,
        span_s: 21_300,
        every_ms: 300_000,
        overruns: 2,
        ended_early: true,
        figures: vec![
            figure("programs.extent", 0.271, 0.012),
            SampledFigure { dependent: true, ..figure("programs.savings_ratio", 2.75, 0.25) },
            figure("memory.proportional_bytes", tenths(51_000) as f64, tenths(300) as f64),
            SampledFigure {
                count: 1,
                batches: 1,
                low: None,
                high: None,
                ..figure("all_text.extent", 0.75, 0.0)
            },
        ],
    });
    report.library_sets = vec![LibrarySet {
        name: "/bin".to_owned(),
        programs: 120,
        by_symbols: 1,
        by_archive: 110,
        uncounted: 9,
        skipped: 30,
        code_fraction: Some(0.713),
        disk_fraction: Some(0.42),
        whole_code_fraction: Some(0.951),
        whole_disk_fraction: None,
        library_code_bytes: tenths(500),
        own_code_bytes: tenths(200),
        disk_bytes: tenths(1_200),
        most: Some(("/bin/true".to_owned(), 0.96)),
    }];
    report
}

/// Names that people chose who mean harm.
pub fn hostile() -> Report {
    let evil = "</td><script>alert(1)</script>\u{1b}[2J\"'&\u{202e}\n";
    let mut report = sampled();
    report.scope = format!("root directory /{evil}");
    report.machine = evil.to_owned();
    for group in &mut report.equal_files {
        group.paths.iter_mut().for_each(|path| path.push_str(evil));
        group.identity.push_str(evil);
        group.by.push_str(evil);
        group.containers.push(evil.to_owned());
        // Lists that do not fit together.
        group.users.pop();
        group.resident_bytes.clear();
    }
    report.relocation.libraries.iter_mut().for_each(|library| library.path.push_str(evil));
    report.page_tables.segments.iter_mut().for_each(|segment| segment.path.push_str(evil));
    for file in &mut report.deleted {
        file.path.push_str(evil);
        file.users.push(format!("{evil} (666)"));
    }
    for unique in &mut report.unique {
        unique.name = format!("{evil} (666)");
        unique.kind.push_str(evil);
    }
    for set in &mut report.library_sets {
        set.name.push_str(evil);
        set.most = Some((evil.to_owned(), 0.5));
    }
    for advice in &mut report.advice {
        advice.what.push_str(evil);
        advice.how.push(evil.to_owned());
        advice.care.push_str(evil);
        advice.certainty.push_str(evil);
    }
    report.samples.as_mut().expect("it is sampled").figures[0].name.push_str(evil);
    report.unseen.push(Unseen { what: evil.to_owned(), why: evil.to_owned() });
    report.memory.resident_bytes = u64::MAX;
    report.equal_files[0].saving_bytes = u64::MAX;
    report
}
