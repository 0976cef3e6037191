//! `apps.matrix_…`: the product of two matrices on two hosts, beside two processes on plain memory.

use crate::applications::{Application, Place, Programs, Run, Task, on_hosts, on_plain_memory};
use crate::cluster::{Awaiting, Cluster};
use crate::context::Context;
use crate::failure::Result;
use crate::measure::{Pairs, alternate, median};
use crate::row::{Bar, Measured, Row, rounded};
use serde_json::{Value, json};
use std::cell::RefCell;

/// How much faster two hosts are than one process.
pub struct Speedup;
/// What they take of processors.
pub struct ProcessorRatio;

const HOSTS: usize = 2;
/// Pages of the object that are measured beside those of 4 KiB.
const LARGER: u64 = 64 << 10;

/// Runs on two hosts, and on plain memory, in turns.
struct Turns {
    hosts: Vec<Run>,
    plain: Vec<Run>,
    network: String,
}

fn task(context: &Context) -> Task {
    Task::new(Application::Matrix, context.pick(1024, 256), 1)
}

fn in_turns(context: &Context, programs: &Programs, page_bytes: Option<u64>) -> Result<Turns> {
    let cluster = Cluster::start_apart(context, HOSTS, Awaiting::AsUsual)?;
    let task = task(context);
    let (hosts, plain) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    // The first exchange between hosts makes connections.
    let place = Place { page_bytes, ..Place::each_on_its_own(&cluster, HOSTS) };
    on_hosts(programs, &task, &place)?;
    alternate(
        context.pick(9, 2),
        |_| {
            hosts.borrow_mut().push(on_hosts(programs, &task, &place)?);
            Ok(0.0)
        },
        |_| {
            plain.borrow_mut().push(on_plain_memory(programs, &task, HOSTS, false)?);
            Ok(0.0)
        },
    )?;
    let network = cluster.network().words();
    Ok(Turns { hosts: hosts.into_inner(), plain: plain.into_inner(), network })
}

impl Turns {
    fn pairs(&self, number: impl Fn(&Run) -> f64) -> Pairs {
        let all = |runs: &[Run]| runs.iter().map(&number).collect();
        Pairs { ours: all(&self.hosts), theirs: all(&self.plain) }
    }

    fn counts(&self) -> Value {
        let of = |number: &dyn Fn(&Run) -> u64| {
            rounded(median(&self.hosts.iter().map(|run| number(run) as f64).collect::<Vec<_>>()))
        };
        json!({
            "messages": of(&|run| run.traffic.messages),
            "acknowledgements": of(&|run| run.traffic.acknowledgements),
            "page_bytes": of(&|run| run.traffic.bytes),
            "waits": of(&|run| run.traffic.waits),
            "faults": of(&|run| run.faults),
        })
    }
}

impl Row for Speedup {
    fn id(&self) -> &'static str {
        "apps.matrix_speedup"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtLeast(0.9))
    }

    fn about(&self) -> &'static str {
        "speed-up of a product of 1024² matrices on two hosts in a strict object ÷ that of two processes on plain memory, both \
         over one process on plain memory; a factor and two halves go from host to host in the time; pages of 64 KiB beside"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let programs = Programs::compile(context)?;
        let one: Vec<f64> = (0..context.pick(7, 2))
            .map(|_| Ok(on_plain_memory(&programs, &task(context), 1, false)?.elapsed))
            .collect::<Result<_>>()?;
        let turns = in_turns(context, &programs, None)?;
        let larger = in_turns(context, &programs, Some(LARGER))?;
        let alone = median(&one);
        let speedup = |run: &Run| alone / run.elapsed;
        let (pairs, of_larger) = (turns.pairs(speedup), larger.pairs(speedup));
        let detail = json!({
            "task": task(context).words(),
            "one_process_s": rounded(alone),
            "speedup": pairs.summary(1.0),
            "speedup_with_pages_of_64_kib": of_larger.summary(1.0),
            "published": "1.98 of 256² matrices on two machines (Table 3)",
            "counts_of_a_run_on_hosts": turns.counts(),
            "counts_with_pages_of_64_kib": larger.counts(),
            "programs_and_servers_s_of_a_processor": {
                "programs": rounded(median(&turns.pairs(|run| run.programs).ours)),
                "hosts_and_keepers": rounded(median(&turns.pairs(|run| run.servers).ours)),
            },
            "network": turns.network,
        });
        Ok(pairs.measured(pairs.ratio(), detail).beside(
            "pages of 64 KiB",
            of_larger.ratio(),
            Some(of_larger.ratio_interval()),
        ))
    }
}

impl Row for ProcessorRatio {
    fn id(&self) -> &'static str {
        "apps.matrix_processor_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.2))
    }

    fn about(&self) -> &'static str {
        "processor time of programs, hosts and keepers for a product of 1024² matrices on two hosts ÷ that of two processes on \
         plain memory; pages of 64 KiB beside"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let programs = Programs::compile(context)?;
        let turns = in_turns(context, &programs, None)?;
        let larger = in_turns(context, &programs, Some(LARGER))?;
        let (pairs, of_larger) = (turns.pairs(Run::processor), larger.pairs(Run::processor));
        let detail = json!({
            "task": task(context).words(),
            "seconds": pairs.summary(1.0),
            "programs_s": turns.pairs(|run| run.programs).summary(1.0),
            "hosts_and_keepers_s": rounded(median(&turns.pairs(|run| run.servers).ours)),
            "seconds_with_pages_of_64_kib": of_larger.summary(1.0),
            "hosts_and_keepers_s_with_pages_of_64_kib":
                rounded(median(&larger.pairs(|run| run.servers).ours)),
            "counts_of_a_run_on_hosts": turns.counts(),
            "counts_with_pages_of_64_kib": larger.counts(),
            "measured_by": "the kernel's clock of each process",
            "network": turns.network,
        });
        Ok(pairs.measured(pairs.ratio(), detail).beside(
            "pages of 64 KiB",
            of_larger.ratio(),
            Some(of_larger.ratio_interval()),
        ))
    }
}
