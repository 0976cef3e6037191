//! `slow.collateral`: what a slow pager at a home does to everything else.

use crate::cluster::Cluster;
use crate::context::Context;
use crate::failure::{Result, failed, skipped};
use crate::measure::most;
use crate::row::{Bar, Measured, Row, rounded};
use crate::worker::{Worker, own_command};
use crate::workers::slow_file;
use commonhold_linear::trouble;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const HOME: usize = 0;
const SHARER: usize = 1;
/// What the storage takes for each page.
const A_PAGE: Duration = Duration::from_millis(100);
/// Pages of each slow object: more than are read in the time.
const SLOW_PAGES: usize = 4096;
const PAGER: &str = "/pagers/slow";
/// Pages of objects that hosts share, and of those where each page is touched once.
const SHARED_PAGES: usize = 256;
const FRESH_PAGES: usize = 1 << 18;
/// Fewer touches of an object say nothing, if none was slow.
const ENOUGH: u64 = 100;

/// Objects beside the slow ones: host, name, how it is made there, pages, how they are touched.
const OTHERS: [(usize, &str, &str, usize, &str); 8] = [
    (HOME, "/other/forwarding", "forwarding", SHARED_PAGES, "random"),
    (SHARER, "/other/forwarding", "open", SHARED_PAGES, "random"),
    (HOME, "/other/central", "central", SHARED_PAGES, "random"),
    (SHARER, "/other/central", "open", SHARED_PAGES, "random"),
    (SHARER, "/other/of-the-sharer", "forwarding", SHARED_PAGES, "random"),
    (HOME, "/other/of-the-sharer", "open", SHARED_PAGES, "random"),
    (HOME, "/other/local-at-home", "local", FRESH_PAGES, "fresh"),
    (SHARER, "/other/local-at-sharer", "local", FRESH_PAGES, "fresh"),
];

/// The row.
pub struct SlowCollateral;

impl Row for SlowCollateral {
    fn id(&self) -> &'static str {
        "slow.collateral"
    }

    fn unit(&self) -> &'static str {
        "leases, pages and faults"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn about(&self) -> &'static str {
        "a minute with a home whose storage takes 100 ms a page, of an object that hosts share (a FUSE file) and of a local one \
         (an external pager), with leases of 10 s and again with leases of 2 s: leases lost, pages lost, and faults beyond \
         1 s on other objects of both hosts"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let leases: &[u64] = context.pick(&[10, 2], &[2]);
        let time = Duration::from_secs(context.pick(65, 12));
        let parts =
            leases.iter().map(|lease| Part::run(context, *lease, time)).collect::<Result<Vec<_>>>()?;
        let value = parts.iter().map(Part::total).sum::<u64>() as f64;
        let runs = parts.iter().map(|part| part.touches).sum::<u64>() as usize;
        let detail = json!({
            "parts": parts.iter().map(Part::to_json).collect::<Vec<_>>(),
            "seconds_each": time.as_secs(),
            "ms_for_each_page": A_PAGE.as_millis() as u64,
        });
        Ok(Measured::single(value, runs, detail))
    }
}

/// What a minute gave.
struct Part {
    lease: u64,
    leases_lost: u64,
    pages_lost: u64,
    long_faults: u64,
    touches: u64,
    /// Pages that the servers of both files and the pager brought and stored.
    served: [[u64; 2]; 3],
    objects: Vec<Value>,
    slow_users_that_ended: usize,
}

impl Part {
    fn total(&self) -> u64 {
        self.leases_lost + self.pages_lost + self.long_faults
    }

    fn to_json(&self) -> Value {
        let served = |[read, written]: [u64; 2]| json!({"pages_read": read, "pages_written": written});
        json!({
            "lease_s": self.lease,
            "leases_lost": self.leases_lost,
            "pages_lost": self.pages_lost,
            "faults_beyond_1_s": self.long_faults,
            "touches_of_other_objects": self.touches,
            "other_objects": self.objects,
            "slow_file_central": served(self.served[0]),
            "slow_file_forwarding": served(self.served[1]),
            "slow_pager": served(self.served[2]),
            "processes_of_slow_objects_that_ended": self.slow_users_that_ended,
        })
    }

