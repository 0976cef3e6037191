//! `mach.fig8`: who believes the page is where, as in Figure 8 of Forin et al.

use crate::context::Context;
use crate::failure::Result;
use crate::row::{Bar, Measured, Row};
use commonhold_simulator::measure::{HasPage, Strict, hotspot};
use serde_json::json;

const CYCLES: usize = 12;

/// Servers 1, N-1 and N know that the page is at N; every other server i believes it at i + 1. (From 0 here.)
fn published(hosts: usize) -> Vec<u32> {
    let last = hosts as u32 - 1;
    (0..=last).map(|server| if server == 0 { last } else { (server + 1).min(last) }).collect()
}

fn lines_run(cycles: usize) -> usize {
    5 * (cycles + 1)
}

/// The row.
pub struct MachFig8;

impl Row for MachFig8 {
    fn id(&self) -> &'static str {
        "mach.fig8"
    }

    fn unit(&self) -> &'static str {
        "published figures reproduced"
    }

    fn bar(&self) -> Option<Bar> {
        None
    }

    fn about(&self) -> &'static str {
        "Figure 8 of Forin et al.: whom each of N servers believes to have the page after the first N-party write cycle, and \
         whether later cycles lead to such configurations again (simulated hosts)"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let _ = context; // nothing is drawn
        let (mut reproduced, mut lines) = (0, Vec::new());
        for hosts in [3usize, 4, 8, 16, 64] {
            let hints = hotspot(Strict::Forwarding, hosts, CYCLES, None, HasPage::Local).hints;
            let same = hints[0] == published(hosts);
            reproduced += u32::from(same);
            // The paper counts servers from 1.
            let people = |hints: &Vec<u32>| hints.iter().map(|hint| hint + 1).collect::<Vec<u32>>();
            let first = hints.iter().skip(1).position(|later| hints[1 + CYCLES / 2..].contains(later));
            lines.push(json!({
                "servers": hosts,
                "published_after_first_cycle": people(&published(hosts)),
                "after_first_cycle": people(&hints[0]),
                "same": same,
                "after_later_cycles": hints[1..4].iter().map(people).collect::<Vec<_>>(),
                "initial_state_again": hints[1..].contains(&vec![0; hosts]),
                "recurs_from_cycle": first.map(|cycle| cycle + 2),
            }));
        }
        let detail = json!({"hosts": "simulated", "figures": lines});
        Ok(Measured::single(f64::from(reproduced), lines_run(CYCLES), detail))
    }
}
