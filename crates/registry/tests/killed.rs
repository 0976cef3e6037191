//! kill -9 in the middle of commits: after each, the state is that after some prefix of the operations, and that
//! prefix contains every operation that was acknowledged.

mod common;

use common::{create, everything, ids, name, open, user};
use commonhold_object::ObjectId;
use commonhold_registry::{Entry, Registry, Renaming};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const ROUNDS: u32 = 30;
const STATE: &str = "COMMONHOLD_TEST_KILLED_STATE";
const FIRST: &str = "COMMONHOLD_TEST_KILLED_FIRST";

/// What the operations do to names: name, and mode of an object (`None`: a directory); and how many are nameless.
#[derive(Clone, Debug, Default, PartialEq)]
struct Shape {
    names: BTreeMap<String, Option<u32>>,
    nameless: usize,
}

/// The steps of round `n` of the operations: an object is made, changed, moved alone, moved with its directory, and
/// eight rounds later removed and forgotten.
struct At {
    step: u64,
    first: String,
    alone: String,
    directory: String,
    moved: String,
    old: String,
}

impl At {
    fn new(operation: u64) -> At {
        let n = operation / 6;
        let (d, e) = (n % 5, n % 3);
        At {
            step: operation % 6,
            first: format!("/d{d}/x{n}"),
            alone: format!("/e{e}/y{n}"),
            directory: format!("/e{e}"),
            moved: format!("/g{n}"),
            old: format!("/g{}/y{}", n.wrapping_sub(8), n.wrapping_sub(8)),
        }
    }

    fn carry_out(&self, registry: &mut Registry, nonce: u128) {
        let who = user(1);
        match self.step {
            0 => drop(create(registry, &self.first, &who, 0o600, nonce, 1).unwrap()),
            1 => drop(registry.set_mode(&name(&self.first), &who, 0o640).unwrap()),
            2 => drop(
                registry
                    .rename(&name(&self.first), &name(&self.alone), &who, Renaming::default(), false)
                    .unwrap(),
            ),
            3 => drop(
                registry
                    .rename(&name(&self.directory), &name(&self.moved), &who, Renaming::default(), false)
                    .unwrap(),
            ),
            4 if nonce > 48 => drop(registry.remove(&name(&self.old), &who, false).unwrap()),
            _ => {
                let removed = registry.records().unwrap().into_iter().filter(|record| record.name.is_none());
                removed.for_each(|record| registry.forget(record.id).unwrap());
            }
        }
    }

    fn expect(&self, shape: &mut Shape, operation: u64) {
        let directory = |text: &str| text[..text.rfind('/').unwrap()].to_owned();
        match self.step {
            0 => {
                shape.names.insert(directory(&self.first), None);
                shape.names.insert(self.first.clone(), Some(0o600));
            }
            1 => *shape.names.get_mut(&self.first).unwrap() = Some(0o640),
            2 => {
                let mode = shape.names.remove(&self.first).unwrap();
                shape.names.insert(directory(&self.alone), None);
                shape.names.insert(self.alone.clone(), mode);
            }
            3 => {
                let mode = shape.names.remove(&self.alone).unwrap();
                shape.names.remove(&self.directory).unwrap();
                shape.names.insert(self.moved.clone(), None);
                shape.names.insert(format!("{}/{}", self.moved, &self.alone[4..]), mode);
            }
            4 if operation > 48 => {
                shape.names.remove(&self.old).unwrap();
                shape.nameless += 1;
            }
            _ => shape.nameless = 0,
        }
    }
}

fn shape_of(registry: &Registry) -> Shape {
    let (entries, records) = everything(registry);
    let mut shape =
        Shape { nameless: records.iter().filter(|r| r.name.is_none()).count(), ..Shape::default() };
    for entry in entries {
        match entry {
            Entry::Directory { name, .. } if name.as_str() == "/" => {}
            Entry::Directory { name, .. } => drop(shape.names.insert(name.to_string(), None)),
            Entry::Object(record) => drop(
                shape.names.insert(record.name.as_ref().unwrap().to_string(), Some(record.ownership.mode)),
            ),
        }
    }
    shape
}

/// The process that is killed: carries operations out, and says each number once the registry has answered.
#[test]
#[ignore = "started by the test below"]
fn child() {
    let directory = std::env::var(STATE).unwrap();
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let mut registry = open(Path::new(&directory));
    let mut out = std::io::stdout();
    for operation in first.. {
        At::new(operation).carry_out(&mut registry, u128::from(operation));
        writeln!(out, "\ndone {operation}").unwrap();
        out.flush().unwrap();
    }
}

/// Runs the child until `patience` after its first answer; gives the number of the first operation not acknowledged.
fn run_and_kill(directory: &Path, first: u64, patience: Duration) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env(STATE, directory)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (started, wait) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut next = first;
        for line in lines.map_while(Result::ok) {
            if let Some(number) = line.strip_prefix("done ") {
                next = number.parse::<u64>().unwrap() + 1;
                let _ = started.send(());
            }
        }
        next
    });
    let _ = wait.recv_timeout(Duration::from_secs(20));
    std::thread::sleep(patience);
    child.kill().unwrap();
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "the child ended by itself");
    reader.join().unwrap()
}

#[test]
fn what_was_acknowledged_survives_and_the_rest_is_whole_or_absent() {
    let state = tempfile::tempdir().unwrap();
    let (mut next, mut expected, mut seen) = (0, Shape::default(), BTreeSet::new());
    for round in 0..ROUNDS {
        let patience = Duration::from_micros(u64::from(round) * 7919 % 40_000);
        let acknowledged = run_and_kill(state.path(), next, patience);
        assert!(acknowledged > next, "round {round}: the child did nothing");
        let registry = open(state.path());
        let found = shape_of(&registry);
        while next < acknowledged {
            At::new(next).expect(&mut expected, next);
            next += 1;
        }
        if found != expected {
            // One more may have been carried out whose answer was not read.
            At::new(next).expect(&mut expected, next);
            next += 1;
        }
        assert_eq!(found, expected, "round {round}, after {acknowledged} acknowledged operations");
        seen.insert(next % 6);
        let known: BTreeSet<ObjectId> = ids(&registry).into_iter().collect();
        assert_eq!(
            known.len(),
            found.nameless + found.names.values().flatten().count(),
            "one record for each object"
        );
    }
    assert!(seen.len() > 2, "the kills came after different operations");
}
