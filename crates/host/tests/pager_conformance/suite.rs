//! What every pager promises. Nothing here knows which one it tests, but for whether it stores at all: an
//! anonymous one answers zeros for ever, because what must leave memory goes to the spill file.

use crate::subjects::Subject;
use commonhold_journal::testing::Rng;
use commonhold_object::pages_of;

const PAGE: u64 = 4096;
/// Sizes in bytes: one page, less, whole pages, not whole pages, and more than one message of an external pager.
const SIZES: [u64; 6] = [PAGE, 1, 7 * PAGE, 5 * PAGE + 123, 33 * PAGE + 4095, 66 * PAGE];

/// Bytes that tell where they belong and when they were written.
fn content(offset: u64, length: usize, round: u64) -> Vec<u8> {
    let words = (0..length as u64 / 8).map(|n| (offset / 8 + n) << 32 | round << 8 | 0xa5);
    words.flat_map(u64::to_le_bytes).collect()
}

/// What the pager gives; the buffer is full of rubbish before.
fn page_in(subject: &Subject, first: u64, pages: u64) -> Vec<u8> {
    let mut buffer = vec![0xaa; (pages * PAGE) as usize];
    subject.pager.page_in(first * PAGE, &mut buffer).unwrap_or_else(|e| panic!("{}: {e}", subject.name));
    buffer
}

fn page_out(subject: &Subject, first: u64, data: &[u8]) {
    subject.pager.page_out(first * PAGE, data).unwrap_or_else(|e| panic!("{}: {e}", subject.name));
}

/// What an object of `size_bytes` is known to hold: pages written to the pager, cut at the object's end.
struct Model {
    bytes: Vec<u8>,
    size_bytes: u64,
    stores: bool,
}

impl Model {
    fn new(subject: &Subject) -> Model {
        let bytes = vec![0; (pages_of(subject.size_bytes) * PAGE) as usize];
        Model { bytes, size_bytes: subject.size_bytes, stores: subject.stores() }
    }

    fn write(&mut self, first: u64, data: &[u8]) {
        if self.stores {
            let at = (first * PAGE) as usize;
            self.bytes[at..at + data.len()].copy_from_slice(data);
        }
    }

    /// Bytes past the object's end are promised to nobody.
    fn compare(&self, subject: &Subject, first: u64, found: &[u8], when: &str) {
        let at = (first * PAGE) as usize;
        let end = (at + found.len()).min(self.size_bytes as usize);
        if self.bytes[at..end] == found[..end - at] {
            return;
        }
        let differs = (at..end).find(|i| self.bytes[*i] != found[*i - at]);
        assert_eq!(differs, None, "{}, {} bytes, {when}: first wrong byte", subject.name, self.size_bytes);
    }
}

fn each(mut check: impl FnMut(&Subject)) {
    for size_bytes in SIZES {
        Subject::all(size_bytes).iter().for_each(&mut check);
    }
}

#[test]
fn what_was_never_stored_is_zero() {
    each(|subject| {
        let pages = pages_of(subject.size_bytes);
        assert!(page_in(subject, 0, pages).iter().all(|b| *b == 0), "{}: whole", subject.name);
        for page in 0..pages {
            assert!(page_in(subject, page, 1).iter().all(|b| *b == 0), "{}: page {page}", subject.name);
        }
    });
}

#[test]
fn what_was_stored_comes_back_in_ranges_of_any_size() {
    each(|subject| {
        let pages = pages_of(subject.size_bytes);
        let mut model = Model::new(subject);
        let mut round = 0;
        for count in [1, 2, 3, 31, 32, 33, 64, 66] {
            for first in [0, 1, 5, pages.saturating_sub(count)] {
                if first + count > pages {
                    continue;
                }
                round += 1;
                let data = content(first * PAGE, (count * PAGE) as usize, round);
                page_out(subject, first, &data);
                model.write(first, &data);
                model.compare(subject, first, &page_in(subject, first, count), "as it was stored");
            }
            model.compare(subject, 0, &page_in(subject, 0, pages), "whole");
        }
        subject.pager.flush().unwrap();
        model.compare(subject, 0, &page_in(subject, 0, pages), "flushed");
    });
}

