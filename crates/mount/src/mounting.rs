//! Making a mount and ending it: by mount(2) for root, by `fusermount3` for others.

use crate::fuse::Device;
use commonhold::{Error, ErrorKind, Result};
use commonhold_object::error::Doing;
use commonhold_sys::mounts::{Mount, Mounts};
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// What `mount` and `df` show as its kind.
pub const KIND: &str = "fuse.commonhold";

/// What is mounted at that directory: the last of all.
pub fn mounted_at(directory: &Path) -> Result<Option<Mount>> {
    let all = Mounts::read().doing("reading /proc/self/mountinfo")?;
    Ok(all.at(directory).cloned())
}

/// Refuses a directory at which nothing can be mounted, and says what to do. One at which a mount of ours has died is freed.
pub fn check_place(directory: &Path) -> Result<()> {
    if let Some(there) = mounted_at(directory)?.filter(|there| there.file_system == KIND) {
        let is_dead =
            std::fs::metadata(directory).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN));
        if !is_dead {
            let text = format!(
                "{} is a mount of {} already: use it, or end it with `commonhold umount {0}`",
                directory.display(),
                there.source
            );
            return Err(Error::new(ErrorKind::Busy, text));
        }
        unmount(directory, true)?;
    }
    let found = std::fs::metadata(directory)
        .doing(format_args!("cannot mount at {}: make the directory first", directory.display()))?;
    if !found.is_dir() {
        let text = format!("{} is not a directory: give one to mount at", directory.display());
        return Err(Error::invalid(text));
    }
    Ok(())
}

/// Mounts at a directory. `source`: which host's objects.
pub fn mount(directory: &Path, source: &str) -> Result<Device> {
    if rustix::process::geteuid().is_root() {
        mount_by_root(directory, source)
    } else {
        mount_by_helper(directory, source)
    }
}

fn mount_by_root(directory: &Path, source: &str) -> Result<Device> {
    let device = Device::open().doing("opening /dev/fuse: this machine needs FUSE (modprobe fuse)")?;
    // All users are let in: the host asks each what he may.
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.fd().as_raw_fd());
    let options = CString::new(options).map_err(|error| Error::invalid(error.to_string()))?;
    rustix::mount::mount(source, directory, KIND, MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())
        .doing(format_args!("mounting at {}", directory.display()))?;
    Ok(device)
}

/// The helper mounts for users without privilege, and sends the descriptor.
fn mount_by_helper(directory: &Path, source: &str) -> Result<Device> {
    let (ours, theirs) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )
    .doing("making a socket for fusermount3")?;
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())
        .doing("making a socket for fusermount3")?;
    let names = format!("fsname={},subtype=commonhold,nosuid,nodev", source.replace([',', '\\'], "_"));
    let output = Command::new("fusermount3")
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .args(["-o", &names, "--"])
        .arg(directory)
        .output()
        .doing("running fusermount3: ordinary users mount by it; install it (apt-get install fuse3)")?;
    drop(theirs);
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::new(
            ErrorKind::Permission,
            format!("fusermount3 cannot mount at {}: {why}", directory.display()),
        ));
    }
    let (mut byte, mut fds) = ([0; 1], Vec::new());
    commonhold_sys::socket::receive(&ours, &mut byte, &mut fds, commonhold_sys::socket::Wait::Yes)
        .doing("receiving the descriptor from fusermount3")?;
    let fd: OwnedFd = fds.pop().ok_or_else(|| Error::invalid("fusermount3 sent no descriptor"))?;
    Ok(Device::of(Arc::new(fd)))
}

/// Ends a mount; `lazily`: also while somebody uses it, for whom it ends later.
pub fn unmount(directory: &Path, lazily: bool) -> Result<()> {
    let busy = |why: &str| {
        let text = format!(
            "{} is in use ({why}): end who uses it (fuser -vm {0} says who), or give --lazy",
            directory.display()
        );
        Error::new(ErrorKind::Busy, text)
    };
    if rustix::process::geteuid().is_root() {
        let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return match rustix::mount::unmount(directory, flags | UnmountFlags::NOFOLLOW) {
            Err(rustix::io::Errno::BUSY) => Err(busy("busy")),
            other => other.doing(format_args!("unmounting {}", directory.display())),
        };
    }
    let mut command = Command::new("fusermount3");
    command.args(if lazily { &["-u", "-z", "-q", "--"][..] } else { &["-u", "--"] }).arg(directory);
    let output = command.output().doing("running fusermount3")?;
    if output.status.success() {
        return Ok(());
    }
    Err(busy(String::from_utf8_lossy(&output.stderr).trim()))
}

/// Ends what waits for the server of a mount, which does not answer: every call fails from now on. For root, and who mounted.
pub fn abort(mounted: &Mount) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        // It aborts first; a mount that is in use stays where it is.
        return match rustix::mount::unmount(&mounted.directory, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW)
        {
            Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
            Err(errno) => {
                Err(errno).doing(format_args!("aborting the mount at {}", mounted.directory.display()))
            }
        };
    }
    let path = PathBuf::from(format!("/sys/fs/fuse/connections/{}/abort", mounted.minor()));
    std::fs::write(&path, "1").doing(format_args!("ending what waits for the mount ({})", path.display()))
}

/// A name for the state of a mount at that directory.
pub fn state_name(directory: &Path) -> String {
    // FNV-1a, so that long paths are names, too; a clash is a directory that is in use.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in directory.as_os_str().as_bytes() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{hash:016x}")
}
