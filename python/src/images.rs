//! Images: what `commonhold/image.py` needs of them. Types come as tables, memory goes as addresses.

use crate::errors::{OrRaise, exception};
use commonhold::Error;
use commonhold::image::{self, Entry, EntryField, Options, Scalar, Store, Types, What};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Name, kind, bytes, alignment, place of what it leads to, and fields: name, offset (of a choice the value), place
/// of the type, count.
type Row = (String, String, usize, usize, usize, Vec<(String, usize, usize, usize)>);

fn entry(row: &Row) -> commonhold::Result<Entry> {
    let (name, kind, bytes, alignment, of, fields) = row;
    let what = match kind.as_str() {
        "unsigned" => What::Scalar(Scalar::Unsigned),
        "signed" => What::Scalar(Scalar::Signed),
        "float" => What::Scalar(Scalar::Float),
        "bool" => What::Scalar(Scalar::Bool),
        "utf8" => What::Scalar(Scalar::Utf8),
        "char" => What::Scalar(Scalar::Char),
        "choice" => What::Choice,
        "pointer" => What::Pointer { to: *of, nullable: true },
        "reference" => What::Pointer { to: *of, nullable: false },
        "run" => What::Run { of: *of },
        "struct" => What::Struct,
        other => return Err(Error::invalid(format!("type {name}: there is no kind {other}"))),
    };
    let field = |(name, offset, of, count): &(String, usize, usize, usize)| EntryField {
        name: name.clone(),
        offset: *offset,
        of: *of,
        count: *count,
    };
    Ok(Entry {
        name: name.clone(),
        what,
        bytes: *bytes,
        alignment: *alignment,
        fields: fields.iter().map(field).collect(),
    })
}

fn table(rows: &[Row]) -> commonhold::Result<Vec<Entry>> {
    if rows.is_empty() {
        return Err(Error::invalid("a table of types has at least one"));
    }
    rows.iter().map(entry).collect()
}

/// An image that is being built. Its memory is given back by `close` alone: Python may have any number of addresses of it.
#[pyclass(module = "commonhold._native", name = "Arena", frozen)]
pub(crate) struct Arena {
    arena: Mutex<Option<image::Arena>>,
}

impl Arena {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut image::Arena) -> commonhold::Result<T> + Send,
    ) -> PyResult<T> {
        let outcome = py.detach(|| {
            let mut arena = self.arena.lock().unwrap_or_else(PoisonError::into_inner);
            let closed = || Error::invalid("the arena was closed: make a new one");
            act(arena.as_mut().ok_or_else(closed)?)
        });
        outcome.or_raise(py)
    }
}

#[pymethods]
impl Arena {
    #[new]
    #[pyo3(signature = (name, store, group, capacity_bytes, imports))]
    fn new(
        py: Python<'_>,
        name: &str,
        store: Option<PathBuf>,
        group: Option<String>,
        capacity_bytes: Option<u64>,
        imports: Vec<PyRef<'_, Image>>,
    ) -> PyResult<Arena> {
        let store = store.as_deref().map(Store::named);
        let mut options = Options { store, group, ..Options::default() };
        options.capacity = capacity_bytes.unwrap_or(options.capacity);
        options.imports = imports.iter().map(|image| image.image).collect();
        let made = py.detach(|| image::Arena::with(name, options).map_err(Error::from));
        Ok(Arena { arena: Mutex::new(Some(made.or_raise(py)?)) })
    }

    /// Address of memory of the arena, zeroed.
    fn take(&self, py: Python<'_>, bytes: u64, alignment: u64) -> PyResult<u64> {
        self.with(py, |arena| Ok(arena.take(bytes, alignment)?))
    }

    /// Makes values be found by name; the first row of the table is their type.
    fn root(&self, py: Python<'_>, name: &str, first: u64, count: u64, rows: Vec<Row>) -> PyResult<()> {
        self.with(py, |arena| {
            let found = arena.types(|types| types.add_table(&table(&rows)?).map_err(Error::from))?;
            Ok(arena.root_at(name, first, count, found[0])?)
        })
    }

    /// Publishes the image; gives its build ID and its file.
    fn seal(&self, py: Python<'_>) -> PyResult<(String, PathBuf)> {
        self.with(py, |arena| {
            let published = arena.try_seal()?;
            Ok((published.id.to_string(), published.path))
        })
    }

    /// Gives its memory back: nothing that was placed in it may be used any more.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.arena.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // Addresses of it may be anywhere in Python. What it had reserved is freed once this process has ended, by
        // the next change of the store.
        let arena = self.arena.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        std::mem::forget(arena);
    }
}

/// An image that is part of this process, until it ends.
#[pyclass(module = "commonhold._native", name = "Image", frozen)]
pub(crate) struct Image {
    image: image::Image,
}

#[pymethods]
impl Image {
    /// Its name.
    #[getter]
    fn name(&self) -> &'static str {
        self.image.name()
    }

    /// Its version, such as `1.2.0`.
    #[getter]
    fn version(&self) -> String {
        self.image.version().to_string()
    }

    /// The hash of all its bytes.
    #[getter]
    fn build_id(&self) -> String {
        self.image.id().to_string()
    }

    /// Its first address.
    #[getter]
    fn address(&self) -> u64 {
        self.image.base()
    }

    /// How many bytes of addresses it takes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.image.bytes()
    }

    /// The names of its roots.
    #[getter]
    fn roots(&self) -> Vec<&'static str> {
        self.image.roots().iter().map(|root| root.name).collect()
    }

    /// Address and number of the values of that name, if they are of the type in the table's first row.
    fn find(&self, py: Python<'_>, name: &str, rows: Vec<Row>) -> PyResult<(u64, u64)> {
        let found = || {
            let mut types = Types::default();
            let of = types.add_table(&table(&rows)?)?[0];
            Ok(self.image.find_typed(name, &types, of)?)
        };
        found().map_err(|error: Error| exception(py, &error))
    }
}

/// Includes an image, of that store or of those where images are looked for.
#[pyfunction]
#[pyo3(signature = (name, store, newest))]
pub(crate) fn include_image(
    py: Python<'_>,
    name: &str,
    store: Option<PathBuf>,
    newest: bool,
) -> PyResult<Image> {
    let included = py.detach(|| {
        let stores = store.map_or_else(Store::search, |store| vec![Store::named(&store)]);
        image::include_from(&stores, name, newest).map_err(Error::from)
    });
    Ok(Image { image: included.or_raise(py)? })
}
