//! A compressed file, read through a mapping.

use crate::harness::{PAGE, Process, TestHost, read_mapped, zstd_command};
use crate::left_out::left_out;
use commonhold::{CreateOptions, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const NAME: &str = "/pagers/words";

/// Text that compresses, and whose every part is another.
fn text(length: usize) -> Vec<u8> {
    (0..length).flat_map(|n| format!("line {n} of {length}\n").into_bytes()).take(length).collect()
}

fn run(words: &[&str], paths: &[&Path]) -> String {
    let output = zstd_command().args(words).args(paths).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn compressed(host: &TestHost, content: &[u8]) -> PathBuf {
    let (plain, packed) = (host.file("plain"), host.file("packed.zst"));
    std::fs::write(&plain, content).unwrap();
    run(&["compress", "--frame-bytes", "65536"], &[&plain, &packed]);
    assert!(packed.metadata().unwrap().len() < content.len() as u64 / 3);
    packed
}

fn serve(host: &TestHost, file: &Path) -> Process {
    Process::serving(zstd_command().arg("serve").arg(file).args(["--name", NAME, "--host"]).arg(host.state()))
}

#[test]
fn a_compressed_file_reads_as_the_original() {
    let host = TestHost::start();
    let content = text((3 << 20) + 123);
    let packed = compressed(&host, &content);
    assert_eq!(run(&["size"], &[&packed]), format!("{}\n", content.len()));
    let _pager = serve(&host, &packed);
    let object = host.create("/lab/words", NAME, content.len() as u64, CreateOptions::default());
    let mut part = vec![0; 10_000];
    for offset in [2_000_000, 65_530, 0, content.len() - 10_000, 1_000_000] {
        object.read_at(&mut part, offset as u64).unwrap();
        assert!(part == content[offset..offset + 10_000], "{offset}");
    }
    assert!(read_mapped(&object) == content);
    // In another process, and with less memory than content.
    let budget_bytes = Some(1 << 20);
    let small = CreateOptions { budget_bytes, ..CreateOptions::default() };
    host.create("/lab/small", NAME, content.len() as u64, small);
    for name in ["/lab/words", "/lab/small"] {
        let output = host.command(&["cat", name]).output().unwrap();
        assert!(
            output.status.success() && output.stdout == content,
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn past_the_end_of_the_content_are_zeros() {
    let host = TestHost::start();
    let content = text(100_000);
    let packed = compressed(&host, &content);
    let _pager = serve(&host, &packed);
    let found = read_mapped(&host.create("/x", NAME, 1 << 20, CreateOptions::default()));
    assert!(found[..content.len()] == content && found[content.len()..].iter().all(|b| *b == 0));
}

#[test]
fn writing_is_refused_with_the_reason() {
    let host = TestHost::start();
    let content = text(300_000);
    let _pager = serve(&host, &compressed(&host, &content));
    let object = host.create("/lab/words", NAME, content.len() as u64, CreateOptions::default());
    object.write_at(&[7; PAGE], 8192).unwrap();
    let error = object.sync(0, content.len() as u64).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Pager, "{error}");
    assert!(error.message.contains("/lab/words is a compressed file, which can only be read"), "{error}");
    let mut page = [0; PAGE];
    object.read_at(&mut page, 8192).unwrap();
    assert_eq!(page, [7; PAGE], "what was written is kept in memory");
    assert_eq!(host.connect().revert("/lab/words").unwrap(), 1);
    assert!(read_mapped(&object) == content);
}

#[test]
fn a_damaged_frame_fails_its_own_pages_and_no_others() {
    let host = TestHost::start();
    let content = text(600_000);
    let packed = compressed(&host, &content);
    let file = std::fs::File::options().read(true).write(true).open(&packed).unwrap();
    let middle = packed.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[byte[0] ^ 0x5a], middle).unwrap();
    let _pager = serve(&host, &packed);
    let object = host.create("/x", NAME, content.len() as u64, CreateOptions::default());
    if !host.connect().kernel_faults().unwrap() {
        left_out("a host without privilege answers a read of a bad page with SIGBUS");
        return;
    }
    let (mut good, mut bad) = (0, 0);
    let mut page = [0; PAGE];
    for (number, expected) in content.chunks_exact(PAGE).enumerate() {
        match object.read_at(&mut page, (number * PAGE) as u64) {
            Ok(()) => {
                assert!(page == expected, "page {number}");
                good += 1;
            }
            Err(_) => bad += 1,
        }
    }
    assert!(bad > 0 && bad <= 2 * 16 + 16 && good > 90, "{good} good, {bad} bad");
}

#[test]
fn what_is_not_a_compressed_file_is_refused_in_one_line() {
    let host = TestHost::start();
    let plain = host.file("plain");
    std::fs::write(&plain, text(1000)).unwrap();
    for (path, says) in [(plain, "not a seekable zstd file"), (host.file("none"), "cannot open")] {
        let output = zstd_command().arg("serve").arg(&path).args(["--name", NAME]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.lines().count() == 1 && said.contains(says), "{said}");
    }
}
