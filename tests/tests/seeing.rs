//! What is counted, traced and shown of objects, on real hosts: the numbers are those that `docs/PROTOCOL.md` says.

use commonhold::{CreateOptions, MapOptions, MessageKind, ObjectCounts, Seen};
use commonhold_cli::top::{Choice, View, draw};
use commonhold_tests::{MIB, TestHost, Worker, wait};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A port of this machine that nobody has.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Two hosts of one cluster; the first is the home of what `sharers` makes.
fn pair(more: &[&str]) -> [TestHost; 2] {
    let (list, own) = (free_address(), free_address());
    let place = ["--plain", "--listen", &list, "--name", "home"];
    let first = TestHost::with(&[place.as_slice(), more].concat());
    let place = ["--plain", "--listen", &own, "--join", &list, "--name", "other"];
    [first, TestHost::with(&place)]
}

/// A worker on each, with one shared object of so many pages mapped as `m`.
fn sharers(hosts: &[TestHost; 2], pages: u64) -> [Worker; 2] {
    sharers_of(hosts, &format!("size={} strict", pages * 4096))
}

fn sharers_of(hosts: &[TestHost; 2], options: &str) -> [Worker; 2] {
    let (a, b) = (hosts[0].worker(), hosts[1].worker());
    a.ok(&format!("create o /shared {options}"));
    b.eventually("open o /shared rw");
    [a, b].map(|worker| {
        worker.ok("map m o rw shared 0 0");
        worker
    })
}

/// The numbers of an object at a host.
fn counts(host: &TestHost, name: &str) -> ObjectCounts {
    host.connect().counts(name, 1024).unwrap().objects.remove(0)
}

/// `name: sent received` of the messages between hosts, in alphabetical order.
fn remote(object: &ObjectCounts) -> Vec<String> {
    // What hosts say of themselves, and not of pages, under forwarding.
    let members = ["join", "welcome", "hello", "known-member", "flush", "report", "settle"];
    let mut all: Vec<String> = object
        .messages
        .iter()
        .filter(|m| m.sent + m.received > 0 && !members.contains(&m.name.as_str()))
        .map(|m| format!("{} {}>{}", m.name, m.sent, m.received))
        .collect();
    all.sort();
    all
}

/// Until all that is under way has arrived: the last acknowledgement follows what it acknowledges.
fn settled(hosts: &[TestHost; 2], name: &str) -> [ObjectCounts; 2] {
    wait::until("what one host sent, the other received", || {
        let both = [counts(&hosts[0], name), counts(&hosts[1], name)];
        let is_even = MessageKind::ALL.iter().all(|kind| {
            let (a, b) = (both[0].of_kind(*kind), both[1].of_kind(*kind));
            (a.0, a.1) == (b.1, b.0)
        });
        is_even.then_some(both)
    })
}

const ROUNDS: u64 = 10;

#[test]
fn writers_that_take_turns_cost_two_requests_and_two_pages_a_round() {
    let hosts = pair(&[]);
    let [a, b] = sharers(&hosts, 1);
    a.ok("put m 0 1");
    for round in 0..ROUNDS {
        b.ok(&format!("put m 0 {round}"));
        a.ok(&format!("put m 0 {round}"));
    }
    let [home, other] = settled(&hosts, "/shared");
    assert_eq!(remote(&home), ["grant 10>0", "page-out 0>10", "recall 10>0", "request 0>10"]);
    assert_eq!(remote(&other), ["grant 0>10", "page-out 10>0", "recall 0>10", "request 10>0"]);
    assert_eq!(home.of_kind(MessageKind::Acknowledgement), (0, 0, 0));
    assert_eq!((home.counts.bytes_sent, home.counts.bytes_received), (10 * 4096, 10 * 4096));
    assert_eq!((other.counts.bytes_sent, other.counts.bytes_received), (10 * 4096, 10 * 4096));
    assert_eq!((home.counts.hand_overs, other.counts.hand_overs), (11, 10));
    // The kernel may report one access twice: what the grant of a page that was never touched finds, for example.
    assert_eq!(home.counts.waits, 11, "one for each access");
    assert!(home.counts.write_faults >= 11 && home.counts.read_faults == 0, "{:?}", home.counts);
    assert_eq!((other.counts.write_faults, other.counts.faults()), (10, 10));
    assert_eq!((other.counts.waits, other.counts.refused, other.counts.forwards), (10, 0, 0));
    assert!(other.counts.waited_ns >= other.counts.longest_wait_ns && other.counts.longest_wait_ns > 0);
    let page = &home.pages[0];
    assert_eq!((home.pages.len(), page.page, page.messages), (1, 0, 40));
    assert_eq!(page.heat, 40 + home.counts.faults());
    assert_eq!(u64::from(page.write_faults), home.counts.write_faults);
    assert_eq!((page.hand_overs, page.excess), (11, 0));
    let seen = hosts[0].connect().counts("/shared", 1).unwrap();
    assert_eq!(page.owner.map(|owner| seen.called(owner)), Some("home".into()));
    b.ok("put m 0 9");
    let seen = hosts[0].connect().counts("/shared", 1).unwrap();
    assert_eq!(seen.objects[0].pages[0].owner.map(|owner| seen.called(owner)), Some("other".into()));
    let seen = hosts[1].connect().counts("/shared", 1).unwrap();
    assert_eq!(seen.objects[0].pages[0].owner, Some(seen.host), "the owner knows it too");
}

