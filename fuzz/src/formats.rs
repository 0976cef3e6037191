//! The formats: what of what comes from elsewhere, and what is promised of any bytes in its place.

mod audit;
mod handed;
mod images;
mod libraries;
mod objects;
mod peers;
mod state;

use std::io;
use std::path::Path;

/// One format.
pub struct Format {
    /// How it is called.
    pub name: &'static str,
    /// Longest input that is made up.
    pub longest: usize,
    /// What each input may take of memory, in MiB, beside what it takes for its length.
    pub takes_mib: usize,
    /// What is promised of any bytes: it panics where that does not hold.
    pub check: fn(&[u8]),
    /// Good ones, from which others are made.
    pub samples: fn() -> Vec<Vec<u8>>,
}

impl Format {
    const fn new(
        name: &'static str,
        longest: usize,
        check: fn(&[u8]),
        samples: fn() -> Vec<Vec<u8>>,
    ) -> Format {
        Format { name, longest, takes_mib: 8, check, samples }
    }

    const fn taking(self, takes_mib: usize) -> Format {
        Format { takes_mib, ..self }
    }
}

/// All there are.
pub static ALL: &[Format] = &[
    objects::REQUESTS,
    objects::REPLIES,
    objects::QUESTIONS,
    peers::GREETINGS,
    peers::NEWCOMERS,
    peers::TEXTS,
    peers::CERTIFICATES,
    peers::MESSAGES,
    peers::TURNS,
    peers::MEMBERS,
    peers::KEYS,
    state::JOURNAL,
    state::REGISTRY,
    state::RECORDS,
    state::LIVE,
    state::NEWER,
    handed::KEEPER,
    handed::BLOBS,
    handed::IN_FLIGHT_WRITE_BACKS,
    handed::STAGING_BUFFER,
    handed::TRANSFER_JOURNAL,
    images::IMAGES,
    images::RANGES,
    images::CODE,
    libraries::LIBRARIES,
    libraries::COPIES,
    libraries::STARTS,
    libraries::NOTES,
    libraries::LOADERS,
    audit::PROC_FILES,
    audit::ELF_FILES,
    audit::ARCHIVES,
    audit::REPORTS,
];

/// Writes all good ones, and those that once were failures, into a directory for each format.
pub fn write_samples(directory: &Path) -> io::Result<()> {
    for format in ALL {
        let own = directory.join(format.name);
        std::fs::create_dir_all(&own)?;
        for (number, sample) in (format.samples)().into_iter().enumerate() {
            std::fs::write(own.join(format!("sample-{number}")), sample)?;
        }
        let failed = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format.name);
        let entries = match std::fs::read_dir(&failed) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            std::fs::copy(entry.path(), own.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// A value as it is on its way.
fn encoded(value: &impl serde::Serialize) -> Vec<u8> {
    postcard::to_stdvec(value).expect("it can be encoded")
}
