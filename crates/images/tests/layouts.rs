//! What types say of values: which are the same, what lies between their fields, and what the next version must keep.

mod common;

use common::{Place, arena};
use commonhold_images::Error;
use commonhold_images::data::{Text, Types};

commonhold_images::layout! {
    struct Node<'a> {
        key: u64,
        left: Option<&'a Node<'a>>,
        right: Option<&'a Node<'a>>,
        word: Text<'a>,
        /// Behind it are seven bytes of padding.
        rare: bool,
    }
}

/// Two types of one name and size, whose pointers are elsewhere.
mod namesakes {
    use commonhold_images::data::{Layout, TypeRef, Types};

    pub type Describe = fn(&mut Types) -> TypeRef;

    pub fn both() -> [(&'static str, Describe); 2] {
        let first = {
            commonhold_images::layout! { struct Same<'a> { to: &'a u64, number: u64 } }
            (std::any::type_name::<Same<'_>>(), <Same<'static> as Layout>::describe as Describe)
        };
        let second = {
            commonhold_images::layout! { struct Same<'a> { number: u64, to: &'a u64 } }
            (std::any::type_name::<Same<'_>>(), <Same<'static> as Layout>::describe as Describe)
        };
        [first, second]
    }
}

#[test]
fn types_of_one_name_are_not_taken_for_each_other() {
    let [(name, first), (other_name, second)] = namesakes::both();
    assert_eq!(name, other_name, "else this says nothing");
    let mut types = Types::default();
    let (one, other) = (first(&mut types), second(&mut types));
    assert_ne!(one, other);
    assert_ne!(types.hash(one), types.hash(other));
    assert_eq!(first(&mut types), one);
}

#[test]
fn a_root_that_was_one_value_stays_one_in_its_major_version() {
    let place = Place::new();
    let publish = |version: &str, ones: &[u64], many: &[u64]| {
        let arena = arena(&place, version, &[]);
        match ones {
            [one] => arena.root("one", arena.place(*one).unwrap()).unwrap(),
            run => arena.root_run("one", &arena.run(run).unwrap()).unwrap(),
        }
        arena.root_run("many", &arena.run(many).unwrap()).unwrap();
        arena.seal().map(drop)
    };
    publish("ones@1.0.0", &[1], &[1]).unwrap();
    let error = publish("ones@1.1.0", &[1, 2, 3, 4, 5], &[1]).unwrap_err();
    assert!(matches!(error, Error::Incompatible { next: 2, .. }), "{error}");
    assert!(error.to_string().contains("\"one\" was one value and is a run"), "{error}");
    publish("ones@1.1.0", &[2], &[1, 2, 3]).unwrap();
    publish("ones@2.0.0", &[1, 2], &[1]).unwrap();
}

#[test]
fn what_lies_between_fields_is_not_published() {
    let place = Place::new();
    let arena = arena(&place, "gaps@1.0.0", &[]);
    let mut value = std::mem::MaybeUninit::<[Node<'_>; 2]>::uninit();
    let first = value.as_mut_ptr().cast::<Node<'_>>();
    for index in 0..2 {
        // SAFETY: two values that are written field by field, with something between the fields.
        unsafe {
            let at = first.add(index);
            at.cast::<u8>().write_bytes(0xa5, size_of::<Node<'_>>());
            (&raw mut (*at).key).write(7);
            (&raw mut (*at).left).write(None);
            (&raw mut (*at).right).write(None);
            (&raw mut (*at).word).write(arena.text("").unwrap());
            (&raw mut (*at).rare).write(true);
        }
    }
    // SAFETY: all fields were written; what is between them is looked at by nobody.
    let values = unsafe { std::slice::from_raw_parts(first, 2) };
    // No root leads there.
    arena.run(values).unwrap();
    arena.root("one", arena.place(1_u64).unwrap()).unwrap();
    let published = arena.seal().unwrap();
    let bytes = std::fs::read(published.path).unwrap();
    assert!(!bytes.windows(4).any(|part| part == [0xa5; 4]));
}