#[test]
fn a_reader_of_what_another_writes_is_invalidated_and_says_so() {
    let hosts = pair(&[]);
    let [a, b] = sharers(&hosts, 1);
    a.ok("put m 0 1");
    for round in 0..ROUNDS {
        b.ok("get m 0");
        a.ok(&format!("put m 0 {round}"));
    }
    let [home, other] = settled(&hosts, "/shared");
    assert_eq!(remote(&home), ["done 0>10", "grant 10>0", "invalidate 10>0", "request 0>10"]);
    assert_eq!(home.of_kind(MessageKind::Request).0, 10, "invalidations are requests");
    assert_eq!((home.of_kind(MessageKind::Page).0, home.of_kind(MessageKind::Page).1), (10, 0));
    assert_eq!(home.of_kind(MessageKind::Acknowledgement).1, 10);
    assert_eq!((home.counts.bytes_sent, home.counts.bytes_received), (10 * 4096, 0));
    assert_eq!((home.counts.waits, home.counts.read_faults), (11, 0));
    assert!(home.counts.protection_faults >= 10, "{:?}", home.counts);
    assert_eq!((other.counts.read_faults, other.counts.faults(), other.counts.hand_overs), (10, 10, 0));
}

#[test]
fn under_forwarding_a_write_fault_costs_two_messages_and_one_more_where_the_hint_is_old() {
    let list = free_address();
    let hosts: Vec<TestHost> = ["origin", "second", "third"]
        .iter()
        .enumerate()
        .map(|(number, name)| {
            let own = free_address();
            match number {
                0 => TestHost::with(&["--plain", "--listen", &list, "--name", name]),
                _ => TestHost::with(&["--plain", "--listen", &own, "--join", &list, "--name", name]),
            }
        })
        .collect();
    let workers: Vec<Worker> = hosts.iter().map(TestHost::worker).collect();
    workers[0].ok("create o /shared size=4096 forwarding");
    workers[1..].iter().for_each(|worker| drop(worker.eventually("open o /shared rw")));
    workers.iter().for_each(|worker| drop(worker.ok("map m o rw shared 0 0")));
    workers[0].ok("put m 0 1");
    for round in 0..ROUNDS {
        workers[1].ok(&format!("put m 0 {round}"));
        workers[0].ok(&format!("put m 0 {round}"));
    }
    let [origin, second, _] = [0, 1, 2].map(|at| counts(&hosts[at], "/shared"));
    assert_eq!(remote(&origin), ["hand-over 10>10", "write 10>10"]);
    assert_eq!(remote(&second), ["hand-over 10>10", "write 10>10"]);
    assert_eq!((origin.counts.forwards, second.counts.hand_overs), (0, 10));
    // The third believes that the origin has it; the origin knows better.
    workers[1].ok("put m 0 1");
    workers[2].ok("put m 0 1");
    let [origin, second, third] = [0, 1, 2].map(|at| counts(&hosts[at], "/shared"));
    assert_eq!(remote(&third), ["hand-over 0>1", "write 1>0"]);
    assert_eq!((origin.counts.forwards, second.counts.forwards, third.counts.forwards), (1, 0, 0));
    assert_eq!(remote(&origin), ["hand-over 11>10", "write 11>12"]);
    let seen = hosts[0].connect().counts("/shared", 1).unwrap();
    assert_eq!(seen.objects[0].pages[0].owner.map(|owner| seen.called(owner)), Some("third".into()));
}

