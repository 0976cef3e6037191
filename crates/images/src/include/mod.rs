//! Inclusion: an image that was published becomes part of this process, for as long as it lives.
//!
//! A process has one table of what it included. Its lock is held while an image is looked up and mapped, so two threads that
//! ask at once get one image; nothing is ever taken out of it, so what was found may be used without any lock.
//!
//! A process includes an image once, as a rule, so nearly all of the time goes into bringing in the code that does it, a fault
//! for each place in the program. What every inclusion runs through therefore lies together, in a section of its own
//! (`.commonhold.include`), and neither formats nor puts paths together that only an error would name. Functions of others are
//! elsewhere, so it does without growing vectors, dropping what owns nothing, and iterators that are not made one with it; what it
//! needs of the crate `image` is made one with it (`inline(always)`).

pub(crate) mod map;

use crate::data::{Layout, TypeRef, Types};
use crate::store::{Opened, Store, not_a_name};
use crate::{Error, Result};
use commonhold_image::{Id, Kind, PAGE_BYTES, Root, Roots, Segment, Version, Wanted};
use std::fmt;
use std::sync::{Mutex, PoisonError};

struct Included {
    name: String,
    version: Version,
    id: Id,
    kind: Kind,
    base: u64,
    bytes: u64,
    group: Option<String>,
    roots: Roots<'static>,
    imports: Vec<Image>,
}

/// No image leads into others that lead into others so often; of hashes, none leads back to itself.
const MOST_DEPTH: usize = 64;

static INCLUDED: Mutex<Vec<Image>> = Mutex::new(Vec::new());
/// The types of roots that were asked for, each described once.
static DESCRIBED: Mutex<Types> = Mutex::new(Types::new());

