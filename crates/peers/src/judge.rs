//! Who is let in, and which of two connections stays. Pure, so that every case can be tested.

use crate::certificate::{PeerRights, Role, Subject, check_host_name};
use crate::greeting::{Introduction, other_version};
use crate::hello::Hello;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;

/// Whether whoever says so can be that host of this cluster: the same from both ends.
pub fn check_peer(me: &Hello, peer: &Hello, subject: Option<&Subject>) -> Result<PeerRights> {
    if peer.version != me.version {
        return Err(other_version("the hosts' messages", peer.version, me.version));
    }
    let denied = |what: String| Err(Error::new(ErrorKind::Permission, what));
    if peer.cluster != me.cluster {
        return denied(format!("{} belongs to another cluster", peer.who()));
    }
    check_host_name(&peer.name)?;
    let twice = |what: &str| {
        let words = format!("{what}: this is {}, and the other end says to be {}", me.who(), peer.who());
        Err(Error::new(ErrorKind::Exists, words))
    };
    if peer.host == me.host {
        return twice("two hosts have one number");
    }
    if peer.name == me.name {
        return twice("two hosts have one name");
    }
    match subject {
        None => Ok(PeerRights::ReadWrite),
        Some(Subject { cluster, .. }) if *cluster != peer.cluster => {
            denied(format!("the certificate of {} is for another cluster", peer.who()))
        }
        Some(Subject { role: Role::Host(name, rights), .. })
            if *name == peer.name || points::mutant("peers.any_name") =>
        {
            Ok(*rights)
        }
        Some(Subject { role: Role::Host(name, _), .. }) => denied(format!(
            "{} has a certificate for {name:?}: a host speaks in its own name alone",
            peer.who()
        )),
        Some(Subject { role: Role::Authority, .. }) => denied("the certificate is not a host's".to_owned()),
    }
}

/// A connection that there is with the host that now comes again.
#[derive(Clone, Copy, Debug)]
pub struct Present {
    /// Of which incarnation.
    pub incarnation: u64,
    /// Its number.
    pub link: u64,
    /// Which end began it.
    pub begun_by_peer: bool,
}

/// What is known of the number of a host that comes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known {
    /// The connection, if there is one.
    pub present: Option<Present>,
    /// This end is about to connect to it as well.
    pub dialing: bool,
    /// The newest incarnation of that name that ever was connected.
    pub newest: u64,
    /// Incarnations up to this one are not let in any more.
    pub barred: Option<u64>,
}

/// What becomes of a connection that a host begins.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stays; one that there is with the host ends first.
    Accept,
    /// Both ends began at once, and the other connection stays.
    Yield,
}

/// Judges a connection that `peer` begins. Where both begin at once, the one that the lower number began stays; but a
/// peer that comes again knowing of the present connection has lost its end of that.
pub fn judge(me: &Hello, peer: &Introduction, known: &Known) -> Result<Verdict> {
    let hello = &peer.hello;
    check_incarnation(hello, known)?;
    if let Some(present) = known.present {
        let stale =
            present.incarnation < hello.incarnation || present.begun_by_peer || peer.last == present.link;
        return Ok(if stale { Verdict::Accept } else { Verdict::Yield });
    }
    if known.dialing && me.host < hello.host && !points::mutant("peers.both_stay") {
        return Ok(Verdict::Yield);
    }
    Ok(Verdict::Accept)
}

