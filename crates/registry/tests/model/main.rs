//! Random operations by four users, against a model in plain maps that has its own copy of the rules: the same answer
//! to each, and the same state, over reopenings at random points.

#[path = "../common/mod.rs"]
mod common;
mod rules;

use common::{create, everything, member, name, user};
use commonhold_object::{Access, Credentials, ErrorKind, Result};
use commonhold_registry::{Entry, Quotas, Registry, Renaming};
use proptest::prelude::*;
use rules::{Item, Model};

const QUOTA: u64 = 3_000;
const OBJECTS: u64 = 6;

#[derive(Clone, Debug)]
enum Step {
    Create { name: String, mode: u32, nonce: u128, charge: u64 },
    Remove { name: String, repeated: bool },
    Forget,
    Rename { from: String, to: String, repeated: bool },
    Mode { name: String, mode: u32 },
    Owner { name: String, uid: Option<u32>, gid: Option<u32> },
    Size { name: String, charge: u64 },
    Lookup { name: String, writes: bool },
    List { name: String, limit: usize },
    Reopen,
}

fn people() -> [Credentials; 4] {
    [member(1, 50), member(2, 50), user(3), user(0)]
}

fn names() -> impl Strategy<Value = String> {
    let part = prop_oneof![Just("a"), Just("b"), Just("a!")];
    prop::collection::vec(part, 1..4).prop_map(|parts| format!("/{}", parts.join("/")))
}

fn modes() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => Just(0o777),
        2 => prop::sample::select(vec![0o755, 0o770, 0o711, 0o733, 0o700, 0o666, 0o660, 0o640, 0o070, 0o007]),
        1 => 0..0o1000u32,
    ]
}

fn steps() -> impl Strategy<Value = (usize, Step)> {
    let owner =
        (names(), prop::option::of(1..4u32), prop::option::of(prop::sample::select(vec![1, 2, 3, 50])));
    let step = prop_oneof![
        8 => (names(), modes(), 0..4u128, 0..1_500u64)
            .prop_map(|(name, mode, nonce, charge)| Step::Create { name, mode, nonce, charge }),
        3 => (names(), any::<bool>()).prop_map(|(name, repeated)| Step::Remove { name, repeated }),
        1 => Just(Step::Forget),
        4 => (names(), names(), any::<bool>()).prop_map(|(from, to, repeated)| Step::Rename { from, to, repeated }),
        5 => (prop_oneof![9 => names(), 1 => Just("/".to_owned())], modes())
            .prop_map(|(name, mode)| Step::Mode { name, mode }),
        2 => owner.prop_map(|(name, uid, gid)| Step::Owner { name, uid, gid }),
        1 => (names(), 0..1_500u64).prop_map(|(name, charge)| Step::Size { name, charge }),
        4 => (names(), any::<bool>()).prop_map(|(name, writes)| Step::Lookup { name, writes }),
        3 => (prop_oneof![names(), Just("/".to_owned())], 0..4usize).prop_map(|(name, limit)| Step::List { name, limit }),
        1 => Just(Step::Reopen),
    ];
    (prop_oneof![3 => Just(0usize), 3 => Just(1), 2 => Just(2), 1 => Just(3)], step)
}

type Answer<T> = std::result::Result<T, ErrorKind>;

fn kind<T>(result: Result<T>) -> Answer<T> {
    result.map_err(|error| error.kind)
}

