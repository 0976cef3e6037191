//! `image build`, `image stub`: shared libraries as code images, and what programs are linked to.

use super::{open, wrong as images};
use crate::arguments::image::{Build, Include, Stub};
use crate::failure::{Done, Failure};
use crate::output::{answer, count};
use commonhold_code::existing::Existing;
use commonhold_code::make::{self, Made, Wanted};
use commonhold_code::stub::{self, When, archive::archive};
use commonhold_images::format::Version;
use commonhold_images::store::{Published, Store};
use commonhold_object::{Error, ErrorKind};
use serde::Serialize;
use std::path::PathBuf;

/// What went wrong with code, as a failure of the command.
fn wrong(why: commonhold_code::Error) -> Failure {
    use commonhold_code::Error as Why;
    let text = why.to_string();
    match why {
        Why::Images(why) => images(why),
        Why::File { source, .. } => Error::new(Error::io("", &source).kind, text).into(),
        _ => Error::new(ErrorKind::Invalid, text).into(),
    }
}

/// The answer to `image build`.
#[derive(Serialize)]
struct Built {
    image: String,
    id: String,
    path: PathBuf,
    base: String,
    library_at: String,
    functions: usize,
    handed_over: Vec<String>,
    data_not_exported: Vec<String>,
}

impl Built {
    fn new(made: &Made, published: &Published) -> Built {
        Built {
            image: format!("{}@{}", published.name, published.version),
            id: published.id.to_string(),
            path: published.path.clone(),
            base: format!("{:#x}", made.base),
            library_at: format!("{:#x}", made.base + made.library_at),
            functions: made.exports.functions.len(),
            handed_over: made.table.clone(),
            data_not_exported: made.exports.data.clone(),
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{} at {}, {}; for debuggers: add-symbol-file LIBRARY -o {}",
            self.image,
            self.base,
            count(self.functions as u64, "function"),
            self.library_at
        );
        if !self.handed_over.is_empty() {
            text.push_str(&format!("\nprograms hand over {}", self.handed_over.join(", ")));
        }
        if !self.data_not_exported.is_empty() {
            let data = self.data_not_exported.join(", ");
            text.push_str(&format!("\nnot for programs, because it is data: {data}"));
        }
        text
    }
}

/// Where images are looked for that others are built on or linked to.
fn stores(own: &Store, named: bool) -> Vec<Store> {
    let mut all = vec![own.clone()];
    if !named {
        all.extend(Store::search().into_iter().filter(|store| store.root() != own.root()));
    }
    all
}

pub fn build(arguments: &Build) -> Done {
    let store = open(&arguments.rest)?;
    let version = Version::parse(&arguments.version).ok_or_else(|| {
        let text = format!("{} is no version: name three numbers, as in 1.2.0", arguments.version);
        Failure::from(Error::new(ErrorKind::Invalid, text))
    })?;
    let stores = stores(&store, arguments.rest.store.is_some());
    let imports: Result<Vec<Existing>, Failure> =
        arguments.imports.iter().map(|name| commonhold_code::find(&stores, name).map_err(wrong)).collect();
    let names = |path: &Option<PathBuf>| path.as_deref().map(make::names).transpose().map_err(wrong);
    let wanted = Wanted {
        library: arguments.library.clone(),
        name: arguments.name.clone(),
        version,
        group: arguments.group.clone(),
        exports: names(&arguments.exports)?,
        imports: imports?,
        table: names(&arguments.table)?.unwrap_or_default(),
    };
    let (made, published) = commonhold_code::build(&wanted, &store).map_err(wrong)?;
    answer(arguments.rest.form.json, &Built::new(&made, &published), Built::text)
}

/// The answer to `image stub`.
#[derive(Serialize)]
struct Written {
    image: String,
    file: PathBuf,
    functions: usize,
}

pub fn stub(arguments: &Stub) -> Done {
    let store = open(&arguments.rest)?;
    let when = match arguments.include {
        Include::Start => When::Start,
        Include::Call => When::Call,
        Include::First => When::First,
    };
    let stores = stores(&store, arguments.rest.store.is_some());
    let (object, image) = commonhold_code::stub(&stores, &arguments.name, when).map_err(wrong)?;
    let path = &arguments.output;
    let bytes = if path.extension().is_some_and(|extension| extension == "a") {
        archive("stub.o", &object, &stub::symbols(&image))
    } else {
        object
    };
    std::fs::write(path, bytes).map_err(|why| Error::io(format!("cannot write {}", path.display()), &why))?;
    let written = Written {
        image: format!("{}@{}", image.name, image.version),
        file: path.clone(),
        functions: image.exports.len(),
    };
    answer(arguments.rest.form.json, &written, |written| {
        let functions = count(written.functions as u64, "function");
        format!("{}: {functions} of {}", written.file.display(), written.image)
    })
}
