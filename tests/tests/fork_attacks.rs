//! What a fork child must not have of its parent: it may give up rights that its parent keeps.

use commonhold::{CreateOptions, Inherit, MapFlags, MapOptions};
use commonhold_object::wire::{Request, Sizing};
use commonhold_object::{Access, ErrorKind, Name, ObjectId};
use commonhold_tests::raw::Raw;
use commonhold_tests::user::as_user;
use commonhold_tests::{MIB, TestHost, is_root};

/// Descriptors that reach into the address space of a process.
fn into_address_spaces(pid: &str) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let names = links.map(|link| link.display().to_string());
    names.filter(|name| name.contains("[userfaultfd]") || name.ends_with("/pagemap")).collect()
}

/// By a userfaultfd or a pagemap of its parent's a child would reach into that.
#[test]
fn a_child_has_no_descriptor_that_reaches_into_its_parent() {
    for in_thread in [false, true] {
        let host = TestHost::start();
        let client = host.connect();
        let options = CreateOptions { size_bytes: MIB, controlled: true, ..CreateOptions::default() };
        let object = client.create("/o", &options, None).unwrap();
        let flags = MapFlags { in_thread, ..MapFlags::default() };
        let none = MapOptions { flags, inherit: Inherit::None, ..MapOptions::default() };
        let mapping = object.map(&none).unwrap();
        // SAFETY: mapped, and its first byte is there.
        unsafe { mapping.as_ptr().write_volatile(1) };
        assert!(into_address_spaces("self").len() >= 2, "a userfaultfd and a pagemap");
        // SAFETY: the child looks at its descriptors, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let has = into_address_spaces("self");
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(has.len() as i32) };
        }
        let mut status = 0;
        // SAFETY: a child of this process; the status is written to a number that is there.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 0, "in thread: {in_thread}: it has so many of its parent's");
    }
}

/// A fork child says which objects it has by their numbers, and numbers can be guessed: nobody has so what lies in a directory
/// in which he may look at nothing.
#[test]
fn nobody_comes_back_with_what_lies_where_he_may_not_look() {
    if !is_root("another user") {
        return;
    }
    let host = TestHost::start();
    let owner = host.worker();
    owner.all("create o /private/o size=1048576 mode=666\nchmod /private 700");
    let object = ObjectId(owner.ok("stat /private/o id").parse().unwrap());
    as_user(1234, || {
        let mut raw = Raw::connect(&host);
        let name = Name::new("/private/o").unwrap();
        let mut ask = |request| raw.ask(&request, &[]).expect("the host answers");
        let refused = ask(Request::Open { name, access: Access::ReadWrite }).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Permission);
        let came = ask(Request::Reattach { object, access: Access::ReadWrite });
        let told = ask(Request::StatObject { object });
        let resized = ask(Request::ResizeOpened { object, size_bytes: 4096, sizing: Sizing::Exactly });
        assert!(came.is_err() && told.is_err() && resized.is_err(), "{came:?}, {told:?}, {resized:?}");
    });
    assert_eq!(owner.ok("stat /private/o size"), "1048576");
}
