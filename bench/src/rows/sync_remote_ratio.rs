//! `sync.remote_lock_ratio`: a mutex that goes from host to host, beside bare relays.

use crate::cluster::{Awaiting, Cluster};
use crate::context::Context;
use crate::failure::{Result, failed};
use crate::measure::{alternate, median, some};
use crate::row::{Bar, Measured, Row, rounded};
use crate::worker::Worker;
use crate::workers::relay::MEMORY;
use serde_json::json;

const NAME: &str = "/bench/turn";
/// How long each has it, in microseconds: longer than the other takes to ask for it.
const HOLD_US: u32 = 300;

/// The row.
pub struct RemoteLockRatio;

impl Row for RemoteLockRatio {
    fn id(&self) -> &'static str {
        "sync.remote_lock_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.3))
    }

    fn about(&self) -> &'static str {
        "a mutex by name from a process that lets it go to one that waits on another host, and back, TLS on ÷ 64 bytes through two \
         bare relays that wait alike (program, futex, relay, TLS, relay, futex, program; and back); each has it 300 µs; medians"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let cluster = Cluster::start_two_apart(context, Awaiting::Asleep)?;
        let turns = context.pick(400, 100);
        let (mut lockers, mut users) = (lockers(&cluster)?, Relayed::start(context, &cluster)?);
        let mut shares = Vec::new();
        let pairs = alternate(
            context.pick(15, 3),
            |_| {
                let (time, share) = handed_over(
                    &mut lockers,
                    [format!("turns {turns} {HOLD_US}"), format!("turns {turns} {HOLD_US}")],
                )?;
                shares.push(share);
                Ok(time)
            },
            |_| {
                let lines = [format!("begin {turns} {HOLD_US}"), format!("follow {turns} {HOLD_US}")];
                handed_over(&mut users.users, lines).map(|(time, _)| time)
            },
        )?;
        some(pairs.ratio(), "ratio")?;
        let detail = json!({
            "unit_of_times": "µs, there and back",
            "times": pairs.summary(1e-3),
            "network": cluster.network().words(),
            "share_of_turns_that_were_handed_over": rounded(median(&shares)),
        });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

/// A process on each host that has the mutex open.
fn lockers(cluster: &Cluster) -> Result<[Worker; 2]> {
    let start = |number: usize, how: &str| {
        let state = cluster.host(number).state().to_string_lossy().into_owned();
        cluster.network().at(number, || Worker::start("locker", &[state.as_str(), NAME, how]))
    };
    Ok([start(0, "create")?, start(1, "open")?])
}

/// Programs, and the relays that speak for them.
struct Relayed {
    users: [Worker; 2],
    _relays: [Worker; 2],
}

impl Relayed {
    fn start(context: &Context, cluster: &Cluster) -> Result<Relayed> {
        let directory = context.new_directory("relays")?;
        let network = cluster.network();
        let address = [network.free_address(0)?.to_string(), network.free_address(1)?.to_string()];
        let memory = |number: usize| directory.join(format!("memory-{number}"));
        let identity = |number: usize| cluster.identity_directory(number);
        for number in 0..2 {
            std::fs::File::create(memory(number))?.set_len(MEMORY)?;
        }
        let words = |number: usize| {
            let path = |path: std::path::PathBuf| path.to_string_lossy().into_owned();
            [
                path(memory(number)),
                path(identity(number)),
                address[number].clone(),
                address[1 - number].clone(),
            ]
        };
        let relay = |number: usize| network.at(number, || Worker::start("relay", &words(number)));
        let relays = [relay(0)?, relay(1)?];
        let user = |number: usize| network.at(number, || Worker::start("relay-user", &[memory(number)]));
        Ok(Relayed { users: [user(0)?, user(1)?], _relays: relays })
    }
}

/// Nanoseconds from letting it go to having it on the other host, and the same back: medians; and how many of all turns were handed
/// over from host to host.
fn handed_over(parties: &mut [Worker; 2], lines: [String; 2]) -> Result<(f64, f64)> {
    parties.iter_mut().zip(&lines).try_for_each(|(party, line)| party.tell(line))?;
    let mut turns: Vec<(u64, u64, usize)> = Vec::new();
    for (number, party) in parties.iter_mut().enumerate() {
        let line = party.line()?;
        let times = line.split_ascii_whitespace().map(str::parse);
        let times = times.collect::<std::result::Result<Vec<u64>, _>>()?;
        turns.extend(times.chunks_exact(2).map(|pair| (pair[0], pair[1], number)));
    }
    turns.sort_unstable();
    let mut ways = [Vec::new(), Vec::new()];
    for pair in turns.windows(2) {
        let [(_, let_go, from), (got, _, to)] = [pair[0], pair[1]];
        if got < let_go {
            return failed("two processes had the mutex at once");
        }
        if from != to {
            ways[from].push((got - let_go) as f64);
        }
    }
    let handed: usize = ways.iter().map(Vec::len).sum();
    let share = handed as f64 / turns.len().max(1) as f64;
    if share < 0.5 {
        return failed(format!("only {handed} of {} turns went to the other host", turns.len()));
    }
    Ok((median(&ways[0]) + median(&ways[1]), share))
}