#[test]
fn under_explicit_coherence_syncs_and_conflicts_are_counted() {
    let hosts = pair(&[]);
    let [a, b] = sharers_of(&hosts, "size=8192 explicit");
    b.all("put m 0 1\nsync o 0 8192");
    let [home, other] = settled(&hosts, "/shared");
    assert_eq!(remote(&other), ["fetch 1>0", "pages 0>1", "sync 1>0", "synced 0>1"]);
    assert_eq!(remote(&home), ["fetch 0>1", "pages 1>0", "sync 0>1", "synced 1>0"]);
    assert_eq!((other.counts.syncs, other.counts.synced_pages, other.counts.conflicts), (1, 1, 0));
    assert_eq!((other.counts.bytes_sent, other.counts.bytes_received), (4096, 4096));
    a.ok("put m 0 2");
    b.ok("put m 0 3");
    a.ok("sync o 0 8192");
    b.ok("sync o 0 8192");
    let [home, other] = settled(&hosts, "/shared");
    assert_eq!((home.counts.conflicts, other.counts.conflicts), (0, 1), "the last sync won");
    assert_eq!((home.counts.syncs, other.counts.syncs), (1, 2), "the home's own processes sync too");
    assert_eq!(hosts[0].connect().all_counts(1).unwrap().objects.len(), 1, "its two caches are one object");
}

#[test]
fn local_objects_are_counted_and_say_nothing_to_anybody() {
    let host = TestHost::start();
    let worker = host.worker();
    worker.ok(&format!("create o /local size={MIB} controlled"));
    worker.all("map m o rw shared 0 0\nfill m 0 100 1");
    let seen = counts(&host, "/local");
    assert!(seen.counts.write_faults > 0 && seen.messages.is_empty() && !seen.shared);
    assert_eq!(seen.pages.iter().map(|p| p.heat).sum::<u64>(), seen.counts.faults());
    assert_eq!(host.status().faults, seen.counts.faults(), "the host has no other object");
}

#[test]
fn who_may_not_read_an_object_learns_nothing_of_it() {
    let host = TestHost::start();
    // Other users may not reach the place where it was built.
    let program = host.scratch().join("program");
    assert!(Command::new("cp").arg(host.program()).arg(&program).status().unwrap().success());
    let worker = host.worker();
    worker.ok(&format!("create o /secret size={MIB} controlled mode=600"));
    worker.ok(&format!("create p /open size={MIB} controlled mode=644"));
    worker.all("map m o rw shared 0 0\nput m 0 1\nmap n p rw shared 0 0\nput n 0 1");
    let by = |uid: u32, words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).env("COMMONHOLD_HOST", host.state()).uid(uid).gid(uid).current_dir("/");
        let output = command.output().unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    };
    let (done, all) = by(1234, &["stats"]);
    assert!(done && all.contains("/open") && !all.contains("/secret"), "{all}");
    let (done, why) = by(1234, &["stats", "/secret"]);
    assert!(!done && why.contains("may not be read by user 1234"), "{why}");
    let (done, why) = by(1234, &["trace", "/secret", "-n", "1"]);
    assert!(!done && why.contains("may not be read by user 1234"), "{why}");
    let (done, all) = by(0, &["stats", "--json"]);
    assert!(done && all.contains("/open") && all.contains("/secret"), "{all}");
}

