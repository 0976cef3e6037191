//! The numbers for Prometheus, read as strictly as its parsers do.

use commonhold::{CreateOptions, MapOptions, MessageKind};
use commonhold_tests::cluster::{counts, free_address, pair, sharing_pair};
use commonhold_tests::{TestHost, wait};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;

/// What an address answers to a question.
fn ask(address: &str, question: &[u8]) -> (String, String) {
    let mut stream = wait::until("somebody listens", || TcpStream::connect(address).ok());
    stream.write_all(question).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head: {answer:?}"));
    (head.to_owned(), body.to_owned())
}

type Labels = Vec<(String, String)>;

/// `{a="x",b="y"}` to pairs; the rest of the line behind it. Strict: anything else is a panic.
fn labels(text: &str) -> (Labels, &str) {
    let Some(mut rest) = text.strip_prefix('{') else { return (vec![], text) };
    let mut found = Vec::new();
    loop {
        let (key, after) = rest.split_once("=\"").expect("a label");
        assert!(key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !key.is_empty(), "{key}");
        let (mut value, mut characters) = (String::new(), after.char_indices());
        let end = loop {
            match characters.next().expect("the end of a label") {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match characters.next().expect("what is escaped").1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    other => panic!("\\{other}"),
                }),
                (_, c) => value.push(c),
            }
        };
        found.push((key.to_owned(), value));
        rest = &after[end..];
        if let Some(behind) = rest.strip_prefix('}') {
            return (found, behind);
        }
        rest = rest.strip_prefix(',').expect("another label");
    }
}

/// Reads OpenMetrics as strictly as its parsers do: families announced once before their lines and not mixed, counters by
/// their suffix, no line twice, `# EOF` at the end.
fn parse(text: &str) -> HashMap<(String, Labels), f64> {
    let body = text.strip_suffix("# EOF\n").expect("# EOF");
    let (mut all, mut types, mut current) = (HashMap::new(), HashMap::new(), String::new());
    for line in body.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name, rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            match what {
                "HELP" => name.clone_into(&mut current),
                "TYPE" => assert!(types.insert(name.to_owned(), rest.to_owned()).is_none(), "{name} twice"),
                other => panic!("{other}"),
            }
            assert_eq!(current, name, "families are not mixed");
            continue;
        }
        let end = line.find(['{', ' ']).expect("a line with a number");
        let (labels, number) = labels(&line[end..]);
        let name = &line[..end];
        match types[&current].as_str() {
            "counter" => assert_eq!(name, format!("{current}_total")),
            "gauge" => assert_eq!(name, current),
            other => panic!("{other}"),
        }
        let number: f64 = number.strip_prefix(' ').expect("a space").parse().expect("a number");
        assert!(number >= 0.0 && all.insert((name.to_owned(), labels), number).is_none(), "{line}");
    }
    all
}

const QUESTION: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn prometheus_is_told_the_same_numbers() {
    let address = free_address();
    let hosts = pair(&["--metrics", &address]);
    let [a, b] = sharing_pair(&hosts, 1);
    for round in 0..3 {
        a.ok(&format!("put m 0 {round}"));
        b.ok(&format!("put m 0 {round}"));
    }
    let strange = "/we\"ird\\na{m=\"e";
    let options = CreateOptions { size_bytes: 4096, controlled: true, ..CreateOptions::default() };
    let connection = hosts[0].connect();
    let object = connection.create(strange, &options, None).unwrap();
    let mapping = object.map(&MapOptions::default()).unwrap();
    drop(mapping);
    let (head, body) = ask(&address, QUESTION);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    let metrics = parse(&body);
    let home = counts(&hosts[0], "/shared");
    let of = |name: &str, labels: &[(&str, &str)]| {
        let all = [("object", "/shared")].iter().chain(labels);
        let labels = all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let key = (format!("commonhold_object_{name}_total"), labels);
        metrics.get(&key).copied().unwrap_or_else(|| panic!("no {key:?}")) as u64
    };
    assert_eq!(of("faults", &[("sort", "write")]), home.counts.write_faults);
    assert_eq!(of("hand_overs", &[]), home.counts.hand_overs);
    assert_eq!(of("bytes", &[("way", "sent")]), 3 * 4096);
    let grants = [("message", "grant"), ("kind", "page"), ("way", "sent")];
    assert_eq!(of("messages", &grants), 3);
    let (sent, received, local) = home.of_kind(MessageKind::Request);
    for (way, number) in [("sent", sent), ("received", received), ("local", local)] {
        assert_eq!(of("messages_by_kind", &[("kind", "request"), ("way", way)]), number);
    }
    let strangers = metrics.keys().filter(|(_, labels)| labels.iter().any(|(_, value)| value == strange));
    assert!(strangers.count() > 0, "{body}");
    assert_eq!(metrics[&("commonhold_host_objects".to_owned(), vec![])], 2.0);

    assert!(ask(&address, b"GET / HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 404 "));
    assert!(ask(&address, b"POST /metrics HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 405 "));
    assert!(ask(&address, b"\x16\x03\x01 nonsense\r\n\r\n").0.starts_with("HTTP/1.1 400 "));
    let before = hosts[0].status().host_pid;
    hosts[0].kill_host();
    hosts[0].wait_for_other_host(before);
    let next = parse(&ask(&address, QUESTION).1);
    assert_eq!(
        next[&("commonhold_host_generation".to_owned(), vec![])],
        2.0,
        "the next host answers there too"
    );
}

#[test]
fn numbers_are_told_beyond_loopback_only_where_that_was_said() {
    let host = TestHost::start();
    let state = host.scratch().join("another");
    let refused = host.command(&["host", "start", "--metrics", "0.0.0.0:0", "--state"], |command| {
        command.arg(&state);
    });
    let why = refused.expect_err("nobody said so");
    assert!(why.contains("--metrics-beyond-loopback") && why.lines().count() == 1, "{why}");
}
