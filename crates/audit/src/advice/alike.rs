//! Whether one file may take another's place: whoever runs the other would then run bytes of this one's owner.

use crate::snapshot::{File, Rights};

/// Why one of the files is not to be put in the other's place; none: both are one owner's, of one group and mode, and lie
/// where nobody else changes anything.
pub fn why_not(one: &File, other: &File) -> Option<String> {
    let (Some(of_one), Some(of_other)) = (&one.rights, &other.rights) else {
        return Some("their owners could not be read".to_owned());
    };
    if !of_one.apart_from_others || !of_other.apart_from_others {
        return Some("others than their owner may change what lies in their directories".to_owned());
    }
    let same = (of_one.uid, of_one.gid, of_one.mode) == (of_other.uid, of_other.gid, of_other.mode);
    (!same).then(|| format!("they differ in owner, group or mode ({}, {})", words(of_one), words(of_other)))
}

fn words(rights: &Rights) -> String {
    format!("{}:{} {:o}", rights.uid, rights.gid, rights.mode)
}