/// `commonhold` with these words, its lines to be read as they come.
fn begin(host: &TestHost, words: &[&str]) -> Child {
    let mut command = Command::new(host.program());
    command.args(words).env("COMMONHOLD_HOST", host.state()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs")
}

#[test]
fn a_trace_shows_each_message_of_a_hand_over() {
    let hosts = pair(&[]);
    let [a, b] = sharers(&hosts, 1);
    a.ok("put m 0 1");
    let mut trace = begin(&hosts[0], &["trace", "/shared", "--json", "-n", "10"]);
    let mut said = BufReader::new(trace.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("tracing /shared"), "{line}");
    b.ok("put m 0 2");
    a.ok("put m 0 3");
    b.ok("put m 0 4");
    let mut text = String::new();
    trace.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(trace.wait().unwrap().success());
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let words = |line: &Value| {
        let text = |key: &str| line[key].as_str().unwrap_or("-").to_owned();
        format!("{} {} {} {}", text("from"), text("to"), text("what"), line["bytes"])
    };
    assert_eq!(
        lines.iter().map(words).collect::<Vec<_>>(),
        [
            "other home request 0",
            "home home recall 0",
            "home home page-out 0",
            "home other grant 4096",
            "home home write fault 0",
            "home home request 0",
            "home other recall 0",
            "other home page-out 4096",
            "home home grant 0",
            "other home request 0",
        ]
    );
    let numbers: Vec<u64> = lines.iter().map(|line| line["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<u64>>());
    assert!(lines.iter().all(|line| line["pages"] == 1 && line["first_page"] == 0));
    assert!(lines.is_sorted_by_key(|line| line["at_ns"].as_u64()));
}

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
    let [a, b] = sharers(&hosts, 1);
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

#[test]
fn stats_and_top_tell_programs_and_people_the_same() {
    let hosts = pair(&[]);
    let [a, b] = sharers(&hosts, 64);
    (0..8).for_each(|page| drop(a.ok(&format!("put m {} 1", page * 4096))));
    (4..8).for_each(|page| drop(b.ok(&format!("put m {} 1", page * 4096))));
    let text = hosts[0].command(&["stats", "/shared", "--json", "--pages", "64"], |_| ()).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let object = &document[0];
    assert_eq!(
        (object["name"].as_str(), object["kinds"]["page"]["sent"].as_u64()),
        (Some("/shared"), Some(4))
    );
    let owners: Vec<_> =
        object["pages"].as_array().unwrap().iter().filter(|p| p["owner"] == "other").collect();
    assert_eq!(owners.len(), 4);
    let text = hosts[0].command(&["stats", "/shared"], |_| ()).unwrap();
    assert!(text.contains("shared, home is this host") && text.contains("grant"), "{text}");
    let text = hosts[0].command(&["stats"], |_| ()).unwrap();
    assert!(text.lines().any(|line| line.starts_with("/shared")), "{text}");
    let text = hosts[0].command(&["top", "--batch", "-n", "2", "--interval", "50ms"], |_| ()).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("/shared")).count(), 2, "{text}");
    let text = hosts[0].command(&["top", "--batch", "--json", "--interval", "50ms"], |_| ()).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (document[0]["name"].as_str(), document[0]["faults_per_s"].as_f64()),
        (Some("/shared"), Some(0.0))
    );
    let refused = hosts[0].command(&["top"], |_| ()).expect_err("no terminal");
    assert!(refused.contains("--batch"), "{refused}");
}

/// The picture as text, and the cells of the heat map with their colours.
fn picture(view: &View) -> (String, Terminal<TestBackend>) {
    let mut terminal = Terminal::new(TestBackend::new(140, 30)).unwrap();
    terminal.draw(|frame| draw::draw(frame, &view.picture())).unwrap();
    (format!("{}", terminal.backend()), terminal)
}

#[test]
fn top_draws_objects_and_who_owns_their_hot_pages() {
    let hosts = pair(&[]);
    let [a, b] = sharers(&hosts, 64);
    a.ok(&format!("create p /quiet size={MIB} controlled"));
    a.all("map q p rw shared 0 0\nput q 0 1");
    let connection = hosts[0].connect();
    let mut view = View::new(&connection).unwrap();
    a.ok("put m 0 1");
    (60..64).for_each(|page| drop(b.ok(&format!("put m {} 1", page * 4096))));
    view.look(&connection);
    let (text, terminal) = picture(&view);
    assert!(text.contains("commonhold top: home"), "{text}");
    let line =
        |what: &str| text.lines().position(|line| line.contains(what)).unwrap_or_else(|| panic!("{text}"));
    assert!(line("/shared") < line("/quiet"), "the busy one first\n{text}");
    assert!(text.contains("█ home") && text.contains("█ other"), "{text}");
    // The first page of the map is the first host's, the last four are the other's: they have another colour.
    let buffer = terminal.backend().buffer();
    let row = line("pages by owner") as u16 + 1;
    let cell = |page: u16| &buffer[(41 + page, row)];
    assert_ne!(cell(0).fg, cell(63).fg, "{text}");
    assert_eq!((60..64).map(|page| cell(page).fg).collect::<Vec<_>>(), [cell(63).fg; 4]);
    assert!(cell(0).symbol() != " " && cell(30).symbol() == " " && cell(63).symbol() != " ", "{text}");
    // Sorted by name and turned round, /shared stands before /quiet again; selected, the quiet one has one page.
    view.choose(Choice::Down);
    let (text, _) = picture(&view);
    assert!(!text.contains("█ other"), "{text}");
    (0..9).for_each(|_| view.choose(Choice::Sort));
    let (text, _) = picture(&view);
    assert!(text.contains("NAMEv"), "{text}");
    view.choose(Choice::Pause);
    assert!(picture(&view).0.contains("[stopped]"));
}

