//! Who opened an object for reading drops nobody's pages.

use commonhold::ErrorKind;
use commonhold_object::wire::{Reply, Request};
use commonhold_object::{Access, Name};
use commonhold_tests::TestHost;
use commonhold_tests::raw::Raw;

#[test]
fn a_handle_for_reading_reverts_nothing() {
    let host = TestHost::start();
    let writer = host.worker();
    let file = host.scratch().file("file", 16384);
    writer.ok(&format!("create o /x file={} sync=atomic mode=666", file.display()));
    writer.all("map m o rw shared 0 0\nfill m 0 4 1");
    // By hand: the host refuses it, whatever the library looks at.
    let mut raw = Raw::connect(&host);
    let mut open = |access| {
        let request = Request::Open { name: Name::new("/x").unwrap(), access };
        match raw.ask(&request, &[]) {
            Some(Ok(Reply::Opened(opened))) => {
                let object = opened.info.id;
                raw.ask(&Request::RevertOpened { object }, &[]).expect("an answer")
            }
            other => panic!("{other:?}"),
        }
    };
    let why = open(Access::Read).unwrap_err();
    assert!(why.kind == ErrorKind::Permission && why.message.contains("for writing"), "{why}");
    writer.ok("check m 0 4 1");
    // By the library, and of what nobody opened.
    let client = host.connect();
    let reader = client.open("/x", Access::Read).unwrap();
    let why = reader.revert().unwrap_err();
    assert!(why.kind == ErrorKind::Permission && why.message.contains("for writing"), "{why}");
    let object = reader.id();
    let mut other = Raw::connect(&host);
    let why = other.ask(&Request::RevertOpened { object }, &[]).unwrap().unwrap_err();
    assert_eq!(why.kind, ErrorKind::NotFound, "{why}");
    writer.ok("check m 0 4 1");
    // Who opened it for writing may, and who gets that wider right later.
    assert!(matches!(open(Access::ReadWrite), Ok(Reply::Pages(4))));
    writer.ok("fill m 0 4 2");
    assert_eq!(client.open("/x", Access::ReadWrite).unwrap().revert().unwrap(), 4);
}
