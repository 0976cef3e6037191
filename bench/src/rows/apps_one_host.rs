//! `apps.one_host_cost`: what a strict object costs an application that has it alone.

use crate::applications::{Application, Place, Programs, Task, on_hosts, on_plain_memory};
use crate::cluster::Cluster;
use crate::context::Context;
use crate::failure::{Result, failed};
use crate::measure::{Pairs, alternate};
use crate::row::{Bar, Measured, Row, rounded};
use serde_json::{Map, json};
use std::cell::RefCell;

/// The row.
pub struct OneHostCost;

/// Each takes some two seconds in one process.
fn tasks(context: &Context) -> [Task; 4] {
    [
        Task::new(Application::Matrix, context.pick(1344, 256), 1),
        Task::new(Application::Path, context.pick(3072, 512), 1),
        Task::new(Application::Locus, context.pick(4096, 512), context.pick(5, 2)),
        Task::new(Application::Mp3d, context.pick(24576, 4096), context.pick(2200, 100)),
    ]
}

impl Row for OneHostCost {
    fn id(&self) -> &'static str {
        "apps.one_host_cost"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.03))
    }

    fn about(&self) -> &'static str {
        "one process that runs an application in a strict object that nobody else has, all pages touched before ÷ in plain \
         memory, touched before: the worst of matrix, shortest paths, router and particles"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let programs = Programs::compile(context)?;
        let cluster = Cluster::start(context, 2)?;
        let place = Place { touched: true, ..Place::each_on_its_own(&cluster, 1) };
        let (mut worst, mut each): (Option<Pairs>, _) = (None, Map::new());
        for task in tasks(context) {
            let (elapsed, processor) = costs(context, &programs, &task, &place)?;
            let summary = json!({"elapsed": elapsed.summary(1.0), "of_a_processor": processor.summary(1.0)});
            each.insert(task.words(), summary);
            worst = match worst {
                Some(before) if before.ratio() >= elapsed.ratio() => Some(before),
                _ => Some(elapsed),
            };
        }
        let Some(worst) = worst else { return failed("nothing was measured") };
        let detail = json!({
            "seconds": each,
            "worst": rounded(worst.ratio()),
            "network": cluster.network().words(),
        });
        Ok(worst.measured(worst.ratio(), detail))
    }
}

/// Seconds of one process in an object and in plain memory, in turns: elapsed, and of a processor.
fn costs(context: &Context, programs: &Programs, task: &Task, place: &Place<'_>) -> Result<(Pairs, Pairs)> {
    let processor = RefCell::new(Pairs::default());
    let elapsed = alternate(
        context.pick(11, 2),
        |_| {
            let run = on_hosts(programs, task, place)?;
            processor.borrow_mut().ours.push(run.programs);
            Ok(run.elapsed)
        },
        |_| {
            let run = on_plain_memory(programs, task, 1, true)?;
            processor.borrow_mut().theirs.push(run.programs);
            Ok(run.elapsed)
        },
    )?;
    Ok((elapsed, processor.into_inner()))
}
