//! Between a client and its host, and from who asks for metrics.

use super::{Format, encoded};
use commonhold_host::fuzzing::{questions, sample_questions};
use commonhold_object::wire::{
    Event, FromHost, Header, HelloReply, MapRequest, PagerReply, Reply, Request, decode, encode, split,
};
use commonhold_object::{
    Access, CreateOptions, EntryInfo, Error, ErrorKind, MapFlags, MappingId, Name, ObjectId, Ownership,
    PageState, Protection, SessionId, Sharing, Synced, Tagging,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// From any client to the host.
pub const REQUESTS: Format = Format::new("requests", 4096, requests, sample_requests);

/// From the host to a client.
pub const REPLIES: Format = Format::new("replies", 4096, replies, sample_replies);

/// From whoever reaches the address of `--metrics`.
pub const QUESTIONS: Format = Format::new("questions", 9000, questions, sample_questions);

const HEADER: Header = Header::of(1);

/// Both ways: as a whole message, and as the body behind a good header, so that most inputs get past it.
fn read<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8], each: fn(&T)) {
    let mut whole = Vec::new();
    encode(HEADER, &(), &mut whole).expect("a header");
    whole.extend_from_slice(bytes);
    for bytes in [bytes, &whole] {
        assert!(split(bytes).is_ok() || decode::<T>(bytes).is_err());
        let Ok((header, message)) = decode::<T>(bytes) else { continue };
        let mut again = Vec::new();
        // What came in by fewer bytes than it takes (numbers may be written longer than they need)
        // still fits.
        encode(header, &message, &mut again).expect("what was decoded can be encoded");
        assert_eq!(decode::<T>(&again).expect("what was encoded can be decoded"), (header, message));
        each(&decode::<T>(&again).expect("as before").1);
    }
}

fn requests(bytes: &[u8]) {
    read::<Request>(bytes, |request| {
        let Request::Create { name, options, .. } = request else { return };
        assert_eq!(Name::directory(name.as_str()).as_ref(), Ok(name));
        assert!(name.ancestors().len() <= name.as_str().len());
        if options.check().is_ok() {
            let _ = (options.is_controlled(), options.fault_deadline(), options.reserves()); // whatever was asked
        }
    });
}

fn replies(bytes: &[u8]) {
    read::<FromHost>(bytes, |said| {
        let FromHost::Reply(Ok(Reply::PageStates(states))) = said else { return };
        for byte in states {
            if let Some((state, locked)) = PageState::decode(*byte) {
                assert_eq!(PageState::decode(state.encode(locked)), Some((state, locked)));
            }
        }
    });
}

fn tagging() -> Tagging {
    Tagging { offset: 4096, length: 0, tag: "{24: 0 int32, 8 float64*2}".into() }
}

fn name() -> Name {
    Name::new("/lab/weights").expect("a name")
}

fn sample_requests() -> Vec<Vec<u8>> {
    let (object, offset, length) = (ObjectId(7), 4096, 8192);
    let map = MapRequest {
        mapping: MappingId(3),
        object,
        address: 0x7f00_0000_0000,
        length,
        offset,
        protection: Protection::ReadWrite,
        sharing: Sharing::Shared,
        flags: MapFlags::default(),
        with_descriptors: true,
        with_claims: false,
    };
    let options = CreateOptions { size_bytes: 1 << 20, tag: "<u4".into(), ..CreateOptions::default() };
    let all = [
        Request::Hello { program: "a".into() },
        Request::Return { session: SessionId(9) },
        Request::Reattach { object, access: Access::ReadWrite },
        Request::Create { name: name(), options, nonce: 1 << 100, in_directory: false },
        Request::Open { name: name(), access: Access::Read },
        Request::Close { object },
        Request::Stat { name: name() },
        Request::List { directory: name(), after: Some(name()) },
        Request::Resize { name: name(), size_bytes: length, of: None },
        Request::Rename { from: name(), to: name(), replace: true, of: None },
        Request::MakeDirectory { name: name(), mode: 0o755 },
        Request::ResizeOpened {
            object,
            size_bytes: length,
            sizing: commonhold_object::wire::Sizing::Exactly,
        },
        Request::SetModified { name: name(), modified_ns: 5, of: None },
        Request::Tag { name: name(), of: None, tagging: tagging() },
        Request::TagOpened { object, tagging: tagging() },
        Request::SetMode { name: name(), mode: 0o644, of: None },
        Request::SetOwner { name: name(), uid: Some(1), gid: None, of: None },
        Request::Map(map),
        Request::Unmap { address: 0x7f00_0000_0000, length },
        Request::Sync { object, offset, length, freeze: true },
        Request::Lock { object, offset, length },
        Request::Incore { object, first_page: 1, pages: 2 },
        Request::Status,
        Request::Stop { force: true },
        Request::Replace { program: Some("/bin/a".into()), keeper: true },
        Request::ServePager { pager: name() },
        Request::PagerAnswer { call: 5, result: PagerReply::Data(vec![1; 64]) },
        Request::PagerAnswer { call: 5, result: PagerReply::Failed("no".into()) },
        Request::Counts { name: None, after: Some(object), hottest: 3 },
        Request::Trace { name: name(), place: None },
        Request::Watch { object },
        Request::Snapshot(commonhold_object::wire::SnapshotRequest {
            of: object,
            offset: 4096,
            length: 0,
            name: name(),
            mode: 0o640,
            writable: true,
            whole: false,
            nonce: 7,
        }),
        Request::Place { object },
        Request::Released { object, given: 1 << 50 },
    ];
    both(&all)
}

fn sample_replies() -> Vec<Vec<u8>> {
    let ownership = Ownership { uid: 1, gid: 2, mode: 0o640 };
    let entry = EntryInfo::Directory { name: name(), ownership };
    let hello = HelloReply { session: SessionId(1), version: "0.1".into(), kernel_faults: true };
    let replies = [
        Reply::Done,
        Reply::Hello(hello),
        Reply::Entry(Box::new(entry.clone())),
        Reply::Entries { entries: vec![entry], more: true },
        Reply::PageStates(vec![0, 1, 2, 3, 128, 255]),
        Reply::Pages(7),
        Reply::Synced(Synced { pages: 8, loss_generation: 9 }),
        Reply::Locked { pinned: true },
    ];
    let mut all: Vec<FromHost> = replies.map(|reply| FromHost::Reply(Ok(reply))).into();
    all.push(FromHost::Reply(Err(Error::new(ErrorKind::Permission, "no"))));
    all.push(FromHost::Event(Event::HostReplaced { generation: 2 }));
    all.push(FromHost::Event(Event::PageOut { call: 1, object: "/a".into(), offset: 0, data: vec![1; 64] }));
    both(&all)
}

/// With header and without.
fn both<T: Serialize>(all: &[T]) -> Vec<Vec<u8>> {
    let whole = |message: &T| {
        let mut bytes = Vec::new();
        encode(HEADER, message, &mut bytes).expect("it can be encoded");
        bytes
    };
    all.iter().flat_map(|message| [encoded(message), whole(message)]).collect()
}
