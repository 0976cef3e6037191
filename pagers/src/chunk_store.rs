//! The pager of objects whose pages lie as chunks in a store: a local directory, or S3. Chunk 3 of `/lab/data`
//! is `PREFIX/lab/data/00000003`; one that is not there is zero.

use commonhold::Pager;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt};
use std::io;
use tokio::runtime::Runtime;

/// Bytes of a chunk. A store that was filled with one size cannot be read with another.
pub const CHUNK_BYTES: usize = 1 << 20;

/// A store, and the runtime on which its requests are waited for.
pub struct ChunkStore {
    store: Box<dyn ObjectStore>,
    prefix: Path,
    runtime: Runtime,
}

impl Pager for ChunkStore {
    fn page_in(&mut self, object: &str, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        for (number, within, part) in parts(offset, buffer.len()) {
            let range = within as u64..(within + part.len()) as u64;
            let path = self.chunk(object, number)?;
            match self.runtime.block_on(self.store.get_range(&path, range)) {
                Ok(found) => buffer[part.clone()].copy_from_slice(whole(&path, &found, part.len())?),
                Err(Error::NotFound { .. }) => buffer[part].fill(0),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(())
    }

    fn page_out(&mut self, object: &str, offset: u64, data: &[u8]) -> io::Result<()> {
        for (number, within, part) in parts(offset, data.len()) {
            let path = self.chunk(object, number)?;
            let mut chunk = match self.runtime.block_on(async { self.store.get(&path).await?.bytes().await })
            {
                Ok(found) => whole(&path, &found, CHUNK_BYTES)?.to_vec(),
                Err(Error::NotFound { .. }) => vec![0; CHUNK_BYTES],
                Err(error) => return Err(io::Error::other(error)),
            };
            chunk[within..within + part.len()].copy_from_slice(&data[part]);
            self.runtime.block_on(self.store.put(&path, chunk.into())).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl ChunkStore {
    /// Uses `store`, which must be durable when a put returns.
    pub fn new(store: Box<dyn ObjectStore>, prefix: Path) -> io::Result<ChunkStore> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(ChunkStore { store, prefix, runtime })
    }

    fn chunk(&self, object: &str, number: u64) -> io::Result<Path> {
        if !object.starts_with('/') {
            let what = format!("the object {object:?} has no name, so its chunks have none");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let parts = object[1..].split('/').map(Into::into);
        Ok(self.prefix.parts().chain(parts).chain([format!("{number:08}").into()]).collect())
    }
}

/// What was found, if it is as long as it must be.
fn whole<'f>(path: &Path, found: &'f [u8], length: usize) -> io::Result<&'f [u8]> {
    if found.len() == length {
        return Ok(found);
    }
    let what =
        format!("{path} has {} bytes where {length} must be: it was not written by this pager", found.len());
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// The parts of a range by chunk: its number, where in it the part begins, and which bytes of the range it is.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % CHUNK_BYTES as u64) as usize;
        let count = (CHUNK_BYTES - within).min(length - done);
        done += count;
        (count > 0).then(|| (at / CHUNK_BYTES as u64, within, done - count..done))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::local::LocalFileSystem;

    fn store(directory: &tempfile::TempDir) -> ChunkStore {
        let local = LocalFileSystem::new_with_prefix(directory.path()).unwrap();
        ChunkStore::new(Box::new(local), Path::from("some/place")).unwrap()
    }

    fn page_in(store: &mut ChunkStore, object: &str, offset: u64, length: usize) -> Vec<u8> {
        let mut buffer = vec![0xaa; length];
        store.page_in(object, offset, &mut buffer).unwrap();
        buffer
    }

    #[test]
    fn ranges_are_cut_at_chunks() {
        let all: Vec<_> = parts(CHUNK_BYTES as u64 * 3 - 4096, CHUNK_BYTES + 8192).collect();
        let middle = 4096..4096 + CHUNK_BYTES;
        assert_eq!(
            all,
            [(2, CHUNK_BYTES - 4096, 0..4096), (3, 0, middle.clone()), (4, 0, middle.end..middle.end + 4096)]
        );
        assert_eq!(parts(0, 0).count(), 0);
        assert_eq!(parts(0, CHUNK_BYTES).count(), 1);
    }

    #[test]
    fn what_was_stored_comes_back_also_across_chunks_and_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let mut first = store(&directory);
        assert!(page_in(&mut first, "/lab/a", 0, 2 * CHUNK_BYTES).iter().all(|b| *b == 0));
        let data: Vec<u8> = (0..3 * 4096u32).map(|n| (n % 251) as u8 + 1).collect();
        let offset = CHUNK_BYTES as u64 - 4096;
        first.page_out("/lab/a", offset, &data).unwrap();
        first.page_out("/lab/b", offset, &[9; 4096]).unwrap();
        let mut again = store(&directory);
        assert!(page_in(&mut again, "/lab/a", offset, data.len()) == data);
        assert!(page_in(&mut again, "/lab/b", offset, 8192) == [[9; 4096], [0; 4096]].concat());
        assert!(page_in(&mut again, "/lab/a", 0, 4096).iter().all(|b| *b == 0));
        assert!(directory.path().join("some/place/lab/a/00000001").is_file());
        again.page_out("/lab/a", offset, &[7; 4096]).unwrap();
        assert!(
            page_in(&mut again, "/lab/a", offset + 4096, 8192) == data[4096..],
            "the rest of the chunks stays"
        );
    }

    #[test]
    fn odd_names_stay_inside_the_prefix() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = store(&directory);
        for (n, name) in ["/a b", "/ü/%2e", "/x*?"].into_iter().enumerate() {
            store.page_out(name, 0, &[n as u8 + 1; 4096]).unwrap();
        }
        for (n, name) in ["/a b", "/ü/%2e", "/x*?"].into_iter().enumerate() {
            assert!(page_in(&mut store, name, 0, 4096) == [n as u8 + 1; 4096], "{name}");
        }
        let entries: Vec<_> =
            std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(entries, ["some"]);
        store.page_in("", 0, &mut [0; 4096]).unwrap_err();
    }

    #[test]
    fn a_chunk_cut_short_is_an_error_and_not_zeros() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = store(&directory);
        store.page_out("/a", 0, &[1; 4096]).unwrap();
        std::fs::write(directory.path().join("some/place/a/00000000"), [1; 5000]).unwrap();
        store.page_in("/a", 4096, &mut [0; 4096]).unwrap_err();
        store.page_out("/a", 4096, &[2; 4096]).unwrap_err();
    }
}