/// Refuses what an earlier run of a host left behind.
pub fn check_incarnation(hello: &Hello, known: &Known) -> Result<()> {
    if hello.incarnation < known.newest {
        return Err(Error::new(
            ErrorKind::Exists,
            format!(
                "{} comes as incarnation {}, and a newer one, {}, has come before: only the newest is that host",
                hello.who(),
                hello.incarnation,
                known.newest
            ),
        ));
    }
    if known.barred.is_some_and(|barred| hello.incarnation <= barred) {
        return Err(Error::new(
            ErrorKind::Permission,
            format!("incarnation {} of {} was shut out of the cluster", hello.incarnation, hello.who()),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold_coherence::HostId;

    fn hello(host: u32, name: &str, incarnation: u64) -> Hello {
        Hello::new([1; 16], HostId(host), name, incarnation).unwrap()
    }

    fn comes(host: u32, incarnation: u64, last: u64) -> Introduction {
        Introduction { hello: hello(host, "peer", incarnation), link: 99, last }
    }

    #[test]
    fn only_hosts_of_this_cluster_in_their_own_name() {
        let me = hello(1, "me", 1);
        let good = hello(2, "peer", 1);
        let subject = |cluster: u8, role| Some(Subject { cluster: [cluster; 16], role });
        let host = |name: &str, rights| Role::Host(name.into(), rights);
        let read_only = subject(1, host("peer", PeerRights::ReadOnly));
        assert_eq!(check_peer(&me, &good, None).unwrap(), PeerRights::ReadWrite);
        assert_eq!(check_peer(&me, &good, read_only.as_ref()).unwrap(), PeerRights::ReadOnly);
        let newer = Hello { version: me.version + 1, ..good.clone() };
        let older = Hello { version: me.version - 1, ..good.clone() };
        let elsewhere = Hello { cluster: [2; 16], ..good.clone() };
        let unnamed = Hello { name: "a/b".into(), ..good.clone() };
        for (peer, subject, says) in [
            (&newer, None, "upgrade this side"),
            (&older, None, "upgrade that host"),
            (&elsewhere, None, "another cluster"),
            (&unnamed, None, "cannot be a host's name"),
            (&hello(1, "peer", 1), None, "one number"),
            (&hello(2, "me", 1), None, "one name"),
            (&good, subject(2, host("peer", PeerRights::ReadWrite)), "another cluster"),
            (&good, subject(1, host("other", PeerRights::ReadWrite)), "own name"),
            (&good, subject(1, Role::Authority), "not a host's"),
        ] {
            let error = check_peer(&me, peer, subject.as_ref()).unwrap_err();
            assert!(error.message.contains(says), "{error}");
        }
    }

    #[test]
    fn one_of_two_connections_stays() {
        let (low, high) = (hello(1, "low", 1), hello(3, "high", 1));
        let dialing = Known { dialing: true, newest: 5, ..Known::default() };
        assert_eq!(judge(&low, &comes(2, 5, 0), &dialing).unwrap(), Verdict::Yield);
        assert_eq!(judge(&high, &comes(2, 5, 0), &dialing).unwrap(), Verdict::Accept);
        let present = |begun_by_peer| Known {
            present: Some(Present { incarnation: 5, link: 7, begun_by_peer }),
            newest: 5,
            ..Known::default()
        };
        // It began before it heard of ours.
        assert_eq!(judge(&low, &comes(2, 5, 0), &present(false)).unwrap(), Verdict::Yield);
        // It knew ours, and has lost it; or began anew itself.
        assert_eq!(judge(&low, &comes(2, 5, 7), &present(false)).unwrap(), Verdict::Accept);
        assert_eq!(judge(&low, &comes(2, 5, 0), &present(true)).unwrap(), Verdict::Accept);
        // It started again.
        assert_eq!(judge(&low, &comes(2, 6, 0), &present(false)).unwrap(), Verdict::Accept);
    }

    #[test]
    fn old_and_barred_incarnations_stay_out() {
        let me = hello(1, "me", 1);
        let known = Known { newest: 5, ..Known::default() };
        assert_eq!(judge(&me, &comes(2, 4, 0), &known).unwrap_err().kind, ErrorKind::Exists);
        let known = Known { newest: 5, barred: Some(5), ..Known::default() };
        assert_eq!(judge(&me, &comes(2, 5, 0), &known).unwrap_err().kind, ErrorKind::Permission);
        assert_eq!(judge(&me, &comes(2, 6, 0), &known).unwrap(), Verdict::Accept);
    }
}
