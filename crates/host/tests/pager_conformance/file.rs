//! Files that others truncate, unlink, replace or protect.

use crate::subjects::Subject;
use commonhold_host::pagers::{FilePager, Pager};
use commonhold_object::ErrorKind;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

const PAGE: u64 = 4096;

#[test]
fn the_file_never_grows_past_the_object() {
    let subject = Subject::file(3 * PAGE + 100);
    subject.pager.page_out(0, &vec![7; 4 * PAGE as usize]).unwrap();
    subject.pager.flush().unwrap();
    let bytes = std::fs::read(subject.path.as_ref().unwrap()).unwrap();
    assert!(bytes == vec![7; 3 * PAGE as usize + 100]);
    // The tail of the last page is memory only.
    let mut last = vec![0xaa; PAGE as usize];
    subject.pager.page_in(3 * PAGE, &mut last).unwrap();
    assert!(last[..100].iter().all(|b| *b == 7) && last[100..].iter().all(|b| *b == 0));
}

#[test]
fn shrunk_and_grown_again_is_zero_in_between() {
    let subject = Subject::file(8 * PAGE);
    subject.pager.page_out(0, &vec![7; 8 * PAGE as usize]).unwrap();
    subject.pager.resize(2 * PAGE + 10).unwrap();
    subject.pager.resize(8 * PAGE).unwrap();
    let mut found = vec![0xaa; 8 * PAGE as usize];
    subject.pager.page_in(0, &mut found).unwrap();
    let kept = 2 * PAGE as usize + 10;
    assert!(found[..kept].iter().all(|b| *b == 7) && found[kept..].iter().all(|b| *b == 0));
}

#[test]
fn a_hole_that_is_read_stays_a_hole_and_a_reserved_one_does_not() {
    let subject = Subject::file(1 << 30);
    let path = subject.path.as_ref().unwrap();
    let mut page = vec![1; 64 * PAGE as usize];
    for at in (0..1u64 << 30).step_by(64 << 20) {
        subject.pager.page_in(at, &mut page).unwrap();
        assert!(page.iter().all(|b| *b == 0));
    }
    let blocks = std::fs::metadata(path).unwrap().blocks();
    assert!(blocks * 512 < 1 << 20, "{blocks} blocks after mere reading");
    subject.pager.reserve(0, 1 << 20).unwrap();
    assert!(std::fs::metadata(path).unwrap().blocks() * 512 >= 1 << 20);
    // Past the end there is nothing to reserve.
    subject.pager.reserve(1 << 30, 1 << 20).unwrap();
    assert_eq!(std::fs::metadata(path).unwrap().len(), 1 << 30);
}

#[test]
fn a_file_truncated_underneath_is_an_error_that_says_what_to_do() {
    let subject = Subject::file(8 * PAGE);
    subject.pager.page_out(0, &vec![7; 8 * PAGE as usize]).unwrap();
    let file = File::options().write(true).open(subject.path.as_ref().unwrap()).unwrap();
    file.set_len(3 * PAGE + 5).unwrap();
    let error = subject.pager.check(8 * PAGE).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Lost);
    assert!(error.message.contains("truncate -s 32768"), "{error}");
    let mut pages = vec![0; 2 * PAGE as usize];
    subject.pager.page_in(PAGE, &mut pages).unwrap();
    assert!(pages.iter().all(|b| *b == 7), "what is left can be had");
    for first in [2, 3, 4, 7] {
        let mut pages = vec![0; if first == 7 { 1 } else { 2 } * PAGE as usize];
        let error = subject.pager.page_in(first * PAGE, &mut pages).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Lost, "{error}");
        assert!(error.message.contains("truncated underneath"), "{error}");
    }
    file.set_len(8 * PAGE).unwrap();
    subject.pager.check(8 * PAGE).unwrap();
    subject.pager.page_in(0, &mut vec![0; 8 * PAGE as usize]).unwrap();
}

#[test]
fn a_file_unlinked_or_replaced_underneath_is_an_error() {
    for replaced in [false, true] {
        let subject = Subject::file(4 * PAGE);
        let path = subject.path.as_ref().unwrap();
        if replaced {
            let other = path.with_extension("new");
            std::fs::write(&other, vec![1; 4 * PAGE as usize]).unwrap();
            std::fs::rename(&other, path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
        let error = subject.pager.check(4 * PAGE).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Lost);
        assert!(error.message.contains("commonhold cp"), "{error}");
    }
}

#[test]
fn a_file_open_for_reading_alone_cannot_be_stored_to() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    std::fs::write(&path, vec![5; 2 * PAGE as usize]).unwrap();
    let pager = FilePager::new(File::open(&path).unwrap(), 2 * PAGE);
    let mut found = vec![0; 2 * PAGE as usize];
    pager.page_in(0, &mut found).unwrap();
    assert!(found.iter().all(|b| *b == 5));
    let error = pager.page_out(0, &[1; PAGE as usize]).unwrap_err();
    assert!(error.message.contains("writing the backing file"), "{error}");
    pager.resize(PAGE).unwrap_err();
    assert!(std::fs::read(&path).unwrap() == vec![5; 2 * PAGE as usize]);
}

#[test]
fn the_stamp_tells_of_a_write_by_others() {
    let subject = Subject::file(2 * PAGE);
    let before = subject.pager.stamp().unwrap();
    // A file system's clock ticks every few milliseconds.
    let changed = (0..200).any(|round| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        std::fs::write(subject.path.as_ref().unwrap(), vec![round as u8; 2 * PAGE as usize]).unwrap();
        subject.pager.stamp().unwrap() != before
    });
    assert!(changed);
}
