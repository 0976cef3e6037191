//! `host start|stop|restart|upgrade|status`.

use super::hosts::trouble;
use crate::arguments::entry::Limits;
use crate::arguments::host::{HostCommand, Restart, Start, Stop, Upgrade};
use crate::configuration::{self, Wanted};
use crate::failure::{Done, Failure, error};
use crate::host_process::{self, StartOptions, metrics_options};
use crate::output::{answer, columns, count, say_json};
use crate::people::People;
use crate::place::HostPlace;
use crate::units::{format_milliseconds, format_size};
use crate::view::HostView;
use commonhold::tags::Translated;
use commonhold::{ClusterStatus, Error, ErrorKind, Host, HostStatus, Result};
use commonhold_object::error::Doing;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a host may take to end, or to be replaced.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the command.
pub fn run(place: &HostPlace, command: HostCommand) -> Done {
    match command {
        HostCommand::Start(arguments) => start(place, *arguments),
        HostCommand::Stop(arguments) => stop(place, &arguments),
        HostCommand::Restart(arguments) => restart(place, &arguments),
        HostCommand::Upgrade(arguments) => upgrade(place, &arguments),
        HostCommand::Status(form) => status(place, form.json),
    }
}

fn start(place: &HostPlace, arguments: Start) -> Done {
    let (json, quiet) = (arguments.form.json, arguments.quiet);
    let (arguments, objects) = configuration::with_file(place, arguments)?;
    if let Some(metrics) = metrics_options(&arguments.metrics) {
        metrics.check()?; // said here, not in the log
    }
    let state_directory = place.to_start(arguments.state)?;
    arguments.place.check_needs().map_err(Failure::Usage)?;
    let cluster = host_process::checked_place(arguments.place, &state_directory)?;
    let options = StartOptions {
        state_directory,
        limits: Limits {
            budget: arguments.budget,
            quota: arguments.quota,
            max_objects: arguments.max_objects,
            max_clients: arguments.max_clients,
            file_system: arguments.file_system,
        },
        machine: arguments.machine,
        place: cluster,
        metrics: arguments.metrics,
    };
    let serving = host_process::start(&options)?;
    // One that runs already is good enough for who asks quietly: clients do, several at once.
    if !serving.is_new && !quiet {
        let status = serving.status;
        return Err(error(
            ErrorKind::Exists,
            format!(
                "a host (process {}) is running in {} already: `commonhold host restart` replaces it",
                status.host_pid, status.state_directory
            ),
        ));
    }
    let status = until_joined(&options.state_directory, serving.status);
    if !quiet {
        say_started(json, "started", status.clone())?;
    }
    if let Some(cluster) = status.cluster.as_ref().filter(|cluster| !cluster.joined) {
        eprintln!("commonhold: the host is up, and not in its cluster: {}", standing(cluster));
    }
    let left = make_objects(&options.state_directory, objects);
    if arguments.foreground {
        make_later(&options.state_directory, left);
        host_process::watch(&options.state_directory, status)?;
    }
    Ok(())
}

/// Makes the objects that are to be there, and says which cannot be made: the host serves all others meanwhile. Gives those
/// that may be made later.
fn make_objects(directory: &Path, objects: Vec<Wanted>) -> Vec<Wanted> {
    if objects.is_empty() {
        return objects;
    }
    let host = match Host::connect_to(directory) {
        Ok(host) => host,
        Err(why) => {
            objects.iter().for_each(|object| eprintln!("commonhold: {}", object.said(&why)));
            return objects;
        }
    };
    let is_for_good = |kind| matches!(kind, ErrorKind::Mismatch | ErrorKind::Exists | ErrorKind::Invalid);
    let mut left = Vec::new();
    for (object, why) in configuration::make(&host, objects) {
        eprintln!("commonhold: {why}");
        if !is_for_good(why.kind) {
            left.push(object);
        }
    }
    left
}

/// Between two attempts to make objects.
const OBJECTS_AGAIN: Duration = Duration::from_secs(5);

/// Tries again to make them for as long as the host is watched: those that hosts share wait for the cluster. What was said of
/// one is not said again.
fn make_later(directory: &Path, mut left: Vec<Wanted>) {
    if left.is_empty() {
        return;
    }
    let directory = directory.to_owned();
    std::thread::spawn(move || {
        while !left.is_empty() {
            std::thread::sleep(OBJECTS_AGAIN);
            // No connection is kept: it would be a client, for whose sake the host refuses to stop.
            let Ok(host) = Host::connect_to(&directory) else { continue };
            left = configuration::make(&host, left).into_iter().map(|(object, _)| object).collect();
        }
    });
}

/// How long who starts a host waits for it to be in its cluster.
const JOINING: Duration = Duration::from_secs(2);

/// The state of a host when it is in its cluster, or has not come in for so long: it goes on trying.
fn until_joined(directory: &Path, mut status: HostStatus) -> HostStatus {
    let deadline = Instant::now() + JOINING;
    let is_out = |status: &HostStatus| status.cluster.as_ref().is_some_and(|cluster| !cluster.joined);
    while is_out(&status) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        // It may be dying: who watches it, or the next command, says so.
        let Ok((_, now)) = host_process::ask(directory) else { break };
        status = now;
    }
    status
}

