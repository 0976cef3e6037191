//! Names: of others, badly formed, and such as do something where they are shown.

use super::user;
use crate::Attack;
use crate::scene::{BYSTANDER, Local, name, small};
use commonhold_object::wire::Request;
use commonhold_object::{Access, ErrorKind};
use commonhold_tests::raw::bytes_of;

pub(crate) const ATTACKS: &[Attack] = &[
    user("names.of_others", "open, remove, rename, change and cover the object of another user", of_others),
    user("names.in_directories_of_others", "make names in a directory of another user", in_directories),
    user("names.the_root", "remove, rename and change the root directory", the_root),
    user(
        "names.badly_formed",
        "names with zero bytes, empty parts, dots and bytes that are no text",
        badly_formed,
    ),
    user("names.too_long", "names longer than a name may be", too_long),
    user(
        "names.that_move_the_cursor",
        "a name and a program's name with control characters",
        control_characters,
    ),
];

fn of_others(scene: &Local) {
    let attacker = scene.attacker();
    for line in [
        "open s /bystander r",
        "open s /bystander rw",
        "remove /bystander",
        "rename /bystander /mine",
        "chmod /bystander 666",
        "chown /bystander 64001 64001",
        "resize /bystander 4096",
        "revert /bystander",
    ] {
        attacker.refused(line, "Permission");
    }
    attacker.ok("create m /mine size=4096");
    attacker.refused("create s /bystander size=4096", "Exists");
    let refused = attacker.ask("rename /mine /bystander").expect_err("it covers another's name");
    assert!(["Exists", "Permission"].contains(&refused.kind.as_str()), "{refused:?}");
    attacker.refused("chown /mine 64002 64002", "Permission");
    let owner = scene.host.worker().ok("stat /bystander owner");
    assert_eq!(owner, format!("{} {} 600", BYSTANDER.0, BYSTANDER.1));
}

fn in_directories(scene: &Local) {
    let theirs = scene.other();
    theirs.ok("create o /theirs/deep/o size=4096 mode=600");
    let attacker = scene.attacker();
    attacker.ok("create m /mine size=4096");
    for line in [
        "create x /theirs/x size=4096",
        "create x /theirs/deep/x size=4096",
        "rename /mine /theirs/x",
        "rename /theirs/deep/o /stolen",
        "remove /theirs/deep/o",
        "remove /theirs/deep",
        "chmod /theirs 777",
    ] {
        let refused = attacker.ask(line).expect_err(line);
        assert!(
            ["Permission", "Invalid", "NotFound"].contains(&refused.kind.as_str()),
            "{line}: {refused:?}"
        );
    }
    assert_eq!(theirs.ok("list /theirs/deep"), "/theirs/deep/o");
    theirs.all("close o\nremove /theirs/deep/o");
}

fn the_root(scene: &Local) {
    let attacker = scene.attacker();
    for line in ["remove /", "rename / /x", "chmod / 777", "chown / 64001 64001", "create x / size=4096"] {
        attacker.ask(line).expect_err(line);
    }
    attacker.refused("remove /bystander", "Permission");
}

fn badly_formed(scene: &Local) {
    for bad in [&b"/a\0b"[..], b"/a//b", b"/aa/b", b"/a/./", b"/../b", b"/\xff\xfeb", b"aaaab", b"/aaa/"] {
        let mut raw = scene.greeted();
        let mut bytes = bytes_of(9, &Request::Open { name: name("/XYZb"), access: Access::Read });
        let at = bytes.windows(5).position(|five| five == b"/XYZb").expect("the name is in the message");
        bytes.splice(at..at + 5, bad.iter().copied());
        // The name's length stands before it.
        bytes[at - 1] = bad.len() as u8;
        raw.throw(&bytes, &[]);
        if let Some(answer) = raw.answer_to(9) {
            let kind = answer.expect_err("no such object").kind;
            let known = [ErrorKind::Protocol, ErrorKind::NotFound, ErrorKind::Invalid].contains(&kind);
            assert!(known, "{bad:?}: {kind:?}");
            assert!(raw.ask(&Request::Status, &[]).is_some(), "{bad:?} ended the connection");
        }
    }
}

fn too_long(scene: &Local) {
    let attacker = scene.attacker();
    for length in [256, 1024, 1025, 60_000] {
        let part = "x".repeat(length);
        attacker.ask(&format!("create x /{part} size=4096")).expect_err("a part that is too long");
        attacker.ask(&format!("open x /{part} r")).expect_err("a part that is too long");
    }
    let deep = "/a".repeat(600);
    attacker.ask(&format!("create x {deep} size=4096")).expect_err("a name that is too long");
}

fn control_characters(scene: &Local) {
    let mut raw = scene.raw();
    let cursor = "evil\u{1b}[2J\u{1b}]0;owned\u{7}\r\n/bystander";
    raw.ask(&Request::Hello { program: cursor.into() }, &[]).expect("an answer").expect("hello");
    let mut bytes =
        bytes_of(9, &Request::Create { name: name("/aXb"), options: small(), nonce: 1, in_directory: false });
    let at = bytes.iter().position(|byte| *byte == b'X').expect("the name is in the message");
    bytes[at] = 0x1b;
    raw.throw(&bytes, &[]);
    let answer = raw.answer_to(9);
    for words in [&["ls"][..], &["ls", "-l"], &["stat", "/bystander"], &["host", "status"]] {
        let said = scene.host.command(words, |_| {}).expect("root may ask");
        assert!(said.contains("bystander") || words[0] == "host", "{words:?} says nothing of it: {said:?}");
        assert!(!said.contains('\u{1b}') && !said.contains('\r'), "{words:?} shows it: {said:?}");
    }
    assert!(!scene.host.log().contains('\u{1b}'), "the log shows it, after {answer:?}");
}
