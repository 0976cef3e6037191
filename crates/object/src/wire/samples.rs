//! One message of each kind, for the golden file (`golden/wire.VERSION`) and the fuzz targets.

use super::{
    Event, FromHost, HelloReply, MapRequest, Offered, OpenReply, PagerReply, Reply, Request, Sizing,
    SnapshotRequest,
};
use crate::{
    Access, ClusterHost, ClusterStatus, Counts, CreateOptions, EntryInfo, Error, ErrorKind, HostStatus,
    Losses, MapFlags, MappingId, MappingInfo, Name, ObjectCounts, ObjectId, ObjectInfo, Ownership, PageSize,
    Place, Protection, Seen, SessionId, Sharing, Synced, Tagging, TraceLine, TracePlace, Traced, Trouble,
};

const OBJECT: ObjectId = ObjectId(7);
const ADDRESS: u64 = 0x7f00_0000_0000;
const OWNERSHIP: Ownership = Ownership { uid: 1, gid: 2, mode: 0o640 };

fn name() -> Name {
    Name::new("/lab/weights").expect("a name")
}

fn options() -> CreateOptions {
    CreateOptions { size_bytes: 1 << 20, description: "<u4".into(), ..CreateOptions::default() }
}

fn tagging() -> Tagging {
    Tagging { offset: 4096, length: 0, tag: "{24: 0 int32, 8 float64*2}".into() }
}

fn map() -> MapRequest {
    MapRequest {
        mapping: MappingId(3),
        object: OBJECT,
        address: ADDRESS,
        length: 8192,
        offset: 4096,
        protection: Protection::ReadWrite,
        sharing: Sharing::Shared,
        flags: MapFlags::default(),
        with_descriptors: true,
        with_claims: false,
    }
}

/// What clients ask.
pub fn requests() -> Vec<Request> {
    let (object, offset, length) = (OBJECT, 4096, 8192);
    let snapshot = SnapshotRequest {
        of: object,
        offset,
        length: 0,
        name: name(),
        mode: 0o640,
        writable: true,
        whole: false,
        nonce: 7,
    };
    let mut all = vec![
        Request::Hello { program: "a".into() },
        Request::Return { session: SessionId(9) },
        Request::Reattach { object, access: Access::ReadWrite },
        Request::Create { name: name(), options: options(), nonce: 1 << 100, in_directory: false },
        Request::Open { name: name(), access: Access::Read },
        Request::Close { object },
        Request::Stat { name: name() },
        Request::StatObject { object },
        Request::List { directory: name(), after: Some(name()) },
        Request::Map(map()),
        Request::Unmap { address: ADDRESS, length },
        Request::Sync { object, offset, length, freeze: true },
        Request::Lock { object, offset, length },
        Request::Unlock { object, offset, length },
        Request::Incore { object, first_page: 1, pages: 2 },
        Request::Prefetch { object, offset, length },
        Request::Revert { name: name() },
        Request::RevertOpened { object },
        Request::MapInfo { name: name() },
        Request::Watch { object },
        Request::Snapshot(snapshot),
        Request::Place { object },
        Request::Released { object, given: 1 << 50 },
        Request::CreateNameless { options: options(), nonce: 1 << 100 },
        Request::Member,
        Request::Words { object },
        Request::Token { object, index: 5, wanted: true },
        Request::TagOpened { object, tagging: tagging() },
    ];
    all.extend(of_names());
    all.extend(of_the_host());
    all.extend(of_channels());
    all
}

fn of_names() -> Vec<Request> {
    let of = Some(1 << 90);
    let mut all = vec![
        Request::Resize { name: name(), size_bytes: 8192, of },
        Request::Remove { name: name(), of },
        Request::Rename { from: name(), to: name(), replace: true, of },
        Request::MakeDirectory { name: name(), mode: 0o755 },
        Request::SetModified { name: name(), modified_ns: 5, of },
        Request::SetMode { name: name(), mode: 0o644, of: None },
        Request::SetOwner { name: name(), uid: Some(1), gid: None, of },
        Request::Tag { name: name(), of: None, tagging: tagging() },
        Request::WatchRange { object: OBJECT, offset: 4096, length: 8192 },
        Request::Unwatch { number: 6 },
        Request::Notify { object: OBJECT, offset: 4096, length: 1 },
        Request::PagerQueues,
    ];
    for sizing in [Sizing::Exactly, Sizing::AtLeast, Sizing::BeforeWrite] {
        all.push(Request::ResizeOpened { object: OBJECT, size_bytes: 8192, sizing });
    }
    all
}

