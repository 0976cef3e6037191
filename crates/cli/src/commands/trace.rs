//! `trace`.

use super::interrupts::Interrupts;
use crate::arguments::seeing::Trace;
use crate::failure::{Done, Failure};
use crate::output::{count, printable};
use commonhold::{Host, TraceLine, Traced};
use serde_json::json;
use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

/// Between two looks when nothing happens.
const PAUSE: Duration = Duration::from_millis(50);

/// Prints lines as they come, until it is interrupted.
pub fn trace(host: &Host, arguments: &Trace) -> Done {
    let interrupts = Interrupts::watch()?;
    let mut place = None;
    let mut left = arguments.lines.unwrap_or(u64::MAX);
    let mut begun = false;
    while left > 0 && interrupts.came().is_none() {
        let traced = host.trace(&arguments.name, place)?;
        place = Some(traced.place);
        let mut text = String::new();
        if !std::mem::replace(&mut begun, true) {
            eprintln!("commonhold: tracing {}; interrupt to end", printable(&arguments.name, false));
        }
        if traced.anew {
            text += &remark(arguments.json, "the trace begins anew: what happened before is not known", None);
        }
        if traced.lost > 0 {
            let what = format!("{} lost: they came faster than they were read", count(traced.lost, "line"));
            text += &remark(arguments.json, &what, Some(traced.lost));
        }
        let lines = traced.lines.iter().take(usize::try_from(left).unwrap_or(usize::MAX));
        for line in lines {
            text += &if arguments.json { document(&traced, line) } else { words(&traced, line) };
            left -= 1;
        }
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::writing)?;
        if !traced.more && left > 0 {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

fn remark(json: bool, what: &str, lost: Option<u64>) -> String {
    if json { format!("{}\n", json!({ "remark": what, "lost": lost })) } else { format!("-- {what}\n") }
}

fn name(traced: &Traced, host: u32) -> String {
    let found = traced.hosts.iter().find(|(number, _)| *number == host);
    found.map_or_else(|| format!("host {host}"), |(_, name)| printable(name, false))
}

/// Hours to microseconds, UTC: the date is known to whoever looks.
fn time(ns: u64) -> String {
    let stamp = humantime::format_rfc3339_micros(UNIX_EPOCH + Duration::from_nanos(ns)).to_string();
    stamp.split('T').nth(1).unwrap_or("").trim_end_matches('Z').to_owned()
}

fn words(traced: &Traced, line: &TraceLine) -> String {
    let pages = match line.pages {
        0 => String::new(),
        1 => format!(" page {}", line.first_page),
        more => format!(" {more} pages from {}", line.first_page),
    };
    let way = match line.kind {
        None => name(traced, line.from),
        Some(_) => format!("{} -> {}", name(traced, line.from), name(traced, line.to)),
    };
    let bytes = if line.bytes > 0 { format!(" with {} bytes", line.bytes) } else { String::new() };
    format!("{} {way} {}{pages}{bytes}\n", time(line.at_ns), line.what)
}

fn document(traced: &Traced, line: &TraceLine) -> String {
    let document = json!({
        "number": line.number, "at_ns": line.at_ns, "from": name(traced, line.from), "to": name(traced, line.to),
        "what": line.what, "kind": line.kind.map(|kind| kind.word()), "first_page": line.first_page,
        "pages": line.pages, "bytes": line.bytes,
    });
    format!("{document}\n")
}