/// An image that is part of this process. It stays one until the process ends.
#[derive(Clone, Copy)]
pub struct Image(&'static Included);

impl PartialEq for Image {
    fn eq(&self, other: &Image) -> bool {
        self.0.id == other.0.id
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}@{} at {:#x}", self.name(), self.version(), self.base())
    }
}

/// Includes the newest version that begins so, and what it leads into. If the process has one that fits, that is the answer.
pub fn include(text: &str) -> Result<Image> {
    include_from(&Store::search(), text, false)
}

/// As [`include()`], but looks for a newer version than what the process has.
pub fn include_newest(text: &str) -> Result<Image> {
    include_from(&Store::search(), text, true)
}

/// As [`include()`], or if `newest` [`include_newest`], of the first of these stores that has it.
#[unsafe(link_section = ".commonhold.include")]
pub fn include_from(stores: &[Store], text: &str, newest: bool) -> Result<Image> {
    let wanted = Wanted::parse(text).ok_or_else(|| not_a_name(text))?;
    // A thread that panicked left the table whole: images are added last.
    let mut table = INCLUDED.lock().unwrap_or_else(PoisonError::into_inner);
    let fits = |image: &&Image| image.name() == wanted.name && wanted.accepts(image.version());
    if !newest && let Some(image) = table.iter().filter(fits).max_by_key(|image| image.version()) {
        return Ok(*image);
    }
    for store in stores {
        if let Some((id, image)) = store.open_newest(&wanted)? {
            return add(&mut table, stores, store, id, Some(image), 0);
        }
        if let Some(found) = store.resolve(&wanted)? {
            let image = found.open()?;
            let (name, version) = (image.header().name(), image.header().version());
            if (name, version) != (wanted.name, found.entry.version) {
                return Err(Error::Damaged { path: image.path() });
            }
            return add(&mut table, stores, store, found.entry.id, Some(image), 0);
        }
    }
    // Says where it looked.
    Err(Store::resolve_in(stores, text)
        .err()
        .unwrap_or_else(|| Error::Missing(format!("{text} is being published"))))
}

/// All that this process has included, in the order in which it did.
pub fn included() -> Vec<Image> {
    INCLUDED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// `first`: the store where it should be; the others come behind. `opened`: it is open already.
/// `depth`: how many lead to it.
#[unsafe(link_section = ".commonhold.include")]
fn add(
    table: &mut Vec<Image>,
    stores: &[Store],
    first: &Store,
    id: Id,
    opened: Option<Opened>,
    depth: usize,
) -> Result<Image> {
    if let Some(image) = table.iter().find(|image| image.0.id == id) {
        return Ok(*image);
    }
    let image = opened.map_or_else(|| open(stores, first, id), Ok)?;
    let header = image.header();
    if depth > MOST_DEPTH {
        return Err(Error::Damaged { path: image.path() });
    }
    refuse_code(&image)?;
    refuse_another_of_its_group(table, &image)?;
    let mut imports = Vec::new();
    for import in header.imports() {
        let imported =
            add(table, stores, first, import.id, None, depth + 1).map_err(|error| match error {
                Error::Missing(_) => Error::Missing(format!(
                    "{}@{} leads into {}@{} with build ID {}, which is in no store: publish it",
                    header.name(),
                    header.version(),
                    import.name,
                    import.version,
                    import.id
                )),
                other => other,
            })?;
        if imported.base() != import.base || imported.0.bytes != import.bytes {
            return Err(Error::Damaged { path: image.path() });
        }
        imports.push(imported);
    }
    // What can be wrong is found before anything is mapped: what is mapped stays.
    let place = place_of_roots(&image)?;
    map::image(header, &image.file)?;
    let included = Image(Box::leak(Box::new(Included {
        name: header.name().to_owned(),
        version: header.version(),
        id,
        kind: header.kind(),
        base: header.base(),
        bytes: header.bytes(),
        group: header.group().map(str::to_owned),
        roots: roots(&image, place),
        imports,
    })));
    if table.capacity() == 0 {
        *table = Vec::with_capacity(16); // growing is code elsewhere
    }
    table.push(included);
    Ok(included)
}

fn open(stores: &[Store], first: &Store, id: Id) -> Result<Opened> {
    let mut outcome = first.open(id);
    for store in stores {
        match outcome {
            Err(Error::Missing(_)) => outcome = store.open(id),
            Err(Error::File { ref source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                outcome = store.open(id);
            }
            _ => break,
        }
    }
    match outcome {
        Err(Error::File { path, source }) if source.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::Missing(format!("there is no {}", path.display())))
        }
        outcome => outcome,
    }
}

/// Code is included by what programs have of it in them, which fills in and constructs, and looks for what is there.
#[unsafe(link_section = ".commonhold.include")]
fn refuse_code(image: &Opened) -> Result<()> {
    let header = image.header();
    if header.kind() != Kind::Code {
        return Ok(());
    }
    let (name, version) = (header.name(), header.version());
    Err(Error::Invalid(format!(
        "{name}@{version} is code: link the program with its stub (`commonhold image stub {name}@{}`), which includes it",
        version.major
    )))
}

/// What is declared never to be in one process is not.
#[unsafe(link_section = ".commonhold.include")]
fn refuse_another_of_its_group(table: &[Image], image: &Opened) -> Result<()> {
    let header = image.header();
    let Some(group) = header.group() else { return Ok(()) };
    match table.iter().find(|other| other.0.group.as_deref() == Some(group)) {
        Some(other) => Err(Error::NoPlace {
            image: format!("{}@{}", header.name(), header.version()),
            first: header.base(),
            end: header.base() + header.bytes(),
            why: format!(
                "{other:?} is part of this process, and images of the group {group} are declared never to be in one"
            ),
        }),
        None => Ok(()),
    }
}

/// Where the table of roots is going to be in memory; none: it is in the first page.
#[unsafe(link_section = ".commonhold.include")]
fn place_of_roots(image: &Opened) -> Result<Option<u64>> {
    let header = image.header();
    let at = header.roots_at();
    if header.root_count() == 0 || at.end <= PAGE_BYTES as u64 {
        return Ok(None);
    }
    let within = |segment: &Segment| {
        segment.offset <= at.start
            && at.end <= segment.offset + segment.file_bytes
            && segment.protection & commonhold_image::READ != 0
            && segment.protection & commonhold_image::WRITE == 0
    };
    let damaged = || Error::Damaged { path: image.path() };
    let segment = header.segments().find(within).ok_or_else(damaged)?;
    Ok(Some(segment.address + (at.start - segment.offset)))
}

/// The table of roots of an image that is mapped, at that place.
#[unsafe(link_section = ".commonhold.include")]
fn roots(image: &Opened, place: Option<u64>) -> Roots<'static> {
    let header = image.header();
    let at = header.roots_at();
    if header.root_count() == 0 {
        return Roots::accepted(&[], 0);
    }
    let Some(first) = place else {
        // In the first page, which was read: nothing has to be brought in for it.
        let table = Box::leak(Box::<[u8]>::from(&image.page[at.start as usize..at.end as usize]));
        return Roots::accepted(table, header.root_count());
    };
    // SAFETY: this part of the file is mapped for reading, for good, and nobody writes there.
    let bytes: &'static [u8] =
        unsafe { std::slice::from_raw_parts(first as *const u8, (at.end - at.start) as usize) };
    Roots::accepted(bytes, header.root_count())
}

