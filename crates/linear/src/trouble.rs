//! What the trouble that hosts were in means for a history: who may have lost what, and what cannot be judged.

use crate::history::{Act, EVERYBODY, Loss, Operation};
use std::collections::HashSet;

/// Hosts of which these lines of the log of host number `of` say that what they alone had may be gone, a bit each. Hosts
/// are called `host0` and so on.
///
/// Whoever wants to know what may be lost must look: on a machine that is slow enough a lease ends by itself.
pub fn named_in(log: &str, of: usize, hosts: usize, home: usize) -> u64 {
    let mut all = 0;
    for line in log.lines() {
        let is_named = |other: &usize| line.contains(&format!("host{other} "));
        let named = (0..hosts).filter(is_named).fold(0, |all, other| all | 1 << other);
        if line.contains("cannot be reached") {
            // Of the two, whoever is not the object's home gives up what it had.
            all |= (named | 1 << of) & !(1 << home);
        }
        if line.contains("is lost") {
            all |= named;
        }
        if line.contains("fenced") || line.contains("lets its lease run out") {
            all |= 1 << of;
        }
    }
    all
}

/// How many leases of a host ended, by these lines of its log.
pub fn leases_that_ended(log: &str) -> usize {
    log.lines().filter(|line| line.contains("fenced: ") || line.contains("lets its lease run out")).count()
}

/// Hosts with which the newest versions of pages were lost, a bit each, as the home of a centrally scheduled object says in
/// these lines of its log. Nothing else may be: what processes had newest is given back (`docs/LEASES.md`).
pub fn lost_in(log: &str, hosts: usize, home: usize) -> u64 {
    // A process of which the home's next one does not know whose it was: anybody's.
    let anybody = ((1 << hosts) - 1) & !(1 << home);
    log.lines().filter_map(|line| lost_with(line, hosts)).fold(0, |all, who| all | who.unwrap_or(anybody))
}

/// The same of any host's log, where the home's role moves: each loss by itself. What is lost when a home begins is of the home
/// before, and may be all that was not synced; `begins` says whether that may be said here.
pub fn losses_in(log: &str, hosts: usize, begins: bool) -> Vec<u64> {
    let lost = log.lines().filter_map(|line| lost_with(line, hosts));
    lost.map(|who| who.filter(|_| !begins).unwrap_or(EVERYBODY)).collect()
}

/// How often a host became the home in another's place, by these lines of its log.
pub fn claims(log: &str) -> usize {
    log.lines().filter(|line| line.contains("becomes the home of")).count()
}

/// With whom newest versions were lost, if a line says that some were; none: it gives no host's name.
fn lost_with(line: &str, hosts: usize) -> Option<Option<u64>> {
    let says = line.contains("newest versions of") && line.contains("are lost with");
    let who = || (0..hosts).find(|other| line.ends_with(&format!("host{other}")));
    says.then(|| who().map(|host| 1 << host))
}

/// The loss of these hosts between two instants, of an object with that home: if the home is among them the others drop
/// what they have of the object, but what the home has is in its own frames, which stay.
pub fn loss(hosts: u64, home: usize, start: u64, end: u64) -> Option<Loss> {
    let hosts = if hosts & (1 << home) != 0 { !(1 << home) } else { hosts };
    (hosts != 0).then_some(Loss { hosts, start, end: Some(end) })
}

/// A time in which host and keeper of clients that live on are dead. What these read then may be old, and what they write
/// is discarded if the host is lost before the next is there (`docs/LEASES.md`, the one window).
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The host.
    pub host: u8,
    /// Before the deaths.
    pub start: u64,
    /// After them.
    pub killed: u64,
    /// Before the next host is started.
    pub starts: u64,
    /// When all go on; 0: not yet.
    pub end: u64,
}

impl Window {
    /// Whether an operation is judged at all; what is not known of it is taken from it. The home's own frames are the
    /// current ones, host or not: give no window of the home.
    pub fn judges(&self, one: &mut Operation) -> bool {
        let ended = one.end.unwrap_or(u64::MAX);
        let end = if self.end == 0 { u64::MAX } else { self.end };
        let within = one.host == self.host && ended >= self.start && one.start <= end;
        if !within || matches!(one.act, Act::Revert | Act::Failed) {
            return true;
        }
        if one.start > self.killed && ended < self.starts {
            return false; // read old perhaps, and written to be discarded, unless somebody saw it
        }
        // A read of which nothing is known, or a write that may have been discarded.
        one.end = None;
        true
    }
}

