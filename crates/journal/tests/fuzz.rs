//! The fuzz entry under random bytes and random edits of intact files.

use commonhold_journal::testing::{Rng, fuzz_recover, sample_files};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..40000)) {
        fuzz_recover(&bytes);
    }

    #[test]
    fn edited_files(reseal in any::<bool>(), edits in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut bytes = vec![if reseal { 3 } else { 1 }];
        bytes.extend(edits);
        fuzz_recover(&bytes);
    }
}

/// Many small edits of single header bytes, checksums made right: the checks behind the checksums.
#[test]
fn many_resealed_edits() {
    let mut rng = Rng::new(11);
    for _ in 0..5_000 {
        let mut bytes = vec![3];
        for _ in 0..=rng.below(2) {
            let block = rng.below(16) as u16;
            let field = rng.below(128) as u16;
            let offset = (block * 128 + field).to_le_bytes();
            bytes.extend([8 | 2 | rng.below(2) as u8, offset[0], offset[1], 1 << rng.below(8), 0, 0]);
        }
        fuzz_recover(&bytes);
    }
}

#[test]
fn the_sample_opens_by_itself() {
    let [a, b] = sample_files();
    assert!(a.len() >= 48 << 10 && b.len() >= 48 << 10);
    let mut bytes = vec![0];
    bytes.extend(((a.len() / 512) as u16).to_le_bytes());
    bytes.extend(a);
    bytes.extend(b);
    fuzz_recover(&bytes);
    fuzz_recover(&[]);
    fuzz_recover(&[1]);
}
