//! `stat` and `map-info`.

use super::list::name_of;
use crate::arguments::objects::{Names, OneName};
use crate::failure::{Done, all_done};
use crate::output::{answer, columns, count, say, say_json};
use crate::people::People;
use crate::units::{format_milliseconds, format_mode, format_size};
use crate::view::{EntryView, MappingView, last_death_word, strict_page_size};
use commonhold::tags::Tagged;
use commonhold::{
    EntryInfo, Fixed, Host, Losses, ObjectInfo, Ownership, PAGE_SIZE_BYTES, PagerKind, Translation,
};

/// A tag that is longer is told by its hash.
const LONGEST_TAG: usize = 64;

/// Tells all there is to know of each name.
pub fn stat(host: &Host, arguments: &Names) -> Done {
    let mut people = People::default();
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    for name in &arguments.names {
        match host.stat(name) {
            Ok(entry) => entries.push(entry),
            Err(error) => errors.push(error),
        }
    }
    if arguments.form.json {
        say_json(&entries.iter().map(|entry| EntryView::new(entry, &mut people)).collect::<Vec<_>>())?;
    } else if !entries.is_empty() {
        let blocks: Vec<_> = entries.iter().map(|entry| block(entry, &mut people)).collect();
        say(blocks.join("\n\n"))?;
    }
    all_done(errors)
}

fn block(entry: &EntryInfo, people: &mut People) -> String {
    let lines = match entry {
        EntryInfo::Directory { name, ownership } => {
            vec![
                ("name", if name.as_str() == "/" { "/".to_owned() } else { format!("{name}/") }),
                ("kind", "directory".to_owned()),
                ("access", access(ownership, people)),
            ]
        }
        EntryInfo::Object(info) => object_lines(info, people),
    };
    columns(None, lines.into_iter().map(|(key, value)| vec![key.to_owned(), value]).collect(), &[])
}

fn access(ownership: &Ownership, people: &mut People) -> String {
    let (user, group) = (people.user(ownership.uid), people.group(ownership.gid));
    format!("{} ({:04o}), owner {user}, group {group}", format_mode(ownership.mode), ownership.mode)
}

fn object_lines(info: &ObjectInfo, people: &mut People) -> Vec<(&'static str, String)> {
    let options = &info.options;
    let mut lines = vec![
        ("name", name_of(info)),
        ("kind", format!("object {}, {}", info.id.0, if info.controlled { "controlled" } else { "direct" })),
        ("access", access(&info.ownership, people)),
        ("size", format!("{} ({} bytes)", format_size(options.size_bytes), options.size_bytes)),
        ("pager", pager(info)),
        (
            "sync",
            format!(
                "{}, {}{}",
                options.coherence.word(),
                options.sync.word(),
                match (options.read_only, options.freezable) {
                    (true, _) => ", a snapshot",
                    (_, true) => ", freezable",
                    _ => "",
                }
            ),
        ),
        ("reserved", if options.reserves() { "yes" } else { "no" }.to_owned()),
    ];
    if info.controlled {
        lines.push(("on last death", last_death_word(options.on_last_death).to_owned()));
    }
    let optional = [
        ("page size", strict_page_size(options).map(|size| size.to_string())),
        ("replicas", (options.replicas > 0).then(|| options.replicas.to_string())),
        ("home", home(info)),
        ("translation", options.is_wired().then(|| options.translation.word().to_owned())),
        ("page tables", page_tables(info)),
        ("address", options.fixed.map(address)),
        ("ephemeral", options.ephemeral_ms.map(ephemeral)),
        ("budget", options.budget_bytes.map(format_size)),
        ("fault deadline", options.fault_deadline().map(|ms| format_milliseconds(ms.into()))),
        ("pager deadline", options.pager_deadline_ms.map(|ms| format_milliseconds(ms.into()))),
        ("description", (!options.description.is_empty()).then(|| options.description.clone())),
    ];
    lines.extend(optional.into_iter().filter_map(|(key, value)| Some((key, value?))));
    let runs = options.types.all().map(|run| ("types", of_pages(&run)));
    lines.extend(runs);
    if let Some(format) = options.types.format() {
        lines.push(("stored as", format.word().to_owned()));
    }
    if info.translated.pages > 0 {
        lines.push(("translated", super::host::translated(&info.translated)));
    }
    lines.push(("memory", memory(info)));
    lines.push((
        "use",
        format!("{}, opened by {}", count(info.mappings, "mapping"), count(info.opens, "session")),
    ));
    if !info.charged_to.is_empty() {
        lines.push(("charged to", info.charged_to.clone()));
    }
    let Losses { lost_pages, reverted_pages, .. } = info.losses;
    if lost_pages + reverted_pages > 0 {
        let pages = format!(
            "{} with hosts, {reverted_pages} went back to an older version",
            count(lost_pages, "page")
        );
        lines.push(("lost", pages));
    }
    if !info.warning.is_empty() {
        lines.push(("warning", info.warning.clone()));
    }
    lines
}

