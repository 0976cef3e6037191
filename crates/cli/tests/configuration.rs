//! `commonhold.toml`: what a host is started with, and what is refused in it.

mod common;

use common::{Signal, TestHost, eventually, kill};
use std::os::unix::fs::PermissionsExt;

/// A host that nobody has started, with that file in its state directory.
fn with_file(text: &str) -> TestHost {
    let host = TestHost::nowhere();
    std::fs::create_dir(host.state()).unwrap();
    std::fs::write(host.state().join("commonhold.toml"), text).unwrap();
    host
}

/// Why the file is refused; no host is there then.
fn refused(text: &str) -> String {
    let host = with_file(text);
    let why = host.run(&["host", "start"]).complaint();
    assert!(why.contains("commonhold.toml"), "{why}");
    assert!(host.status().is_none());
    why
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_host_is_started_with_what_its_file_says_and_the_command_line_counts_before_it() {
    let host = with_file("version = 1\nbudget = \"8MiB\"\nquota = 16777216\n");
    host.run(&["host", "start", "--budget", "4MiB"]).text();
    let status = host.status().unwrap();
    assert_eq!(
        (status["budget_bytes"].as_u64(), status["quota_bytes"].as_u64()),
        (Some(4 << 20), Some(16 << 20))
    );
}

#[test]
fn a_file_elsewhere_is_named_by_config() {
    let host = TestHost::nowhere();
    std::fs::write(host.file("other.toml"), "version = 1\nbudget = \"8MiB\"\n").unwrap();
    host.run(&["host", "start", "--config", "other.toml"]).text();
    assert_eq!(host.status().unwrap()["budget_bytes"], 8 << 20);
    let nowhere = TestHost::nowhere();
    let why = nowhere.run(&["host", "start", "--config", "missing.toml"]).complaint();
    assert!(why.contains("missing.toml"), "{why}");
}

#[test]
fn a_host_that_was_killed_comes_back_to_its_cluster_by_start_alone() {
    let port = free_port();
    let file =
        format!("version = 1\nlisten = \"localhost:{port}\"\nplain = true\nname = \"left\"\nlease = 5\n");
    let host =
        with_file(&format!("{file}[[object]]\nname = \"/kept\"\nsize = \"1MiB\"\ncoherence = \"strict\"\n"));
    host.run(&["host", "start"]).text();
    let cluster = host.status().unwrap()["cluster"].clone();
    assert_eq!(
        (cluster["name"].as_str(), cluster["joined"].as_bool()),
        (Some("left"), Some(true)),
        "{cluster}"
    );
    let pids = [host.pid("keeper_pid"), host.pid("host_pid")];
    kill(Signal::STOP, pids[0]);
    kill(Signal::KILL, pids[1]);
    kill(Signal::KILL, pids[0]);
    eventually("both are gone", || {
        !pids.iter().any(|pid| commonhold_sys::process::identity(*pid as u32).is_ok())
    });
    host.run(&["host", "start", "--quiet"]).text();
    eventually("it is in", || host.status().is_some_and(|status| status["cluster"]["joined"] == true));
}

#[test]
fn objects_are_made_where_they_are_not_and_others_stay_as_they_are() {
    let objects = "[[object]]\nname = \"/lab/a\"\nsize = \"1MiB\"\nmode = \"0640\"\n\
        [[object]]\nname = \"/lab/b\"\nsize = 8192\nfile = \"b.bin\"\ncreate-file = true\nsync = \"atomic\"\n\
        [[object]]\nname = \"/lab/c\"\nsize = 4096\nephemeral = \"1h\"\nreserve = false\n";
    let host = with_file(&format!("version = 1\n{objects}"));
    host.run(&["host", "start"]).text();
    let stat = |name: &str| host.run(&["stat", name, "--json"]).json()[0].clone();
    let (a, b) = (stat("/lab/a"), stat("/lab/b"));
    assert_eq!((a["size_bytes"].as_u64(), a["mode"].as_str()), (Some(1 << 20), Some("0640")));
    assert_eq!((b["size_bytes"].as_u64(), b["sync"].as_str()), (Some(8192), Some("atomic")));
    assert!(host.state().join("b.bin").exists(), "from the directory of the file on");
    assert_eq!(stat("/lab/c")["reserve"], false);
    // Nothing is said where all is as it should be; what is otherwise stays, and so do its bytes.
    host.run(&["host", "stop", "--force"]).text();
    let said = host.run(&["host", "start", "--quiet"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    std::fs::write(host.file("in"), [7; 8192]).unwrap();
    host.run(&["cp", "in", ":/lab/b"]).text();
    host.run(&["host", "stop", "--force"]).text();
    let other = format!("version = 1\n{}", objects.replace("size = 8192", "size = 16384"));
    std::fs::write(host.state().join("commonhold.toml"), other).unwrap();
    let said = host.run(&["host", "start", "--quiet"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(
        said.err.contains("commonhold.toml:6: /lab/b") && said.err.contains("8192 bytes and not 16384"),
        "{}",
        said.err
    );
    assert_eq!(host.run(&["cat", "/lab/b"]).bytes(), [7; 8192]);
}

#[test]
fn an_object_that_cannot_be_made_is_named_and_the_host_serves_the_others() {
    let host = with_file(
        "version = 1\nquota = \"1MiB\"\n[[object]]\nname = \"/large\"\nsize = \"2MiB\"\n[[object]]\nname = \"/small\"\nsize = 4096\n",
    );
    let said = host.run(&["host", "start", "--quiet"]);
    assert_eq!(said.code, Some(0));
    assert!(said.err.contains("commonhold.toml:3: /large"), "{}", said.err);
    host.run(&["stat", "/small"]).text();
}

#[test]
fn an_unknown_key_is_named_with_the_nearest_known_one() {
    let why = refused("version = 1\n\nbugdet = \"1GiB\"\n");
    assert!(
        why.contains("commonhold.toml:3:") && why.contains("no key bugdet") && why.contains("is budget"),
        "{why}"
    );
    let why = refused("version = 1\nmax_objects = 7\n");
    assert!(why.contains("max-objects"), "{why}");
    let why = refused("version = 1\n[[object]]\nname = \"/a\"\nsise = 4096\n");
    assert!(why.contains("commonhold.toml:4:") && why.contains("is size"), "{why}");
    let why = refused("version = 1\nforeground = true\n");
    assert!(why.contains("no key foreground"), "{why}");
}

#[test]
fn a_key_that_stands_twice_is_refused() {
    let why = refused("version = 1\nbudget = 1\nbudget = 2\n");
    assert!(why.contains("commonhold.toml:3:") && why.contains("budget stands here a second time"), "{why}");
    let why = refused("version = 1\n[[object]]\nname=\"/a\"\nsize=1\n[[object]]\nname=\"/a\"\nsize=2\n");
    assert!(why.contains("commonhold.toml:5:") && why.contains("line 2 already"), "{why}");
}

#[test]
fn another_version_is_refused() {
    let why = refused("version = 2\nbudget = 1\n");
    assert!(why.contains("commonhold.toml:1:") && why.contains("version 2"), "{why}");
    assert!(refused("budget = 1\n").contains("version = 1"));
    assert!(refused("version = \"1\"\n").contains("must be a number"));
}

#[test]
fn values_of_another_type_are_refused() {
    for (line, says) in [
        ("listen = 7420", "must be text"),
        ("listen = \"nowhere\"", "NAME:PORT"),
        ("plain = \"yes\"", "true or false"),
        ("max-objects = \"7\"", "a whole number"),
        ("max-objects = 7.5", "a whole number"),
        ("max-objects = 0", "max-objects"),
        ("budget = [1]", "a size"),
        ("budget = \"much\"", "1GiB"),
        ("file-system = [1]", "a list of texts"),
        ("join = \"a:1\"\nregistry = \"etcd://127.0.0.1:1\"\nlisten = \"b:1\"", "cannot be used with"),
        ("object = 1", "[[object]]"),
        ("budget = {", ""),
    ] {
        let why = refused(&format!("version = 1\n\n{line}\n"));
        assert!(why.contains("commonhold.toml:3:") || why.contains("commonhold.toml:4:"), "{line}: {why}");
        assert!(why.contains(says), "{line}: {why}");
    }
    let mode = refused("version = 1\n[[object]]\nname = \"/a\"\nsize = 1\nmode = 640\n");
    assert!(mode.contains("commonhold.toml:5:") && mode.contains("must be text"), "{mode}");
    let nameless = refused("version = 1\n[[object]]\nsize = 1\n");
    assert!(nameless.contains("commonhold.toml:2:") && nameless.contains("no name"), "{nameless}");
    let name = refused("version = 1\n[[object]]\nname = \"../a\"\nsize = 1\n");
    assert!(name.contains("commonhold.toml:3:"), "{name}");
    let deep = format!("version = 1\nlisten = {}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(refused(&deep).contains("commonhold.toml:2:"));
}

#[test]
fn what_needs_something_else_says_so() {
    let host = with_file("version = 1\nname = \"left\"\n");
    let said = host.run(&["host", "start"]);
    assert!(said.code == Some(2) && said.err.contains("--name needs --listen"), "{}", said.err);
    let state = with_file("version = 1\nstate = \"/elsewhere\"\n").run(&["host", "start"]).complaint();
    assert!(state.contains("leave out `state`"), "{state}");
}

#[test]
fn a_file_that_is_too_large_or_none_is_refused() {
    let why = refused(&format!("version = 1\n{}", "#\n".repeat(600_000)));
    assert!(why.contains("1048576 bytes"), "{why}");
    let host = TestHost::nowhere();
    let pipe = host.file("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let why = host.run(&["host", "start", "--config", "pipe"]).complaint();
    assert!(why.contains("no ordinary file"), "{why}");
    let host = with_file("");
    std::fs::write(host.state().join("commonhold.toml"), b"version = 1\n\nname = \"\xff\"\n").unwrap();
    let why = host.run(&["host", "start"]).complaint();
    assert!(why.contains("commonhold.toml:3:") && why.contains("UTF-8"), "{why}");
}

#[test]
fn root_does_not_do_what_others_can_write() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let host = with_file("version = 1\n");
    let file = host.state().join("commonhold.toml");
    for (bits, who) in [(0o664, "group 0"), (0o646, "everybody")] {
        mode(&file, bits);
        let why = host.run(&["host", "start"]).complaint();
        assert!(why.contains(who) && why.contains("chmod go-w"), "{why}");
    }
    mode(&file, 0o644);
    std::os::unix::fs::chown(&file, Some(1), None).unwrap();
    let why = host.run(&["host", "start"]).complaint();
    assert!(why.contains("user 1 can write it"), "{why}");
    std::os::unix::fs::chown(&file, Some(0), None).unwrap();
    mode(&host.state(), 0o777);
    let why = host.run(&["host", "start"]).complaint();
    assert!(why.contains("everybody, who can write in"), "{why}");
    assert!(host.status().is_none());
}

/// Whoever can write in a state directory could have the host read and write any file.
#[test]
fn a_state_directory_in_which_others_can_write_is_refused() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let host = TestHost::nowhere();
    let mode = |mode| std::fs::set_permissions(host.state(), std::fs::Permissions::from_mode(mode)).unwrap();
    std::fs::create_dir_all(host.state()).unwrap();
    let victim = host.file("victim");
    std::fs::write(&victim, "as it was").unwrap();
    std::os::unix::fs::symlink(&victim, host.state().join("log")).unwrap();
    for bits in [0o777, 0o1777, 0o775] {
        mode(bits);
        let why = host.run(&["host", "start"]).complaint();
        assert!(why.contains("can write in the state directory") && why.contains("chmod go-w"), "{why}");
    }
    mode(0o755);
    std::os::unix::fs::chown(host.state(), Some(65_533), None).unwrap();
    let why = host.run(&["host", "start"]).complaint();
    assert!(why.contains("user 65533 can write in the state directory"), "{why}");
    std::os::unix::fs::chown(host.state(), Some(0), None).unwrap();
    // A link that was there already is not followed.
    let why = host.run(&["host", "start"]).complaint();
    assert!(why.contains("symbolic links"), "{why}");
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "as it was");
    // An empty one that is the caller's own becomes private.
    std::fs::remove_dir_all(host.state()).unwrap();
    std::fs::create_dir(host.state()).unwrap();
    mode(0o777);
    host.run(&["host", "start"]).text();
    assert_eq!(std::fs::metadata(host.state()).unwrap().permissions().mode() & 0o7777, 0o711);
}
