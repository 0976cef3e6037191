//! All of it: from the programs that are set to copies and records. What is there already is used again, so that it can be
//! done after each change of any package.

use crate::beside::{Others, Words};
use crate::bind::Loader;
use crate::copy::Role;
use crate::elf::Elf;
use crate::origin::Origin;
use crate::plan::{Binding, Files, Id, Plan, Program, Unset, state_of, words};
use crate::record::{Copied, Entry, encode};
use crate::store::{Set, Store};
use crate::{Error, Result, copy, label, trial};
use commonhold_images::ranges::{Arch, Ranges, Region, Wanted};
use commonhold_record::{IS_THE_COPY, State};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What was done.
#[derive(Debug, Default)]
pub struct Report {
    /// Programs that have a record now, and how many of their libraries have copies.
    pub programs: Vec<(PathBuf, usize)>,
    /// Programs that have none, and why.
    pub unset: Vec<Unset>,
    /// Libraries that are used as they are, and why.
    pub unfit: Vec<(PathBuf, String)>,
    /// Copies that were made now.
    pub made: usize,
    /// Copies that were there.
    pub kept: usize,
}

/// Hears how far it is: steps done, and steps in all.
pub type Progress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// A copy: where it is in the store, and at which address.
struct Made {
    path: PathBuf,
    key: String,
    base: u64,
    state: State,
    is_new: bool,
}

/// Makes what these programs need, and writes their records. Those of others are left as they are.
pub fn build(store: &Store, programs: &Set, progress: Progress<'_>) -> Result<Report> {
    let built = build_beside(store, programs, None, progress)?;
    Ok(built.expect("there is nothing that it must suit"))
}

/// The same, where all but the `changed` programs were built before. If what these have suits the changed ones too, nothing is
/// done about them, so that it takes no longer the more there are.
pub fn change(
    store: &Store,
    programs: &Set,
    changed: &BTreeSet<PathBuf>,
    progress: Progress<'_>,
) -> Result<Report> {
    let Some(others) = Others::read(store, programs, changed)? else {
        return build(store, programs, progress);
    };
    let own = programs.iter().filter(|(path, _)| changed.contains(*path));
    let own = own.map(|(path, moved)| (path.clone(), *moved)).collect();
    match build_beside(store, &own, Some(&others), progress)? {
        Some(report) => Ok(report),
        None => build(store, programs, progress),
    }
}

/// None: what the others have does not suit, and nothing was made.
fn build_beside(
    store: &Store,
    programs: &Set,
    others: Option<&Others>,
    progress: Progress<'_>,
) -> Result<Option<Report>> {
    let loader = Loader::of_machine();
    loader.check().map_err(|why| Error::unfit(&loader.path, why))?;
    let mut report = Report::default();
    let mut files = Files::default();
    let scratch = tempfile::tempdir().map_err(Error::file(Path::new("a directory for temporary files")))?;
    let mut opened = Vec::new();
    for (done, (path, moved)) in programs.iter().enumerate() {
        let program = Program::open(path, &mut files, &store.variables(), scratch.path());
        match program.and_then(|program| if *moved { program.with_its_own_copy(&files) } else { Ok(program) })
        {
            Ok(program) => opened.push(program),
            Err(why) => report.unset.push(Unset { path: path.clone(), why }),
        }
        progress(done + 1, programs.len() * 2);
    }
    let plan = Plan::new(files, opened);
    let unfit = plan.unfit.iter();
    report.unfit = unfit.map(|(id, why)| (plan.files.elf(*id).path.clone(), why.clone())).collect();
    let bases = assign(&store.ranges()?, &plan)?;
    let all_words = match others {
        None => plan.bindings.iter().map(|of| words(&plan.files, of, |id| bases.get(&id).copied())).collect(),
        Some(others) => match others.suit(store, &plan, &bases) {
            Some(all_words) => all_words,
            None => return Ok(None),
        },
    };
    let made = make_all(store, &plan, &bases, &all_words, progress)?;
    report.made = made.iter().filter(|made| made.is_new).count();
    report.kept = made.len() - report.made;
    if let Some(others) = others {
        let again = made.iter().filter(|made| others.keys.contains(&made.key)).count();
        report.kept += others.keys.len() - again;
        report.programs.clone_from(&others.programs);
    }
    for (program, copies) in &plan.programs {
        let bases: Vec<Option<u64>> = copies.iter().map(|copy| copy.map(|index| made[index].base)).collect();
        let written = write_records(store, &plan.files, program, copies, &made);
        match written.and_then(|()| trial::start(store, program, &plan.files, &bases, scratch.path())) {
            Ok(()) => report.programs.push((program.path.clone(), copies.iter().flatten().count())),
            // The store itself: nothing of it is changed then.
            Err(why @ Error::File { .. }) => return Err(why),
            Err(why) => report.unset.push(Unset { path: program.path.clone(), why }),
        }
    }
    for unset in &report.unset {
        store.remove_record(&unset.path)?;
    }
    report.programs.sort();
    Ok(Some(report))
}

/// The name under which a library has its addresses: its directory and what programs ask for, so that the next version of
/// the package has the same.
fn range_name(elf: &Elf) -> String {
    let directory = elf.path.parent().unwrap_or(Path::new("/"));
    let name = elf.soname().map_or_else(|| elf.path.file_name().unwrap_or_default(), OsStr::from_bytes);
    format!("rebase:{}", directory.join(name).display())
}

