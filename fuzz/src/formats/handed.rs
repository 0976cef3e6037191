//! What keeper and host hand to each other, and what a host finds that was handed over.

use super::{Format, encoded};
use commonhold_host::fuzzing::{blobs, sample_blobs};
use commonhold_host::handovers::{self, Handovers};
use commonhold_host::on_way::{self, OnWay};
use commonhold_host::refuge::{self, Refuge};
use commonhold_keeper::protocol::{FromKeeper, ToKeeper, Versions, decode, encode};
use commonhold_keeper::{EndedFaults, FaultDeadline};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Between a host and its keeper, which may be of another version.
pub const KEEPER: Format = Format::new("keeper", 4096, keeper, sample_keeper);

/// What the host before left with the keeper, and below `live`.
pub const BLOBS: Format = Format::new("blobs", 2048, blobs, sample_blobs);

/// The ring of pages that were on their way home.
pub const IN_FLIGHT_WRITE_BACKS: Format =
    Format::new("in-flight-write-backs", 8192, in_flight_write_backs, sample_in_flight_write_backs);

/// Where bytes were while their frames were taken out of page tables.
pub const STAGING_BUFFER: Format = Format::new("staging-buffer", 8192, staging_buffer, sample_staging_buffer);

/// What the host before noted of pages that it handed over.
pub const TRANSFER_JOURNAL: Format =
    Format::new("transfer-journal", 8192, transfer_journal, sample_transfer_journal);

fn keeper(bytes: &[u8]) {
    let mut again = Vec::new();
    if let Ok(message) = decode::<ToKeeper<'_>>(bytes) {
        encode(&message, &mut again).expect("what was decoded can be encoded");
        assert_eq!(decode::<ToKeeper<'_>>(&again).expect("and decoded"), message);
    }
    if let Ok(message) = decode::<FromKeeper<'_>>(bytes) {
        encode(&message, &mut again).expect("what was decoded can be encoded");
        assert_eq!(decode::<FromKeeper<'_>>(&again).expect("and decoded"), message);
    }
    if let Some(versions) = Versions::from_hello(bytes) {
        let answer = versions.answer();
        assert_eq!(Versions::from_greeting(&answer.greeting()), Some(answer));
    }
    let _ = Versions::from_greeting(bytes); // none, or what it says
    if let Some(deadline) = FaultDeadline::from_blob(bytes) {
        assert_eq!(FaultDeadline::from_blob(&deadline.to_blob()), Some(deadline));
    }
    if let Some(ended) = EndedFaults::from_blob(bytes) {
        assert_eq!(EndedFaults::from_blob(&ended.to_blob()).as_ref(), Some(&ended));
        let mut all = EndedFaults::default();
        all.add_all(&ended);
        assert!(all.ranges.len() <= 64 && all.ranges.is_sorted());
        let mut more = ended;
        more.add_all(&all);
    }
}

fn sample_keeper() -> Vec<Vec<u8>> {
    let to = [
        ToKeeper::Fill { generation: 7 },
        ToKeeper::Put { key: "object/5/frames", blob: &[0, 255, 7], fd: true },
        ToKeeper::Update { key: "k", blob: &[] },
        ToKeeper::Restart { program: Some(b"/bin/\xff") },
        ToKeeper::Retire,
    ];
    let from = [
        FromKeeper::Inventory { generation: 7, complete: true, descriptors: 9 },
        FromKeeper::Kept { key: "session/1/map/7f00", blob: &[1, 2], fd: false },
        FromKeeper::End { count: 2, generation: 7 },
        FromKeeper::Problem { text: "no" },
    ];
    let deadline = FaultDeadline {
        address: 0x7f00_0000_0000,
        length: 8192,
        deadline_ms: 300,
        userfaultfd: "session/17/uffd/0".into(),
        synchronous: true,
        whose: "object 7".into(),
    };
    let ended = EndedFaults { ranges: vec![(4096, 8192), (1 << 40, 4096)] };
    let ours = Versions::OURS;
    let mut all: Vec<Vec<u8>> = to.iter().map(encoded).chain(from.iter().map(encoded)).collect();
    all.extend([ours.hello(), ours.answer().greeting(), deadline.to_blob(), ended.to_blob()]);
    all
}

fn write(memory: impl AsFd, bytes: &[u8], at: u64) {
    let file = File::from(memory.as_fd().try_clone_to_owned().expect("a descriptor"));
    file.write_all_at(bytes, at).expect("memory can be written");
}

fn read(memory: impl AsFd, bytes: usize) -> Vec<u8> {
    let file = File::from(memory.as_fd().try_clone_to_owned().expect("a descriptor"));
    let mut read = vec![0; bytes];
    file.read_exact_at(&mut read, 0).expect("memory can be read");
    read
}

