//! For the fuzz targets: the authority's records.

use super::records::Records;
use std::hint::black_box;

/// Any text as the records, which are read, used and written again.
pub fn records(text: &str) {
    let Some(mut records) = Records::from_text(text) else { return };
    assert_eq!(Records::from_text(&records.to_text()).as_ref(), Some(&records));
    for now in [0, u64::MAX] {
        black_box(records.redeem(&[5; 32], "new", now).is_ok());
    }
    assert_eq!(Records::from_text(&records.to_text()).as_ref(), Some(&records));
}

/// Samples of those.
pub fn sample_records() -> Vec<Vec<u8>> {
    let hash = crate::hex::encode(ring::digest::digest(&ring::digest::SHA256, &[5; 32]).as_ref());
    let text = format!(
        "# hosts\nhost left read-write\nhost right read-only\ntoken {hash} 100 read-only * *\n\
         token {hash} 18446744073709551615 read-write new left\n"
    );
    vec![text.into_bytes()]
}
