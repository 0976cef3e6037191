//! `meta.redb` as it is when its host is killed between any two of its writes.

use crate::file::Unlocked;
use crate::open::contents_of;
use crate::store::{DIRECTORIES, FORMAT, OBJECTS, VERSION};
use commonhold_object::Ownership;
use redb::{Builder, StorageBackend};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A file, and how it was after each write.
#[derive(Clone, Debug)]
struct Recorded {
    file: Arc<Unlocked>,
    images: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Recorded {
    fn note(&self) -> io::Result<()> {
        let mut image = vec![0; self.file.len()? as usize];
        self.file.read(0, &mut image)?;
        self.images.lock().unwrap().push(image);
        Ok(())
    }
}

impl StorageBackend for Recorded {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.note()
    }
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        // A signal ends a write between two pages.
        for (number, part) in (0..).zip(data.chunks(4096)) {
            self.file.write(offset + number * 4096, part)?;
            self.note()?;
        }
        Ok(())
    }
}

#[test]
fn a_file_is_read_whatever_write_of_its_host_was_the_last() {
    let file = Arc::new(Unlocked(tempfile::tempfile().unwrap()));
    let recorded = Recorded { file, images: Arc::default() };
    let path = Path::new("meta.redb");
    let mut begun = 0;
    for (round, commits) in [1, 0, 0, 1, 4, 0, 2, 4].into_iter().enumerate() {
        let database = Builder::new().create_with_backend(recorded.clone()).unwrap();
        for number in 0..commits {
            let transaction = database.begin_write().unwrap();
            {
                let mut format = transaction.open_table(FORMAT).unwrap();
                format.insert("version", VERSION).unwrap();
                format.insert("next_object", 100 * round as u64 + number).unwrap();
                drop(transaction.open_table(OBJECTS).unwrap());
                let root = postcard::to_stdvec(&Ownership { uid: 0, gid: 0, mode: 0o777 }).unwrap();
                let mut directories = transaction.open_table(DIRECTORIES).unwrap();
                for name in (0..60 * number).map(|n| format!("/r{round}n{n}")).chain(["/".to_owned()]) {
                    directories.insert(name.as_str(), root.as_slice()).unwrap();
                }
            }
            transaction.commit().unwrap();
            if begun == 0 {
                begun = recorded.images.lock().unwrap().len();
            }
        }
        drop(database);
    }
    let images = recorded.images.lock().unwrap();
    let mut refused = Vec::new();
    for (number, image) in images.iter().enumerate().skip(begun) {
        if let Err(error) = contents_of(path, image.clone()) {
            refused.push(format!("{number} of {}: flags {:02x}: {error}", images.len(), image[9]));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
