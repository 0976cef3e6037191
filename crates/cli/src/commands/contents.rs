//! `cat`, `sync` and `snapshot`.

use crate::arguments::objects::{Cat, Part, Snapshot, Sync};
use crate::failure::{Done, Failure};
use crate::output::{answer, count};
use crate::units::format_size;
use commonhold::{Access, Error, Host, Result, SnapshotOptions};
use serde_json::json;
use std::io::Write;

/// Bytes that are copied at once.
pub const CHUNK_BYTES: u64 = 1 << 20;

/// Offset and length of a part of an object of that size.
pub fn resolve(part: Part, size_bytes: u64) -> Result<(u64, u64)> {
    let length = part.length.unwrap_or(size_bytes.saturating_sub(part.offset));
    match part.offset.checked_add(length) {
        Some(end) if end <= size_bytes => Ok((part.offset, length)),
        _ => Err(Error::invalid(format!(
            "offset {} and length {length} reach past the object's {size_bytes} bytes: name a smaller part",
            part.offset
        ))),
    }
}

/// Writes bytes of an object to standard output.
pub fn cat(host: &Host, arguments: &Cat) -> Done {
    let object = host.open(&arguments.name, Access::Read)?;
    let (mut at, length) = resolve(arguments.part, object.size_bytes())?;
    let end = at + length;
    let mut buffer = vec![0; CHUNK_BYTES.min(length) as usize];
    let mut out = std::io::stdout().lock();
    while at < end {
        let chunk = &mut buffer[..CHUNK_BYTES.min(end - at) as usize];
        object.read_at(chunk, at)?;
        out.write_all(chunk).map_err(Failure::writing)?;
        at += chunk.len() as u64;
    }
    out.flush().map_err(Failure::writing)
}

/// Makes what is stored equal to what is in memory.
pub fn sync(host: &Host, arguments: &Sync) -> Done {
    let object = host.open(&arguments.name, Access::ReadWrite)?;
    let (offset, length) = resolve(arguments.part, object.size_bytes())?;
    let pages =
        if arguments.freeze { object.sync_frozen(offset, length)? } else { object.sync(offset, length)? };
    // The kernel stores pages of direct objects, and counts none.
    let is_counted = object.options().is_controlled() || object.options().is_wired();
    let pages = is_counted.then_some(pages);
    answer(arguments.form.json, &json!({ "name": arguments.name, "stored_pages": pages }), |_| match pages {
        Some(pages) => format!("{}: {} stored", arguments.name, count(pages, "page")),
        None => format!("{}: stored", arguments.name),
    })
}

/// Keeps an object as it is now under another name.
pub fn snapshot(host: &Host, arguments: &Snapshot) -> Done {
    let mut object = host.open(&arguments.name, Access::Read)?;
    if arguments.file.is_none() && !object.options().read_only {
        object = host.open(&arguments.name, Access::ReadWrite)?; // its writers are held
    }
    let (offset, length) = resolve(arguments.part, object.size_bytes())?;
    let options = SnapshotOptions {
        offset,
        length: Some(length),
        mode: arguments.mode,
        writable: arguments.writable,
        whole: arguments.whole,
        file: arguments.file.clone(),
    };
    let snapshot = object.snapshot(&arguments.snapshot, &options)?;
    let size_bytes = snapshot.size_bytes();
    answer(arguments.form.json, &json!({ "name": arguments.snapshot, "size_bytes": size_bytes }), |_| {
        format!("{}: {} of {} as it is now", arguments.snapshot, format_size(size_bytes), arguments.name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_inside() {
        assert_eq!(resolve(Part { offset: 0, length: None }, 10), Ok((0, 10)));
        assert_eq!(resolve(Part { offset: 4, length: None }, 10), Ok((4, 6)));
        assert_eq!(resolve(Part { offset: 4, length: Some(2) }, 10), Ok((4, 2)));
        assert_eq!(resolve(Part { offset: 10, length: None }, 10), Ok((10, 0)));
        for (offset, length) in [(11, None), (4, Some(7)), (u64::MAX, Some(2))] {
            resolve(Part { offset, length }, 10).unwrap_err();
        }
    }
}
