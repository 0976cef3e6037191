//! Where stores are, and which of them share a registry of addresses.

use super::Store;
use crate::ranges::Owner;
use crate::{Error, Result};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

const MACHINES: &str = "/var/lib/commonhold";

/// What is a user's own: `$XDG_DATA_HOME/commonhold`, or `~/.local/share/commonhold`. None in programs with rights that
/// their caller lacks, who says these.
pub fn users_directory() -> Option<PathBuf> {
    if has_foreign_rights() {
        return None;
    }
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let data = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")))?;
    Some(data.join("commonhold"))
}

/// The registry of a store. `…/commonhold/images` and `…/commonhold/rebase` share `…/commonhold/ranges`, so that nothing
/// of the one is at addresses of the other; any other store has its own.
pub fn registry_of(store: &Path) -> Result<PathBuf> {
    let parent = store.parent().filter(|parent| parent.file_name() == Some(OsStr::new("commonhold")));
    let (Some(parent), Some("images" | "rebase")) = (parent, store.file_name().and_then(OsStr::to_str))
    else {
        return Ok(store.join("ranges"));
    };
    let shared = parent.join("ranges");
    // Before there were images, rebase had one alone.
    let former = parent.join("rebase").join("ranges");
    if former.exists() && !shared.exists() {
        std::fs::rename(&former, &shared).map_err(Error::file(&former))?;
    }
    Ok(shared)
}

impl Store {
    /// The machine's.
    pub fn of_machine() -> Store {
        Store::at(&Path::new(MACHINES).join("images"), Owner::Machine)
    }

    /// The store in a directory that somebody named: with the user's addresses if it is the user's own, however it was
    /// named, else with the machine's.
    pub fn named(directory: &Path) -> Store {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let is_users = users_directory().is_some_and(|own| real(&own.join("images")) == real(directory))
            && !rustix::process::geteuid().is_root();
        Store::at(directory, if is_users { Owner::User } else { Owner::Machine })
    }

    /// The one of who runs this: the first that `COMMONHOLD_IMAGES` names; root's is the machine's.
    pub fn own() -> Result<Store> {
        if let Some(first) = Store::of_variable().into_iter().flatten().next() {
            return Ok(first);
        }
        if rustix::process::geteuid().is_root() {
            return Ok(Store::of_machine());
        }
        let home = || Error::Invalid("there is no home directory to keep images in: name a store".into());
        Ok(Store::at(&users_directory().ok_or_else(home)?.join("images"), Owner::User))
    }

    /// The stores of `COMMONHOLD_IMAGES`, if it says any.
    fn of_variable() -> Option<Vec<Store>> {
        let named = std::env::var_os("COMMONHOLD_IMAGES")
            .filter(|named| !named.is_empty() && !has_foreign_rights())?;
        let directories = std::env::split_paths(&named).filter(|path| path.is_absolute());
        Some(directories.map(|directory| Store::named(&directory)).collect())
    }

    /// Where images are looked for: in the directories of `COMMONHOLD_IMAGES`, separated by colons; else in the user's
    /// own store and then the machine's. Programs with rights that their caller lacks look in the machine's alone.
    pub fn search() -> Vec<Store> {
        if has_foreign_rights() {
            return vec![Store::of_machine()];
        }
        if let Some(named) = Store::of_variable() {
            return named;
        }
        let machine = Store::of_machine();
        let own = Store::own().ok().filter(|own| own.root != machine.root);
        own.into_iter().chain([machine]).collect()
    }
}

/// setuid, setgid, file capabilities: what the kernel told the loader.
fn has_foreign_rights() -> bool {
    // SAFETY: reads a number that the kernel left; any key is allowed.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
