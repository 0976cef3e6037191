//! At another host: what the home was told of those who use the object here. It takes nothing from a host whose processes do
//! not use the object, so it hears of each of them before that one can touch a page: from whoever looks for the home, or,
//! when that is known, from whoever gives the process the object.

use super::driver::Driver;
use commonhold_coherence::HostId;
use commonhold_object::Access;

/// Who uses the object here.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// What the home was told that processes here do with the object; none: it was told of nobody.
    told: Option<Access>,
    /// How many began to use it.
    begun: u64,
}

/// What the home was told.
#[derive(Clone, Copy, Debug)]
pub struct UsersTold {
    /// What processes here do with the object; none: nobody uses it.
    pub access: Option<Access>,
    /// How many had begun to use it when it was looked who does.
    pub begun: u64,
}

impl Users {
    /// Nobody uses it who did.
    pub fn are_gone(&mut self) {
        self.told = None;
    }

    /// The home that is found was told this. False if somebody began since: it must hear of that first.
    pub fn are_told(&mut self, told: UsersTold) -> bool {
        let is_all = told.begun == self.begun;
        if is_all {
            self.told = told.access;
        }
        is_all
    }

    fn is_told(&self, access: Access) -> bool {
        self.told.is_some_and(|told| told.writes() || !access.writes())
    }
}

impl Driver {
    /// How many began to use the object here: read before it is looked who they are.
    pub fn users_begun(&self) -> u64 {
        self.state().users.begun
    }

    /// A process here begins to use the object. Gives the home, if that must hear of it before the process touches a page, and
    /// how often this host had begun with a home. None: the home knows, or whoever looks for it tells it.
    pub fn begins_to_use(&self, access: Access) -> Option<(HostId, u64)> {
        let mut state = self.state();
        state.users.begun += 1;
        let beginnings = state.beginnings;
        state.home.filter(|_| !state.users.is_told(access)).map(|home| (home, beginnings))
    }

    /// The home heard so. False if this host does not speak with it any more as it did then.
    pub fn home_heard_of_use(&self, beginnings: u64, access: Access) -> bool {
        let mut state = self.state();
        let is_so = state.home.is_some() && state.beginnings == beginnings;
        if is_so && !state.users.is_told(access) {
            state.users.told = Some(access);
        }
        is_so
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_found_when_it_has_heard_of_all_who_use_the_object() {
        let mut users = Users { told: None, begun: 1 };
        let told = |access, begun| UsersTold { access: Some(access), begun };
        users.begun += 1; // while the home was told of the first
        assert!(!users.are_told(told(Access::Read, 1)) && !users.is_told(Access::Read));
        assert!(users.are_told(told(Access::Read, 2)));
        assert!(users.is_told(Access::Read) && !users.is_told(Access::ReadWrite));
        assert!(users.are_told(told(Access::ReadWrite, 2)) && users.is_told(Access::Read));
        users.are_gone();
        assert!(!users.is_told(Access::Read), "the next user is another");
        assert!(users.are_told(UsersTold { access: None, begun: 2 }) && !users.is_told(Access::Read));
    }
}
