//! `mach.fig8`: who believes the page is where, as in Figure 8 of Forin et al.

use crate::conclusions::{self, Conclusion};
use crate::context::Context;
use crate::failure::Result;
use crate::row::{Bar, Measured, Row};
use crate::sprite::table::{cell, markdown};
use commonhold_simulator::measure::{HasPage, Strict, hotspot};
use serde_json::{Value, json};
use std::collections::BTreeSet;

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
        conclusions::UNIT
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
        let (mut others, mut lines) = (0, Vec::new());
        let (mut configurations, mut initial_again) = (0, 0);
        for hosts in [3usize, 4, 8, 16, 64] {
            let hints = hotspot(Strict::Forwarding, hosts, CYCLES, None, HasPage::Local).hints;
            let same = hints[0] == published(hosts);
            others += u32::from(!same);
            let distinct: BTreeSet<&Vec<u32>> = hints.iter().collect();
            configurations = configurations.max(distinct.len());
            let again = hints[1..].contains(&vec![0; hosts]);
            initial_again += u32::from(again);
            // The paper counts servers from 1.
            let people = |hints: &Vec<u32>| hints.iter().map(|hint| hint + 1).collect::<Vec<u32>>();
            lines.push(json!({
                "servers": hosts,
                "published_after_first_cycle": people(&published(hosts)),
                "after_first_cycle": people(&hints[0]),
                "same": same,
                "after_later_cycles": hints[1..4].iter().map(people).collect::<Vec<_>>(),
                "initial_state_again": again,
                "configurations": distinct.len(),
            }));
        }
        let judged = [
            Conclusion::new(
                "after the first cycle servers 1, N-1 and N know the place of the page, and each other i believes it at i + 1",
                "numbers of servers, of 3, 4, 8, 16 and 64, where it is otherwise",
                f64::from(others),
                Bar::AtMost(0.0),
            ),
            Conclusion::new(
                "the system oscillates between two configurations",
                format!(
                    "configurations after each of {} cycles, the most of any number of servers",
                    CYCLES + 1
                ),
                configurations as f64,
                Bar::Exactly(2.0),
            ),
            Conclusion::new(
                "it never enters the initial state again",
                "numbers of servers where it does",
                f64::from(initial_again),
                Bar::AtMost(0.0),
            ),
        ];
        conclusions::measured(&judged, lines_run(CYCLES), json!({"hosts": "simulated", "figures": lines}))
    }

    fn page(&self, detail: &Value) -> String {
        let columns = ["servers", "published_after_first_cycle", "after_first_cycle", "configurations"];
        let head = ["servers", "published after the first cycle", "after the first cycle", "configurations"];
        let rows = detail["figures"].as_array().into_iter().flatten();
        let rows: Vec<Vec<String>> =
            rows.map(|row| columns.iter().map(|column| cell(&row[*column])).collect()).collect();
        format!("\n{}{}\nHosts are simulated.\n", markdown(&head, &rows), conclusions::list(detail))
    }
}
