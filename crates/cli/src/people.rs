//! Users and groups by name: in tables, and as the argument of `chown`.

use std::collections::HashMap;

/// Names of users and groups, each looked up once.
#[derive(Default)]
pub struct People {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl People {
    /// The user's name; the number where there is none.
    pub fn user(&mut self, uid: u32) -> String {
        let look_up =
            || uzers::get_user_by_uid(uid).map_or(uid.to_string(), |u| u.name().to_string_lossy().into());
        self.users.entry(uid).or_insert_with(look_up).clone()
    }

    /// The group's name; the number where there is none.
    pub fn group(&mut self, gid: u32) -> String {
        let look_up =
            || uzers::get_group_by_gid(gid).map_or(gid.to_string(), |g| g.name().to_string_lossy().into());
        self.groups.entry(gid).or_insert_with(look_up).clone()
    }
}

/// New owner and group; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewOwner {
    /// The new owner.
    pub uid: Option<u32>,
    /// The new group.
    pub gid: Option<u32>,
}

/// Reads `USER`, `USER:GROUP` or `:GROUP`; names and numbers both.
///
/// # Errors
/// A sentence that names what is not known.
pub fn parse_owner(text: &str) -> Result<NewOwner, String> {
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let uid = if user.is_empty() { None } else { Some(uid_of(user)?) };
    let gid = match group {
        None => None,
        Some("") => {
            return Err("the group after the colon is missing: write USER, USER:GROUP or :GROUP".to_owned());
        }
        Some(group) => Some(gid_of(group)?),
    };
    if uid.is_none() && gid.is_none() {
        return Err("write USER, USER:GROUP or :GROUP".to_owned());
    }
    Ok(NewOwner { uid, gid })
}

/// The largest number stands for nobody: it is the kernel's -1, "leave as it is".
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id != u32::MAX)
}

fn uid_of(user: &str) -> Result<u32, String> {
    match uzers::get_user_by_name(user) {
        Some(found) => Ok(found.uid()),
        None => number(user)
            .ok_or_else(|| format!("there is no user {user:?}: name one of this machine, or a number")),
    }
}

fn gid_of(group: &str) -> Result<u32, String> {
    match uzers::get_group_by_name(group) {
        Some(found) => Ok(found.gid()),
        None => number(group)
            .ok_or_else(|| format!("there is no group {group:?}: name one of this machine, or a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_by_name_and_by_number() {
        assert_eq!(parse_owner("root"), Ok(NewOwner { uid: Some(0), gid: None }));
        assert_eq!(parse_owner("root:root"), Ok(NewOwner { uid: Some(0), gid: Some(0) }));
        assert_eq!(parse_owner(":4711"), Ok(NewOwner { uid: None, gid: Some(4711) }));
        for text in
            ["", ":", "root:", "no-such-user-here", ":no-such-group-here", "4294967295", ":4294967295"]
        {
            assert!(parse_owner(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_of_numbers() {
        let mut people = People::default();
        assert_eq!((people.user(0), people.group(0)), ("root".to_owned(), "root".to_owned()));
        assert_eq!(people.user(4_000_000_001), "4000000001");
    }
}
