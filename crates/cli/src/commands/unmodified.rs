//! `run`, `ipcs` and `ipcrm`: programs that know nothing of Commonhold, and their System V segments.

use super::change::answer_names;
use crate::arguments::unmodified::{RemoveSegments, Run, Segments};
use crate::failure::Done;
use crate::output::{answer, columns};
use crate::people::People;
use crate::place::HostPlace;
use crate::units::{format_mode, format_size};
use commonhold::{Errand, Error, ErrorKind, ObjectInfo, PATIENCE};
use commonhold_preload::Heed;
use commonhold_sysv::{Errno, Segment, Wishes, kernel};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Runs a program with a library before the C library's. Gives back only if it cannot be run.
pub fn run(place: &HostPlace, arguments: &Run) -> Done {
    let name = arguments.program.first().ok_or_else(|| Error::invalid("which program?"))?;
    let program = commonhold_preload::find(name)?;
    let library = commonhold_preload::library()?;
    if let Heed::Note(note) = commonhold_preload::check(&program)? {
        eprintln!("commonhold: {note}");
    }
    // The program's own calls start no host.
    let host = place.connect()?;
    if arguments.shared_keys && host.hosts()?.is_empty() {
        eprintln!(
            "commonhold: the host is in no cluster: keys are shared with no other host (`commonhold host start --listen`)"
        );
    }
    let host = std::path::absolute(host.state_directory())
        .map_err(|error| Error::io("finding the state directory", &error))?;
    let mut preloaded = library.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preloaded.push(":");
        preloaded.push(others);
    }
    let mut wishes = Wishes::default().heard_by_stderr();
    (wishes.system_v, wishes.shared_keys) = (arguments.system_v, arguments.shared_keys);
    (wishes.posix, wishes.share_page_tables) = (arguments.posix, arguments.share_page_tables);
    let (variable, words) = wishes.variable();
    let mut command = Command::new(&program);
    command.arg0(name).args(&arguments.program[1..]);
    command.env("LD_PRELOAD", preloaded).env("COMMONHOLD_HOST", host).env(variable, OsString::from(words));
    Err(Error::io(format_args!("running {}", program.display()), &command.exec()).into())
}

#[derive(Serialize)]
struct View {
    key: String,
    /// None: this machine's kernel has none of it yet.
    shmid: Option<i32>,
    owner: String,
    mode: String,
    bytes: usize,
    /// None: the kernel's segment is gone.
    attached: Option<u64>,
    page_tables: String,
    removed: bool,
    /// Of those that all hosts of the cluster know by their keys, where they were made.
    home: Option<String>,
}

/// A segment that was removed, in its mode.
const SHM_DEST: u32 = 0o1000;

impl View {
    fn new(
        people: &mut People,
        errand: &mut Errand,
        (mut segment, twin): (Segment, Option<libc::shmid_ds>),
    ) -> View {
        let is_away = twin.is_some_and(|twin| segment.follow(errand, &twin).is_err());
        let mode = twin.map_or(0, |twin| u32::from(twin.shm_perm.mode));
        View {
            key: format!("{:#010x}", twin.map_or(0, |twin| twin.shm_perm.__key)),
            shmid: Some(segment.id),
            owner: people.user(segment.info.ownership.uid),
            mode: format_mode(segment.info.ownership.mode),
            bytes: segment.bytes,
            attached: twin.map(|twin| twin.shm_nattch),
            page_tables: if segment.shares_tables() { "shared" } else { "own" }.to_owned(),
            removed: twin.is_none()
                || mode & SHM_DEST != 0
                || !is_away && segment.is_of_cluster() == Some(false),
            home: segment.is_of_cluster().map(|_| match is_away {
                true => "away".to_owned(),
                false => home(&segment.info),
            }),
        }
    }

    /// One that only the cluster has.
    fn elsewhere(people: &mut People, (key, info): (i32, ObjectInfo)) -> View {
        View {
            key: format!("{key:#010x}"),
            shmid: None,
            owner: people.user(info.ownership.uid),
            mode: format_mode(info.ownership.mode),
            bytes: info.options.size_bytes as usize,
            attached: Some(0),
            page_tables: "own".to_owned(),
            removed: false,
            home: Some(home(&info)),
        }
    }

