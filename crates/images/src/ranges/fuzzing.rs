//! For the fuzz targets: the ranges in a registry, and what is then asked of it.

use super::table::Table;
use super::{Arch, Owner, Range, Region, Wanted};
use serde::{Deserialize, Serialize};

/// What was stored, and what is asked for: claimed at an address where one is given.
#[derive(Serialize, Deserialize)]
struct Life {
    stored: Vec<Range>,
    asked: Vec<Asked>,
}

#[derive(Serialize, Deserialize)]
struct Asked {
    name: String,
    arch: Arch,
    region: Region,
    bytes: u64,
    alignment_bits: u8,
    group: Option<String>,
    slide: u16,
    first: Option<u64>,
    trim: Option<u64>,
}

/// Any bytes as a registry and a life of it: whoever gets addresses has them alone.
pub fn ranges(bytes: &[u8]) {
    let Ok(Life { stored, asked }) = postcard::from_bytes(bytes) else { return };
    let mut table = Table::default();
    for range in stored {
        let is_machines = range.region.addresses(Owner::Machine).contains(&range.first);
        if !is_machines || !table.insert_stored(range) {
            return;
        }
    }
    for Asked { name, arch, region, bytes, alignment_bits, group, slide, first, trim } in asked {
        let alignment = 1 << (alignment_bits & 31);
        let wanted = Wanted { name, arch, region, bytes, alignment, group, slide };
        if wanted.check().is_err() {
            continue;
        }
        let given = match first {
            Some(first) => table.claim(&wanted, first, Owner::Machine),
            None => table.assign(&wanted, Owner::Machine),
        };
        let Ok(given) = given else { continue };
        let addresses = region.addresses(Owner::Machine);
        assert!(given.first >= addresses.start && given.end() <= addresses.end && given.bytes >= bytes);
        assert!(given.first.is_multiple_of(alignment) && table.has(&given));
        if let Some(bytes) = trim {
            table.trim(&given.name, bytes);
        }
    }
}

/// Samples of those.
pub fn sample_ranges() -> Vec<Vec<u8>> {
    let range = |name: &str, region: Region, group: Option<&str>, at: u64| Range {
        name: name.into(),
        arch: Arch::X86_64,
        region,
        first: region.addresses(Owner::Machine).start + at,
        bytes: 1 << 20,
        group: group.map(str::to_owned),
    };
    let asked = |name: &str, region, group: Option<&str>, first| Asked {
        name: name.into(),
        arch: Arch::X86_64,
        region,
        bytes: 70_000,
        alignment_bits: 21,
        group: group.map(str::to_owned),
        slide: 9,
        first,
        trim: Some(5000),
    };
    let start = Region::Homogeneous.addresses(Owner::Machine).start;
    let life = Life {
        stored: vec![
            range("words@1", Region::Homogeneous, None, 0),
            range("other@1", Region::Heterogeneous, Some("g"), 0),
        ],
        asked: vec![
            asked("new@1", Region::Homogeneous, None, None),
            asked("at@1", Region::Homogeneous, None, Some(start + (1 << 30))),
            asked("next@1", Region::Heterogeneous, Some("g"), None),
            asked("apart@1", Region::Heterogeneous, Some("h"), None),
        ],
    };
    vec![postcard::to_stdvec(&life).expect("it can be encoded")]
}
