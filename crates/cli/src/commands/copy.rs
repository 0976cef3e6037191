//! `cp`: which files and objects, and what is left behind when it fails. The bytes move in `transfer`.

use super::interrupts::{Interrupts, end_by};
use super::transfer::{Sink, Source, transfer};
use crate::arguments::objects::Copy;
use crate::arguments::place::Place;
use crate::failure::{Done, Failure};
use crate::output::answer;
use crate::units::format_size;
use commonhold::{
    Access, CreateOptions, Error, ErrorKind, Host, MapFlags, MapOptions, Mapping, Object, PagerKind, Result,
};
use commonhold_object::error::Doing;
use serde_json::json;
use signal_hook::low_level;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Copies.
pub fn copy(host: &Host, arguments: &Copy) -> Done {
    let source = open_source(host, &arguments.from, &arguments.to)?;
    let size_bytes = source.size_bytes()?;
    let interrupts = Interrupts::watch()?;
    let target = Target::open(host, &arguments.to, &source, size_bytes)?;
    let copied = transfer(&source, &target.sink, size_bytes, &interrupts).and_then(|copied| {
        target.finish(arguments.no_sync, size_bytes)?;
        Ok(copied)
    });
    let copied = copied.or_else(|error| target.give_up(host, error, interrupts.came()))?;
    let said = json!({
        "from": arguments.from.to_string(),
        "to": arguments.to.to_string(),
        "size_bytes": size_bytes,
        "written_bytes": copied,
        "created": target.created,
    });
    answer(arguments.form.json, &said, |_| {
        let made = if target.created { " (created)" } else { "" };
        format!("{} -> {}{made}: {}", arguments.from, arguments.to, format_size(size_bytes))
    })
}

fn open_source(host: &Host, from: &Place, to: &Place) -> Result<Source> {
    match from {
        Place::Object(name) => Ok(Source::Object(host.open(name, Access::Read)?)),
        Place::File(path) => {
            let file = File::open(path).map_err(|error| file_error(path, "read", &error))?;
            if !file.metadata().doing(format!("cannot read {path:?}"))?.is_file() {
                return Err(Error::invalid(format!(
                    "{path:?} is not a regular file: only those can be copied"
                )));
            }
            Ok(Source::File(file, path.clone()))
        }
        Place::Stream => spool_input(room_in(host, to)?),
    }
}

/// How many bytes can be put there, by the caller.
fn room_in(host: &Host, to: &Place) -> Result<u64> {
    let Place::Object(name) = to else { return Err(no_object()) };
    match host.open(name, Access::ReadWrite) {
        Ok(object) => Ok(object.size_bytes()),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(u64::MAX),
        Err(error) => Err(error),
    }
}

/// What is on standard input, in a file without a name: how much there is decides how large an object is made.
fn spool_input(most_bytes: u64) -> Result<Source> {
    let folder = std::env::temp_dir();
    let what = || format!("cannot keep standard input in {folder:?} (TMPDIR names another folder)");
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600);
    let mut file = options.open(&folder).doing(what())?;
    let mut input = std::io::stdin().lock().take(most_bytes.saturating_add(1));
    if std::io::copy(&mut input, &mut file).doing(what())? > most_bytes {
        let what =
            format!("standard input has more than the {most_bytes} bytes of the object: resize it first");
        return Err(Error::new(ErrorKind::NoSpace, what));
    }
    Ok(Source::File(file, "standard input".into()))
}

fn file_error(path: &Path, verb: &str, error: &std::io::Error) -> Error {
    let mut said = Error::io(format!("cannot {verb} {path:?}"), error);
    if error.kind() == std::io::ErrorKind::NotFound {
        said.kind = ErrorKind::NotFound;
        said.message += ": an object is written with a colon, as :/lab/weights";
    }
    said
}

/// Where bytes go, and how to take it back.
struct Target<'a> {
    sink: Sink,
    place: &'a Place,
    created: bool,
    /// Of a controlled object, for as long as the copy lasts: pages that nobody maps any more are stored, and so the
    /// copy would be, piece by piece and not as a whole.
    held: Option<Mapping>,
}

impl<'a> Target<'a> {
    fn open(host: &Host, place: &'a Place, source: &Source, size_bytes: u64) -> Result<Self> {
        let (sink, created) = match place {
            Place::Object(name) => Self::open_object(host, name, source, size_bytes)?,
            Place::File(path) => Self::open_file(path, source, size_bytes)?,
            Place::Stream => {
                return Err(Error::invalid("to standard output `commonhold cat NAME` writes an object"));
            }
        };
        let held = match &sink {
            Sink::Object { object, .. } if object.info()?.controlled => {
                let flags = MapFlags { anywhere: true, ..MapFlags::default() };
                Some(object.map(&MapOptions { flags, ..MapOptions::default() })?)
            }
            _ => None,
        };
        Ok(Target { sink, place, created, held })
    }