/// Where it is in all processes, and how far it may grow there.
fn address(fixed: Fixed) -> String {
    format!("{:#x} in all processes, room for {}", fixed.address, format_size(fixed.room_bytes))
}

/// When its name goes.
fn ephemeral(after_ms: u32) -> String {
    match after_ms {
        0 => "goes with its last user".to_owned(),
        _ => format!("goes {} after its last user", format_milliseconds(after_ms.into())),
    }
}

/// Which pages have which tag. A long one is known by its hash.
fn of_pages(run: &Tagged<'_>) -> String {
    let text = run.tag.to_string();
    let tag = match text.len() {
        0..=LONGEST_TAG => text,
        _ => format!("#{:016x}, a record of {} bytes", run.tag.hash(), run.tag.bytes()),
    };
    let (first, bytes) = (run.first * PAGE_SIZE_BYTES, run.count * PAGE_SIZE_BYTES);
    format!("{} from byte {first} on: {tag}", format_size(bytes))
}

/// Whether processes share its page tables, and what proves it.
fn page_tables(info: &ObjectInfo) -> Option<String> {
    let tables = match (info.options.translation, info.page_tables) {
        (Translation::Paged | Translation::Wired, _) => return None,
        (Translation::SharedTables, 0) => "how many there are, the kernel tells a host of root".to_owned(),
        (Translation::SharedTables, tables) => format!("{tables} of each page, 2 of them the host's"),
        (Translation::SharedTables4K, tables) => format!("{tables}, however many processes have it attached"),
    };
    Some(format!("shared; {tables}"))
}

/// Where an object of a cluster has its home, and whether that moves.
fn home(info: &ObjectInfo) -> Option<String> {
    let moves = if info.options.home_moves { ", moves when it is lost" } else { "" };
    match info.home.as_str() {
        "" => info.options.home_moves.then(|| "moves when it is lost".to_owned()),
        home => Some(format!("{home}{}{moves}", if info.is_elsewhere { "" } else { " (this host)" })),
    }
}

fn pager(info: &ObjectInfo) -> String {
    match &info.options.pager {
        PagerKind::Anonymous => "anonymous".to_owned(),
        PagerKind::File => format!("file {}", info.file_path),
        PagerKind::External { pager } => format!("external, served as {pager}"),
    }
}

fn memory(info: &ObjectInfo) -> String {
    let resident = format!("{} resident", format_size(info.resident_bytes));
    if !info.controlled {
        return resident;
    }
    format!(
        "{resident}, {} unsynced, {} spilled",
        format_size(info.dirty_bytes),
        format_size(info.spilled_bytes)
    )
}

/// Tells who maps an object.
pub fn map_info(host: &Host, arguments: &OneName) -> Done {
    let mut people = People::default();
    let mappings = host.map_info(&arguments.name)?;
    let views: Vec<_> = mappings.iter().map(|mapping| MappingView::new(mapping, &mut people)).collect();
    answer(arguments.form.json, &views, |views| {
        if views.is_empty() {
            return format!("{}: nobody maps it", arguments.name);
        }
        let rows = views.iter().map(mapping_row).collect();
        let header = ["PID", "PROGRAM", "USER", "ADDRESS", "LENGTH", "OFFSET", "ACCESS", "SHARING", "FAULTS"];
        columns(Some(&header), rows, &[0, 3, 4, 5, 8])
    })
}

fn mapping_row(view: &MappingView) -> Vec<String> {
    vec![
        view.pid.to_string(),
        view.program.clone().unwrap_or_else(|| "?".to_owned()),
        view.user.clone(),
        view.address.clone(),
        format_size(view.length_bytes),
        format_size(view.offset_bytes),
        view.protection.to_owned(),
        view.sharing.to_owned(),
        view.faults.to_string(),
    ]
}
