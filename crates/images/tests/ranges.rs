//! The registry of address ranges, against a model of it.

use commonhold_images::Error;
use commonhold_images::ranges::{Arch, Owner, Range, Ranges, Region, Wanted};
use proptest::prelude::*;
use tempfile::TempDir;

fn wanted(name: &str, bytes: u64) -> Wanted {
    Wanted {
        name: name.into(),
        arch: Arch::X86_64,
        region: Region::Homogeneous,
        bytes,
        alignment: 4096,
        group: None,
        slide: 0,
    }
}

fn open(folder: &TempDir) -> Ranges {
    Ranges::open(&folder.path().join("ranges"), Owner::Machine).unwrap()
}

#[test]
fn an_image_keeps_its_range_and_the_next_version_has_it_too() {
    let folder = TempDir::new().unwrap();
    let first = open(&folder).assign(&wanted("words@1", 100_000)).unwrap();
    assert!(first.bytes >= 125_000 && first.first.is_multiple_of(4096));
    // Of another process.
    let ranges = open(&folder);
    assert_eq!(ranges.assign(&wanted("words@1", 120_000)).unwrap(), first);
    let other = ranges.assign(&wanted("words@2", 100_000)).unwrap();
    assert!(other.first >= first.end());
    // What has outgrown its room moves.
    let moved = ranges.assign(&wanted("words@1", 10_000_000)).unwrap();
    assert!(moved.first >= other.end() || moved.end() <= other.first);
    assert!(ranges.release("words@1").unwrap() && !ranges.release("words@1").unwrap());
    assert_eq!(ranges.list().unwrap(), [other]);
}

#[test]
fn what_collides_is_refused_with_who_has_it() {
    let folder = TempDir::new().unwrap();
    let ranges = open(&folder);
    let first = ranges.assign(&wanted("words@1", 1 << 20)).unwrap();
    let error = ranges.claim(&wanted("other@1", 4096), first.first + 65_536).unwrap_err();
    assert!(matches!(&error, Error::Taken { holder, .. } if holder == "words@1"), "{error}");
    assert!(error.to_string().contains("words@1 has a part of it"), "{error}");
    assert_eq!(ranges.list().unwrap(), [first]);
    for outside in [0, 0x7000_0000_0000, 0x3000_0000_0001] {
        assert!(matches!(ranges.claim(&wanted("other@1", 4096), outside), Err(Error::Invalid(_))));
    }
}

#[test]
fn what_is_claimed_side_by_side_fits_in_any_order() {
    let (first, bytes) = (0x3000_0000_0000, 8 << 20);
    for order in [[("aaa@1", first), ("bbb@1", first + bytes)], [("bbb@1", first + bytes), ("aaa@1", first)]]
    {
        let folder = TempDir::new().unwrap();
        let ranges = open(&folder);
        for (name, at) in order {
            assert_eq!(ranges.claim(&wanted(name, bytes), at).unwrap().bytes, bytes);
        }
    }
}

#[test]
fn images_that_are_never_together_may_overlap() {
    let folder = TempDir::new().unwrap();
    let ranges = open(&folder);
    let of = |name: &str, group: &str| Wanted {
        region: Region::Heterogeneous,
        group: Some(group.into()),
        ..wanted(name, 1 << 20)
    };
    let one = ranges.assign(&of("blas@1", "blas")).unwrap();
    assert_eq!(ranges.assign(&of("other-blas@1", "blas")).unwrap().first, one.first);
    assert!(ranges.assign(&of("fft@1", "fft")).unwrap().first >= one.end());
    let without = Wanted { region: Region::Heterogeneous, ..wanted("x@1", 4096) };
    assert!(matches!(ranges.assign(&without), Err(Error::Invalid(_))));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let folder = TempDir::new().unwrap();
    let ranges = open(&folder);
    for bad in [
        wanted("", 4096),
        wanted("x", 0),
        wanted("x", u64::MAX),
        Wanted { alignment: 3, ..wanted("x", 4096) },
        Wanted { alignment: 1 << 40, ..wanted("x", 4096) },
    ] {
        assert!(matches!(ranges.assign(&bad), Err(Error::Invalid(_))), "{bad:?}");
    }
    assert!(ranges.list().unwrap().is_empty());
}

#[test]
fn a_file_that_is_no_registry_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("ranges");
    std::fs::write(&path, vec![7; 100_000]).unwrap();
    assert!(matches!(Ranges::open(&path, Owner::Machine), Err(Error::Registry { .. })));
    assert_eq!(std::fs::read(&path).unwrap().len(), 100_000);
}

#[derive(Clone, Debug)]
enum Step {
    Assign { name: u8, bytes: u64, alignment: u32, slide: u16 },
    Release { name: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    let assign = (0u8..12, 1u64..1 << 34, 12u32..31, prop_oneof![Just(0), any::<u16>(), Just(u16::MAX)])
        .prop_map(|(name, bytes, alignment, slide)| Step::Assign { name, bytes, alignment, slide });
    prop_oneof![3 => assign, 1 => (0u8..12).prop_map(|name| Step::Release { name })]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_two_ranges_overlap(steps in prop::collection::vec(step(), 1..25)) {
        let folder = TempDir::new().unwrap();
        let ranges = open(&folder);
        let mut model: Vec<Range> = Vec::new();
        for step in steps {
            match step {
                Step::Assign { name, bytes, alignment, slide } => {
                    let asked = Wanted { alignment: 1 << alignment, slide, ..wanted(&format!("i{name}"), bytes) };
                    let range = ranges.assign(&asked).unwrap();
                    prop_assert!(range.bytes >= bytes && range.first.is_multiple_of(1 << alignment));
                    model.retain(|other| other.name != range.name);
                    model.push(range);
                }
                Step::Release { name } => {
                    let name = format!("i{name}");
                    prop_assert_eq!(ranges.release(&name).unwrap(), model.iter().any(|other| other.name == name));
                    model.retain(|other| other.name != name);
                }
            }
            model.sort_by_key(|range| range.first);
            prop_assert_eq!(&ranges.list().unwrap(), &model);
            let apart = model.windows(2).all(|pair| pair[0].end() <= pair[1].first);
            let inside = Region::Homogeneous.addresses(Owner::Machine);
            prop_assert!(apart && model.iter().all(|one| inside.start <= one.first && one.end() <= inside.end));
        }
    }
}
