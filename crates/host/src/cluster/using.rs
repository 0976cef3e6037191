//! Who uses an object of another host here, as its home is told (`Call::Use`): each process before it can touch a page, and after
//! whatever the home heard of this host and the object before. What an opening said (`Call::Open`) does not do for that: the
//! home may hear after it that the use before has ended.

use super::losses::forwards;
use super::sizes::is_for_now;
use super::wire::{Answer, Call};
use super::{Cluster, PATIENCE, busy, lock};
use crate::shared::{Driver, UsersTold};
use commonhold_coherence::HostId;
use commonhold_object::{Access, Credentials, Error, ErrorKind, Ownership, Result};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two attempts to tell a home that cannot hear it now.
const AGAIN: Duration = Duration::from_millis(20);

impl Cluster {
    /// Whoever looks for the home tells it who uses the object here, but for what it has told already. None may be there if a
    /// process before this one left what is newest here, or if the object leaves.
    pub(super) fn tell_users(
        self: &Arc<Self>,
        home: HostId,
        driver: &Driver,
        told: &mut Vec<Access>,
    ) -> Result<UsersTold> {
        let object = driver.plan().object;
        let begun = driver.users_begun(); // first: who begins after that is not forgotten
        let users = self.host()?.openers(object);
        let is_in_use = driver.is_attached() && !self.leaves(object);
        if users.is_empty() && is_in_use && driver.plan().home_moves && forwards(driver) {
            // They are not back yet, or the last has closed it this moment: a home that has not begun would not be noticed.
            return Err(busy("nobody here uses the object"));
        }
        for (who, access) in users {
            if told.contains(&access) {
                continue;
            }
            let number = self.beginnings.next();
            let types = driver.types_version();
            let call = Call::Use { object, who, access, number, types };
            if let Answer::Used(size) = self.ask(home, call, PATIENCE)? {
                self.heard_size(home, object, size, true)?; // it began when it had all back
            }
            told.push(access);
        }
        Ok(UsersTold { access: told.iter().copied().max_by_key(|access| access.writes()), begun })
    }

    /// A process here is given an object of another host. If the home is known it hears of that first.
    pub fn begins_to_use(self: &Arc<Self>, object: u128, who: &Credentials, access: Access) -> Result<()> {
        let Some(driver) = self.driver(object).filter(|driver| !driver.is_home()) else { return Ok(()) };
        let until = Instant::now() + PATIENCE;
        while let Some((home, beginnings)) = driver.begins_to_use(access) {
            match self.tell_user(home, &driver, who, access) {
                Ok(()) if driver.home_heard_of_use(beginnings, access) => return Ok(()),
                Ok(()) => {}
                Err(error) if !is_for_now(&error) || Instant::now() > until => return Err(error),
                Err(_) => std::thread::sleep(AGAIN),
            }
        }
        Ok(())
    }

    fn tell_user(
        self: &Arc<Self>,
        home: HostId,
        driver: &Driver,
        who: &Credentials,
        access: Access,
    ) -> Result<()> {
        let (object, types) = (driver.plan().object, driver.types_version());
        let number = self.beginnings.next();
        let call = Call::Use { object, who: who.clone(), access, number, types };
        match self.ask(home, call, PATIENCE)? {
            Answer::Used(size) => self.heard_size(home, object, size, false).map(drop),
            _ => Ok(()),
        }
    }

    /// At the home: another host has the object in use.
    pub(super) fn use_for_other(
        &self,
        from: HostId,
        object: u128,
        who: &Credentials,
        access: Access,
        number: u64,
    ) -> Result<Answer> {
        self.check_belongs(from, PATIENCE / 2)?;
        let record = self.record_of(object)?.record().clone();
        self.check_may_use(from, access, &record.options)?;
        // By its name: the rights of the directories above it count too.
        match record.name {
            Some(name) => drop(lock(&self.host()?.registry).lookup(&name, who, access)?),
            // Removed, and still in use: the object's own rights are left.
            None if record.ownership.allows(who, Ownership::wanted(access)) => {}
            None => {
                let words = format!("{} was removed, and user {} may not use it", record.first_name, who.uid);
                return Err(Error::new(ErrorKind::Permission, words));
            }
        }
        self.wait_begun(Duration::ZERO)?; // else it asks again
        self.serve(object)?;
        let mut admitted = Ok(());
        self.check_begins(object, from, number, || admitted = self.admit_living(object, from, access))?;
        admitted?;
        self.begins_to_hear(object, from);
        let told = self.driver(object).and_then(|driver| driver.size_told());
        Ok(told.map_or(Answer::Done, Answer::Used))
    }
}
