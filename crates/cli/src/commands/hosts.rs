//! `hosts`.

use crate::failure::Done;
use crate::output::{answer, columns};
use crate::units::format_milliseconds;
use commonhold::{ClusterHost, Host, Trouble};
use serde::Serialize;

#[derive(Serialize)]
struct View {
    name: String,
    number: u32,
    address: String,
    this: bool,
    keeps_list: bool,
    unreachable: bool,
    through: Option<String>,
    waits: bool,
    trouble: Option<Trouble>,
}

impl View {
    fn new(host: ClusterHost) -> View {
        View {
            name: host.name,
            number: host.number,
            address: host.address.to_string(),
            this: host.is_this,
            keeps_list: host.keeps_list,
            unreachable: host.is_unreachable,
            through: host.through,
            waits: host.waits,
            trouble: host.trouble,
        }
    }
}

/// Why, and for how long.
pub fn trouble(trouble: &Trouble) -> String {
    format!("{}, for {}", trouble.why, format_milliseconds(trouble.for_ms))
}

/// Lists the hosts of the cluster.
pub fn hosts(host: &Host, json: bool) -> Done {
    let views: Vec<View> = host.hosts()?.into_iter().map(View::new).collect();
    answer(json, &views, |views| {
        if views.is_empty() {
            return "this host is in no cluster: `commonhold host start --listen ADDRESS:PORT` begins or joins one"
                .to_owned();
        }
        let words = |view: &View| {
            let roles = [
                (view.this, "this host"),
                (view.keeps_list, "keeps the list"),
                (view.unreachable, "cannot be reached"),
                (view.waits, "waits for the cluster's registry"),
            ];
            let mut words: Vec<String> =
                roles.iter().filter(|(is, _)| *is).map(|(_, word)| (*word).to_owned()).collect();
            words.extend(view.trouble.as_ref().map(trouble));
            words.extend(view.through.as_ref().map(|relay| format!("reached through {relay}")));
            words.join(", ")
        };
        let row = |view: &View| vec![view.name.clone(), view.address.clone(), words(view)];
        columns(Some(&["NAME", "ADDRESS", ""]), views.iter().map(row).collect(), &[])
    })
}
