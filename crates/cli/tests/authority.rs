//! `ca`: from an authority to hosts that have their certificates. No host is needed, and nothing leaves the machine.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn command(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_commonhold"));
    command.current_dir(directory).env("COMMONHOLD_HOST", directory.join("state")).args(words);
    command
}

fn run(directory: &Path, words: &[&str]) -> Output {
    command(directory, words).output().unwrap()
}

fn json(directory: &Path, words: &[&str]) -> Value {
    let output = run(directory, words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn complaint(directory: &Path, words: &[&str]) -> String {
    let output = run(directory, words);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// `ca serve`, ended with the test.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(directory: &Path) -> Served {
        let mut serve = command(directory, &["ca", "serve", "--listen", "127.0.0.1:0"]);
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        Served { child, address }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn certificates_are_issued_once_for_each_name() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    assert!(complaint(at, &["ca", "issue", "left"]).contains("ca init"));
    let made = json(at, &["ca", "init", "--json"]);
    assert!(made["directory"].as_str().unwrap().ends_with("state/ca"));
    assert!(complaint(at, &["ca", "init"]).contains("is there already"));
    let issued = json(at, &["ca", "issue", "left", "--read-only", "--json"]);
    assert_eq!((&issued["host"], &issued["rights"]), (&"left".into(), &"read-only".into()));
    assert_eq!(issued["cluster"], made["cluster"]);
    assert!(at.join("left/host.key").exists());
    assert!(complaint(at, &["ca", "issue", "left", "--into", "again"]).contains("--renew"));
    assert!(complaint(at, &["ca", "issue", "left", "--renew"]).contains("is there already"));
    assert_eq!(
        json(at, &["ca", "issue", "left", "--renew", "--into", "again", "--json"])["rights"],
        "read-write"
    );
    assert!(complaint(at, &["ca", "issue", "../left"]).contains("cannot be a host's name"));
}

#[test]
fn a_newcomer_joins_by_a_token_and_only_once() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let made = json(at, &["ca", "init", "--json"]);
    let served = Served::start(at);
    let given = json(at, &["ca", "token", "--address", &served.address, "--read-only", "--json"]);
    let token = given["token"].as_str().unwrap();
    let join = |name, into| run(at, &["ca", "join", token, "--name", name, "--into", into, "--json"]);
    let joined: Value = serde_json::from_slice(&join("right", "right").stdout).unwrap();
    assert_eq!((&joined["rights"], &joined["cluster"]), (&"read-only".into(), &made["cluster"]));
    let words = ["ca", "join", token, "--name", "third", "--into", "third"];
    assert!(complaint(at, &words).contains("used already, by \"right\""));
    assert!(!at.join("third/host.crt").exists());
    assert!(complaint(at, &["ca", "token", "--address", "nowhere"]).contains("HOST:PORT"));
    assert!(complaint(at, &["ca", "join", "cmh1-no", "--name", "x"]).contains("no join token"));
}