/// One step on both; gives what they answered, as text that must be equal.
fn both(registry: &mut Registry, model: &mut Model, who: &Credentials, step: &Step) -> (String, String) {
    fn text<T: std::fmt::Debug>(real: Answer<T>, expected: Answer<T>) -> (String, String) {
        (format!("{real:?}"), format!("{expected:?}"))
    }
    match step {
        Step::Create { name, mode, nonce, charge } => text(
            kind(create(registry, name, who, *mode, *nonce, *charge)).map(|record| record.id.0),
            model.create(name, who, *mode, *nonce, *charge),
        ),
        Step::Remove { name: n, repeated } => text(
            kind(registry.remove(&name(n), who, *repeated)).map(|record| record.map(|r| r.id.0)),
            model.remove(n, who, *repeated),
        ),
        Step::Forget => {
            for id in std::mem::take(&mut model.nameless) {
                model.objects.remove(&id);
                registry.forget(commonhold_object::ObjectId(id)).unwrap();
            }
            Default::default()
        }
        Step::Rename { from, to, repeated } => text(
            kind(registry.rename(&name(from), &name(to), who, Renaming::default(), *repeated)).map(drop),
            model.rename(from, to, who, *repeated),
        ),
        Step::Mode { name: n, mode } => {
            text(kind(registry.set_mode(&name(n), who, *mode)).map(drop), model.set_mode(n, who, *mode))
        }
        Step::Owner { name: n, uid, gid } => text(
            kind(registry.set_owner(&name(n), who, *uid, *gid)).map(drop),
            model.set_owner(n, who, *uid, *gid),
        ),
        Step::Size { name: n, charge } => {
            let Some(id) = model.object_at(n) else { return Default::default() };
            let real = kind(registry.check_size(commonhold_object::ObjectId(id), *charge));
            let expected = model.check_size(id, *charge);
            if expected.is_ok() {
                registry.set_size(commonhold_object::ObjectId(id), 1 + charge, *charge).unwrap();
                model.objects.get_mut(&id).unwrap().charge = *charge;
            }
            text(real, expected)
        }
        Step::Lookup { name: n, writes } => {
            let access = if *writes { Access::ReadWrite } else { Access::Read };
            text(kind(registry.lookup(&name(n), who, access)).map(|r| r.id.0), model.lookup(n, who, *writes))
        }
        Step::List { name: n, limit } => text(
            kind(registry.list(&name(n), who, None, *limit))
                .map(|(entries, more)| (common::names(&entries), more)),
            model.list(n, who, *limit),
        ),
        Step::Reopen => Default::default(),
    }
}

/// The whole state of both, in the model's terms.
fn compare(registry: &Registry, model: &Model) -> std::result::Result<(), TestCaseError> {
    let (entries, records) = everything(registry);
    let mut tree = std::collections::BTreeMap::new();
    for entry in entries {
        match entry {
            Entry::Directory { name, ownership: o } => {
                tree.insert(name.to_string(), Item::Directory { uid: o.uid, gid: o.gid, mode: o.mode })
            }
            Entry::Object(record) => {
                tree.insert(record.name.as_ref().unwrap().to_string(), Item::Object(record.id.0))
            }
        };
    }
    prop_assert_eq!(&tree, &model.tree);
    let mut objects = std::collections::BTreeMap::new();
    for record in records {
        let o = record.ownership;
        let at = record.name.map(|name| Item::Object(record.id.0) == tree[name.as_str()]);
        prop_assert_eq!(at.is_none(), model.nameless.contains(&record.id.0));
        prop_assert_ne!(at, Some(false));
        objects.insert(
            record.id.0,
            rules::Object {
                uid: o.uid,
                gid: o.gid,
                mode: o.mode,
                nonce: record.nonce,
                charge: record.charged_bytes,
                charged_uid: record.charged_uid,
            },
        );
    }
    prop_assert_eq!(&objects, &model.objects);
    for uid in 0..4 {
        prop_assert_eq!(registry.usage(uid), model.usage(uid));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..Default::default() })]
    #[test]
    fn the_registry_does_what_the_model_does(steps in prop::collection::vec(steps(), 1..120)) {
        let state = tempfile::tempdir().unwrap();
        let mut registry = Registry::open(state.path(), Quotas::same(QUOTA, OBJECTS)).unwrap();
        let mut model = Model::new(QUOTA, OBJECTS, &registry);
        for (at, (who, step)) in steps.iter().enumerate() {
            let who = &people()[*who];
            if matches!(step, Step::Reopen) {
                drop(registry);
                registry = Registry::open(state.path(), Quotas::same(QUOTA, OBJECTS)).unwrap();
            }
            let (real, expected) = both(&mut registry, &mut model, who, step);
            prop_assert_eq!(real, expected, "step {} by user {}: {:?}", at, who.uid, step);
            compare(&registry, &model)?;
        }
        drop(registry);
        compare(&Registry::open(state.path(), Quotas::same(QUOTA, OBJECTS)).unwrap(), &model)?;
    }
}
