//! New files of a mount, of the kind that `--new-files` says.

use commonhold::{Access, Coherence, ObjectInfo};
use commonhold_tests::cluster::cluster;
use commonhold_tests::mounted::{MappedFile, Mounted};
use commonhold_tests::wait::until;
use std::os::unix::fs::FileExt;

const BYTES: usize = 300_000;

fn contents(seed: u8) -> Vec<u8> {
    (0..BYTES).map(|at| (at / 7) as u8 ^ seed).collect()
}

/// What another host reads of an object.
fn read_at(host: &commonhold_tests::TestHost, name: &str, length: usize) -> (ObjectInfo, Vec<u8>) {
    let object = host.connect().open(name, Access::Read).unwrap();
    let mut bytes = vec![0; length];
    object.read_at(&mut bytes, 0).unwrap();
    (object.info().unwrap(), bytes)
}

fn grows_and_shrinks(words: &[&str], is_so: impl Fn(&ObjectInfo) -> bool, is_shared: bool) {
    let hosts = cluster(2);
    let Some(mounted) = Mounted::with(&hosts[1], words) else { return };
    let path = mounted.path("a");
    let reader = if is_shared { &hosts[0] } else { &hosts[1] };
    for (round, seed) in [1, 2].into_iter().enumerate() {
        std::fs::write(hosts[0].scratch().join("from"), contents(seed)).unwrap();
        // The second time it is emptied first, and is the same object.
        mounted.shell(&format!("cp {} $M/a && sync $M/a", hosts[0].scratch().join("from").display()));
        assert!(std::fs::read(&path).unwrap() == contents(seed), "{words:?}");
        let (info, bytes) = read_at(reader, "/a", BYTES);
        assert!(is_so(&info), "{words:?}: {:?}", info.options);
        assert!(bytes == contents(seed), "{words:?}: another host reads something else");
        assert_eq!(info.options.size_bytes, BYTES as u64);
        if round == 0 {
            let before = mounted.server();
            mounted.kill_server();
            until("another serves", || (mounted.server() != before).then_some(()));
        }
    }
    mounted.shell(
        "printf more >> $M/a; truncate -s 400000 $M/a; sync $M/a; printf x > $M/b; : > $M/b; test ! -s $M/b",
    );
    let file = std::fs::File::open(&path).unwrap();
    let mut end = [9; 6];
    file.read_exact_at(&mut end, BYTES as u64 - 1).unwrap();
    assert_eq!(&end[1..], b"more\0", "{words:?}");
    assert_eq!(file.metadata().unwrap().len(), 400_000);
    // Made by the server after the first.
    let (info, _) = read_at(&hosts[1], "/b", 0);
    assert!(is_so(&info) && info.options.size_bytes == 0, "{words:?}: {:?}", info.options);
    let maps = MappedFile::of(&path, 4096).is_ok();
    assert_eq!(maps, !info.controlled || info.options.coherence == Coherence::Explicit, "{words:?}");
}

#[test]
fn direct_ones() {
    grows_and_shrinks(&[], |info| !info.controlled, false);
}

#[test]
fn controlled_ones() {
    let so = |info: &ObjectInfo| info.controlled && info.options.coherence == Coherence::Local;
    grows_and_shrinks(&["--new-files", "controlled"], so, false);
}

#[test]
fn explicit_ones() {
    let so = |info: &ObjectInfo| info.options.coherence == Coherence::Explicit;
    grows_and_shrinks(&["--new-files", "explicit"], so, true);
}

#[test]
fn strict_ones() {
    let so = |info: &ObjectInfo| matches!(info.options.coherence, Coherence::Strict { .. });
    grows_and_shrinks(&["--new-files", "strict"], so, true);
}
