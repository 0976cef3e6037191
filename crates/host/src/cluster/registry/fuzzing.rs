//! For the fuzz targets: the list that a host keeps, and keys and values of etcd.

use super::addresses::{Addresses, Asking, SavedAddresses};
use super::keys::{GivenUp, Keys, SavedAddress, SavedHost, SavedMember, SavedName};
use super::list::{List, Saved};
use super::{Before, Homed, Joining};
use crate::cluster::wire::{Member, Moving};
use commonhold_coherence::HostId;
use commonhold_object::{CreateOptions, Name, Ownership};
use serde::{Deserialize, Serialize};
use std::hint::black_box;

/// The file `members`, and what members then say: in pairs of (who, how far they have heard and done).
#[derive(Serialize, Deserialize)]
struct Life {
    saved: Saved,
    said: Vec<(u32, u64, u64)>,
}

const LEASE_NS: u64 = 10_000_000_000;
const NOW_NS: u64 = 1 << 50;

fn member(number: u32, name: &str) -> Member {
    let address = ([192, 0, 2, number as u8], 7420).into();
    Member { host: HostId(number), name: name.into(), address, former: vec![HostId(1)] }
}

/// Any bytes as the list of the process before, which goes on with it.
pub fn members(bytes: &[u8]) {
    let Ok(Life { saved, said }) = postcard::from_bytes(bytes) else { return };
    let written = postcard::to_stdvec(&saved).expect("what was read can be written");
    assert_eq!(postcard::from_bytes::<Saved>(&written).expect("and read again"), saved);
    let Some(mut list) = List::restored(saved, LEASE_NS, NOW_NS) else { return };
    let epoch = list.news().epoch;
    for (number, (host, heard, seen)) in (0..).zip(said) {
        let (now, before) = (NOW_NS + number * LEASE_NS, Before { epoch, heard, seen });
        let before = (number % 2 == 0).then_some(before);
        let joining = Joining { member: member(host, "someone"), claims: Vec::new(), before };
        let number = list.number();
        black_box(list.join(joining, now).is_ok());
        list.expire(now);
        list.lose(HostId(host.wrapping_add(1)), now);
        assert!(list.number() >= number && list.settled() <= list.number().max(list.last_loss()));
    }
    let news = list.news();
    assert!(postcard::to_stdvec(&news).is_ok());
    let saved = list.saved();
    assert!(postcard::to_stdvec(&saved).is_ok() && List::restored(saved, LEASE_NS, NOW_NS).is_some());
}

/// Samples of those.
pub fn sample_members() -> Vec<Vec<u8>> {
    let mut list = List::new(9, LEASE_NS);
    for (number, name) in [(1, "left"), (2, "right"), (3, "third")] {
        let joining = Joining { member: member(number, name), claims: Vec::new(), before: None };
        list.join(joining, NOW_NS).expect("there is room");
    }
    list.lose(HostId(3), NOW_NS);
    let life = Life { saved: list.saved(), said: vec![(1, 4, 4), (7, 2, 1), (2, 1, 1)] };
    vec![postcard::to_stdvec(&life).expect("it can be encoded")]
}

/// What is in etcd: the length of a key (1), the key, and its value.
pub fn keys(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first() else { return };
    let (key, value) = rest.split_at(usize::from(*length).min(rest.len()));
    let keys = Keys::new("lab");
    black_box((keys.change(key, Some(value)), keys.change(key, None)));
    if let Ok(saved) = serde_json::from_slice::<SavedName>(value) {
        assert!(saved.object_that_moves().is_none_or(|object| saved.identity() == Some(object)));
    }
    same::<SavedHost>(value);
    same::<SavedMember>(value);
    same::<SavedName>(value);
    same::<SavedAddress>(value);
    addresses(value);
    same::<Homed>(value);
}

/// Any bytes as the file `addresses`: who asks is given what nobody has.
fn addresses(bytes: &[u8]) {
    let Ok(saved) = postcard::from_bytes::<SavedAddresses>(bytes) else { return };
    let Some(mut all) = Addresses::restored(saved) else { return };
    let asking = Asking { object: u128::MAX, room_bytes: 2 << 20, uid: 7, host: "lab".into() };
    let given = all.give(&asking);
    let again = Addresses::restored(all.saved()).expect("no two have the same");
    assert_eq!(again.saved(), all.saved());
    assert!(given.is_err() || all.gone("lab", &[].into()).contains(&u128::MAX));
}

fn same<T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug>(value: &[u8]) {
    let Ok(saved) = serde_json::from_slice::<T>(value) else { return };
    let again = serde_json::to_vec(&saved).expect("what was read can be written");
    assert_eq!(serde_json::from_slice::<T>(&again).expect("and read again"), saved);
}

/// Samples of those.
pub fn sample_keys() -> Vec<Vec<u8>> {
    let keys = Keys::new("lab");
    let address = ([192, 0, 2, 1], 7420).into();
    let name = Name::new("/a/b").expect("a name");
    let about = Moving {
        name: name.clone(),
        ownership: Ownership { uid: 1, gid: 2, mode: 0o640 },
        options: CreateOptions::default(),
        path: "/srv/file".into(),
    };
    let host = HostId(5);
    let json = |value: Result<Vec<u8>, serde_json::Error>| value.expect("it can be encoded");
    let given_up = GivenUp { home: HostId(1), object: 7, former: host, number: 8 };
    let homed = Homed { home: host, served: host, term: 2, replicas: vec![HostId(6)], about };
    let saved_host = SavedHost { number: 5, address, lease: 9, ends: vec![8], former: vec![4] };
    let saved_member = SavedMember { name: "left".into(), address, lease: 9, former: vec![4] };
    let saved_name = SavedName { number: 5, object: format!("{:032x}", 7), moves: true };
    let all = [
        (keys.host("left"), json(serde_json::to_vec(&saved_host))),
        (keys.member(host), json(serde_json::to_vec(&saved_member))),
        (keys.seen(host), b"77".to_vec()),
        (keys.name(&name), json(serde_json::to_vec(&saved_name))),
        (keys.object(7), json(serde_json::to_vec(&homed))),
        (keys.given_up(&given_up), b"8".to_vec()),
    ];
    all.map(|(key, value)| [&[key.len() as u8], key.as_bytes(), &value].concat()).into()
}
