//! `stats`.

use crate::arguments::seeing::Stats;
use crate::failure::{Done, all_done};
use crate::output::{columns, count, say, say_json};
use crate::units::format_size;
use commonhold::{Host, MessageKind, ObjectCounts, PageCount, Seen};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// An object's name for people.
pub fn label(object: &ObjectCounts) -> String {
    object.name.as_ref().map_or_else(|| format!("(object {}, removed)", object.id.0), ToString::to_string)
}

/// Tells what was counted.
pub fn stats(host: &Host, arguments: &Stats) -> Done {
    let mut errors = Vec::new();
    let mut seen = Vec::new();
    if arguments.names.is_empty() {
        seen.push(host.all_counts(arguments.pages)?);
    }
    for name in &arguments.names {
        match host.counts(name, arguments.pages) {
            Ok(found) => seen.push(found),
            Err(error) => errors.push(error),
        }
    }
    if arguments.form.json {
        let objects =
            seen.iter().flat_map(|seen| seen.objects.iter().map(move |object| View::new(seen, object)));
        say_json(&objects.collect::<Vec<_>>())?;
    } else if arguments.names.is_empty() {
        let seen = &seen[0];
        say(if seen.objects.is_empty() { "no object is in use".to_owned() } else { overview(seen) })?;
    } else if !seen.is_empty() {
        let blocks = seen.iter().flat_map(|seen| seen.objects.iter().map(move |object| block(seen, object)));
        say(blocks.collect::<Vec<_>>().join("\n\n"))?;
    }
    all_done(errors)
}

/// One line an object.
fn overview(seen: &Seen) -> String {
    let row = |object: &ObjectCounts| {
        let c = &object.counts;
        let kinds = MessageKind::ALL.map(|kind| {
            let (sent, received, _) = object.of_kind(kind);
            sent + received
        });
        let numbers = [c.read_faults, c.write_faults, c.protection_faults].into_iter().chain(kinds);
        let numbers = numbers.chain([c.forwards, c.hand_overs, c.conflicts, c.waits]);
        let mut row = vec![label(object)];
        row.extend(numbers.map(|number| number.to_string()));
        row.push(format_size(c.bytes_sent + c.bytes_received));
        row
    };
    let header = [
        "NAME",
        "READ",
        "WRITE",
        "PROTECTION",
        "REQUESTS",
        "PAGES",
        "ACKS",
        "FORWARDS",
        "HAND-OVERS",
        "CONFLICTS",
        "WAITS",
        "MOVED",
    ];
    let right: Vec<usize> = (1..header.len()).collect();
    columns(Some(&header), seen.objects.iter().map(row).collect(), &right)
}

fn milliseconds(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

fn block(seen: &Seen, object: &ObjectCounts) -> String {
    let c = &object.counts;
    let home = match (object.shared, object.elsewhere) {
        (false, _) => "this host's alone",
        (true, false) => "shared, home is this host",
        (true, true) => "shared, home is another host",
    };
    let mean = c.waited_ns.checked_div(c.waits).unwrap_or(0);
    let lines = [
        ("name", label(object)),
        ("kind", home.to_owned()),
        (
            "faults",
            format!("{} read, {} write, {} protection", c.read_faults, c.write_faults, c.protection_faults),
        ),
        (
            "waits",
            format!(
                "{}, {} on average, {} the longest; {} ended in SIGBUS",
                c.waits,
                milliseconds(mean),
                milliseconds(c.longest_wait_ns),
                c.refused
            ),
        ),
        ("ownership", format!("{} handed over to here, {} taken", count(c.hand_overs, "page"), c.taken)),
        ("forwards", c.forwards.to_string()),
        ("moved", format!("{} sent, {} received", format_size(c.bytes_sent), format_size(c.bytes_received))),
        (
            "syncs",
            format!("{} of {}, {}", c.syncs, count(c.synced_pages, "page"), count(c.conflicts, "conflict")),
        ),
    ];
    let mut parts =
        vec![columns(None, lines.into_iter().map(|(key, value)| vec![key.to_owned(), value]).collect(), &[])];
    if !object.messages.is_empty() {
        let row = |m: &commonhold::MessageCount| {
            let numbers = [m.sent, m.received, m.local].map(|number| number.to_string());
            [vec![m.name.clone(), m.kind.word().to_owned()], numbers.to_vec()].concat()
        };
        let header = ["MESSAGE", "KIND", "SENT", "RECEIVED", "LOCAL"];
        parts.push(columns(Some(&header), object.messages.iter().map(row).collect(), &[2, 3, 4]));
    }
    if !object.pages.is_empty() {
        let header = [
            "PAGE",
            "HEAT",
            "READ",
            "WRITE",
            "PROTECTION",
            "MESSAGES",
            "LOCAL",
            "FORWARDS",
            "MOVED",
            "HAND-OVERS",
            "OWNER",
        ];
        let rows = object.pages.iter().map(|page| page_row(seen, object, page)).collect();
        parts.push(columns(Some(&header), rows, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]));
    }
    parts.join("\n\n")
}