/// `top` on a terminal of its own, which has begun to draw; and what it draws.
fn top_on_a_terminal(host: &TestHost) -> (Child, std::fs::File, std::fs::File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&screen).and_then(|()| unlockpt(&screen)).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap().into_string().unwrap();
    let terminal = std::fs::OpenOptions::new().read(true).write(true).open(name).unwrap();
    let size = rustix::termios::Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&terminal, size).unwrap();
    let mut command = Command::new(host.program());
    command.args(["top", "--interval", "100ms"]).env("COMMONHOLD_HOST", host.state()).env("TERM", "xterm");
    let fd = || Stdio::from(terminal.try_clone().unwrap());
    let child = command.stdin(fd()).stdout(fd()).stderr(fd()).spawn().unwrap();
    let mut screen = std::fs::File::from(screen);
    let drawn = until_seen(&mut screen, "q quit");
    assert!(drawn.contains("\x1b[?1049h") && !is_cooked(&terminal), "it takes the terminal: {drawn:?}");
    (child, screen, terminal)
}

/// What comes until those words do.
fn until_seen(screen: &mut std::fs::File, words: &str) -> String {
    let (mut seen, mut part) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&seen).contains(words) {
        let count = screen.read(&mut part).unwrap();
        assert!(count > 0, "the terminal ended");
        seen.extend_from_slice(&part[..count]);
    }
    String::from_utf8_lossy(&seen).into_owned()
}

/// Whether who types there sees what he types.
fn is_cooked(terminal: &std::fs::File) -> bool {
    let modes = rustix::termios::tcgetattr(terminal).unwrap().local_modes;
    modes.contains(rustix::termios::LocalModes::ECHO | rustix::termios::LocalModes::ICANON)
}

#[test]
fn top_gives_the_terminal_back_when_it_is_told_to_and_when_it_is_ended() {
    use std::os::unix::process::ExitStatusExt;
    let host = TestHost::start();
    let (mut child, mut screen, terminal) = top_on_a_terminal(&host);
    screen.write_all(b"q").unwrap();
    until_seen(&mut screen, "\x1b[?1049l");
    assert!(child.wait().unwrap().success() && is_cooked(&terminal));

    for signal in [libc::SIGTERM, libc::SIGHUP] {
        let (mut child, mut screen, terminal) = top_on_a_terminal(&host);
        let pid = rustix::process::Pid::from_child(&child);
        let signal_to_send = rustix::process::Signal::from_named_raw(signal).unwrap();
        rustix::process::kill_process(pid, signal_to_send).unwrap();
        until_seen(&mut screen, "\x1b[?1049l");
        assert_eq!(child.wait().unwrap().signal(), Some(signal));
        assert!(is_cooked(&terminal));
    }
}

#[test]
fn many_objects_are_told_in_parts() {
    let host = TestHost::start();
    let connection = host.connect();
    let options = CreateOptions { size_bytes: 4096, controlled: true, ..CreateOptions::default() };
    let objects: Vec<_> = (0..100)
        .map(|number| {
            let object = connection.create(&format!("/many/{number}"), &options, None).unwrap();
            let mapping = object.map(&MapOptions::default()).unwrap();
            (object, mapping)
        })
        .collect();
    let seen: Seen = connection.all_counts(32).unwrap();
    assert_eq!((seen.objects.len(), seen.more), (objects.len(), false));
    assert!(seen.objects.is_sorted_by(|a, b| a.id < b.id));
}
