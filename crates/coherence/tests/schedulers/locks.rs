//! Locked pages stay at a host: others read them, and have them when they are let go.

use commonhold_coherence::{Access, Action, Event, HostId, Scheduler, Span, central, forwarding};

const PAGE: u32 = 3;

fn one() -> Span {
    Span::one(PAGE)
}

/// What hosts say until nobody has anything to say.
fn run<S: Scheduler>(hosts: &mut [S], at: usize, event: Event<S::Message>) {
    let mut to_do = std::collections::VecDeque::from([(at, event)]);
    while let Some((at, event)) = to_do.pop_front() {
        let mut actions = Vec::new();
        hosts[at].handle(event, &mut actions);
        for action in actions {
            if let Action::Send { to, message } = action {
                to_do.push_back((to.0 as usize, Event::Message { from: HostId(at as u32), message }));
            }
        }
    }
}

fn locked_pages_stay<S: Scheduler>(mut hosts: Vec<S>) {
    let fault = |access| Event::Fault { span: one(), access, may_write: false };
    run(&mut hosts, 1, Event::Lock { span: one() });
    run(&mut hosts, 1, fault(Access::Write));
    // A reader gets a copy; who locked it may have it back for writing.
    run(&mut hosts, 2, fault(Access::Read));
    assert_eq!((hosts[1].access(PAGE), hosts[2].access(PAGE)), (Access::Read, Access::Read));
    run(&mut hosts, 1, Event::Evict { page: PAGE });
    assert_eq!(hosts[1].access(PAGE), Access::Read, "it stays though memory is short");
    run(&mut hosts, 1, fault(Access::Write));
    assert_eq!((hosts[1].access(PAGE), hosts[2].access(PAGE)), (Access::Write, Access::None));
    // A writer waits.
    run(&mut hosts, 2, fault(Access::Write));
    assert_eq!((hosts[1].access(PAGE), hosts[2].access(PAGE)), (Access::Write, Access::None));
    run(&mut hosts, 1, Event::Unlock { span: one() });
    assert_eq!((hosts[1].access(PAGE), hosts[2].access(PAGE)), (Access::None, Access::Write));
}

/// Who has a copy of what it locked, and wants to write it, is not in the way of who asked before.
fn nobody_waits_for_who_waits<S: Scheduler>(mut hosts: Vec<S>) {
    let fault = |access| Event::Fault { span: one(), access, may_write: false };
    run(&mut hosts, 2, fault(Access::Write));
    run(&mut hosts, 1, fault(Access::Read));
    run(&mut hosts, 1, Event::Lock { span: one() });
    run(&mut hosts, 2, fault(Access::Write));
    assert_eq!((hosts[1].access(PAGE), hosts[2].access(PAGE)), (Access::Read, Access::Read), "it waits");
    run(&mut hosts, 1, fault(Access::Write));
    assert_eq!((hosts[1].access(PAGE), hosts[2].access(PAGE)), (Access::Write, Access::None));
    assert!(hosts.iter().all(|host| !host.is_waiting()));
}

/// Who waits for a page is known where the page is locked only then.
#[test]
fn who_waits_for_a_locked_page_is_known() {
    let mut hosts = central_hosts();
    run(&mut hosts, 1, Event::Fault { span: one(), access: Access::Write, may_write: false });
    run(&mut hosts, 1, Event::Lock { span: one() });
    assert!(hosts[1].wanted_in(one()).is_empty());
    run(&mut hosts, 2, Event::Fault { span: one(), access: Access::Write, may_write: false });
    assert_eq!(hosts[1].wanted_in(one()), [PAGE]);
    let mut hosts = forwarding_hosts(0);
    run(&mut hosts, 1, Event::Fault { span: one(), access: Access::Write, may_write: false });
    run(&mut hosts, 1, Event::Lock { span: one() });
    assert!(hosts[1].wanted_in(one()).is_empty());
    run(&mut hosts, 2, Event::Fault { span: one(), access: Access::Write, may_write: false });
    assert_eq!(hosts[1].wanted_in(one()), [PAGE]);
    run(&mut hosts, 1, Event::Unlock { span: one() });
    assert!(hosts[1].wanted_in(one()).is_empty());
}

fn central_hosts() -> Vec<central::Node> {
    let options = central::Options::default();
    (0..3).map(|host| central::Node::new(HostId(host), HostId(0), options, false)).collect()
}

fn forwarding_hosts(replicas: u32) -> Vec<forwarding::Node> {
    let all = [HostId(0), HostId(1), HostId(2)];
    let options = forwarding::Options { has_hold: false, replicas, ..forwarding::Options::default() };
    all.iter().map(|host| forwarding::Node::founder(*host, HostId(0), &all, options)).collect()
}

#[test]
fn centrally_scheduled() {
    locked_pages_stay(central_hosts());
    nobody_waits_for_who_waits(central_hosts());
}

#[test]
fn forwarded() {
    locked_pages_stay(forwarding_hosts(0));
    nobody_waits_for_who_waits(forwarding_hosts(0));
}

#[test]
fn forwarded_with_replicas() {
    for replicas in [1, 2] {
        locked_pages_stay(forwarding_hosts(replicas));
        nobody_waits_for_who_waits(forwarding_hosts(replicas));
    }
}
