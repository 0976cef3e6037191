//! Programs of this machine by name, installed if they are missing and may be.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The path of a program that the shell would find by this name.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Finds a program, and installs its package first if it is missing, this is root, and the machine is a Debian.
pub fn find_or_install(names: &[&str], package: &str) -> Option<PathBuf> {
    let found = || names.iter().find_map(|name| find(name));
    found().or_else(|| {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let mut command = Command::new(find("apt-get")?);
        command.args(["install", "-y", "-qq", "--no-install-recommends", package]);
        command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(Stdio::null());
        eprintln!("installing {package}");
        command.status().ok().filter(|status| status.success())?;
        found()
    })
}
