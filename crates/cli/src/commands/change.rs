//! Commands that change what a name stands for: `resize`, `rm`, `mv`, `chmod`, `chown`, `revert`.

use crate::arguments::objects::{OneName, Remove, Rename, Resize, SetMode, SetOwner, Tag};
use crate::failure::{Done, all_done};
use crate::output::{answer, count, say_json};
use crate::units::format_size;
use commonhold::{EntryInfo, Error, Host, Result};
use serde_json::json;

/// Does `each` to every name; one that fails does not stop the others.
fn to_each(names: &[String], mut each: impl FnMut(&str) -> Result<()>) -> (Vec<String>, Vec<Error>) {
    let (mut done, mut errors) = (Vec::new(), Vec::new());
    for name in names {
        match each(name) {
            Ok(()) => done.push(name.clone()),
            Err(error) => errors.push(error),
        }
    }
    (done, errors)
}

pub(super) fn answer_names(json: bool, verb: &str, (done, errors): (Vec<String>, Vec<Error>)) -> Done {
    if json {
        say_json(&json!({ verb: done }))?;
    }
    all_done(errors)
}

/// Changes the size of an object.
pub fn resize(host: &Host, arguments: &Resize) -> Done {
    host.resize(&arguments.name, arguments.size)?;
    answer(arguments.form.json, &json!({ "name": arguments.name, "size_bytes": arguments.size }), |_| {
        format!("{}: {}", arguments.name, format_size(arguments.size))
    })
}

/// Says what is in pages of an object.
pub fn tag(host: &Host, arguments: &Tag) -> Done {
    let Tag { name, tag, offset, length, form } = arguments;
    if *length == Some(0) {
        return Err(Error::invalid(
            "a tag is of one page at least: leave --length out for all from there on",
        )
        .into());
    }
    host.tag(name, *offset, length.unwrap_or(0), tag)?;
    let view = json!({ "name": name, "offset": offset, "length": length, "tag": tag });
    answer(form.json, &view, |_| format!("{name}: {tag}"))
}

/// Removes objects and directories.
pub fn remove(host: &Host, arguments: &Remove) -> Done {
    let mut removed = Vec::new();
    let mut errors = Vec::new();
    for name in &arguments.names {
        let result = if arguments.recursive {
            remove_tree(host, name, &mut removed)
        } else {
            host.remove(name).map(|()| removed.push(name.clone()))
        };
        errors.extend(result.err());
    }
    answer_names(arguments.form.json, "removed", (removed, errors))
}

/// Removes an entry and all below it, what is deepest first. The root itself stays.
fn remove_tree(host: &Host, name: &str, removed: &mut Vec<String>) -> Result<()> {
    let is_root = name.trim_end_matches('/').is_empty() && !name.is_empty();
    if is_root || matches!(host.stat(name)?, EntryInfo::Directory { .. }) {
        // What is another host's is removed there.
        let is_here = |entry: &EntryInfo| !matches!(entry, EntryInfo::Object(info) if info.is_elsewhere);
        for entry in host.list(name)?.into_iter().filter(is_here) {
            if let Some(below) = entry.name() {
                remove_tree(host, below.as_str(), removed)?;
            }
        }
    }
    if !is_root {
        host.remove(name)?;
        removed.push(name.to_owned());
    }
    Ok(())
}

/// Gives an object another name.
pub fn rename(host: &Host, arguments: &Rename) -> Done {
    host.rename(&arguments.from, &arguments.to)?;
    answer(arguments.form.json, &json!({ "from": arguments.from, "to": arguments.to }), |_| String::new())
}

/// Changes mode bits.
pub fn set_mode(host: &Host, arguments: &SetMode) -> Done {
    let outcome = to_each(&arguments.names, |name| host.set_mode(name, arguments.mode));
    answer_names(arguments.form.json, "changed", outcome)
}

/// Changes owner or group.
pub fn set_owner(host: &Host, arguments: &SetOwner) -> Done {
    let owner = arguments.owner;
    let outcome = to_each(&arguments.names, |name| host.set_owner(name, owner.uid, owner.gid));
    answer_names(arguments.form.json, "changed", outcome)
}

/// Drops what was not synced.
pub fn revert(host: &Host, arguments: &OneName) -> Done {
    let pages = host.revert(&arguments.name)?;
    answer(arguments.form.json, &json!({ "name": arguments.name, "dropped_pages": pages }), |_| {
        format!("{}: {} dropped", arguments.name, count(pages, "unsynced page"))
    })
}
