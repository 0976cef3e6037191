//! What types say of values: which are the same, what lies between their fields, and what the next version must keep.

mod common;

use common::{Place, arena};
use commonhold_images::Error;
use commonhold_images::data::{Text, Types};
use commonhold_images::include::include_from;

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

/// What readers of another language see as numbers of these sizes.
mod choices {
    commonhold_images::layout! {
        /// Of a word.
        #[derive(Debug, PartialEq, Eq)]
        pub enum Class: u8 { Noun, Verb = 4, Other }

        #[derive(Debug, PartialEq, Eq)]
        pub enum Change: i16 { Less = -1, Same, More }

        pub struct Word { pub class: Class, pub changes: [Change; 3] }
    }

    /// The same fields, and one value more.
    pub mod later {
        commonhold_images::layout! {
            pub enum Class: u8 { Noun, Verb = 4, Other, Name }
        }
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
fn enumerations_are_fields_and_only_their_values_are_sealed() {
    use choices::{Change, Class, Word, later};
    use commonhold_images::data::{Layout, Variant};
    let place = Place::new();
    let made = arena(&place, "words@1.0.0", &[]);
    let word = Word { class: Class::Other, changes: [Change::More, Change::Less, Change::Same] };
    made.root("word", made.place(word).unwrap()).unwrap();
    made.root_run("classes", &made.run(&[Class::Verb, Class::Noun]).unwrap()).unwrap();
    made.seal().unwrap();
    let image = include_from(std::slice::from_ref(&place.store), "words", false).unwrap();
    let word: &Word = image.root("word").unwrap();
    assert_eq!((word.class, word.changes), (Class::Other, [Change::More, Change::Less, Change::Same]));
    assert_eq!(image.run::<Class>("classes").unwrap(), [Class::Verb, Class::Noun]);
    // A reader that knows another set of values does not read these as its own, nor as numbers.
    assert!(matches!(image.run::<later::Class>("classes"), Err(Error::Mismatch(_))));
    assert!(matches!(image.run::<u8>("classes"), Err(Error::Mismatch(_))));

    // From C and Python anything may come.
    for (version, class, change, says) in [
        ("2.0.0", 3_u8, 0_i16, "root \"word\" -> class: 3 is none of the values of Class"),
        ("2.0.1", 4, 2, "root \"word\" -> changes[1]: 2 is none of the values of Change"),
        ("2.0.2", 5, -2, "root \"word\" -> changes[1]: 65534 is none of the values of Change"),
    ] {
        let made = arena(&place, &format!("words@{version}"), &[]);
        let at = made.take(8, 2).unwrap();
        // SAFETY: memory of the arena, large enough.
        unsafe {
            *(at as *mut u8) = class;
            *((at + 4) as *mut i16) = change;
        }
        let of = made.types(Word::describe);
        made.root_at("word", at, 1, of).unwrap();
        let error = made.seal().unwrap_err();
        assert!(matches!(error, Error::LeadsOut { .. }), "{error}");
        assert_eq!(error.to_string(), says);
    }

    let mut types = Types::default();
    let mut refused = |bytes, values: &[u64], says: &str| {
        let variant = |value: &u64| Variant { name: format!("v{value}"), value: *value };
        let error = types.choice("Odd", bytes, values.iter().map(variant).collect()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(3, &[0], "1, 2, 4 or 8 bytes");
    refused(1, &[], "at least one value");
    refused(1, &[0, 256], "v256 = 256 needs more than 1 bytes");
    refused(1, &[255, u64::MAX], "are one value");
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
