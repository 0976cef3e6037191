//! Files of the authority and of hosts' identities: complete or absent, and secrets for their owner alone.

use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The authority's key.
pub const KEY_FILE: &str = "ca.key";
/// Its certificate, which hosts have too.
pub const CERTIFICATE_FILE: &str = "ca.crt";
/// Which hosts have certificates, and which tokens were given out and used.
pub const RECORDS_FILE: &str = "records";

/// Where the authority is kept unless told otherwise: `ca` in the state directory of a host.
pub fn default_directory(state: &Path) -> PathBuf {
    state.join("ca")
}

/// Makes a directory for its owner alone, if there is none.
pub fn make_directory(directory: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.doing(format!("making the directory {}", directory.display()))
}

/// Writes a file that must not be there yet, whole and durable before it has its name.
pub fn write_new(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let what = || format!("writing {}", path.display());
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = directory.join(format!(".{name}.{}", std::process::id()));
    let written = (|| {
        // What an earlier process left goes; what another user puts there in the same moment is not written to.
        let _ = std::fs::remove_file(&unfinished);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&unfinished)?;
        file.write_all(bytes)?;
        points::fsync(|| file.sync_all())?;
        // Unlike a rename, a link does not take the place of what is there.
        std::fs::hard_link(&unfinished, path)?;
        points::fsync(|| File::open(directory)?.sync_all())
    })();
    // It has its name, or is of no use.
    let _ = std::fs::remove_file(&unfinished);
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(Error::new(
            ErrorKind::Exists,
            format!("{} is there already, and is not replaced", path.display()),
        )),
        other => other.doing(what()),
    }
}

/// Puts a file in the place of the one that is there, whole and durable, or leaves that.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let unfinished = path.with_extension("new");
    let written = (|| {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(bytes)?;
        points::fsync(|| file.sync_all())?;
        std::fs::rename(&unfinished, path)?;
        points::fsync(|| File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all())
    })();
    written.doing(format!("writing {}", path.display()))
}

/// Waits for the directory to be this process's alone, until the file is closed.
pub fn lock_directory(directory: &Path) -> Result<File> {
    let path = directory.join("lock");
    let what = || format!("locking {}", path.display());
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).doing(what())?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).doing(what())?;
    Ok(file)
}