fn say_started(json: bool, verb: &str, status: HostStatus) -> Done {
    let view =
        HostView { running: true, state_directory: status.state_directory.clone(), status: Some(status) };
    answer(json, &view, |view| {
        let status = view.status.as_ref();
        let (version, pid) = status.map_or((String::new(), 0), |s| (s.version.clone(), s.host_pid));
        format!("{verb} host {version} (process {pid}) in {}", view.state_directory)
    })
}

/// The host that is meant, which must run.
fn running(place: &HostPlace) -> Result<(PathBuf, Host, HostStatus)> {
    let (directory, connected) = place.running()?;
    connected?;
    let (host, status) = host_process::ask(&directory)?;
    Ok((directory, host, status))
}

fn stop(place: &HostPlace, arguments: &Stop) -> Done {
    let (directory, host, status) = match running(place) {
        Err(why) => return stop_without_host(place, arguments, why),
        Ok(running) => running,
    };
    let processes: Vec<_> = [status.host_pid, status.keeper_pid]
        .into_iter()
        .filter_map(|pid| commonhold_sys::process::identity(pid).ok())
        .collect();
    host.stop(arguments.force)?;
    drop(host);
    wait_until(
        || !processes.iter().any(|who| commonhold_sys::process::is_alive(*who)),
        || {
            format!(
                "the host in {} was told to stop but has not ended: see {}/log",
                directory.display(),
                directory.display()
            )
        },
    )?;
    say_stopped(arguments.form.json, &directory)
}

fn say_stopped(json: bool, directory: &Path) -> Done {
    let view = HostView { running: false, state_directory: directory.display().to_string(), status: None };
    answer(json, &view, |view| format!("stopped the host in {}", view.state_directory))
}

/// Where no host can be started the keeper goes on trying, and holds what clients have: only `--force` ends it.
fn stop_without_host(place: &HostPlace, arguments: &Stop, why: Error) -> Done {
    let (directory, connected) = place.running()?;
    if connected.is_err() || host_process::why_none_serves(&directory).is_none() {
        return Err(why.into());
    }
    if !arguments.force {
        let advice = "end its keeper, and lose what is not stored, by `commonhold host stop --force`";
        return Err(error(why.kind, format!("{}: mend that, or {advice}", why.message)));
    }
    host_process::end_keeper(&directory)?;
    say_stopped(arguments.form.json, &directory)
}

