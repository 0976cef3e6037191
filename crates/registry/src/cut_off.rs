//! `meta.redb` as it is when its host is killed between any two of its writes.

use crate::file::Unlocked;
use crate::open::contents_of;
use crate::store::{FORMAT, OBJECTS, VERSION};
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
    for round in 0..3u64 {
        let database = Builder::new().create_with_backend(recorded.clone()).unwrap();
        for number in 0..4 {
            let transaction = database.begin_write().unwrap();
            {
                let mut format = transaction.open_table(FORMAT).unwrap();
                format.insert("version", VERSION).unwrap();
                format.insert("next_object", 100 * round + number).unwrap();
                let mut objects = transaction.open_table(OBJECTS).unwrap();
                let _ = objects.insert(number, &[7; 9000][..]).unwrap();
                drop(objects);
                drop(transaction.open_table(crate::store::DIRECTORIES).unwrap());
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
        if let Some(error) =
            contents_of(path, image.clone()).err().filter(|error| !error.message.contains("object"))
        {
            refused.push(format!("{number} of {}: flags {:02x}: {error}", images.len(), image[9]));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}
