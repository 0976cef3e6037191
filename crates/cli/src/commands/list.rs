//! `ls`.

use crate::arguments::objects::List;
use crate::failure::Done;
use crate::output::{answer, columns, count};
use crate::people::People;
use crate::units::{format_mode, format_size};
use crate::view::EntryView;
use commonhold::{EntryInfo, Host, ObjectInfo, PagerKind, Result};
use std::path::Path;

/// Lists directories, and shows objects.
pub fn list(host: &Host, arguments: &List) -> Done {
    let mut entries = Vec::new();
    for name in &arguments.names {
        if is_object(host, name)? {
            entries.push(host.stat(name)?);
        } else {
            collect(host, name, arguments.recursive, &mut entries)?;
        }
    }
    let mut people = People::default();
    if arguments.form.json {
        let views: Vec<_> = entries.iter().map(|entry| EntryView::new(entry, &mut people)).collect();
        return answer(true, &views, |_| String::new());
    }
    answer(false, &(), |()| {
        if arguments.long {
            let rows = entries.iter().map(|entry| long_row(entry, &mut people)).collect();
            columns(None, rows, &[3])
        } else {
            entries.iter().map(short).collect::<Vec<_>>().join("\n")
        }
    })
}

/// The root is a directory even in a host that has nothing yet.
fn is_object(host: &Host, name: &str) -> Result<bool> {
    Ok(name != "/" && matches!(host.stat(name)?, EntryInfo::Object(_)))
}

fn collect(host: &Host, directory: &str, recursive: bool, entries: &mut Vec<EntryInfo>) -> Result<()> {
    for entry in host.list(directory)? {
        let below = match &entry {
            EntryInfo::Directory { name, .. } if recursive => Some(name.clone()),
            _ => None,
        };
        entries.push(entry);
        if let Some(name) = below {
            collect(host, name.as_str(), recursive, entries)?;
        }
    }
    Ok(())
}

fn short(entry: &EntryInfo) -> String {
    match entry {
        EntryInfo::Directory { name, .. } => format!("{name}/"),
        EntryInfo::Object(info) => named(info),
    }
}

/// Name of an object for people.
pub fn name_of(info: &ObjectInfo) -> String {
    info.name.as_ref().map_or_else(|| "(removed)".to_owned(), |name| name.as_str().to_owned())
}

/// The same in a list, where another host's says so.
fn named(info: &ObjectInfo) -> String {
    if info.is_elsewhere { format!("{}  @{}", name_of(info), info.home) } else { name_of(info) }
}

fn long_row(entry: &EntryInfo, people: &mut People) -> Vec<String> {
    match entry {
        EntryInfo::Directory { name, ownership } => vec![
            format_mode(ownership.mode),
            people.user(ownership.uid),
            people.group(ownership.gid),
            "-".to_owned(),
            "directory".to_owned(),
            String::new(),
            String::new(),
            format!("{name}/"),
        ],
        EntryInfo::Object(info) => vec![
            format_mode(info.ownership.mode),
            people.user(info.ownership.uid),
            people.group(info.ownership.gid),
            format_size(info.options.size_bytes),
            pager_cell(info),
            format!("{}, {}", info.options.coherence.word(), info.options.sync.word()),
            count(info.mappings, "mapping"),
            if info.warning.is_empty() {
                named(info)
            } else {
                format!("{}  ! {}", named(info), info.warning)
            },
        ],
    }
}

/// `anonymous`, `file counts.bin` or `pager /zstd`.
fn pager_cell(info: &ObjectInfo) -> String {
    match &info.options.pager {
        PagerKind::Anonymous => "anonymous".to_owned(),
        PagerKind::External { pager } => format!("pager {pager}"),
        PagerKind::File => {
            let path = Path::new(&info.file_path);
            format!("file {}", path.file_name().unwrap_or(path.as_os_str()).to_string_lossy())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold::{CreateOptions, Name, ObjectId, Ownership, SyncMode};

    fn counts() -> ObjectInfo {
        ObjectInfo {
            id: ObjectId(1),
            uuid: 1,
            name: Some(Name::new("/lab/counts").unwrap()),
            ownership: Ownership { uid: 0, gid: 0, mode: 0o640 },
            options: CreateOptions {
                size_bytes: 1 << 30,
                pager: PagerKind::File,
                sync: SyncMode::Atomic,
                ..Default::default()
            },
            controlled: true,
            file_path: "/home/me/counts.bin".into(),
            resident_bytes: 0,
            dirty_bytes: 0,
            spilled_bytes: 0,
            mappings: 2,
            opens: 1,
            charged_to: String::new(),
            warning: String::new(),
            home: String::new(),
            is_elsewhere: false,
            translated: Default::default(),
            page_tables: 0,
            modified_ns: 0,
            place: None,
            losses: commonhold::Losses::default(),
        }
    }

    #[test]
    fn a_long_line_is_as_documented() {
        let mut people = People::default();
        let row = long_row(&EntryInfo::Object(Box::new(counts())), &mut people);
        let line = columns(None, vec![row], &[3]);
        assert_eq!(
            line,
            "rw-r-----  root  root  1.0 GiB  file counts.bin  local, atomic  2 mappings  /lab/counts"
        );
    }

    #[test]
    fn directories_and_warnings_show() {
        let mut people = People::default();
        let ownership = Ownership { uid: 0, gid: 0, mode: 0o755 };
        let entry = EntryInfo::Directory { name: Name::new("/lab").unwrap(), ownership };
        assert_eq!(short(&entry), "/lab/");
        let warned = ObjectInfo { warning: "the file was replaced".into(), ..counts() };
        let rows =
            vec![long_row(&entry, &mut people), long_row(&EntryInfo::Object(Box::new(warned)), &mut people)];
        let text = columns(None, rows, &[3]);
        assert!(text.contains("directory"), "{text}");
        assert!(text.ends_with("/lab/counts  ! the file was replaced"), "{text}");
        let elsewhere = ObjectInfo { home: "left".into(), is_elsewhere: true, ..counts() };
        assert_eq!(short(&EntryInfo::Object(Box::new(elsewhere))), "/lab/counts  @left");
    }
}