fn wait_until(mut done: impl FnMut() -> bool, too_late: impl FnOnce() -> String) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        if Instant::now() > deadline {
            return Err(Error::new(ErrorKind::TimedOut, too_late()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn restart(place: &HostPlace, arguments: &Restart) -> Done {
    let (directory, host, status) = running(place)?;
    replace(&directory, &host, &status, None, arguments.keeper, arguments.form.json, "restarted")
}

fn upgrade(place: &HostPlace, arguments: &Upgrade) -> Done {
    let program = match &arguments.program {
        Some(program) => program.canonicalize().doing(format!("cannot find the program {program:?}"))?,
        None => {
            std::env::current_exe().doing("cannot tell the path of this program: name one with --program")?
        }
    };
    check_program(&program)?;
    let (directory, host, status) = running(place)?;
    check_goes_on(&program, &directory)?;
    replace(&directory, &host, &status, Some(&program), true, arguments.form.json, "upgraded")
}

/// A program that cannot even tell its version must not replace a host that works.
fn check_program(program: &Path) -> Result<()> {
    let output = std::process::Command::new(program).arg("--version").output();
    let output = output.doing(format!("cannot run {program:?}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && said.starts_with("commonhold ") {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{program:?} is not a commonhold program: `--version` says {:?}",
        said.trim()
    )))
}

/// Nothing is begun with a program that would refuse to go on with what is there, or dies of it. One that knows no such
/// question is not asked: if it refuses, the host before takes its place again.
fn check_goes_on(program: &Path, directory: &Path) -> Result<()> {
    let mut command = std::process::Command::new(program);
    let output = command.arg("check-state").arg("--state").arg(directory).output();
    let output = output.doing(format!("cannot run {program:?}"))?;
    const UNKNOWN_COMMAND: i32 = 2;
    if matches!(output.status.code(), Some(0 | UNKNOWN_COMMAND)) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = match said.trim().trim_start_matches("commonhold: ") {
        "" => output.status.to_string(),
        said => said.to_owned(),
    };
    Err(Error::new(
        ErrorKind::Version,
        format!("{} cannot go on with this host, which stays as it is: {why}", program.display()),
    ))
}

/// Whether the host's process is of that program; where that is hidden it is taken for it.
fn is_of(status: &HostStatus, program: &Path) -> bool {
    let file = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    match (file(Path::new(&format!("/proc/{}/exe", status.host_pid))), file(program)) {
        (Ok(its), Ok(wanted)) => its == wanted,
        _ => true,
    }
}

fn replace(
    directory: &Path,
    host: &Host,
    before: &HostStatus,
    program: Option<&Path>,
    keeper: bool,
    json: bool,
    verb: &str,
) -> Done {
    host.replace(program, keeper)?;
    let mut now = before.clone();
    let is_new = || {
        // Asked anew each time: while the processes change hands an old connection may or may not answer.
        match host_process::ask(directory) {
            Ok((_, status)) => now = status,
            Err(_) => return false,
        }
        now.host_pid != before.host_pid && (!keeper || now.keeper_pid != before.keeper_pid)
    };
    wait_until(is_new, || {
        format!("the host in {} was not replaced: see {}/log", directory.display(), directory.display())
    })?;
    if let Some(program) = program.filter(|program| !is_of(&now, program)) {
        let text = format!(
            "{} did not go on with the host in {}: the program before took its place again, and nothing is lost. The log \
             says why: {}/log",
            program.display(),
            directory.display(),
            directory.display()
        );
        return Err(error(ErrorKind::Version, text));
    }
    say_started(json, verb, now)
}

fn status(place: &HostPlace, json: bool) -> Done {
    let (directory, host) = place.running()?;
    let state_directory = directory.display().to_string();
    match host.and_then(|_| host_process::ask(&directory)) {
        Ok((_, status)) => {
            let view = HostView { running: true, state_directory, status: Some(status) };
            answer(json, &view, |view| view.status.as_ref().map_or(String::new(), status_table))
        }
        Err(reason) => {
            if json {
                say_json(&HostView { running: false, state_directory, status: None })?;
            }
            Err(reason.into())
        }
    }
}

fn status_table(status: &HostStatus) -> String {
    let user = People::default().user(status.uid);
    let serves = if status.uid == 0 { "everybody" } else { "this user alone" };
    let kernel = if status.kernel_faults {
        "served"
    } else {
        "not served: read() into a page that is not in memory fails with EFAULT (see `commonhold doctor`)"
    };
    let mut rows = vec![
        ("host", format!("{}, process {}, run by {user}, serves {serves}", status.version, status.host_pid)),
        (
            "keeper",
            format!("process {}, has started {}", status.keeper_pid, count(status.generation, "host")),
        ),
        ("state", status.state_directory.clone()),
        ("up for", format_milliseconds(status.uptime_ms)),
        ("objects", status.objects.to_string()),
        (
            "clients",
            format!(
                "{} beside this command, {} of controlled objects",
                status.clients.saturating_sub(1),
                count(status.mappings, "mapping")
            ),
        ),
        ("memory", format!("{} of {}", format_size(status.resident_bytes), format_size(status.budget_bytes))),
        ("direct", format!("{} of memory, beside that", format_size(status.direct_bytes))),
        ("quota", quota(status)),
        ("faults", format!("{}, {} brought in", status.faults, count(status.pages_installed, "page"))),
        ("evicted", count(status.pages_evicted, "page")),
        ("syncs", status.syncs.to_string()),
        ("kernel access", kernel.to_owned()),
        ("machine", status.machine.clone()),
    ];
    if let Some(cluster) = &status.cluster {
        rows.push(("cluster", standing(cluster)));
    }
    let pages = status.translated.and(status.stored_translated);
    if pages.pages > 0 {
        rows.push(("translated", translated(&pages)));
    }
    rows.extend(status.repairs.iter().map(|repair| ("repaired", repair.clone())));
    columns(None, rows.into_iter().map(|(key, value)| vec![key.to_owned(), value]).collect(), &[])
}

/// Whether a host is in its cluster, and why not.
fn standing(cluster: &ClusterStatus) -> String {
    let me = format!("{} at {}", cluster.name, cluster.address);
    let registry = if cluster.registry.is_empty() { "this host" } else { &cluster.registry };
    match (&cluster.trouble, cluster.joined) {
        (None, true) => format!("{me}, belongs; the registry is {registry}"),
        (None, false) => format!("{me}, is not in yet; the registry is {registry}"),
        (Some(why), true) => format!("{me}, belongs, and cannot renew its lease: {}", trouble(why)),
        (Some(why), false) => format!("{me}, is not in, and goes on trying: {}", trouble(why)),
    }
}

/// What was translated, and what had no counterpart.
pub fn translated(all: &Translated) -> String {
    let losses = all.losses;
    let kinds = [
        (losses.overflows, "too large"),
        (losses.underflows, "too small"),
        (losses.nans, "not a number"),
        (losses.negative_zeros, "-0"),
        (losses.rounded, "rounded"),
    ];
    let lost = kinds.iter().filter(|(number, _)| *number > 0);
    let lost: Vec<String> = lost.map(|(number, word)| format!("{number} {word}")).collect();
    let pages = count(all.pages, "page");
    if lost.is_empty() { pages } else { format!("{pages}; without counterpart: {}", lost.join(", ")) }
}

fn quota(status: &HostStatus) -> String {
    let whose = if status.uid == 0 { "each user; root's only with --quota" } else { "each user" };
    match status.quota_bytes {
        u64::MAX => "none".to_owned(),
        bytes => format!("{} for {whose}", format_size(bytes)),
    }
}