    fn status(&self) -> &'static str {
        match self {
            View { attached: None, .. } => "gone: the host removes it soon",
            View { removed: true, .. } => "removed",
            View { .. } => "",
        }
    }
}

/// What the home of a segment is called that all hosts know by its key.
fn home(info: &ObjectInfo) -> String {
    if info.home.is_empty() { "this host".to_owned() } else { info.home.clone() }
}

/// Lists the segments that are objects.
pub fn list(place: &HostPlace, arguments: &Segments) -> Done {
    let mut errand = errand(place)?;
    let mut people = People::default();
    let found = commonhold_sysv::all(&mut errand)?.into_iter();
    let mut views: Vec<View> = found.map(|found| View::new(&mut people, &mut errand, found)).collect();
    let mut others = commonhold_sysv::all_of_cluster(&mut errand)?;
    let is_known =
        |key: i32| views.iter().any(|view| view.home.is_some() && view.key == format!("{key:#010x}"));
    others.retain(|(key, _)| !is_known(*key));
    views.extend(others.into_iter().map(|found| View::elsewhere(&mut people, found)));
    answer(arguments.form.json, &views, |views| {
        let row = |view: &View| {
            let attached = view.attached.map_or_else(|| "-".to_owned(), |attached| attached.to_string());
            vec![
                view.key.clone(),
                view.shmid.map_or_else(|| "-".to_owned(), |shmid| shmid.to_string()),
                view.owner.clone(),
                view.mode.clone(),
                format_size(view.bytes as u64),
                attached,
                view.page_tables.clone(),
                view.home.clone().unwrap_or_else(|| "-".to_owned()),
                view.status().to_owned(),
            ]
        };
        let heads = ["KEY", "SHMID", "OWNER", "MODE", "SIZE", "ATTACHED", "PAGE TABLES", "HOME", ""];
        columns(Some(&heads), views.iter().map(row).collect(), &[])
    })
}

/// Removes segments: of a segment that is attached, the key now, and the rest with the last process.
pub fn remove(place: &HostPlace, arguments: &RemoveSegments) -> Done {
    let mut wishes = Wishes::default().heard_by_stderr();
    wishes.shared_keys = true;
    let ask = |what: &mut dyn FnMut(&mut Errand) -> Result<(), Error>| what(&mut errand(place)?);
    let by_number = |id: i32| match commonhold_sysv::remove(&wishes, id, &ask) {
        Ok(()) => Ok(id.to_string()),
        Err(errno) => Err(failed(&format!("segment {id}"), errno)),
    };
    let by_key = |key: i32| match kernel::get(key, 0, 0) {
        Ok(id) => by_number(id),
        // The kernel has none; the cluster may.
        Err(errno) => match commonhold_sysv::remove_of_cluster(&mut errand(place)?, key) {
            Ok(()) => Ok(format!("{key:#x}")),
            Err(error) if error.kind == ErrorKind::NotFound => Err(failed(&format!("key {key:#x}"), errno)),
            Err(error) => Err(error),
        },
    };
    let numbers = arguments.numbers.iter().map(|number| by_number(*number));
    let (mut removed, mut errors) = (Vec::new(), Vec::new());
    for done in numbers.chain(arguments.key.iter().map(|key| by_key(*key))) {
        match done {
            Ok(what) => removed.push(what),
            Err(error) => errors.push(error),
        }
    }
    answer_names(arguments.form.json, "removed", (removed, errors))
}

fn failed(what: &str, errno: Errno) -> Error {
    Error::io(format_args!("removing {what}"), &errno.into())
}

/// Segments are those of the host that programs of this user would use.
fn errand(place: &HostPlace) -> Result<Errand, Error> {
    place.named().map_or_else(Errand::begin, |directory| Errand::to(directory, PATIENCE))
}
