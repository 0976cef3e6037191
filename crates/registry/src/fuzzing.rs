//! For the fuzz targets: any bytes as `meta.redb`, and any values in it.

use crate::open::{Contents, contents_of};
use crate::record::{BackingFile, ObjectRecord};
use crate::store::{DIRECTORIES, FORMAT, OBJECTS, VERSION};
use crate::{restore, tree};
use commonhold_object::{CreateOptions, Credentials, Name, ObjectId, Ownership, PagerKind};
use redb::{Builder, StorageBackend};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Values of the two tables, by their keys, as they are in the file.
#[derive(Default, Serialize, Deserialize)]
struct Values {
    directories: Vec<(String, Vec<u8>)>,
    objects: Vec<(u64, Vec<u8>)>,
}

/// A file whose bytes can be had.
#[derive(Clone, Debug, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Bytes {
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StorageBackend for Bytes {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        out.copy_from_slice(&self.lock()[offset as usize..][..out.len()]);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.lock().resize(length as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.lock()[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }
}

fn values() -> Values {
    let name = |text: &str| Name::new(text).expect("a name");
    let ownership = Ownership { uid: 1, gid: 2, mode: 0o755 };
    let bytes = |value: &Ownership| postcard::to_stdvec(value).expect("it can be encoded");
    let file = BackingFile { path: "/srv/a".into(), device: 3, inode: 4, owner_uid: 1, read_only: false };
    let record = |id: u64| ObjectRecord {
        id: ObjectId(id),
        uuid: u128::from(id) << 64,
        name: (id != 3).then(|| name(&format!("/lab/{id}"))),
        first_name: name("/lab/first"),
        ownership,
        options: CreateOptions {
            size_bytes: id << 12,
            pager: if id == 2 { PagerKind::File } else { PagerKind::Anonymous },
            description: "<u4".into(),
            ..CreateOptions::default()
        },
        file: (id == 2).then(|| file.clone()),
        nonce: 7,
        charged_bytes: id << 12,
        charged_uid: 1,
        boot_id: "boot".into(),
        is_elsewhere: id == 3,
    };
    Values {
        directories: ["/", "/lab"].map(|name| (name.to_owned(), bytes(&ownership))).into(),
        objects: (1..4)
            .map(|id| (id, postcard::to_stdvec(&record(id)).expect("it can be encoded")))
            .collect(),
    }
}

fn build_file() -> Result<Vec<u8>, redb::Error> {
    let bytes = Bytes::default();
    let database = Builder::new().create_with_backend(bytes.clone())?;
    let transaction = database.begin_write()?;
    {
        let mut directories = transaction.open_table(DIRECTORIES)?;
        let mut objects = transaction.open_table(OBJECTS)?;
        let mut format = transaction.open_table(FORMAT)?;
        format.insert("version", VERSION)?;
        format.insert("next_object", 4)?;
        let Values { directories: names, objects: records } = values();
        for (name, value) in &names {
            directories.insert(name.as_str(), value.as_slice())?;
        }
        for (id, value) in &records {
            objects.insert(*id, value.as_slice())?;
        }
    }
    transaction.commit()?;
    drop(database);
    let bytes = bytes.lock().clone();
    Ok(bytes)
}

/// A whole file.
pub fn sample_file() -> &'static [u8] {
    static FILE: OnceLock<Vec<u8>> = OnceLock::new();
    FILE.get_or_init(|| build_file().expect("a file can be built in memory"))
}

/// A whole file with these changes, of six bytes each: where (4), and what is there (2).
pub fn file(changes: &[u8]) {
    let mut bytes = sample_file().to_vec();
    for change in changes.chunks_exact(6) {
        let at = u32::from_le_bytes([change[0], change[1], change[2], change[3]]) as usize % bytes.len();
        let end = (at + 2).min(bytes.len());
        bytes[at..end].copy_from_slice(&change[4..4 + end - at]);
    }
    if let Ok(contents) = contents_of(Path::new("meta.redb"), bytes) {
        is_sound(contents);
    }
}

/// Values as they could be in a file.
pub fn records(bytes: &[u8]) {
    let Ok(values) = postcard::from_bytes::<Values>(bytes) else { return };
    let path = Path::new("meta.redb");
    let mut contents = Contents::default();
    let mut added = Ok(());
    for (name, bytes) in &values.directories {
        added = added.and_then(|()| contents.add_directory(path, name, bytes));
    }
    for (id, bytes) in &values.objects {
        added = added.and_then(|()| contents.add_object(path, *id, bytes));
    }
    if added.and_then(|()| contents.count_up(path, 1)).is_ok() {
        is_sound(contents);
    }
}

/// Samples of those.
pub fn sample_records() -> Vec<Vec<u8>> {
    vec![postcard::to_stdvec(&values()).expect("they can be encoded")]
}

/// What is accepted can be used.
fn is_sound(contents: Contents) {
    let count = contents.records.len();
    let next = contents.next_object;
    let Ok((tree, records)) = restore::build(Path::new("meta.redb"), contents) else { return };
    assert_eq!(records.values().count(), count, "of two with one identity one is gone");
    for record in records.values() {
        assert!(record.id.0 < next, "an identity would be given again");
        let bytes = postcard::to_stdvec(record).expect("what was read can be written");
        assert_eq!(postcard::from_bytes::<ObjectRecord>(&bytes).expect("and read again"), *record);
        let (objects, _) = records.usage(record.charged_uid);
        assert!(objects > 0);
        if let Some(name) = &record.name {
            assert_eq!(tree.get(name), Some(&tree::Node::Object(record.id)));
            let who =
                Credentials { uid: record.ownership.uid, gid: record.ownership.gid, groups: Vec::new() };
            let _ = tree.check_reach(name, &who); // whatever it says
        }
    }
}
