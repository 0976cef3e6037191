//! Names of System V segments (the crate `sysv`): `/system-v-NAMESPACE-NUMBER-USER`. In the root directory names are free to
//! whoever comes first, and numbers of segments can be foretold; so these belong to the user whom they name.
//!
//! And `/system-v-key-0xKEY`, of the segment that all hosts of a cluster know by that key: whoever comes first makes it, as
//! with the kernel's keys.

use crate::{Credentials, Error, ErrorKind, Name, Result};

/// What they begin with.
const BEGINNING: &str = "/system-v-";

/// What names of keys begin with.
pub const KEY_BEGINNING: &str = "/system-v-key-";

/// The name that the segment of a key has in the whole cluster.
pub fn key_name(key: i32) -> String {
    format!("{KEY_BEGINNING}{key:#010x}")
}

/// The key that a name says; none: it is not of that form.
pub fn key_of(name: &Name) -> Option<i32> {
    let digits = name.as_str().strip_prefix(KEY_BEGINNING)?.strip_prefix("0x")?;
    let key = u32::from_str_radix(digits, 16).ok()?.cast_signed();
    (key != 0 && key_name(key) == name.as_str()).then_some(key)
}

/// What a segment's name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// The IPC namespace of its twin, by the number that it has while it lives.
    pub namespace: u64,
    /// The number of the twin, which the kernel counts by.
    pub number: i32,
    /// The user who made it, as the host knows him.
    pub user: u32,
}

impl Parts {
    /// What a name says; none: it is not of that form.
    pub fn of(name: &Name) -> Option<Parts> {
        let mut parts = name.as_str().strip_prefix(BEGINNING)?.split('-');
        let all = Parts {
            namespace: parts.next()?.parse().ok()?,
            number: parts.next()?.parse().ok()?,
            user: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(all)
    }

    /// The name that says so.
    pub fn name(&self) -> String {
        format!("{}{}", Parts::beginning(self.namespace, Some(self.number)), self.user)
    }

    /// What the names of a namespace begin with, and of one number in it.
    pub fn beginning(namespace: u64, number: Option<i32>) -> String {
        let number = number.map_or_else(String::new, |number| format!("{number}-"));
        format!("{BEGINNING}{namespace}-{number}")
    }
}

/// Whether a name is one of a segment, or looks like one.
pub fn is_segment(name: &Name) -> bool {
    name.as_str().starts_with(BEGINNING)
}

/// Refuses to give an object a segment's name, unless it names the user who asks.
pub fn check_new(name: &Name, who: &Credentials) -> Result<()> {
    if !is_segment(name) || key_of(name).is_some() {
        return Ok(());
    }
    match Parts::of(name) {
        Some(parts) if parts.user == who.uid => Ok(()),
        _ => Err(Error::new(
            ErrorKind::Permission,
            format!(
                "names that begin with {BEGINNING} are of System V segments, which `commonhold run` makes, each for its own \
                 user: choose another name than {name}"
            ),
        )),
    }
}

/// Refuses to change what a segment keeps for life.
pub fn check_change(name: &Name, what: &str) -> Result<()> {
    if is_segment(name) {
        let text = format!("{name} is a System V segment, which keeps its {what}");
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_segments_belong_to_the_user_whom_they_name() {
        let who = Credentials { uid: 7, gid: 7, groups: Vec::new() };
        let may = |name: &str| check_new(&Name::new(name).unwrap(), &who).is_ok();
        for good in ["/system-v-4026531839-3-7", "/system-v", "/a/system-v-1-2-3", "/system-w-1"] {
            assert!(may(good), "{good}");
        }
        let parts = Parts { namespace: 4_026_531_839, number: 3, user: 7 };
        assert_eq!(Parts::of(&Name::new(&parts.name()).unwrap()), Some(parts));
        for bad in
            ["/system-v-1-2-8", "/system-v-1-2-7/x", "/system-v-1-2", "/system-v-1-2-7-7", "/system-v-x-2-7"]
        {
            assert!(!may(bad), "{bad}");
        }
    }

    #[test]
    fn a_key_has_one_name() {
        let who = Credentials { uid: 7, gid: 7, groups: Vec::new() };
        for (key, name) in [(0x52e2c1, "/system-v-key-0x0052e2c1"), (-1, "/system-v-key-0xffffffff")] {
            assert_eq!(key_name(key), name);
            let name = Name::new(name).unwrap();
            assert_eq!((key_of(&name), Parts::of(&name)), (Some(key), None));
            assert!(check_new(&name, &who).is_ok() && check_change(&name, "size").is_err());
        }
        for bad in
            ["0x52e2c1", "0x0052E2C1", "0x00000000", "0x0052e2c1/x", "0x+052e2c1", "52e2c1", "0x100000001"]
        {
            let name = Name::new(&format!("{KEY_BEGINNING}{bad}")).unwrap();
            assert_eq!(key_of(&name), None, "{bad}");
            assert!(check_new(&name, &who).is_err(), "{bad}");
        }
    }
}
