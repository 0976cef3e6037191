//! The programs of docs/THREADS.md: what threads count, processes of two hosts count.

use commonhold_tests::c_program::CProgram;
use commonhold_tests::cluster::cluster;
use commonhold_tests::page;

#[test]
fn what_threads_count_processes_of_two_hosts_count() {
    let hosts = cluster(2);
    hosts[1].worker().eventually("create o /begun size=4096 strict"); // it belongs to the cluster
    let file = hosts[0].scratch().join("file");
    let bytes = page::bytes(0, 50, 3);
    std::fs::write(&file, &bytes).unwrap();
    let threads = CProgram::new("examples/histogram_threads.c", &[]);
    let program = CProgram::new("examples/histogram_hosts.c", &[]);
    let words = |me: u32| format!("{} {me}", file.display());
    let (well, expected) = threads.start(&hosts[0], file.to_str().unwrap()).end();
    assert!(well, "{expected}");
    let counted: usize =
        expected.lines().map(|line| line.split(' ').nth(1).unwrap().parse::<usize>().unwrap()).sum();
    assert_eq!(counted, bytes.len());
    // Each begins on either host; the second time the names are free again.
    for [first, second] in [[0, 1], [1, 0]] {
        let other = program.start(&hosts[second], &words(1));
        let (well, counted) = program.start(&hosts[first], &words(0)).end();
        assert!(well && counted == expected, "{counted}");
        let (well, said) = other.end();
        assert!(well && said.is_empty(), "{said}");
    }
    // What a killed run left, or a part that is started twice, is said; nothing is counted twice.
    assert!(program.start(&hosts[0], &words(1)).end().0);
    let (well, said) = program.start(&hosts[1], &words(1)).end();
    assert!(!well && said.contains("part 1 is counted already"), "{said}");
    let (well, said) = program.start(&hosts[1], &words(2)).end();
    assert!(!well && said.contains("parts are 0 to 1"), "{said}");
}
