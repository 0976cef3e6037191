//! What is written in the file, as the words of a command line.

use super::{Configuration, Wanted};
use crate::arguments::host::HostCommand;
use crate::arguments::{Command, CommandLine};
use crate::failure::{Failure, usage};
use clap::{ArgAction, CommandFactory, Parser};
use commonhold::{Error, Result};
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The version of the file that this program understands.
const VERSION: &str = "1";
/// Options that are for who gives a command, and are no keys.
const NO_KEYS: [&str; 7] = ["foreground", "quiet", "config", "json", "help", "version", "host"];
/// Keys whose values are whole numbers,
const NUMBERS: [&str; 7] =
    ["lease", "max-objects", "max-clients", "idle-poll", "replicas", "reader-bound", "hold-us"];
/// or sizes: numbers of bytes, or text such as "1GiB".
const SIZES: [&str; 5] = ["budget", "quota", "page-size", "size", "room"];
/// Keys whose values are yes or no where their options have a word,
const YES_OR_NO: &str = "reserve";
/// or where the option may have a word or none.
const WORD_OR_NONE: &str = "ephemeral";
/// Files: from the directory of the configuration on.
const FILES: [&str; 6] = ["state", "identity", "registry-ca", "registry-cert", "registry-key", "file"];

/// The line of that byte.
pub fn line_of_bytes(text: &[u8], at: usize) -> usize {
    text[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// A file that is read.
struct Source<'s> {
    path: &'s Path,
    /// Where its lines end.
    ends: Vec<usize>,
}

impl<'s> Source<'s> {
    fn new(path: &'s Path, text: &str) -> Self {
        let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
        Source { path, ends }
    }

    fn line(&self, at: usize) -> usize {
        self.ends.partition_point(|end| *end < at) + 1
    }

    fn wrong(&self, at: usize, why: impl std::fmt::Display) -> Error {
        Error::invalid(format!("{}:{}: {why}", self.path.display(), self.line(at)))
    }
}

/// Understands the file, or says what is wrong in which line.
pub fn read(path: &Path, text: &str) -> Result<Configuration> {
    let source = Source::new(path, text);
    let table = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or_default();
        let word = text.get(span.clone()).unwrap_or_default();
        let what = if error.message().contains("duplicate") {
            format!("the key {word} stands here a second time")
        } else {
            error.message().to_owned()
        };
        source.wrong(span.start, what)
    })?;
    let table = table.get_ref();
    check_version(&source, table)?;
    let keys = keys(&["host", "start"]);
    let mut words = Words::default();
    let mut objects: Vec<Wanted> = Vec::new();
    for (key, value) in table.iter() {
        match key.get_ref().as_ref() {
            "version" => {}
            "object" => objects = read_objects(&source, value)?,
            name => words.take(&source, &keys, "the configuration of a host", (key, name), value)?,
        }
    }
    let line = words.parse(&source, &["host", "start"], 0)?;
    let Command::Host(HostCommand::Start(start)) = line.command else {
        return Err(source.wrong(0, "these are not the words of `host start`"));
    };
    Ok(Configuration { start: *start, objects })
}

fn check_version(source: &Source<'_>, table: &DeTable<'_>) -> Result<()> {
    let Some(value) = table.get("version") else {
        return Err(source.wrong(0, format!("the version of the file is missing: write version = {VERSION}")));
    };
    match value.get_ref().as_integer().map(|number| (number.radix(), number.as_str())) {
        Some((10, VERSION)) => Ok(()),
        Some((_, other)) => Err(source.wrong(
            value.span().start,
            format!("this is version {other} of the file, and this program understands version {VERSION}"),
        )),
        None => Err(source.wrong(
            value.span().start,
            format!("version is {}, and must be a number: version = {VERSION}", kind(value)),
        )),
    }
}

fn read_objects(source: &Source<'_>, value: &Spanned<DeValue<'_>>) -> Result<Vec<Wanted>> {
    let at = value.span().start;
    let list = value.get_ref().as_array();
    let list = list.ok_or_else(|| {
        source.wrong(at, format!("object is {}, and must be a list of tables: write [[object]]", kind(value)))
    })?;
    let keys = keys(&["create"]);
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut objects = Vec::new();
    for item in list.iter() {
        let at = item.span().start;
        let table = item.get_ref().as_table();
        let table = table
            .ok_or_else(|| source.wrong(at, format!("an object is a table, and this is {}", kind(item))))?;
        let wanted = read_object(source, &keys, table, at)?;
        if let Some(line) = seen.insert(wanted.create.name.clone(), wanted.line) {
            let why = format!("{} stands in line {line} already", wanted.create.name);
            return Err(source.wrong(at, why));
        }
        objects.push(wanted);
    }
    Ok(objects)
}

fn read_object(source: &Source<'_>, keys: &Keys, table: &DeTable<'_>, at: usize) -> Result<Wanted> {
    let mut words = Words::default();
    let mut name = None;
    for (key, value) in table.iter() {
        if key.get_ref().as_ref() != "name" {
            words.take(source, keys, "an object", (key, key.get_ref()), value)?;
            continue;
        }
        let text = value.get_ref().as_str();
        let text = text.ok_or_else(|| {
            source.wrong(value.span().start, format!("name is {}, and must be text", kind(value)))
        })?;
        commonhold::Name::new(text).map_err(|error| source.wrong(value.span().start, error.message))?;
        name = Some(text.to_owned());
    }
    let name = name.ok_or_else(|| source.wrong(at, "the object has no name"))?;
    let line = words.parse(source, &["create", &name], at)?;
    let Command::Create(create) = line.command else {
        return Err(source.wrong(at, "these are not the words of `create`"));
    };
    let line = source.line(at);
    let given = words.taken.iter().map(|(key, _)| key.clone()).collect();
    Ok(Wanted { path: source.path.to_owned(), line, create, given })
}

