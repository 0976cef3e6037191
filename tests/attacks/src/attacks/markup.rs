//! Words of the attacker where others read them: each is shown as what it is, and makes no line, no
//! field and no label of its own.

use super::{user, user_of, with};
use crate::Attack;
use crate::scene::{Local, name, small};
use commonhold_object::CreateOptions;
use commonhold_object::wire::{Reply, Request};
use commonhold_tests::raw::Raw;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

pub(crate) const ATTACKS: &[Attack] = &[
    user(
        "markup.commands",
        "names, descriptions and programs' names that read as fields, lines and commands",
        commands,
    ),
    user("markup.json", "the same, where programs read them", json),
    user_of(with(&["--metrics", "FREE"]), "markup.metrics", "the same, in labels of metrics", metrics),
    user("markup.errors", "the same, in names that are asked for and are not there", errors),
];

/// Parts of names: each is one, and reads as something else somewhere.
const NAMES: [&str; 9] = [
    "a\"b\\c",
    "<script>alert(1)<b>",
    "$(id)`id`;id|id&&id",
    "';drop'",
    "{\"uid\":0}",
    "%s%n{}{0}",
    "c1\u{9b}2J\u{85}x",
    "bidi\u{202e}\u{2066}x\u{2028}y",
    "-rf --json",
];

/// What no line of a table has, and no terminal or reader is to see.
pub(super) fn is_plain(shown: &str) -> bool {
    let odd = ['\u{202e}', '\u{2066}', '\u{2028}'];
    !shown.chars().any(|c| c != '\n' && c.is_control() || odd.contains(&c))
}

/// Makes them all, in a directory, with a description that reads as further lines; the connection holds them open.
fn made(scene: &Local) -> Raw {
    let mut raw = scene.raw();
    let program = "sh\n  64002  /bystander\u{1b}[1A\u{9b}2J".into();
    raw.ask(&Request::Hello { program }, &[]).expect("an answer").expect("hello");
    let options =
        CreateOptions { description: "t\nowner      root\n/forged\u{1b}[2J\"},{".into(), ..small() };
    for (number, part) in NAMES.iter().enumerate() {
        let nonce = number as u128 + 1;
        let create = Request::Create {
            name: name(&format!("/odd/{part}")),
            options: options.clone(),
            nonce,
            in_directory: false,
        };
        let made = raw.ask(&create, &[]).expect("an answer");
        assert!(matches!(made, Ok(Reply::Opened(_))), "{part:?}: {made:?}");
    }
    raw
}

fn ask(scene: &Local, words: &[&str]) -> Result<String, String> {
    scene.host.command(words, |_| {})
}

fn commands(scene: &Local) {
    let _held = made(scene);
    for words in [&["ls", "/odd"][..], &["ls", "-l", "/odd"]] {
        let shown = ask(scene, words).expect("root may look");
        let lines = shown.lines().filter(|line| !line.starts_with("MODE")).count();
        assert!(is_plain(&shown) && lines == NAMES.len(), "{words:?}: {shown:?}");
    }
    for part in NAMES {
        let path = format!("/odd/{part}");
        for command in ["stat", "map-info", "stats", "incore"] {
            let shown = ask(scene, &[command, &path]).expect("root may look");
            assert!(is_plain(&shown), "{command}: {shown:?}");
            let forged = |line: &str| line.starts_with("/forged") || line.starts_with("owner      root");
            assert!(!shown.lines().any(forged), "{command}: {shown:?}");
        }
    }
    for words in [&["host", "status"][..], &["stats"]] {
        let shown = ask(scene, words).expect("root may look");
        assert!(is_plain(&shown), "{words:?}: {shown:?}");
    }
    assert!(is_plain(&scene.host.log()));
}

fn json(scene: &Local) {
    let _held = made(scene);
    let parsed = |words: &[&str]| {
        let shown = ask(scene, words).expect("root may look");
        assert!(is_plain(&shown), "{words:?}: {shown:?}");
        serde_json::from_str::<serde_json::Value>(&shown)
            .unwrap_or_else(|e| panic!("{words:?}: {e}: {shown:?}"))
    };
    let listed = parsed(&["ls", "-l", "/odd", "--json"]).to_string();
    for part in NAMES {
        let path = format!("/odd/{part}");
        let quoted = serde_json::Value::from(path.clone()).to_string();
        assert!(listed.contains(&quoted), "{quoted} is not in {listed}");
        for command in ["stat", "map-info", "stats", "incore"] {
            parsed(&[command, &path, "--json"]);
        }
        let stat = parsed(&["stat", &path, "--json"]).to_string();
        assert!(stat.contains(&quoted) && !stat.contains("\"/forged"), "{stat}");
    }
    parsed(&["host", "status", "--json"]);
}

fn metrics(scene: &Local) {
    let _held = made(scene);
    let worker = scene.attacker();
    worker.ok("create o /odd2 size=65536 controlled");
    worker.all("map o o rw shared 0 0\nfill o 0 16 1");
    let mut stream = TcpStream::connect(&scene.address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a time");
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("it hears");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let (_, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    assert!(body.contains("/odd2"), "nothing of objects: {body}");
    for line in body.lines() {
        assert!(line.starts_with("# ") || line.starts_with("commonhold_"), "{line:?}");
        let value = line.rsplit_once(' ').expect("a value").1;
        assert!(line.starts_with("# ") || value.parse::<f64>().is_ok(), "{line:?}");
    }
}

fn errors(scene: &Local) {
    for part in NAMES {
        for command in ["stat", "ls", "rm", "map-info", "sync", "revert", "stats", "cat"] {
            let path = format!("/none/{part}");
            let said = ask(scene, &[command, &path]).expect_err("there is no such object");
            let lines = said.trim_end().lines().count();
            assert!(is_plain(&said) && lines == 1, "{command} {part:?}: {said:?}");
        }
    }
}
