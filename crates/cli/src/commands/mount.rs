//! `mount` and `umount`: objects as files.

use crate::arguments::mount::{Mount, ServeMount, Unmount};
use crate::failure::Done;
use crate::host_process::own_program;
use crate::output::answer;
use crate::place::HostPlace;
use commonhold::{Error, ErrorKind, Result};
use commonhold_keeper::{adopt_descriptor, lock_state_directory};
use commonhold_mount::{MountOptions, keeper_command, mounting};
use commonhold_object::error::Doing;
use commonhold_sys::process;
use serde::Serialize;
use std::fs::DirBuilder;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How long the processes of a mount that has ended may take to end.
const LETS_GO: Duration = Duration::from_secs(5);
/// How long a mount may take until it answers.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Serialize)]
struct View {
    directory: String,
    host: String,
    /// Files can be mapped and shared: the kernel lets root alone give them through.
    maps: bool,
}

/// Mounts, and goes when the mount answers.
pub fn mount(place: &HostPlace, arguments: &Mount) -> Done {
    let directory = find(&arguments.directory)?;
    mounting::check_place(&directory)?;
    let host =
        std::path::absolute(place.connect()?.state_directory()).doing("finding the state directory")?;
    let (state_directory, lock) = state_of(&directory, &host)?;
    let options = MountOptions {
        state_directory,
        directory: directory.clone(),
        host_directory: host.clone(),
        new_files: arguments.new_files.into(),
        program: own_program()?,
    };
    let keeper = keeper_command(&options).start(lock)?;
    wait_for_mount(&options, keeper)?;
    let view = View {
        directory: directory.display().to_string(),
        host: host.display().to_string(),
        maps: rustix::process::geteuid().is_root(),
    };
    answer(arguments.form.json, &view, |view| {
        let what = format!("{} shows the objects of the host in {}", view.directory, view.host);
        let lacks = "its files can be read and written; to map them shared (ENODEV here), have root mount";
        if view.maps { what } else { format!("{what}\n{lacks}") }
    })
}

/// The whole path of a directory. What is mounted there is not asked: it may be dead, or not answer.
fn find(directory: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(directory).doing("finding the directory")?;
    match mounting::mounted_at(&absolute)? {
        Some(_) => Ok(absolute),
        None => std::fs::canonicalize(&absolute)
            .doing(format_args!("cannot use {}: make the directory first", absolute.display())),
    }
}

/// Where the processes of a mount have their log and their lock.
fn state_of(directory: &Path, host: &Path) -> Result<(PathBuf, OwnedFd)> {
    let uid = rustix::process::geteuid().as_raw();
    let is_ours = std::fs::metadata(host).is_ok_and(|found| found.uid() == uid);
    let base = if is_ours { host.to_owned() } else { commonhold::own_state_directory()? };
    let state = base.join("mounts").join(mounting::state_name(directory));
    let make = || DirBuilder::new().recursive(true).mode(0o700).create(&state);
    make().doing(format_args!("cannot make the mount's state directory {}", state.display()))?;
    // A mount that has just ended is let go in a moment.
    let until = Instant::now() + LETS_GO;
    let lock = loop {
        match lock_state_directory(&state) {
            Err(error) if error.kind == ErrorKind::Busy && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) if error.kind == ErrorKind::Busy => {
                let log = state.join("log");
                let text = format!(
                    "a mount that was at {} is in use still, and its processes run: end who uses it, or its keeper (kill \
                     -TERM, the number is in {})",
                    directory.display(),
                    log.display()
                );
                return Err(Error::new(ErrorKind::Busy, text));
            }
            other => break other?,
        }
    };
    Ok((state, lock))
}

fn wait_for_mount(options: &MountOptions, keeper: u32) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    let keeper = process::pidfd(keeper).ok(); // none: it has ended already
    let log = options.state_directory.join("log");
    loop {
        let is_there = mounting::mounted_at(&options.directory)?
            .is_some_and(|found| found.file_system == mounting::KIND);
        if is_there && answers(&options.directory, until) {
            return Ok(());
        }
        let ended = keeper.as_ref().is_none_or(process::has_ended);
        if ended || Instant::now() > until {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let why = text.lines().rev().find_map(|line| line.split_once("ended by an error: "));
            let why = why.map_or_else(|| format!("see {}", log.display()), |(_, why)| why.to_owned());
            return Err(Error::invalid(format!(
                "nothing is mounted at {}: {why}",
                options.directory.display()
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether its root can be looked at. In a thread, which stays if nobody answers.
fn answers(directory: &Path, until: Instant) -> bool {
    let (tell, told) = channel();
    let directory = directory.to_owned();
    std::thread::spawn(move || {
        let _ = tell.send(std::fs::metadata(directory).is_ok()); // who asked may have given up
    });
    told.recv_timeout(until.saturating_duration_since(Instant::now())).unwrap_or(false)
}

/// Unmounts.
pub fn unmount(arguments: &Unmount) -> Done {
    let directory = find(&arguments.directory)?;
    let there = mounting::mounted_at(&directory)?
        .filter(|there| there.file_system == mounting::KIND)
        .ok_or_else(|| {
            let text = format!(
                "{} is no mount of Commonhold: findmnt -t {} lists them",
                directory.display(),
                mounting::KIND
            );
            Error::new(ErrorKind::NotFound, text)
        })?;
    if arguments.abort {
        mounting::abort(&there)?;
    }
    if mounting::mounted_at(&directory)?.is_some_and(|left| left.minor() == there.minor()) {
        mounting::unmount(&directory, arguments.lazy)?;
    }
    let text = directory.display().to_string();
    answer(arguments.form.json, &text, |text| format!("nothing is mounted at {text} any more"))
}

/// The hidden command that a mount's keeper runs.
pub fn serve(arguments: ServeMount) -> Result<()> {
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let log = commonhold_keeper::StateLog::new(&arguments.state, "mount");
    let keeper = adopt_descriptor(arguments.keeper_fd).doing("cannot take the socket to the keeper")?;
    let options = MountOptions {
        state_directory: arguments.state,
        directory: arguments.at,
        host_directory: arguments.of,
        new_files: arguments.new_files.into(),
        program: own_program()?,
    };
    commonhold_mount::serve(options, keeper)
        .inspect_err(|error| log.say(&format!("ended by an error: {error}")))
}
