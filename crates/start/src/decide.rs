//! Whether this program gets copies: there is a record of it, and all that the record speaks of is as it was.

use crate::process::LONGEST_PATH;
use crate::stack::{self, Stack};
use crate::system::{self, File};
use crate::{again, process};
use commonhold_record::{IS_THE_COPY, MOST_BYTES, Record, name};

/// `commonhold rebase set` has the loader say what it would do, and run nothing; it does not care for the value. What else
/// it is told then is about what it says.
const TRIAL: &[u8] = b"LD_TRACE_LOADED_OBJECTS=commonhold";
/// This library's file, in the directory that has the records.
const RECORDS: &[u8] = b"/programs/";
/// The one that has a folder for each copy.
const COPIES: &[u8] = b"copies";

/// What was decided.
pub struct Decision {
    /// The record that holds for this start.
    pub record: &'static [u8],
    /// Who runs this.
    pub user: u32,
}

/// Whether there is a record that holds for this start.
pub fn decide() -> Option<Decision> {
    let stack = stack::find();
    let mut directory = [0; LONGEST_PATH];
    let directory = find_directory(stack.as_ref(), &mut directory)?;
    let mut program = [0; LONGEST_PATH];
    let program = process::program(stack.as_ref(), &mut program)?;
    let mut path = [0; LONGEST_PATH];
    let path = join(&mut path, &[directory, RECORDS, &name(&program[..program.len() - 1]), b"\0"])?;
    let file = File::open(path).ok()?;
    let status = file.status()?;
    let user = system::user();
    let bytes = usize::try_from(status.bytes).ok().filter(|bytes| *bytes <= MOST_BYTES)?;
    if !system::is_trusted(&status, user) {
        return None;
    }
    let bytes = system::map(&file, bytes)?;
    let record = Record::new(bytes)?;
    let of_this_program = record.files().next().is_some_and(|file| file.path == program);
    let as_it_was = |file: commonhold_record::File<'_>| system::state_of(file.path) == Some(file.state);
    let addresses_are_free = || first_library(&record).is_none_or(system::is_free);
    let holds =
        of_this_program && names_copies(&record) && record.files().all(as_it_was) && addresses_are_free();
    holds.then_some(Decision { record: bytes, user })
}

/// Whether what the record calls copies lies where copies do. Only the program may be a copy itself, and then what it calls its
/// copy is its original: else the two could start each other for ever.
fn names_copies(record: &Record<'_>) -> bool {
    record.files().enumerate().all(|(index, file)| {
        if index == 0 && file.dynamic == IS_THE_COPY {
            return is_copy(file.path) && !is_copy(file.copy);
        }
        file.dynamic != IS_THE_COPY && (file.copy.is_empty() || is_copy(file.copy))
    })
}

/// `…/copies/KEY/FILE`.
fn is_copy(path: &[u8]) -> bool {
    path.rsplit(|byte| *byte == b'/').nth(2).is_some_and(|folder| folder == COPIES)
}

/// An address within the first library that has a copy. Where it is taken, or cannot be had at all, a look now saves a
/// second start later; that the others are free each copy is asked for itself.
fn first_library(record: &Record<'_>) -> Option<usize> {
    let library = record.files().skip(1).find(|file| !file.copy.is_empty())?;
    usize::try_from(library.dynamic).ok()
}

/// The directory of this library, if the variables are such that the loader works as when the record was made: another
/// audit library or a preloaded one changes what is found, and the rest what the loader does. (Of a program that has rights
/// which its caller has not the loader asks no library that is given so.)
fn find_directory<'a>(stack: Option<&Stack>, buffer: &'a mut [u8; LONGEST_PATH]) -> Option<&'a [u8]> {
    let mut length = None;
    let mut as_usual = true;
    let (mut trial, mut changed) = (false, false);
    let all = process::variables(stack, |variable| {
        if let Some(library) = variable.strip_prefix(b"LD_AUDIT=") {
            let slash = library.iter().rposition(|byte| *byte == b'/');
            let usable = library.first() == Some(&b'/') && !library.contains(&b':');
            length = slash.filter(|slash| usable && *slash < LONGEST_PATH);
            if let Some(whole) = length {
                // The loader has put the name of its own directory there.
                let store = library[..whole].strip_suffix(b"/$LIB").unwrap_or(&library[..whole]);
                length = Some(store.len());
                buffer[..store.len()].copy_from_slice(store);
            }
        } else if variable == TRIAL {
            trial = true;
        } else if variable.starts_with(b"LD_") && !is_harmless(variable) {
            changed = true;
        } else if again::says_so(variable) || is_processor(variable) {
            as_usual = false;
        }
    });
    length.filter(|_| all && as_usual && (trial || !changed)).map(|length| &buffer[..length])
}

/// These change the search, which the loader does itself, and when functions are looked up.
fn is_harmless(variable: &[u8]) -> bool {
    variable.starts_with(b"LD_LIBRARY_PATH=") || variable.starts_with(b"LD_BIND_NOW=")
}

/// Programs that are processors themselves have addresses of their own: valgrind's tools, which find this among their
/// variables and hide it from the program.
fn is_processor(variable: &[u8]) -> bool {
    variable.starts_with(b"VALGRIND_LAUNCHER=")
}

/// The parts, one behind the other.
fn join<'a>(buffer: &'a mut [u8], parts: &[&[u8]]) -> Option<&'a [u8]> {
    let mut length = 0;
    for part in parts {
        buffer.get_mut(length..length + part.len())?.copy_from_slice(part);
        length += part.len();
    }
    Some(&buffer[..length])
}