    fn run(context: &Context, lease: u64, time: Duration) -> Result<Part> {
        let (mut central, mut forwarding) = (Mount::start(context)?, Mount::start(context)?);
        let cluster = Cluster::start_with_words(context, 2, Some(lease), &["--file-system", "fuse"])?;
        let before = processes(&cluster)?;
        let state = cluster.host(HOME).state().to_string_lossy().into_owned();
        let delay = A_PAGE.as_micros().to_string();
        let mut pager = Worker::start("slow-pager", &[state.as_str(), PAGER, &delay])?;
        // Others first: what is slow must not be in the way of their creation.
        let mut others = Vec::new();
        for (host, name, what, pages, how) in OTHERS {
            others.push((host, name, prober(&cluster, host, [name, what, &pages.to_string(), how, "-"])?));
        }
        let mut slow = slow_users(&cluster, [&central, &forwarding])?;
        let begun = Instant::now();
        std::thread::sleep(time);
        let mut part = Part::of(lease, &mut others)?;
        (part.leases_lost, part.pages_lost) = losses(&cluster, &before, part.pages_lost);
        part.slow_users_that_ended = slow.iter_mut().map(|user| usize::from(!user.is_running())).sum();
        for (served, server) in
            part.served.iter_mut().zip([&mut central.server, &mut forwarding.server, &mut pager])
        {
            *served = numbers(&server.ask("served")?)?;
        }
        slow.iter_mut().for_each(Worker::kill);
        others.iter_mut().for_each(|(_, _, other)| other.kill());
        drop(cluster);
        part.check(begun.elapsed()).map(|()| part)
    }

    fn of(lease: u64, others: &mut [(usize, &str, Worker)]) -> Result<Part> {
        let mut part = Part {
            lease,
            leases_lost: 0,
            pages_lost: 0,
            long_faults: 0,
            touches: 0,
            served: [[0; 2]; 3],
            objects: Vec::new(),
            slow_users_that_ended: 0,
        };
        for (host, name, other) in others {
            let whose = if *host == HOME { "home" } else { "sharer" };
            if !other.is_running() {
                // Nobody ends it but SIGBUS.
                part.pages_lost += 1;
                part.objects.push(json!({"object": *name, "at": whose, "ended": true}));
                continue;
            }
            let [touches, long, longest] = numbers(&other.ask("touches")?)?;
            part.touches += touches;
            part.long_faults += long;
            part.objects.push(json!({
                "object": *name, "at": whose, "touches": touches, "beyond_1_s": long,
                "longest_ms": rounded(most(&[longest as f64 / 1e6])),
            }));
            if touches < ENOUGH && long == 0 {
                return failed(format!("{name} was touched only {touches} times at the {whose}"));
            }
        }
        Ok(part)
    }

    /// Without slow pages nothing was tried. (Where everything stands still few come: then
    /// something is counted.)
    fn check(&self, time: Duration) -> Result<()> {
        let least = time.as_secs() / 2;
        let few = self.served.iter().any(|[read, written]| read + written < least);
        if self.total() == 0 && few {
            return failed(format!("slow files and the slow pager served {:?} pages: too few", self.served));
        }
        Ok(())
    }
}

