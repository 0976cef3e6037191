//! The address map against a model that knows every page singly.

use commonhold_object::{AddressMap, PAGE_SIZE_BYTES as PAGE, Region};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Page number of the address -> (object page shown, which mapping).
type Model = BTreeMap<u64, (u64, u8)>;

#[derive(Clone, Debug)]
enum Step {
    Insert { at: u64, pages: u64, offset: u64, value: u8 },
    Remove { at: u64, pages: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u64..64, 1u64..16, 0u64..64, any::<u8>()).prop_map(|(at, pages, offset, value)| Step::Insert {
            at,
            pages,
            offset,
            value
        }),
        (0u64..64, 1u64..24).prop_map(|(at, pages)| Step::Remove { at, pages }),
    ]
}

fn expand(map: &AddressMap<u8>) -> Model {
    let mut pages = Model::new();
    for region in map.iter() {
        for page in 0..region.length / PAGE {
            let seen = (region.offset / PAGE + page, region.value);
            assert!(pages.insert(region.address / PAGE + page, seen).is_none(), "regions overlap");
        }
    }
    pages
}

proptest! {
    #[test]
    fn agrees_with_a_page_by_page_model(steps in prop::collection::vec(step(), 1..60)) {
        let mut map = AddressMap::new();
        let mut model = Model::new();
        for step in steps {
            match step {
                Step::Insert { at, pages, offset, value } => {
                    let free = (at..at + pages).all(|p| !model.contains_key(&p));
                    let region = Region { address: at * PAGE, length: pages * PAGE, offset: offset * PAGE, value };
                    prop_assert_eq!(map.insert(region).is_ok(), free);
                    if free {
                        model.extend((0..pages).map(|i| (at + i, (offset + i, value))));
                    }
                }
                Step::Remove { at, pages } => {
                    let expected = map.len_after_remove(at * PAGE, pages * PAGE);
                    let taken = map.remove(at * PAGE, pages * PAGE).unwrap();
                    prop_assert_eq!(map.len(), expected);
                    let mut gone = AddressMap::new();
                    for region in taken {
                        gone.insert(region).unwrap();
                    }
                    let before: Model =
                        (at..at + pages).filter_map(|p| model.remove(&p).map(|v| (p, v))).collect();
                    prop_assert_eq!(expand(&gone), before);
                }
            }
            prop_assert_eq!(expand(&map), model.clone());
            for page in 0..90 {
                let found = map.find(page * PAGE + 17).map(|r| (r.page_at(page * PAGE + 17), r.value));
                prop_assert_eq!(found, model.get(&page).copied());
            }
        }
    }
}

#[test]
fn misaligned_empty_and_wrapping_ranges_change_nothing() {
    let mut map = AddressMap::new();
    map.insert(Region { address: PAGE, length: PAGE, offset: 0, value: 1u8 }).unwrap();
    for (address, length) in [(1, PAGE), (PAGE, 1), (PAGE, 0), (u64::MAX - PAGE + 1, PAGE)] {
        assert!(map.remove(address, length).is_err(), "{address:#x} {length:#x}");
        assert!(map.insert(Region { address, length, offset: 0, value: 2 }).is_err());
    }
    assert!(map.insert(Region { address: 8 * PAGE, length: PAGE, offset: 3, value: 2 }).is_err());
    assert_eq!(map.len(), 1);
}
