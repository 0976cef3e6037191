//! Any bytes as the two files of a journal: recovery never panics, hangs or takes memory at will, and a journal that
//! opens can be used and opened again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| commonhold_journal::testing::fuzz_recover(bytes));