/// Processes that use the slow objects, at the home and at the sharer: some read in order, which
/// brings many pages at once. Nobody waits until they have begun: that may take long.
fn slow_users(cluster: &Cluster, [central, forwarding]: [&Mount; 2]) -> Result<Vec<Worker>> {
    let central = format!("central-file:{}", central.file().display());
    let forwarding = format!("forwarding-file:{}", forwarding.file().display());
    let pager = format!("pager:{PAGER}");
    let pages = SLOW_PAGES.to_string();
    [
        (HOME, "/slow/central", central.as_str(), "random", "sync"),
        (SHARER, "/slow/central", "open", "scan", "-"),
        (SHARER, "/slow/central", "open", "random", "sync"),
        (HOME, "/slow/forwarding", forwarding.as_str(), "scan", "sync"),
        (SHARER, "/slow/forwarding", "open", "scan", "-"),
        (SHARER, "/slow/forwarding", "open", "random", "sync"),
        (HOME, "/slow/local", pager.as_str(), "random", "sync"),
        (HOME, "/slow/local", "open", "scan", "-"),
    ]
    .into_iter()
    .map(|(host, name, what, how, sync)| {
        Worker::spawn(&mut user(cluster, host, [name, what, &pages, how, sync])?)
    })
    .collect()
}

fn prober(cluster: &Cluster, host: usize, words: [&str; 5]) -> Result<Worker> {
    let mut worker = Worker::spawn(&mut user(cluster, host, words)?)?;
    worker.expect("ready")?;
    Ok(worker)
}

fn user(cluster: &Cluster, host: usize, [name, what, pages, how, sync]: [&str; 5]) -> Result<Command> {
    let state = cluster.host(host).state().to_string_lossy().into_owned();
    let seed = (host + name.len()).to_string();
    let mut command = own_command("prober", &[&state, name, what, pages, &seed, how, sync])?;
    command.stdin(Stdio::piped());
    Ok(command)
}

fn processes(cluster: &Cluster) -> Result<Vec<u32>> {
    cluster.hosts().iter().map(|host| Ok(host.processes()?[0])).collect()
}

/// Leases that ended, and pages that were lost, beside those that are known already.
fn losses(cluster: &Cluster, before: &[u32], pages: u64) -> (u64, u64) {
    let (mut leases, mut lost) = (0, 0);
    for (host, process) in cluster.hosts().iter().zip(before) {
        let log = std::fs::read_to_string(host.state().join("log")).unwrap_or_default();
        let another = host.processes().map_or(true, |[now, _]| now != *process);
        leases += (trouble::leases_that_ended(&log) as u64).max(u64::from(another));
        lost += log.lines().filter_map(pages_lost).sum::<u64>();
    }
    (leases, pages + lost)
}

/// How many pages a line of a log says are lost.
fn pages_lost(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("newest versions of ")?;
    let (count, rest) = rest.split_once(" pages")?;
    rest.contains("are lost").then(|| count.parse().unwrap_or(1))
}

fn numbers<const N: usize>(line: &str) -> Result<[u64; N]> {
    let numbers: std::result::Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
    let numbers = numbers.ok().and_then(|all| <[u64; N]>::try_from(all).ok());
    numbers.map_or_else(|| failed(format!("a worker said `{line}`")), Ok)
}

/// The slow file, for as long as its server lives.
struct Mount {
    server: Worker,
    directory: PathBuf,
}

impl Mount {
    fn start(context: &Context) -> Result<Mount> {
        if !Path::new("/dev/fuse").exists() {
            return skipped("there is no /dev/fuse: a slow file cannot be made");
        }
        let directory = context.new_directory("slow")?;
        let bytes = (SLOW_PAGES * crate::view::PAGE).to_string();
        let delay = A_PAGE.as_micros().to_string();
        let server = Worker::start("slow-file", &[&directory.to_string_lossy(), bytes.as_str(), &delay])?;
        Ok(Mount { server, directory })
    }

    fn file(&self) -> PathBuf {
        self.directory.join("file")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        slow_file::unmount(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_say_how_many_pages_are_lost() {
        let line = "t host[1]: object 1f: the newest versions of 12 pages are lost with host2";
        assert_eq!(pages_lost(line), Some(12));
        assert_eq!(pages_lost("t host[1]: host2 is lost"), None);
    }
}