impl Image {
    /// Its name.
    pub fn name(&self) -> &'static str {
        &self.0.name
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.0.version
    }

    /// Its build ID.
    pub fn id(&self) -> Id {
        self.0.id
    }

    /// Data or code.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Its first address.
    pub fn base(&self) -> u64 {
        self.0.base
    }

    /// How many bytes of addresses it takes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The images that it leads into.
    pub fn imports(&self) -> &'static [Image] {
        &self.0.imports
    }

    /// All that can be found in it by name.
    pub fn roots(&self) -> Roots<'static> {
        self.0.roots
    }

    /// Where a root is and how many values it is, if it is of that type, which C and Python described by tables.
    #[unsafe(link_section = ".commonhold.include")]
    pub fn find_typed(&self, name: &str, types: &Types, of: TypeRef) -> Result<(u64, u64)> {
        let root = self.find(name)?;
        let (layout, one) = (types.hash(of), types.get(of));
        let bytes = one.bytes.max(1) as u64;
        let aligned = root.address.is_multiple_of(one.alignment as u64);
        if root.layout == layout && root.bytes.is_multiple_of(bytes) && aligned && self.kind() == Kind::Data {
            return Ok((root.address, root.bytes / bytes));
        }
        Err(Error::Mismatch(format!(
            "root {name:?} of {self:?} has layout {:016x}, and {} is {layout:016x}: it was made with other fields",
            root.layout, one.name
        )))
    }

    /// One root, of whatever type it is.
    #[unsafe(link_section = ".commonhold.include")]
    pub fn find(&self, name: &str) -> Result<Root<'static>> {
        let missing = || {
            let all: Vec<&str> = self.0.roots.iter().map(|root| root.name).take(20).collect();
            Error::Missing(format!(
                "{}@{} has no root {name:?}; it has {}",
                self.name(),
                self.version(),
                if all.is_empty() { "none".into() } else { all.join(", ") }
            ))
        };
        let root = self.0.roots.find(name).ok_or_else(missing)?;
        let end = root.address.checked_add(root.bytes);
        let inside = root.address >= self.base() && end.is_some_and(|end| end <= self.base() + self.bytes());
        if inside {
            Ok(root)
        } else {
            Err(Error::Mismatch(format!("root {name:?} of {self:?} is not in it")))
        }
    }

    /// The root of that name, if it is one `T`.
    #[unsafe(link_section = ".commonhold.include")]
    pub fn root<T: Layout>(&self, name: &str) -> Result<&'static T> {
        match self.run(name)? {
            [one] => Ok(one),
            all => Err(Error::Mismatch(format!(
                "root {name:?} of {self:?} is a run of {}: ask for a run",
                all.len()
            ))),
        }
    }

    /// The root of that name, if it is any number of `T`, one behind the other.
    #[unsafe(link_section = ".commonhold.include")]
    pub fn run<T: Layout>(&self, name: &str) -> Result<&'static [T]> {
        let mut types = DESCRIBED.lock().unwrap_or_else(PoisonError::into_inner);
        let of = T::describe(&mut types);
        let (first, count) = self.find_typed(name, &types, of)?;
        // SAFETY: in memory that is mapped for reading for good and that nobody changes; the arena that wrote it there
        // had the same description of `T`, whose pointers it followed.
        Ok(unsafe { std::slice::from_raw_parts(first as *const T, count as usize) })
    }
}
