//! `apps.table3`: Table 3 of Forin et al., "execution times for some application programs", and their conjecture that the
//! data exchanged between two synchronisations decides.

use crate::applications::{
    Application, Place, Programs, Run, Synchronisation, Task, on_hosts, on_plain_memory,
};
use crate::cluster::Cluster;
use crate::conclusions::{self, Conclusion};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::measure::{least, median, most};
use crate::row::{Bar, Measured, Row, rounded};
use crate::sprite::table::{cell, markdown};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Most hosts at once.
const HOSTS: usize = 3;
/// A place is measured again until it took so long, at most [`ROUNDS`] times.
const ENOUGH: Duration = Duration::from_secs(20);
const ROUNDS: usize = 5;

/// The paper's seconds on one, two and three machines (IBM RT on a token ring).
const PUBLISHED: [(&str, [f64; 3]); 5] = [
    ("Matrix 128x128", [29.0, 15.0, 10.0]),
    ("Matrix 256x256", [241.0, 122.0, 80.0]),
    ("ShortestPath", [60.0, 60.0, 40.0]),
    ("LocusRoute", [277.0, 333.0, 397.0]),
    ("Mp3d", [8.6, 16.1, 23.0]),
];

/// The row.
pub struct Table3;

/// What is run: the paper's sizes of matrices, and sizes at which one process takes some two seconds; of particles a
/// twentieth of the steps, which are all alike, because hosts take minutes for all. Beside each the paper's program.
fn tasks(context: &Context) -> [(Task, Option<usize>); 6] {
    [
        (Task::new(Application::Matrix, 128, 1), Some(0)),
        (Task::new(Application::Matrix, 256, 1), Some(1)),
        (Task::new(Application::Matrix, context.pick(1344, 512), 1), None),
        (Task::new(Application::Path, context.pick(3072, 256), 1), Some(2)),
        (Task::new(Application::Locus, context.pick(4096, 512), context.pick(5, 1)), Some(3)),
        (Task::new(Application::Mp3d, context.pick(24576, 2048), context.pick(110, 10)), Some(4)),
    ]
}

/// A task at every place.
struct Line {
    task: Task,
    published: Option<usize>,
    /// One and two processes on plain memory.
    plain: [Run; 2],
    /// One, two and three hosts.
    hosts: [Run; HOSTS],
    /// Two processes of one host, which wait by words in the memory, and by locks with names.
    together: [Run; 2],
    /// Two hosts and locks with names, or why not.
    named: std::result::Result<Run, String>,
}

impl Line {
    fn measure(context: &Context, programs: &Programs, cluster: &Cluster, task: Task) -> Result<Line> {
        let plain = |count| several(context, || on_plain_memory(programs, &task, count, false));
        let hosts =
            |count| several(context, || on_hosts(programs, &task, &Place::each_on_its_own(cluster, count)));
        let together = |how| {
            let place = Place { together: true, how, ..Place::each_on_its_own(cluster, 2) };
            several(context, || on_hosts(programs, &task, &place))
        };
        let apart = Place { how: Synchronisation::Named, ..Place::each_on_its_own(cluster, 2) };
        let named = match several(context, || on_hosts(programs, &task, &apart)) {
            Ok(run) => Ok(run),
            // Where locks with names are of one host, that is no failure of this row.
            Err(Failure::Failed(why)) if why.contains("is local to") => Err(why),
            Err(other) => return Err(other),
        };
        Ok(Line {
            task,
            published: None,
            plain: [plain(1)?, plain(2)?],
            hosts: [hosts(1)?, hosts(2)?, hosts(3)?],
            together: [together(Synchronisation::Memory)?, together(Synchronisation::Named)?],
            named,
        })
    }

    /// How much faster so many hosts are than one.
    fn speedup(&self, hosts: usize) -> f64 {
        self.hosts[0].elapsed / self.hosts[hosts - 1].elapsed
    }

    fn to_json(&self) -> Value {
        let run = |run: &Run| {
            json!({
                "elapsed_s": rounded(run.elapsed),
                "programs_s_of_a_processor": rounded(run.programs),
                "hosts_and_keepers_s_of_a_processor": rounded(run.servers),
                "messages": run.traffic.messages,
                "page_bytes": run.traffic.bytes,
                "synchronisations": run.synchronisations,
                "bytes_between_synchronisations": rounded(run.bytes_between()),
            })
        };
        let published = self.published.map(|which| {
            let (name, seconds) = PUBLISHED[which];
            json!({"name": name, "seconds": seconds, "speedup_of_two": rounded(seconds[0] / seconds[1]),
                   "speedup_of_three": rounded(seconds[0] / seconds[2])})
        });
        json!({
            "task": self.task.words(),
            "one_host": run(&self.hosts[0]),
            "two_hosts": run(&self.hosts[1]),
            "three_hosts": run(&self.hosts[2]),
            "speedup_of_two": rounded(self.speedup(2)),
            "speedup_of_three": rounded(self.speedup(3)),
            "speedup_of_two_processes_on_plain_memory": rounded(self.plain[0].elapsed / self.plain[1].elapsed),
            "two_processes_of_one_host": {
                "memory": run(&self.together[0]),
                "named": run(&self.together[1]),
            },
            "two_hosts_named": match &self.named {
                Ok(named) => run(named),
                Err(why) => json!(why),
            },
            "published": published,
        })
    }
}

