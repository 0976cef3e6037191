//! Pages that the home cannot read when others ask for them: they stay the home's, and everybody who waits learns it.

use commonhold_coherence::forwarding::{Message, Node, Options};
use commonhold_coherence::{Access, Action, Event, HostId, NotRead, Scheduler, Span, Why, explicit};

const PAGE: u32 = 5;
const HOME: HostId = HostId(0);

/// Hosts of which the first is the home, and cannot read the page for a while.
struct Hosts {
    nodes: Vec<Node>,
    readable: bool,
    installed: Vec<HostId>,
    failed: Vec<HostId>,
}

impl Hosts {
    fn new(count: u32, replicas: u32) -> Hosts {
        let members: Vec<HostId> = (0..count).map(HostId).collect();
        let options = Options { has_hold: false, replicas, ..Options::default() };
        let nodes = members.iter().map(|me| Node::founder(*me, HOME, &members, options)).collect();
        Hosts { nodes, readable: false, installed: Vec::new(), failed: Vec::new() }
    }

    /// These fault one after the other, and then everything is said that follows, in order.
    fn fault(&mut self, hosts: &[u32], access: Access) {
        self.installed.clear();
        self.failed.clear();
        let mut queue = Vec::new();
        for host in hosts.iter().copied().map(HostId) {
            let span = Span::one(PAGE);
            self.happened(host, Event::Fault { span, access, may_write: false }, &mut queue);
        }
        while !queue.is_empty() {
            let (from, to, message) = queue.remove(0);
            self.happened(to, Event::Message { from, message }, &mut queue);
        }
    }

    fn happened(&mut self, host: HostId, event: Event<Message>, queue: &mut Vec<(HostId, HostId, Message)>) {
        let mut actions = Vec::new();
        self.nodes[host.0 as usize].handle(event, &mut actions);
        for action in actions {
            match action {
                Action::Send { to, message } if host == HOME && !self.readable => {
                    let Some(NotRead { told, heard }) = Node::not_read(&message, HOME, to) else {
                        queue.push((host, to, message));
                        continue;
                    };
                    queue.extend(told.map(|told| (host, to, told)));
                    for (from, message) in heard {
                        self.happened(HOME, Event::Message { from, message }, queue);
                    }
                }
                Action::Send { to, message } => queue.push((host, to, message)),
                Action::Install { .. } => self.installed.push(host),
                Action::Fail { why: Why::NotRead, .. } => self.failed.push(host),
                _ => {}
            }
        }
    }
}

#[test]
fn everybody_who_waits_for_a_page_that_cannot_be_read_learns_it() {
    for replicas in [0, 1] {
        for access in [Access::Read, Access::Write] {
            let mut hosts = Hosts::new(4, replicas);
            for asking in [&[1, 2, 3][..], &[3], &[2, 1]] {
                hosts.fault(asking, access);
                hosts.failed.sort_unstable();
                let mut asked: Vec<HostId> = asking.iter().copied().map(HostId).collect();
                asked.sort_unstable();
                assert_eq!(hosts.failed, asked, "{replicas} {access:?}");
                assert_eq!(hosts.installed, []);
                assert!(hosts.nodes[0].owns(PAGE) && hosts.nodes.iter().all(|node| !node.is_waiting()));
            }
            // It can be read again.
            hosts.readable = true;
            for host in [2, 1, 3, 0] {
                hosts.fault(&[host], Access::Write);
                assert_eq!((&hosts.installed[..], &hosts.failed[..]), (&[HostId(host)][..], &[][..]));
                let owners: Vec<bool> = hosts.nodes.iter().map(|node| node.owns(PAGE)).collect();
                assert_eq!(owners.iter().filter(|owns| **owns).count(), 1, "{owners:?}");
            }
        }
    }
}

#[test]
fn of_several_pages_each_is_asked_for_by_itself() {
    use explicit::{Message, Node};
    let mut node = Node::new(HostId(1), HOME);
    let mut happens = |event| {
        let mut actions = Vec::new();
        node.handle(event, &mut actions);
        actions
    };
    let from = |message| Event::Message { from: HOME, message };
    let fetch = |span| Action::Send { to: HOME, message: Message::Fetch { span } };
    let span = Span::new(PAGE, 2);
    assert_eq!(happens(Event::Fault { span, access: Access::Read, may_write: false }), [fetch(span)]);
    let [first, second] = [Span::one(PAGE), Span::one(PAGE + 1)];
    assert_eq!(happens(from(Message::NotRead { span })), [fetch(first), fetch(second)]);
    let why = Why::NotRead;
    assert_eq!(happens(from(Message::NotRead { span: first })), [Action::Fail { page: PAGE, why }]);
    assert_eq!(happens(from(Message::NotRead { span: first })), [], "it was not asked for any more");
    let install = Action::Install { span: second, access: Access::Write, with_data: true };
    assert_eq!(happens(from(Message::Pages { span: second })), [install]);
    assert_eq!(
        happens(Event::Fault { span: first, access: Access::Write, may_write: false }),
        [fetch(first)]
    );
}