/// Who owns a page, in words.
pub fn owner(seen: &Seen, object: &ObjectCounts, page: &PageCount) -> String {
    match page.owner {
        Some(owner) => seen.called(owner),
        None if object.elsewhere => "another or none".to_owned(),
        None => "none".to_owned(),
    }
}

fn page_row(seen: &Seen, object: &ObjectCounts, page: &PageCount) -> Vec<String> {
    let heat = if page.excess > 0 {
        format!("{}..{}", page.heat - page.excess, page.heat)
    } else {
        page.heat.to_string()
    };
    let faults = [page.read_faults, page.write_faults, page.protection_faults];
    let numbers = faults.into_iter().chain([page.messages, page.local, page.forwards]);
    let numbers = numbers.map(|number| number.to_string()).collect();
    let rest = vec![format_size(page.bytes), page.hand_overs.to_string(), owner(seen, object, page)];
    [vec![page.page.to_string(), heat], numbers, rest].concat()
}

/// An object as a document for programs.
#[derive(Serialize)]
struct View<'a> {
    name: Option<&'a str>,
    id: u64,
    host: String,
    host_process: u32,
    size_bytes: u64,
    shared: bool,
    home_is_this_host: bool,
    faults: Value,
    waits: Value,
    forwards: u64,
    hand_overs: u64,
    taken_pages: u64,
    bytes_sent: u64,
    bytes_received: u64,
    syncs: u64,
    synced_pages: u64,
    conflicts: u64,
    kinds: Map<String, Value>,
    messages: Vec<Value>,
    pages: Vec<Value>,
}

impl<'a> View<'a> {
    fn new(seen: &Seen, object: &'a ObjectCounts) -> View<'a> {
        let c = &object.counts;
        let kind = |kind: MessageKind| {
            let (sent, received, local) = object.of_kind(kind);
            (kind.word().to_owned(), json!({ "sent": sent, "received": received, "local": local }))
        };
        let message = |m: &commonhold::MessageCount| json!({ "name": m.name, "kind": m.kind.word(), "sent": m.sent, "received": m.received, "local": m.local });
        let page = |p: &PageCount| {
            let kinds = MessageKind::ALL.iter().zip(p.by_kind);
            let kinds: Map<String, Value> =
                kinds.map(|(kind, number)| (kind.word().to_owned(), json!(number))).collect();
            json!({
                "page": p.page, "heat": p.heat, "heat_excess": p.excess, "read_faults": p.read_faults,
                "write_faults": p.write_faults, "protection_faults": p.protection_faults, "messages": p.messages,
                "kinds": kinds, "local_messages": p.local, "forwards": p.forwards, "bytes": p.bytes,
                "hand_overs": p.hand_overs, "owner": p.owner.map(|owner| seen.called(owner)), "owner_number": p.owner,
            })
        };
        View {
            name: object.name.as_ref().map(|name| name.as_str()),
            id: object.id.0,
            host: seen.called(seen.host),
            host_process: seen.process,
            size_bytes: object.size_bytes,
            shared: object.shared,
            home_is_this_host: !object.elsewhere,
            faults: json!({ "read": c.read_faults, "write": c.write_faults, "protection": c.protection_faults }),
            waits: json!({
                "number": c.waits, "nanoseconds": c.waited_ns, "longest_nanoseconds": c.longest_wait_ns,
                "refused": c.refused,
            }),
            forwards: c.forwards,
            hand_overs: c.hand_overs,
            taken_pages: c.taken,
            bytes_sent: c.bytes_sent,
            bytes_received: c.bytes_received,
            syncs: c.syncs,
            synced_pages: c.synced_pages,
            conflicts: c.conflicts,
            kinds: MessageKind::ALL.map(kind).into_iter().collect(),
            messages: object.messages.iter().map(message).collect(),
            pages: object.pages.iter().map(page).collect(),
        }
    }
}