#[test]
fn any_sequence_agrees_with_a_model() {
    let mut rng = Rng::new(4);
    each(|subject| {
        let pages = pages_of(subject.size_bytes);
        let mut model = Model::new(subject);
        for round in 0..40 {
            let first = rng.below(pages);
            let count = 1 + rng.below(pages - first);
            match rng.below(8) {
                0..4 => {
                    let data = content(first * PAGE, (count * PAGE) as usize, round);
                    page_out(subject, first, &data);
                    model.write(first, &data);
                }
                4..7 => model.compare(subject, first, &page_in(subject, first, count), "in between"),
                _ => subject.pager.flush().unwrap(),
            }
        }
        model.compare(subject, 0, &page_in(subject, 0, pages), "at the end");
    });
}

#[test]
fn a_flush_may_come_at_any_time() {
    each(|subject| {
        subject.pager.flush().unwrap();
        page_out(subject, 0, &content(0, PAGE as usize, 1));
        subject.pager.flush().unwrap();
        subject.pager.flush().unwrap();
    });
}

#[test]
fn an_untouched_store_passes_the_check_and_keeps_its_stamp() {
    each(|subject| {
        subject.pager.check(subject.size_bytes).unwrap();
        // Whether a stamp tells the next change is a matter of time, which passes.
        let stamp = || subject.pager.stamp().map(|(stamp, _)| stamp);
        let before = stamp();
        page_in(subject, 0, pages_of(subject.size_bytes));
        assert_eq!(stamp(), before, "{}: reading changes nothing", subject.name);
        subject.pager.check(subject.size_bytes).unwrap();
        assert_eq!(subject.pager.file().is_some(), before.is_some(), "{}", subject.name);
    });
}

#[test]
fn reserving_space_changes_no_content() {
    each(|subject| {
        let data = content(0, PAGE as usize, 3);
        let mut model = Model::new(subject);
        page_out(subject, 0, &data);
        model.write(0, &data);
        let pages = pages_of(subject.size_bytes);
        subject.pager.reserve(0, pages * PAGE).unwrap();
        model.compare(subject, 0, &page_in(subject, 0, pages), "reserved");
        subject.pager.check(subject.size_bytes).unwrap();
    });
}

#[test]
fn an_object_that_grows_keeps_its_bytes_and_the_new_ones_are_zero() {
    each(|subject| {
        let pages = pages_of(subject.size_bytes);
        let mut model = Model::new(subject);
        let data = content(0, (pages * PAGE) as usize, 9);
        page_out(subject, 0, &data);
        model.write(0, &data);
        let (old_bytes, new_bytes) = (subject.size_bytes, subject.size_bytes + 3 * PAGE + 77);
        subject.pager.resize(new_bytes).unwrap();
        subject.pager.check(new_bytes).unwrap();
        let found = page_in(subject, 0, pages_of(new_bytes));
        model.compare(subject, 0, &found[..old_bytes as usize], "before the old end");
        // The rest of the old last page is the cache's to clear.
        let fresh = (pages * PAGE) as usize..new_bytes as usize;
        assert!(found[fresh].iter().all(|b| *b == 0), "{}: the new pages", subject.name);
    });
}

#[test]
fn many_threads_at_once_do_not_mix_their_pages() {
    for subject in Subject::all(8 * 16 * PAGE) {
        std::thread::scope(|scope| {
            for lane in 0..8 {
                let subject = &subject;
                scope.spawn(move || {
                    for round in 0..8 {
                        let (first, count) = (lane * 16 + round, 8);
                        let data = content(first * PAGE, (count * PAGE) as usize, lane * 1000 + round);
                        page_out(subject, first, &data);
                        let found = page_in(subject, first, count);
                        let expected = if subject.stores() { data } else { vec![0; data.len()] };
                        assert!(found == expected, "{}, lane {lane}, round {round}", subject.name);
                    }
                });
            }
        });
    }
}