/// The run of the middle time of some.
fn several(context: &Context, mut once: impl FnMut() -> Result<Run>) -> Result<Run> {
    let (begun, mut runs) = (Instant::now(), Vec::new());
    while runs.is_empty() || (runs.len() < context.pick(ROUNDS, 1) && begun.elapsed() < ENOUGH) {
        runs.push(once()?);
    }
    runs.sort_by(|a, b| a.elapsed.total_cmp(&b.elapsed));
    Ok(runs.swap_remove(runs.len() / 2))
}

/// Places in the order of values, the least first; equal ones share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |value: f64, strictly: bool| {
        values.iter().filter(|other| **other < value || (!strictly && **other == value)).count() as f64
    };
    values.iter().map(|value| (below(*value, true) + below(*value, false) + 1.0) / 2.0).collect()
}

/// Spearman's rank correlation: 1 where both have one order, -1 where they have opposite ones.
fn rank_correlation(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 + 1.0) / 2.0;
    let product = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    product(&a, &b) / (product(&a, &a) * product(&b, &b)).sqrt()
}

fn conclude(lines: &[Line]) -> Vec<Conclusion> {
    let of = |number: &dyn Fn(&Line) -> f64| lines.iter().map(number).collect::<Vec<_>>();
    let is_matrix = |line: &&Line| line.task.application == Application::Matrix;
    let matrix: Vec<f64> = lines.iter().filter(is_matrix).map(|line| line.speedup(2)).collect();
    let others: Vec<f64> = lines.iter().filter(|line| !is_matrix(line)).map(|line| line.speedup(2)).collect();
    let large: Vec<&Line> = lines.iter().filter(|line| line.task.size > 256).collect();
    let plain: Vec<f64> = large.iter().map(|line| line.plain[0].elapsed / line.plain[1].elapsed).collect();
    let order: Vec<f64> = large.iter().map(|line| line.speedup(2)).collect();
    let theirs = [1.98, 1.0, 0.83, 0.53];
    vec![
        Conclusion::new(
            "matrix multiplication shows linear speedup",
            "the best speed-up of the matrices on two hosts",
            most(&matrix),
            Bar::AtLeast(1.8),
        ),
        Conclusion::new(
            "only the matrix multiplication case shows linear speedup",
            "the best speed-up of the others on two hosts",
            most(&others),
            Bar::AtMost(1.8),
        ),
        Conclusion::new(
            "all programs demonstrate linear speedups on a bus-based shared memory multiprocessor",
            "the least speed-up of two processes on plain memory, at the larger sizes",
            least(&plain),
            Bar::AtLeast(1.6),
        ),
        Conclusion::new(
            "matrix, then shortest path, LocusRoute, Mp3d",
            "rank correlation of the speed-ups on two hosts with the paper's",
            rank_correlation(&order, &theirs),
            Bar::AtLeast(0.99),
        ),
        Conclusion::new(
            "the amount of data exchanged between synchronization points is the main indicator",
            "rank correlation of bytes between synchronisations with the speed-up, on two hosts",
            rank_correlation(&of(&|line| line.hosts[1].bytes_between()), &of(&|line| line.speedup(2))),
            Bar::AtLeast(0.8),
        )
        .unless("hosts exchange whole pages: mp3d moves one for a few velocities in it, many bytes for little data"),
    ]
}

impl Row for Table3 {
    fn id(&self) -> &'static str {
        "apps.table3"
    }

    fn unit(&self) -> &'static str {
        conclusions::UNIT
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "Table 3 of Forin et al.: matrix, shortest paths, a router and particles in a strict object on one, two and three hosts, \
         and whether the bytes exchanged between two synchronisations decide"
    }

    fn limit(&self) -> Duration {
        crate::row::LONGEST
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let programs = Programs::compile(context)?;
        let cluster = Cluster::start(context, HOSTS)?;
        let mut lines = Vec::new();
        for (task, published) in tasks(context) {
            let line = Line::measure(context, &programs, &cluster, task)?;
            lines.push(Line { published, ..line });
        }
        let processors = std::thread::available_parallelism()?.get();
        let elapsed: Vec<f64> = lines.iter().map(|line| line.hosts[0].elapsed).collect();
        let detail = json!({
            "table": lines.iter().map(Line::to_json).collect::<Vec<_>>(),
            "median_of_one_host_s": rounded(median(&elapsed)),
            "processors": processors,
            "processors_for_all_hosts": format!("{processors}: more hosts than that share them, and cannot be faster"),
            "synchronisation": "by words in the shared memory, as the paper's programs; by locks with names beside",
            "network": cluster.network().words(),
        });
        conclusions::measured(&conclude(&lines), lines.len(), detail)
    }

    fn page(&self, detail: &Value) -> String {
        format!(
            "\n## Speed-ups and elapsed times\n\n{}\n## What decides\n\n{}\n## Waiting by words in the memory, and by locks with \
             names\n\n{}\n{}",
            times(detail),
            decides(detail),
            waiting(detail),
            conclusions::list(detail)
        )
    }
}

