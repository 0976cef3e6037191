//! `commonhold top` and `stats`: what people and programs are shown, and a terminal that is given back.

use commonhold_cli::top::{Choice, View, draw};
use commonhold_tests::cluster::{pair, sharing_pair};
use commonhold_tests::{MIB, TestHost};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::Value;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

#[test]
fn stats_and_top_tell_programs_and_people_the_same() {
    let hosts = pair(&[]);
    let [a, b] = sharing_pair(&hosts, 64);
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
    let [a, b] = sharing_pair(&hosts, 64);
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
