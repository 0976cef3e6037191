//! What a stated promise allows to be lost (`docs/SHARING.md`, `docs/LEASES.md`,
//! `docs/CRASHES.md`).

use super::ledger::{Found, Kind};
use super::plan::{Plan, Scene, Strike};
use commonhold_linear::trouble;

/// What happened between two judgements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Events {
    /// Hosts of which newest versions may be lost, a bit each.
    lost: u64,
    /// Hosts that died with all their writers.
    machines: u64,
    /// Hosts whose process and keeper were dead while writers lived.
    windows: u64,
}

impl Events {
    /// By what was done, and the new lines of each host's log.
    pub fn of(scene: Scene, plan: &Plan, logs: &[String]) -> Events {
        let bit = 1 << plan.host;
        let mut this = Events::default();
        match plan.strike {
            Strike::Machine => (this.machines, this.lost) = (bit, bit),
            Strike::Both => (this.windows, this.lost) = (bit, 0),
            _ => {}
        }
        let leases_ended = logs.iter().any(|log| trouble::leases_that_ended(log) > 0);
        if !scene.is_strict() || (plan.strike.takes_nothing() && !leases_ended) {
            return this;
        }
        let (hosts, home) = (logs.len(), scene.home());
        if scene == Scene::Forwarding {
            let named = logs.iter().enumerate();
            this.lost |= named.fold(bit, |all, (of, log)| all | trouble::named_in(log, of, hosts, home));
        } else {
            this.lost |= trouble::lost_in(&logs[home], hosts, home);
        }
        this
    }

    /// Both: what is lost in one trial is found in the next, where a writer comes by late.
    pub fn and(self, other: Events) -> Events {
        Events {
            lost: self.lost | other.lost,
            machines: self.machines | other.machines,
            windows: self.windows | other.windows,
        }
    }

    /// Whether what was found may be so. `host_of` gives the host of a slot.
    pub fn allow(&self, scene: Scene, found: &Found, host_of: impl Fn(usize) -> usize) -> bool {
        let has = |hosts: u64, slot: usize| hosts & (1 << host_of(slot)) != 0;
        if found.found < found.synced {
            // No death takes what was synced; a process in the window may read something older.
            return found.kind == Kind::Stale && scene.is_strict() && has(self.windows, found.by);
        }
        let home_is_gone = self.machines & (1 << scene.home()) != 0;
        let may_be_lost = match scene {
            // With its home's machine all goes that was not synced.
            _ if home_is_gone => true,
            // Pages go back to what the home had: what the home's own writers did is in it.
            Scene::Forwarding => self.lost != 0 && host_of(found.of) != scene.home(),
            Scene::Central | Scene::CentralFreezable => has(self.lost, found.of),
            _ => has(self.machines, found.of),
        };
        match found.kind {
            Kind::Lost => may_be_lost,
            Kind::Stale => may_be_lost || (scene.is_strict() && has(self.windows, found.by)),
            Kind::Wrong => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn plan(strike: Strike, host: usize) -> Plan {
        Plan { delay: Duration::ZERO, strike, host, lasting: Duration::ZERO }
    }

    fn found(kind: Kind, of: usize, synced: u64) -> Found {
        Found { by: 0, kind, of, page: 0, expected: 9, found: 5, synced, synced_at: 0 }
    }

    #[test]
    fn only_what_a_promise_allows_is_excused() {
        let logs = |line: &str| vec![String::new(), line.to_owned(), String::new()];
        let line = "t host[1]: object 1f: the newest versions of 2 pages are lost with host2";
        let allowed = |scene, strike, log: &str, one: Found| {
            Events::of(scene, &plan(strike, 2), &logs(log)).allow(scene, &one, |slot| slot)
        };
        let central =
            |strike, of, synced| allowed(Scene::Central, strike, line, found(Kind::Lost, of, synced));
        assert!(central(Strike::Stop, 2, 5) && !central(Strike::Stop, 2, 6), "what is synced stays");
        assert!(!central(Strike::Stop, 0, 0), "another's");
        assert!(!central(Strike::Host, 2, 0), "a process that is followed loses nothing");
        let forwarding = |strike, of| allowed(Scene::Forwarding, strike, "", found(Kind::Lost, of, 0));
        assert!(forwarding(Strike::Both, 0) && !forwarding(Strike::Both, 1) && !forwarding(Strike::Host, 0));
        let explicit = |strike, of| allowed(Scene::Explicit, strike, "", found(Kind::Lost, of, 0));
        assert!(explicit(Strike::Machine, 2) && !explicit(Strike::Both, 2) && !explicit(Strike::Machine, 0));
        assert!(!allowed(Scene::Local, Strike::Both, "", found(Kind::Wrong, 2, 0)));
    }
}