/// What is judged, and how far: what others saw of writes in such a time happened, because the next host gave it back.
pub fn judged(operations: &mut Vec<Operation>, windows: &[Window]) {
    let mut rest = Vec::new();
    operations.retain_mut(|one| {
        let whole = *one;
        let is_judged = windows.iter().all(|window| window.judges(one));
        rest.extend((!is_judged).then_some(whole));
        is_judged
    });
    let value = |one: &Operation| match (one.act, one.end) {
        (Act::Read(value), Some(_)) => Some((one.register, value)),
        _ => None,
    };
    let seen: HashSet<(u32, u64)> = operations.iter().filter_map(value).collect();
    let was_seen =
        |one: &Operation| matches!(one.act, Act::Write(value) if seen.contains(&(one.register, value)));
    operations.extend(rest.into_iter().filter(was_seen).map(|one| Operation { end: None, ..one }));
}

/// What was done until an instant, as far as it was known then.
pub fn until(operations: &mut Vec<Operation>, instant: u64) {
    operations.retain(|one| one.start <= instant);
    operations.iter_mut().for_each(|one| one.end = one.end.filter(|end| *end <= instant));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_name_who_may_have_lost_something() {
        let log = "t host[1]: host2 cannot be reached: why\nt host[1]: host3 is lost\nt host[1]: joined";
        assert_eq!(named_in(log, 1, 4, 1), 0b1100);
        assert_eq!(named_in(log, 0, 4, 1), 0b1101);
        assert_eq!(named_in("the lease is about to end: fenced 1 shared objects", 2, 4, 1), 0b100);
        assert_eq!(named_in("all is well with host2 now", 0, 4, 1), 0);
        assert_eq!(loss(0b100, 1, 1, 2).unwrap().hosts, 0b100);
        assert_eq!(loss(0b10, 1, 1, 2).unwrap().hosts, !0b10);
        assert_eq!(loss(0, 1, 1, 2), None);
    }

    #[test]
    fn a_home_names_with_whom_newest_versions_were_lost() {
        let line =
            |with| format!("t host[1]: object 1f: the newest versions of 2 pages are lost with {with}\n");
        assert_eq!(lost_in(&line("host2"), 4, 1), 0b100);
        assert_eq!(lost_in(&line("host 77123"), 4, 1), 0b1101);
        assert_eq!(lost_in("t host[1]: host2 is lost\nt host[1]: fenced: why", 4, 1), 0);
        let all = line("host2") + &line("other hosts");
        assert_eq!(losses_in(&all, 4, false), [0b100, EVERYBODY]);
        assert_eq!(losses_in(&all, 4, true), [EVERYBODY, EVERYBODY]);
        assert_eq!(losses_in("t host[1]: host2 is lost", 4, true), []);
        assert_eq!(claims("t host[1]: becomes the home of /x, which was host2\nt host[1]: joined"), 1);
    }

    #[test]
    fn a_window_takes_what_is_not_known() {
        let window = Window { host: 2, start: 10, killed: 20, starts: 30, end: 40 };
        let of =
            |host, start, end| Operation { register: 0, host, act: Act::Write(1), start, end: Some(end) };
        let judged = |mut one: Operation| window.judges(&mut one).then_some(one.end);
        assert_eq!(judged(of(1, 21, 22)), Some(Some(22)));
        assert_eq!(judged(of(2, 1, 2)), Some(Some(2)));
        assert_eq!(judged(of(2, 5, 12)), Some(None));
        assert_eq!(judged(of(2, 21, 22)), None);
        assert_eq!(judged(of(2, 22, 35)), Some(None));
        assert_eq!(judged(of(2, 41, 42)), Some(Some(42)));
        let read = |start| Operation { act: Act::Read(1), ..of(1, start, start + 1) };
        let mut all = vec![of(2, 21, 22), read(50)];
        super::judged(&mut all, &[window]);
        assert!(all.len() == 2 && all[1].act == Act::Write(1) && all[1].end.is_none(), "seen: {all:?}");
        let mut all = vec![
            of(2, 21, 22),
            Operation { act: Act::Read(9), ..read(50) },
            Operation { host: 2, ..read(25) },
        ];
        super::judged(&mut all, &[window]);
        assert_eq!(all.len(), 1, "nobody saw it whose word counts");
        let mut some = vec![of(1, 1, 2), of(1, 3, 8), of(1, 6, 7)];
        until(&mut some, 5);
        assert_eq!((some.len(), some[0].end, some[1].end), (2, Some(2), None));
    }
}