fn of_the_host() -> Vec<Request> {
    let answer = |result| Request::PagerAnswer { call: 5, result };
    vec![
        Request::Status,
        Request::Hosts,
        Request::Stop { force: true },
        Request::Replace { program: Some("/bin/a".into()), keeper: true },
        Request::ServePager { pager: name() },
        answer(PagerReply::Data(vec![1; 64])),
        answer(PagerReply::Stored),
        answer(PagerReply::Failed("no".into())),
        Request::Counts { name: None, after: Some(OBJECT), hottest: 3 },
        Request::Trace { name: name(), place: Some(TracePlace { trace: 1, next: 2 }) },
    ]
}

fn of_channels() -> Vec<Request> {
    let (channel, token, offset, length) = (ObjectId(8), 1 << 80, 4096, 8192);
    let offer = |what| Request::Offer { channel, token, what };
    vec![
        offer(Offered::Object { object: OBJECT, access: Access::Read }),
        offer(Offered::Pages { of: OBJECT, offset, length }),
        Request::WithdrawOffer { channel, token },
        Request::TakeOffer { channel, token },
    ]
}

fn opened() -> Box<OpenReply> {
    let info = ObjectInfo {
        id: OBJECT,
        uuid: 1 << 100,
        name: Some(name()),
        ownership: OWNERSHIP,
        options: options(),
        controlled: true,
        file_path: "/data/weights".into(),
        resident_bytes: 3,
        dirty_bytes: 4,
        spilled_bytes: 5,
        mappings: 6,
        opens: 8,
        charged_to: "a".into(),
        warning: "b".into(),
        home: "left".into(),
        is_elsewhere: true,
        losses: Losses { lost_pages: 9, reverted_pages: 10, generation: 11 },
        page_tables: 12,
        modified_ns: 13,
        place: Some(Place { arena: ObjectId(14), offset_bytes: 15, arena_bytes: 16 }),
        translated: Default::default(),
    };
    Box::new(OpenReply { info, access: Access::ReadWrite })
}

fn trouble() -> Option<Trouble> {
    Some(Trouble { kind: ErrorKind::TimedOut, why: "why".into(), for_ms: 9 })
}

fn status() -> HostStatus {
    HostStatus {
        version: "0.1".into(),
        host_pid: 1,
        keeper_pid: 2,
        uid: 3,
        state_directory: "/a".into(),
        uptime_ms: 4,
        generation: 5,
        objects: 6,
        clients: 7,
        mappings: 8,
        resident_bytes: 9,
        budget_bytes: 10,
        faults: 11,
        pages_installed: 12,
        pages_evicted: 13,
        syncs: 14,
        kernel_faults: true,
        quota_bytes: 15,
        repairs: vec!["b".into()],
        machine: "little-ieee".into(),
        translated: Default::default(),
        stored_translated: Default::default(),
        direct_bytes: 16,
        cluster: Some(ClusterStatus {
            name: "left".into(),
            address: ([127, 0, 0, 1], 7).into(),
            registry: "host".into(),
            joined: true,
            trouble: trouble(),
        }),
    }
}

fn seen() -> Seen {
    let counted = ObjectCounts {
        id: OBJECT,
        name: None,
        size_bytes: 1 << 20,
        page_size: PageSize::SMALLEST,
        shared: true,
        elsewhere: false,
        counts: Counts::default(),
        messages: Vec::new(),
        pages: Vec::new(),
    };
    let hosts = vec![(3, "left".into())];
    Seen { host: 3, process: 4, at_ns: 5, hosts, objects: vec![counted], more: true }
}

fn traced() -> Traced {
    let line = TraceLine {
        number: 1,
        at_ns: 2,
        from: 3,
        to: 4,
        what: "read".into(),
        kind: None,
        first_page: 5,
        pages: 6,
        bytes: 7,
    };
    let (place, hosts) = (TracePlace { trace: 8, next: 9 }, vec![(3, "left".into())]);
    Traced { lines: vec![line], place, lost: 10, anew: true, more: true, hosts }
}

fn answers() -> Vec<Reply> {
    let host = ClusterHost {
        name: "left".into(),
        number: 3,
        address: ([127, 0, 0, 1], 7).into(),
        is_this: true,
        keeps_list: true,
        is_unreachable: false,
        through: Some("right".into()),
        waits: false,
        trouble: None,
    };
    let mapping = MappingInfo {
        mapping: MappingId(3),
        pid: 4,
        uid: 5,
        address: ADDRESS,
        length_bytes: 8192,
        offset_bytes: 4096,
        protection: Protection::ReadWrite,
        sharing: Sharing::Shared,
        faults: 6,
    };
    let entry = EntryInfo::Directory { name: name(), ownership: OWNERSHIP };
    let object = EntryInfo::Object(Box::new(opened().info));
    vec![
        Reply::Done,
        Reply::Claims,
        Reply::Hello(HelloReply { session: SessionId(1), version: "0.1".into(), kernel_faults: true }),
        Reply::Opened(opened()),
        Reply::Entry(Box::new(entry.clone())),
        Reply::Entries { entries: vec![entry, object], more: true },
        Reply::PageStates(vec![0, 1, 2, 3, 128, 255]),
        Reply::Synced(Synced { pages: 8, loss_generation: 9 }),
        Reply::Pages(7),
        Reply::Locked { pinned: true },
        Reply::Mappings(vec![mapping]),
        Reply::Status(Box::new(status())),
        Reply::Hosts(vec![host.clone(), host], vec![trouble(), None]),
        Reply::Counts(Box::new(seen())),
        Reply::Traced(Box::new(traced())),
        Reply::Placed { opened: opened(), given: 1 << 50 },
        Reply::Member(5),
        Reply::Watching { number: 6, to_read: Some(7) },
        Reply::Queues,
    ]
}

