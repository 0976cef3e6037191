//! Which members of archives a linker would put into a program, given what it leaves undefined.

use super::archive::Archive;
use super::names::{Name, Names};
use std::collections::HashSet;
use std::rc::Rc;

/// What a link would pull in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pulled {
    /// Bytes of code.
    pub code_bytes: u64,
    /// Members.
    pub members: u64,
    /// Names that no archive defines.
    pub unresolved: Vec<Name>,
}

/// Follows undefined symbols to the members that define them, and theirs in turn. A weak undefined symbol pulls nothing,
/// as in a linker; archives are asked in order, each as often as it takes (`--start-group`).
pub fn closure(
    undefined: &[Name],
    provided: &HashSet<Name>,
    archives: &[Rc<Archive>],
    names: &mut Names,
) -> Pulled {
    let mut pulled = Pulled::default();
    let mut met: HashSet<Name> = provided.clone();
    let mut taken: HashSet<(usize, usize)> = HashSet::new();
    let mut groups: HashSet<Name> = HashSet::new();
    let mut open: Vec<Name> = undefined.to_vec();
    while let Some(name) = open.pop() {
        if !met.insert(name) {
            continue;
        }
        let found = archives
            .iter()
            .enumerate()
            .find_map(|(place, archive)| archive.defines(name).map(|member| (place, member)));
        let Some((place, member)) = found else {
            pulled.unresolved.push(name);
            continue;
        };
        if !taken.insert((place, member)) {
            continue;
        }
        let member = archives[place].member(member, names);
        pulled.members += 1;
        for (bytes, group) in &member.code {
            if group.is_none_or(|group| groups.insert(group)) {
                pulled.code_bytes = pulled.code_bytes.saturating_add(*bytes);
            }
        }
        met.extend(&member.defined);
        open.extend(&member.undefined);
    }
    pulled
}