fn rows(detail: &Value, columns: &dyn Fn(&Value) -> Vec<String>) -> Vec<Vec<String>> {
    detail["table"].as_array().into_iter().flatten().map(columns).collect()
}

fn times(detail: &Value) -> String {
    let head = [
        "task",
        "1 host, s",
        "2 hosts, s",
        "3 hosts, s",
        "speed-up of 2",
        "of 3",
        "of 2 processes on plain memory",
        "published: 1, 2, 3, s",
        "speed-up of 2",
        "of 3",
    ];
    let columns = |line: &Value| {
        let mut row = vec![cell(&line["task"])];
        row.extend(["one_host", "two_hosts", "three_hosts"].map(|hosts| cell(&line[hosts]["elapsed_s"])));
        row.extend(
            ["speedup_of_two", "speedup_of_three", "speedup_of_two_processes_on_plain_memory"]
                .map(|name| cell(&line[name])),
        );
        let published = &line["published"];
        row.extend(["seconds", "speedup_of_two", "speedup_of_three"].map(|name| cell(&published[name])));
        row
    };
    markdown(&head, &rows(detail, &columns))
}

fn decides(detail: &Value) -> String {
    let head = [
        "task, two hosts",
        "messages",
        "MiB of pages",
        "synchronisations",
        "bytes between two",
        "speed-up of 2",
        "programs, s of a processor",
        "hosts and keepers, s of a processor",
    ];
    let columns = |line: &Value| {
        let two = &line["two_hosts"];
        let mib = two["page_bytes"].as_f64().map(|bytes| rounded(bytes / f64::from(1 << 20)));
        vec![
            cell(&line["task"]),
            cell(&two["messages"]),
            cell(&json!(mib)),
            cell(&two["synchronisations"]),
            cell(&two["bytes_between_synchronisations"]),
            cell(&line["speedup_of_two"]),
            cell(&two["programs_s_of_a_processor"]),
            cell(&two["hosts_and_keepers_s_of_a_processor"]),
        ]
    };
    markdown(&head, &rows(detail, &columns))
}

fn waiting(detail: &Value) -> String {
    let head = [
        "task",
        "one host, two processes, memory, s",
        "named, s",
        "two hosts, memory, s",
        "two hosts, named, s",
    ];
    let columns = |line: &Value| {
        let together = &line["two_processes_of_one_host"];
        let named = &line["two_hosts_named"];
        let named = if named.is_string() { "refused".into() } else { cell(&named["elapsed_s"]) };
        vec![
            cell(&line["task"]),
            cell(&together["memory"]["elapsed_s"]),
            cell(&together["named"]["elapsed_s"]),
            cell(&line["two_hosts"]["elapsed_s"]),
            named,
        ]
    };
    markdown(&head, &rows(detail, &columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_order_is_1_and_the_opposite_one_is_less() {
        assert_eq!(rank_correlation(&[1.0, 5.0, 30.0], &[0.1, 0.2, 0.3]), 1.0);
        assert_eq!(rank_correlation(&[1.0, 5.0, 30.0], &[3.0, 2.0, 1.0]), -1.0);
        assert_eq!(ranks(&[2.0, 1.0, 2.0]), [2.5, 1.0, 2.5]);
        let some = rank_correlation(&[1.0, 2.0, 3.0, 4.0], &[1.0, 3.0, 2.0, 4.0]);
        assert!((some - 0.8).abs() < 1e-9, "{some}");
    }

    fn line(application: Application, seconds: [f64; 3], bytes: u64) -> Line {
        let run = |elapsed| Run {
            elapsed,
            synchronisations: 1,
            traffic: crate::cluster::Traffic { bytes, ..Default::default() },
            ..Run::default()
        };
        Line {
            task: Task::new(application, 1000, 1),
            published: None,
            plain: [run(2.0), run(1.1)],
            hosts: seconds.map(run),
            together: [run(1.1), run(1.0)],
            named: Err("is local to host0".into()),
        }
    }

    #[test]
    fn the_papers_own_figures_lead_to_its_conclusions() {
        let lines: Vec<Line> = Application::ALL
            .into_iter()
            .zip(&PUBLISHED[1..])
            .zip([1_000_000, 10_000, 1000, 100])
            .map(|((application, (_, seconds)), bytes)| line(application, *seconds, bytes))
            .collect();
        let judged = conclude(&lines);
        let measured = conclusions::measured(&judged, 1, json!({})).unwrap();
        assert_eq!(measured.value, judged.len() as f64, "{measured:?}");
        // And others do not: the bytes of the fastest are the fewest.
        let lines =
            [line(Application::Matrix, [2.0, 4.0, 4.0], 10), line(Application::Path, [2.0, 1.0, 1.0], 5)];
        assert!(conclusions::measured(&conclude(&lines), 1, json!({})).unwrap().value < judged.len() as f64);
    }
}