/// Headers from the first slot on, 64 bytes each.
fn in_flight_write_backs(bytes: &[u8]) {
    // Shorter than a host makes it, so that what is empty need not be read.
    let memory = Arc::new(commonhold_sys::frames::create("fuzz", bytes.len() as u64).expect("memory"));
    write(&*memory, bytes, 0);
    let Ok(ring) = OnWay::open(memory) else { return };
    let mark = ring.mark();
    for object in ring.waiting().into_iter().take(4).chain([7]) {
        let _ = (ring.room(object), ring.find(object, 3, 9), ring.is_full()); // what it says
        ring.put(object, 3, 9, &[1; 4096]).expect("there is room");
        assert_eq!(ring.find(object, 3, 9).as_deref(), Some(&[1; 4096]));
        ring.has_come(object, mark);
        ring.has_all_come(object);
    }
    assert!(ring.mark() > mark);
}

fn sample_in_flight_write_backs() -> Vec<Vec<u8>> {
    let memory = Arc::new(on_way::new_memory().expect("memory"));
    let ring = OnWay::open(memory.clone()).expect("it is new");
    for page in 0..6 {
        ring.put(7 + u128::from(page % 2), page, 9, &[1; 4096]).expect("there is room");
    }
    ring.has_come(7, 4);
    vec![read(&*memory, 6 * 64)]
}

/// The header of the slot in which the frames' own place is.
fn staging_buffer(bytes: &[u8]) {
    const SLOT_BYTES: u64 = 4096 + (1 << 20);
    let memory = refuge::new_memory().expect("memory");
    let frames = commonhold_sys::frames::create("fuzz", 1 << 20).expect("memory");
    let inode = refuge::inode_of(&frames).expect("it has one");
    let mut header = bytes.to_vec();
    if let Some([own, _, _, check]) = header.as_chunks_mut::<8>().0.first_chunk_mut() {
        // Of the frames that there are: another's are not looked at.
        (*own, *check) = (inode.to_ne_bytes(), (!inode).to_ne_bytes());
    }
    write(&memory, &header, inode % 16 * SLOT_BYTES);
    let _ = Refuge::new(Arc::new(memory)).put_back(&frames); // or why not
}

fn sample_staging_buffer() -> Vec<Vec<u8>> {
    let header = |offset: u64, length: u64| [0, offset, length, 0].map(u64::to_ne_bytes).concat();
    vec![header(4096, 8192), header(0, 1 << 20)]
}

/// The beginning of it: home, layout, processes; and from 4096 on the slots.
fn transfer_journal(bytes: &[u8]) {
    let memory = Arc::new(handovers::new_memory().expect("memory"));
    let (head, slots) = bytes.split_at(bytes.len().min(160));
    write(&*memory, head, 0);
    write(&*memory, slots, 4096);
    let handed = Handovers::new(memory, 4096).expect("it is memory");
    let begun = handed.begun();
    assert!(begun.as_ref().is_none_or(|begun| begun.by.len() <= 17));
    for left in handed.left(|page| page % 2 == 0).expect("it can be read").into_iter().take(16) {
        let page = left.standing.page;
        assert_eq!(handed.left_of(page).expect("it can be read").standing.page, page);
        let mut version = [0; 4096];
        handed.version(page, &mut version).expect("it can be read");
        handed.own(page, 7).expect("it can be written");
        handed.leaves(page, &version).expect("it can be written");
        handed.restored(page).expect("it can be written");
        handed.drop_kept(page).expect("it can be written");
    }
    if begun.is_some() {
        handed.go_on(commonhold_peers::HostId(5)).expect("it can be written");
        assert_eq!(
            handed.begun().and_then(|begun| begun.by.last().copied()),
            Some(commonhold_peers::HostId(5))
        );
    }
}

fn sample_transfer_journal() -> Vec<Vec<u8>> {
    let memory: Arc<OwnedFd> = Arc::new(handovers::new_memory().expect("memory"));
    let handed = Handovers::new(memory.clone(), 4096).expect("it is new");
    let host = commonhold_peers::HostId;
    handed.begin(host(3), host(1)).expect("it can be written");
    for page in 0..4 {
        handed.own(page, 4).expect("it can be written");
    }
    handed.leaves(1, &[9; 4096]).expect("it can be written");
    handed.leaves(2, &[9; 4096]).expect("it can be written");
    handed.sent(2, 5, host(8)).expect("it can be written");
    handed.keep(3, 12, &[2; 4096]).expect("it can be written");
    let all = read(&*memory, 4096 + 4 * 32);
    vec![[&all[..160], &all[4096..]].concat()]
}