/// Known keys, each with whether its option is a word alone.
type Keys = Vec<(String, bool)>;

fn keys(command: &[&str]) -> Keys {
    let mut found = CommandLine::command();
    for name in command {
        found = found.find_subcommand(name).cloned().unwrap_or_default();
    }
    let is_flag = |action: &ArgAction| matches!(action, ArgAction::SetTrue);
    let named = found.get_arguments().filter(|argument| !argument.is_hide_set());
    let named =
        named.filter_map(|argument| Some((argument.get_long()?.to_owned(), is_flag(argument.get_action()))));
    named.filter(|(name, _)| !NO_KEYS.contains(&name.as_str())).collect()
}

/// Words of a command line, and where their keys stand.
#[derive(Default)]
struct Words {
    words: Vec<OsString>,
    taken: Vec<(String, usize)>,
}

impl Words {
    fn take(
        &mut self,
        source: &Source<'_>,
        keys: &Keys,
        of: &str,
        (key, name): (&Spanned<std::borrow::Cow<'_, str>>, &str),
        value: &Spanned<DeValue<'_>>,
    ) -> Result<()> {
        let Some((_, is_flag)) = keys.iter().find(|(known, _)| known == name) else {
            let nearest = nearest(name, keys);
            let why = format!("{of} has no key {name}: the nearest that it has is {nearest}");
            return Err(source.wrong(key.span().start, why));
        };
        let wrong = |wanted: &str| {
            source.wrong(value.span().start, format!("{name} is {}, and must be {wanted}", kind(value)))
        };
        let text = |text: &str| -> OsString {
            let is_file = FILES.contains(&name);
            let base = source.path.parent().filter(|_| is_file);
            let mut word = OsString::from(format!("--{name}="));
            word.push(base.map_or_else(|| text.into(), |base| base.join(text).into_os_string()));
            word
        };
        let before = self.words.len();
        match value.get_ref() {
            DeValue::Boolean(yes) if *is_flag => {
                self.words.extend(yes.then(|| format!("--{name}").into()));
            }
            _ if *is_flag => return Err(wrong("true or false")),
            DeValue::Boolean(yes) if name == YES_OR_NO => {
                self.words.push(text(if *yes { "yes" } else { "no" }))
            }
            DeValue::Boolean(yes) if name == WORD_OR_NONE => {
                self.words.extend(yes.then(|| format!("--{name}").into()));
            }
            _ if name == YES_OR_NO => return Err(wrong("true or false")),
            DeValue::Integer(number) if NUMBERS.contains(&name) || SIZES.contains(&name) => {
                if number.radix() != 10 {
                    return Err(wrong("a decimal number"));
                }
                self.words.push(text(number.as_str()));
            }
            _ if NUMBERS.contains(&name) => return Err(wrong("a whole number")),
            DeValue::String(said) => self.words.push(text(said)),
            DeValue::Array(list) if name == "file-system" => {
                let said: Option<Vec<&str>> = list.iter().map(|item| item.get_ref().as_str()).collect();
                let said = said.ok_or_else(|| wrong("a list of texts"))?;
                self.words.extend(said.into_iter().map(text));
            }
            _ if SIZES.contains(&name) => {
                return Err(wrong("a size: a number of bytes, or text such as \"1GiB\""));
            }
            _ => return Err(wrong("text")),
        }
        if self.words.len() > before {
            self.taken.push((name.to_owned(), key.span().start));
        }
        Ok(())
    }

    /// Has the command line understand them.
    fn parse(&self, source: &Source<'_>, command: &[&str], at: usize) -> Result<CommandLine> {
        let first = std::iter::once("commonhold").chain(command.iter().copied()).map(OsString::from);
        CommandLine::try_parse_from(first.chain(self.words.iter().cloned())).map_err(|error| {
            let why = match usage(&error) {
                Failure::Usage(why) => why,
                _ => error.to_string(),
            };
            // The complaint is about the option whose name stands first in it.
            let place = |key: &str| why.find(&format!("--{key} ")).or_else(|| why.find(&format!("--{key}'")));
            let about = self.taken.iter().filter_map(|(key, at)| Some((place(key)?, *at))).min();
            let why = why.split("; usage:").next().unwrap_or_default();
            source.wrong(about.map_or(at, |(_, at)| at), why)
        })
    }
}

fn kind(value: &Spanned<DeValue<'_>>) -> String {
    match value.get_ref() {
        DeValue::String(_) => "text".to_owned(),
        DeValue::Integer(_) => "a whole number".to_owned(),
        DeValue::Float(_) => "a number with a fraction".to_owned(),
        DeValue::Boolean(_) => "true or false".to_owned(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// The known key that takes the fewest changes.
fn nearest<'k>(name: &str, keys: &'k Keys) -> &'k str {
    let name: String = name.chars().take(64).collect();
    let distance = |known: &str| strsim::levenshtein(&name, known);
    keys.iter().map(|(known, _)| known.as_str()).min_by_key(|known| distance(known)).unwrap_or_default()
}