/// The base of every library that has a copy.
fn assign(ranges: &Ranges, plan: &Plan) -> Result<HashMap<Id, u64>> {
    let slide = slide(ranges)?;
    let mut roles: BTreeMap<Id, Role> = BTreeMap::new();
    for binding in &plan.bindings {
        roles.entry(binding.file).or_insert(binding.role);
    }
    let wanted = roles.iter().map(|(file, role)| {
        let elf = plan.files.elf(*file);
        Wanted {
            name: range_name(elf),
            arch: Arch::X86_64,
            region: Region::Homogeneous,
            bytes: copy::address_bytes(elf, *role),
            alignment: copy::alignment(elf),
            group: None,
            slide,
        }
    });
    let given = ranges.assign_all(&wanted.collect::<Vec<_>>())?;
    Ok(roles.into_keys().zip(given.into_iter().map(|range| range.first)).collect())
}

/// Where new ranges are looked for: beside the others, or, for the first, anywhere.
fn slide(ranges: &Ranges) -> Result<u16> {
    let taken = ranges.list()?;
    let first =
        taken.iter().find(|range| range.region == Region::Homogeneous && range.name.starts_with("rebase:"));
    if let Some(first) = first {
        let addresses = Region::Homogeneous.addresses(ranges.owner());
        let step = (addresses.end - addresses.start) / 65_536;
        return Ok(((first.first - addresses.start) / step) as u16);
    }
    // A key that the standard library draws at random for each table.
    use std::hash::{BuildHasher, RandomState};
    Ok((RandomState::new().hash_one(0) % 60_000) as u16)
}

/// What a copy is made from says what it is.
pub(crate) fn key(elf: &Elf, role: Role, base: u64, words: &[Option<u64>]) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"commonhold rebase 2");
    hasher.update(elf.path.as_os_str().as_bytes());
    hasher.update(&[0]);
    hasher.update(&[u8::from(role == Role::Program)]);
    hasher.update(&base.to_le_bytes());
    hasher.update(&elf.bytes);
    for word in words {
        hasher.update(&[u8::from(word.is_some())]);
        hasher.update(&word.unwrap_or(0).to_le_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

fn make_one(
    store: &Store,
    plan: &Plan,
    binding: &Binding,
    bases: &HashMap<Id, u64>,
    words: &[Option<u64>],
) -> Result<Made> {
    let elf = plan.files.elf(binding.file);
    let base = bases[&binding.file];
    let key = key(elf, binding.role, base, words);
    let file: OsString = elf.path.file_name().unwrap_or_default().into();
    let there = store.has(&key, &file);
    let is_new = there.is_none();
    let sound = match there {
        Some(state) => state,
        None => {
            store.discard(&key)?;
            let bytes = copy::make(elf, binding.role, base, words)?;
            store.put(&key, &file, &bytes, &Origin::new(elf, base), binding.role)?
        }
    };
    if binding.role == Role::Library {
        store.note_words(&key, &file, words)?;
    }
    let path = store.copy(&key, &file);
    // The original may have got another since; that is another state of the copy, too.
    label::keep(&elf.path, &path);
    let state = state_of(&path)?;
    if (State { changed_ns: sound.changed_ns, ..state }) != sound {
        let why = std::io::Error::other("it was changed while it was looked at: try again");
        return Err(Error::file(&path)(why));
    }
    Ok(Made { path, key, base, state, is_new })
}

/// All copies, on all processors.
fn make_all(
    store: &Store,
    plan: &Plan,
    bases: &HashMap<Id, u64>,
    words: &[Words],
    progress: Progress<'_>,
) -> Result<Vec<Made>> {
    let count = plan.bindings.len();
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let all: Mutex<Vec<(usize, Result<Made>)>> = Mutex::new(Vec::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(binding) = plan.bindings.get(index) else { return };
            let made = make_one(store, plan, binding, bases, &words[index]);
            all.lock().expect("nobody panics with it").push((index, made));
            progress(count + done.fetch_add(1, Ordering::Relaxed) + 1, count * 2);
        }
    };
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(count.max(1));
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let mut all = all.into_inner().expect("nobody panicked with it");
    all.sort_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, made)| made).collect()
}

/// The record of a program; and if it has a copy itself the copy's, which is another program to the loader.
fn write_records(
    store: &Store,
    files: &Files,
    program: &Program,
    copies: &[Option<usize>],
    made: &[Made],
) -> Result<()> {
    let copied = |(copy, id): (&Option<usize>, &Id)| {
        let dynamic = files.elf(*id).dynamic_address().unwrap_or(0);
        copy.map(|index| {
            let Made { path, base, state, .. } = &made[index];
            Copied { path: path.as_os_str(), dynamic: base + dynamic, state: *state }
        })
    };
    let copied: Vec<Option<Copied<'_>>> = copies.iter().zip(&program.files).map(copied).collect();
    if let Some(itself) = copied[0] {
        let copy = Path::new(itself.path);
        let paths = program.paths_of(copy, files)?;
        let original = Copied {
            path: program.path.as_os_str(),
            dynamic: IS_THE_COPY,
            state: files.state(program.files[0]),
        };
        let of_copy = [&[Some(original)], &copied[1..]].concat();
        store.write_record(copy, &record(files, program, &paths, Some(itself.state), &of_copy))?;
    }
    store.write_record(&program.path, &record(files, program, &program.said.objects, None, &copied))
}

/// `itself`: the state of the file that runs, if it is not the original.
fn record(
    files: &Files,
    program: &Program,
    paths: &[PathBuf],
    itself: Option<State>,
    copied: &[Option<Copied<'_>>],
) -> Vec<u8> {
    let entry = |place: usize| Entry {
        path: paths[place].as_os_str(),
        copy: copied[place],
        state: itself.filter(|_| place == 0).unwrap_or_else(|| files.state(program.files[place])),
    };
    let others = (1..program.files.len()).filter(|place| *place != program.loader);
    let places = [0, program.loader].into_iter().chain(others);
    encode(&places.map(entry).collect::<Vec<_>>())
}
