//! `create`.

use crate::arguments::objects::{Coherence, Create, OnLastDeath, OnLoss, Scheduler, SyncMode, Translation};
use crate::failure::Done;
use crate::output::answer;
use crate::people::People;
use crate::units::format_size;
use crate::view::EntryView;
use commonhold::{CreateOptions, EntryInfo, Error, ErrorKind, Host, PagerKind, Result};
use commonhold_object::error::Doing;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::path::Path;

/// Creates an object.
pub fn create(host: &Host, arguments: Create) -> Done {
    let object = make(host, &arguments)?;
    let info = object.info()?;
    let view = EntryView::new(&EntryInfo::Object(Box::new(info.clone())), &mut People::default());
    answer(arguments.form.json, &view, |_| {
        let risk = if info.options.reserves() || info.options.pager != PagerKind::Anonymous {
            ""
        } else {
            "; its memory is not reserved and can run out later, which ends the program that touches it (SIGBUS)"
        };
        let pager = info.options.pager.word();
        format!("{}: {}, {pager}{risk}", arguments.name, format_size(info.options.size_bytes))
    })
}

/// Makes it, with its file if that is to be made.
pub fn make(host: &Host, arguments: &Create) -> Result<commonhold::Object> {
    let options = options(arguments)?;
    options.check()?;
    commonhold::Name::new(&arguments.name)?;
    let backing = arguments.file.as_deref().map(|path| Backing::open(path, arguments)).transpose()?;
    host.create(&arguments.name, &options, backing.as_ref().map(|b| b.file.as_fd()))
        .inspect_err(|_| backing.as_ref().into_iter().for_each(Backing::undo))
}

/// What the arguments say of an object.
pub fn options(arguments: &Create) -> Result<CreateOptions> {
    let options = CreateOptions {
        size_bytes: arguments.size.unwrap_or(0),
        pager: match (&arguments.file, &arguments.pager) {
            (Some(_), _) => PagerKind::File,
            (None, Some(pager)) => PagerKind::External { pager: pager.clone() },
            (None, None) => PagerKind::Anonymous,
        },
        sync: match arguments.sync {
            SyncMode::Plain => commonhold::SyncMode::Plain,
            SyncMode::Ordered => commonhold::SyncMode::Ordered,
            SyncMode::Atomic => commonhold::SyncMode::Atomic,
        },
        controlled: arguments.controlled,
        freezable: arguments.freezable,
        reserve: arguments.reserve,
        on_last_death: match arguments.on_last_death {
            OnLastDeath::Keep => commonhold::OnLastDeath::Keep,
            OnLastDeath::Revert => commonhold::OnLastDeath::Revert,
        },
        budget_bytes: arguments.budget,
        fault_deadline_ms: arguments.fault_deadline,
        pager_deadline_ms: arguments.pager_deadline,
        mode: arguments.mode,
        description: arguments.description.clone(),
        replicas: arguments.replicas,
        home_moves: arguments.home_moves,
        translation: match arguments.translation {
            Translation::Paged => commonhold::Translation::Paged,
            Translation::SharedTables => commonhold::Translation::SharedTables,
            Translation::SharedTables4K => commonhold::Translation::SharedTables4K,
            Translation::Wired => commonhold::Translation::Wired,
        },
        page_size: arguments.page_size,
        coherence: match arguments.coherence {
            Coherence::Local | Coherence::Strict => commonhold::Coherence::Local,
            Coherence::Explicit => commonhold::Coherence::Explicit,
        },
        read_only: false,
        fixed: arguments.fixed.then(|| commonhold::Fixed::asked(arguments.room.unwrap_or(0))),
        types: commonhold::tags::Types::default(),
        ephemeral_ms: arguments.ephemeral,
    };
    if arguments.coherence == Coherence::Strict { strict(options, arguments) } else { Ok(options) }
}