/// What hosts say.
pub fn replies() -> Vec<FromHost> {
    let (call, object, offset, length) = (1, "/a".to_owned(), 4096, 8192);
    let events = [
        Event::HostReplaced { generation: 2 },
        Event::PageIn { call, object: object.clone(), offset, length },
        Event::PageOut { call, object, offset, data: vec![1; 64] },
        Event::Heal { address: ADDRESS, length },
        Event::Changed { object: OBJECT },
        Event::Revoke { object: OBJECT, given: 1 << 50 },
    ];
    let refused = FromHost::Reply(Err(Error::new(ErrorKind::Permission, "no")));
    let replies = answers().into_iter().map(|reply| FromHost::Reply(Ok(reply)));
    replies.chain([refused]).chain(events.map(FromHost::Event)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden;
    use crate::wire::{Header, PROTOCOL_VERSION, decode, encode};

    fn whole<T: serde::Serialize>(message: &T) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(Header { number: 1, repeated: true, generation: 2 }, message, &mut bytes).unwrap();
        bytes
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no files")]
    fn messages_are_those_of_their_version() {
        let (requests, replies) = (requests(), replies());
        let all: Vec<_> = requests.iter().map(whole).chain(replies.iter().map(whole)).collect();
        let directory = env!("CARGO_MANIFEST_DIR");
        let kept = golden::check(directory, "wire", PROTOCOL_VERSION.into(), &golden::together(&all));
        let kept = golden::apart(&kept);
        for (request, bytes) in requests.iter().zip(&kept) {
            assert_eq!(&decode::<Request>(bytes).unwrap().1, request);
        }
        for (reply, bytes) in replies.iter().zip(&kept[requests.len()..]) {
            assert_eq!(&decode::<FromHost>(bytes).unwrap().1, reply);
        }
    }

    #[test]
    fn kinds_are_in_their_order_and_none_is_missing() {
        let kinds = |all: &[Vec<u8>]| {
            let mut kinds: Vec<u8> = all.iter().map(|bytes| bytes[0]).collect();
            kinds.sort_unstable();
            kinds.dedup();
            kinds
        };
        let bytes = |request| postcard::to_stdvec(&request).unwrap();
        let found = kinds(&requests().into_iter().map(bytes).collect::<Vec<_>>());
        assert_eq!(found, (0..found.len() as u8).collect::<Vec<_>>());
        let after = [&[found.len() as u8][..], &[0; 256]].concat();
        assert!(postcard::from_bytes::<Request>(&after).is_err(), "a request has no sample");
        let bytes = |reply| postcard::to_stdvec(&reply).unwrap();
        let found = kinds(&answers().into_iter().map(bytes).collect::<Vec<_>>());
        assert_eq!(found, (0..found.len() as u8).collect::<Vec<_>>());
        let after = [&[found.len() as u8][..], &[0; 256]].concat();
        assert!(postcard::from_bytes::<Reply>(&after).is_err(), "a reply has no sample");
    }

    /// What came later stands at the end: an older program sends none of it, and reads as far as it knows.
    #[test]
    fn an_older_program_of_this_version_says_less() {
        let late = |cut: HostStatus, left: usize| {
            let whole = postcard::to_stdvec(&Reply::Status(Box::new(status()))).unwrap();
            assert_eq!(postcard::from_bytes::<Reply>(&whole[..left]).unwrap(), Reply::Status(Box::new(cut)));
        };
        let without = HostStatus { direct_bytes: 0, cluster: None, ..status() };
        let length = postcard::to_stdvec(&without).unwrap().len() + 1;
        late(without.clone(), length - 2);
        late(HostStatus { direct_bytes: 16, ..without }, length - 1);
        let Some(Reply::Hosts(hosts, trouble)) =
            answers().into_iter().find(|reply| matches!(reply, Reply::Hosts(..)))
        else {
            panic!("a sample of hosts");
        };
        let whole = postcard::to_stdvec(&Reply::Hosts(hosts.clone(), Vec::new())).unwrap();
        let read = postcard::from_bytes::<Reply>(&whole[..whole.len() - 1]).unwrap();
        assert_eq!(read, Reply::Hosts(hosts, Vec::new()));
        assert_eq!(trouble.len(), 2);
    }
}
