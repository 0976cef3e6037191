//! Pages that the home of an object cannot read: whoever touches one on another host gets SIGBUS, nobody waits for ever, and
//! the others go on.

use commonhold_tests::cluster::{another, cluster, sharers_of, until_says};
use commonhold_tests::{MIB, PAGE, page};
use std::fs::File;

const WAYS: [&str; 4] = ["central", "forwarding", "forwarding replicas=1", "explicit"];

/// What the file lost under the object is an error where it is touched first, for reading and for writing, and is had again
/// when the file has it again.
#[test]
fn what_the_home_cannot_read_is_an_error_at_the_process() {
    let hosts = cluster(3);
    for (number, how) in WAYS.iter().enumerate() {
        let file = hosts[0].scratch().file(&format!("file{number}"), MIB);
        std::fs::write(&file, page::bytes(0, 256, 1)).unwrap();
        let name = format!("/unreadable{number}");
        let workers = sharers_of(&hosts, &name, &format!("file={} {how}", file.display()));
        workers[1].ok("check m 0 1 1");
        File::options().write(true).open(&file).unwrap().set_len(128 * PAGE as u64).unwrap();
        let doomed = [another(&hosts[1], &name), another(&hosts[2], &name), another(&hosts[0], &name)];
        doomed[0].dies(&format!("get m {}", 200 * PAGE), libc::SIGBUS);
        doomed[1].dies(&format!("put m {} 1", 200 * PAGE), libc::SIGBUS);
        doomed[2].dies(&format!("get m {}", 200 * PAGE), libc::SIGBUS);
        until_says(&hosts[1], "could not read it");
        // Pages beside it are had, in whichever request they are asked for.
        workers[2].ok("check m 0 128 1");
        workers[1].all("fill m 100 20 2\ncheck m 100 20 2");
        std::fs::write(&file, page::bytes(0, 256, 1)).unwrap();
        for (worker, seed) in [(1, 3), (2, 4), (0, 5)] {
            workers[worker].all(&format!("check m 250 1 1\nfill m 200 1 {seed}\ncheck m 200 1 {seed}"));
        }
        if !how.starts_with("explicit") {
            workers[1].ok("check m 200 1 5");
        }
    }
}