/// Makes it strict, as the arguments say.
fn strict(options: CreateOptions, arguments: &Create) -> Result<CreateOptions> {
    let on_loss = match arguments.on_loss {
        OnLoss::Error => commonhold::OnLoss::Error,
        OnLoss::Revert => commonhold::OnLoss::Revert,
    };
    let coherence = match (arguments.scheduler, arguments.reader_bound) {
        (Some(Scheduler::Forwarding), Some(_)) => {
            return Err(Error::invalid(
                "--reader-bound is for the central scheduler, whose home has a queue: leave it out, or give --scheduler central",
            ));
        }
        (_, Some(reader_bound)) => {
            let scheduler = commonhold::Scheduler::Central { reader_bound };
            commonhold::Coherence::Strict { scheduler, on_loss, hold_us: arguments.hold_us }
        }
        (Some(Scheduler::Forwarding), None) => commonhold::Coherence::strict(on_loss),
        (Some(Scheduler::Central), None) => commonhold::Coherence::central(on_loss),
        (None, None) => options.clone().strict(on_loss).coherence,
    };
    Ok(CreateOptions { coherence: coherence.with_hold(arguments.hold_us), ..options })
}

/// The backing file, and whether this command made it.
struct Backing<'a> {
    path: &'a Path,
    file: File,
    made: bool,
}

impl<'a> Backing<'a> {
    fn open(path: &'a Path, arguments: &Create) -> Result<Self> {
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => Ok(Backing { path, file, made: false }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && arguments.create_file => {
                Self::make(path, arguments.size.unwrap_or(0))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(Error::new(
                ErrorKind::NotFound,
                format!("there is no file {path:?}: name one, or add --create-file and --size to make it"),
            )),
            Err(error) => Err(Error::io(format!("cannot open {path:?} for reading and writing"), &error)),
        }
    }

    fn make(path: &'a Path, size_bytes: u64) -> Result<Self> {
        let what = || format!("cannot make {path:?}");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).doing(what())?;
        let backing = Backing { path, file, made: true };
        if let Err(error) = backing.file.set_len(size_bytes) {
            backing.undo();
            return Err(Error::io(what(), &error));
        }
        Ok(backing)
    }

    /// Nothing is left behind of an object that was not created; a file that was there before is not touched.
    fn undo(&self) {
        if self.made {
            let _ = std::fs::remove_file(self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Command, CommandLine};
    use clap::Parser;

    fn coherence(more: &str) -> Result<commonhold::Coherence> {
        let words = "commonhold create /x --size 1MiB --coherence strict".split(' ');
        let line = CommandLine::try_parse_from(words.chain(more.split_whitespace())).unwrap();
        let Command::Create(arguments) = line.command else { panic!("not `create`") };
        options(&arguments).map(|options| options.coherence)
    }

    #[test]
    fn the_scheduler_is_forwarding_unless_one_host_has_to_see_everything() {
        use commonhold::Scheduler::{Central, Forwarding};
        for (more, wanted) in [
            ("", Forwarding),
            ("--replicas 2 --hold-us 7", Forwarding),
            ("--freezable", Central { reader_bound: 16 }),
            ("--home-moves --replicas 2", Central { reader_bound: 16 }),
            ("--reader-bound 3 --hold-us 7", Central { reader_bound: 3 }),
            ("--scheduler central", Central { reader_bound: 16 }),
            ("--scheduler central --reader-bound 0", Central { reader_bound: 0 }),
            ("--scheduler forwarding --freezable", Forwarding), // which is refused
        ] {
            let commonhold::Coherence::Strict { scheduler, hold_us, .. } = coherence(more).unwrap() else {
                panic!("{more}: not strict");
            };
            let hold = if more.contains("--hold-us") { 7 } else { 200 };
            assert_eq!((scheduler, hold_us), (wanted, hold), "{more}");
        }
        let why = coherence("--scheduler forwarding --reader-bound 3").unwrap_err().message;
        assert!(why.contains("--reader-bound is for the central scheduler"), "{why}");
    }
}