    fn open_object(host: &Host, name: &str, source: &Source, size_bytes: u64) -> Result<(Sink, bool)> {
        let object = match host.open(name, Access::ReadWrite) {
            Ok(object) => object,
            Err(error) if error.kind == ErrorKind::NotFound => {
                if size_bytes == 0 {
                    return Err(Error::invalid(format!(
                        "the source is empty, and an object has a byte at least: there is nothing to make {name} of"
                    )));
                }
                let object = host.create(name, &CreateOptions { size_bytes, ..Default::default() }, None)?;
                return Ok((Sink::Object { object, zeroed: true }, true));
            }
            Err(error) => return Err(error),
        };
        if object.size_bytes() < size_bytes {
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!(
                    "object {name} of {} bytes is too small for {size_bytes}: first `commonhold resize {name} {size_bytes}`",
                    object.size_bytes()
                ),
            ));
        }
        match source {
            Source::Object(other) if other.id() == object.id() => Err(same(name)),
            Source::File(file, _) if is_backing_file(&object, file)? => Err(same(name)),
            _ => Ok((Sink::Object { object, zeroed: false }, false)),
        }
    }

    fn open_file(path: &Path, source: &Source, size_bytes: u64) -> Result<(Sink, bool)> {
        let Source::Object(object) = source else {
            return Err(no_object());
        };
        let created = !path.exists();
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| file_error(path, "write", &error))?;
        if !file.metadata().doing(format!("cannot write {path:?}"))?.is_file() {
            return Err(Error::invalid(format!(
                "{path:?} is not a regular file: `commonhold cat` writes to pipes and devices"
            )));
        }
        if is_backing_file(object, &file)? {
            return Err(same(&path.display().to_string()));
        }
        // What is left of an older content must not show through the holes.
        file.set_len(0).and_then(|()| file.set_len(size_bytes)).doing(format!("cannot write {path:?}"))?;
        Ok((Sink::File(file, path.to_owned()), created))
    }

    fn finish(&self, no_sync: bool, size_bytes: u64) -> Result<()> {
        match &self.sink {
            Sink::Object { object, .. } if !no_sync && size_bytes > 0 => {
                if object.options().pager != PagerKind::Anonymous {
                    object.sync(0, size_bytes)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// After a copy that failed, or that a signal ended.
    fn give_up(&self, host: &Host, mut error: Error, signal: Option<i32>) -> Result<u64> {
        self.undo(host);
        match signal {
            Some(signal) => {
                eprintln!("commonhold: interrupted: {}", self.left_behind());
                end_by(signal)
            }
            None if self.held.is_some() => {
                error.message += &format!("; {}", self.left_behind());
                let _ = Failure::from(error).report();
                // Not in order: that would unmap the object, and so store what was copied of it.
                low_level::exit(1)
            }
            None => Err(error),
        }
    }

    /// What a copy that was not ended leaves, for people.
    fn left_behind(&self) -> String {
        let place = self.place;
        match place {
            _ if self.created => format!("{place} was taken away again"),
            Place::Object(name) if self.held.is_some() => format!(
                "{place} holds a part of the copy, unsynced: copy again, or `commonhold revert {name}` drops it"
            ),
            _ => format!("{place} holds a part of the copy: copy again"),
        }
    }

    /// Nothing half-made is left behind; what was there before stays, half-written as it may be.
    fn undo(&self, host: &Host) {
        if self.created {
            match self.place {
                Place::Object(name) => drop(host.remove(name)),
                Place::File(path) => drop(std::fs::remove_file(path)),
                Place::Stream => {}
            }
        }
    }
}

fn no_object() -> Error {
    Error::invalid("neither of the two is an object: write an object with a colon, as :/lab/weights")
}

fn same(what: &str) -> Error {
    Error::invalid(format!("{what} is both source and target: there is nothing to copy"))
}

/// Whether the object's bytes are that very file.
fn is_backing_file(object: &Object, file: &File) -> Result<bool> {
    let info = object.info()?;
    if info.options.pager != PagerKind::File {
        return Ok(false);
    }
    // Without a look at the backing file nothing can be said: the copy is then at the user's own risk.
    let Ok(backing) = std::fs::metadata(&info.file_path) else { return Ok(false) };
    let other = file.metadata().doing("cannot look at the file")?;
    Ok((backing.dev(), backing.ino()) == (other.dev(), other.ino()))
}
