//! `image …`: code and data at addresses that are the same in every process (docs/IMAGES.md). Needs no host.

mod code;
mod views;

use crate::arguments::image::{Add, ImageCommand, Names, One, Rest};
use crate::failure::{Done, Failure, all_done};
use crate::output::{answer, count};
use commonhold_images::format::Wanted;
use commonhold_images::store::{Entry, Store, processes_with};
use commonhold_object::{Error, ErrorKind};

/// Runs the command.
pub fn run(command: ImageCommand) -> Done {
    match command {
        ImageCommand::Add(arguments) => add(&arguments),
        ImageCommand::List(rest) => list(&rest),
        ImageCommand::Versions(arguments) => versions(&arguments),
        ImageCommand::Resolve(arguments) => resolve(&arguments),
        ImageCommand::Show(arguments) => show(&arguments),
        ImageCommand::Verify(rest) => verify(&rest),
        ImageCommand::Rollback(arguments) => rollback(&arguments),
        ImageCommand::Restore(arguments) => restore(&arguments),
        ImageCommand::Remove(arguments) => remove(&arguments),
        ImageCommand::Ranges(rest) => ranges(&rest),
        ImageCommand::Build(arguments) => code::build(&arguments),
        ImageCommand::Stub(arguments) => code::stub(&arguments),
    }
}

/// What went wrong with images, as a failure of the command.
fn wrong(why: commonhold_images::Error) -> Failure {
    Error::new(why.kind(), why.to_string()).into()
}

fn open(rest: &Rest) -> Result<Store, Failure> {
    match &rest.store {
        Some(directory) => {
            let directory = std::path::absolute(directory)
                .map_err(|why| Error::io(format!("cannot find {}", directory.display()), &why))?;
            Ok(Store::named(&directory))
        }
        None => Store::own().map_err(wrong),
    }
}

fn add(arguments: &Add) -> Done {
    let store = open(&arguments.rest)?;
    let mut done = Vec::new();
    let mut errors = Vec::new();
    for file in &arguments.files {
        use commonhold_code::Error as Why;
        match commonhold_code::add(&store, file) {
            Ok(published) => done.push(views::Added::new(&published)),
            // What is wrong with the draft is wrong with the file.
            Err(Why::Images(commonhold_images::Error::Unfit { fault, .. })) => {
                errors.push(Error::new(ErrorKind::Corrupt, format!("{}: {fault}", file.display())));
            }
            Err(Why::Images(why)) => errors.push(Error::new(why.kind(), why.to_string())),
            Err(why) => errors.push(Error::new(ErrorKind::Corrupt, why.to_string())),
        }
    }
    answer(arguments.rest.form.json, &done, |done| views::added(done))?;
    all_done(errors)
}

fn list(rest: &Rest) -> Done {
    let store = open(rest)?;
    let mut rows = Vec::new();
    for name in store.names().map_err(wrong)? {
        let versions = store.versions(&name).map_err(wrong)?;
        let newest = versions.iter().rfind(|entry| !entry.withdrawn).or(versions.last());
        if let Some(newest) = newest {
            rows.push(views::Listed::new(&name, newest, versions.len(), store.open(newest.id)));
        }
    }
    answer(rest.form.json, &rows, |rows| views::listed(rows))
}

fn versions(arguments: &Names) -> Done {
    let store = open(&arguments.rest)?;
    let mut trees = Vec::new();
    let mut errors = Vec::new();
    for name in &arguments.names {
        let versions = store.versions(name).map_err(wrong)?;
        if versions.is_empty() {
            errors
                .push(Error::new(ErrorKind::NotFound, format!("there is no image {name}: see `image list`")));
        } else {
            let users = |entry: &Entry| processes_with(entry.id).len();
            trees.push(views::Tree::new(name, versions.iter().map(|entry| (*entry, users(entry)))));
        }
    }
    answer(arguments.rest.form.json, &trees, |trees| views::trees(trees))?;
    all_done(errors)
}

fn resolve(arguments: &One) -> Done {
    let stores = match &arguments.rest.store {
        Some(_) => vec![open(&arguments.rest)?],
        None => Store::search(),
    };
    let found = Store::resolve_in(&stores, &arguments.name).map_err(wrong)?;
    answer(arguments.rest.form.json, &views::Resolved::new(&found), |view| view.text())
}

fn show(arguments: &One) -> Done {
    let store = open(&arguments.rest)?;
    let found = Store::resolve_in(std::slice::from_ref(&store), &arguments.name).map_err(wrong)?;
    let mut image = store.open(found.entry.id).map_err(wrong)?;
    let exports = image.exports().map_err(wrong)?;
    answer(arguments.rest.form.json, &views::Shown::new(&image, exports), |view| view.text())
}

fn verify(rest: &Rest) -> Done {
    let store = open(rest)?;
    let (bad, looked_at) = store.verify().map_err(wrong)?;
    answer(rest.form.json, &views::Verified::new(looked_at, &bad), |_| {
        format!("{} as published", count((looked_at - bad.len()) as u64, "image"))
    })?;
    let line = |(name, why): &(String, commonhold_images::Error)| {
        Error::new(ErrorKind::Corrupt, format!("{name}: {why}"))
    };
    all_done(bad.iter().map(line).collect())
}

fn name_of(text: &str) -> &str {
    Wanted::parse(text).map_or(text, |wanted| wanted.name)
}

fn rollback(arguments: &One) -> Done {
    let done = open(&arguments.rest)?.rollback(&arguments.name).map_err(wrong)?;
    let view = views::RolledBack::new(name_of(&arguments.name), &done);
    answer(arguments.rest.form.json, &view, |view| view.text())
}

fn restore(arguments: &One) -> Done {
    let version = open(&arguments.rest)?.restore(&arguments.name).map_err(wrong)?;
    let full = format!("{}@{version}", name_of(&arguments.name));
    answer(arguments.rest.form.json, &views::Restored::new(&full), |_| format!("{full} is had again"))
}

fn remove(arguments: &Names) -> Done {
    let store = open(&arguments.rest)?;
    let (mut removed, mut bytes, mut errors) = (Vec::new(), 0, Vec::new());
    for name in &arguments.names {
        match store.remove(name) {
            Ok(freed) => {
                bytes += freed;
                removed.push(name.clone());
            }
            Err(why) => errors.push(Error::new(why.kind(), why.to_string())),
        }
    }
    answer(arguments.rest.form.json, &views::Removed { removed, bytes }, |view| view.text())?;
    all_done(errors)
}

fn ranges(rest: &Rest) -> Done {
    let store = open(rest)?;
    store.create().map_err(wrong)?;
    let all = store.ranges().and_then(|ranges| ranges.list()).map_err(wrong)?;
    answer(rest.form.json, &views::ranges(&all), |rows| views::ranges_text(rows))
}
