//! Replicas under the distributed scheduler, step by step. Their interleavings are searched by `commonhold-simulator`.

use super::losses::{HOME, Hosts, PAGE};
use commonhold_coherence::central::OnLoss;
use commonhold_coherence::forwarding::{Message, Options};
use commonhold_coherence::{Access, Event, Scheduler};

fn hosts(count: u32, replicas: u32) -> Hosts {
    Hosts::with(count, Options { on_loss: OnLoss::Revert, replicas, has_hold: false, ..Options::default() })
}

fn is_replica(message: &Message) -> bool {
    matches!(message, Message::Replica { .. })
}

#[test]
fn what_was_read_survives_its_owner_and_then_the_next() {
    let mut hosts = hosts(4, 1);
    hosts.write(1, 5);
    hosts.reads(2, 5);
    assert_eq!(hosts.kept[HOME], Some(5));
    hosts.happens(2, Event::Evict { page: PAGE });
    hosts.lose(1);
    hosts.reads(3, 5);
    // The home has it from what it kept, and has seen to it that another keeps it.
    hosts.happens(3, Event::Evict { page: PAGE });
    hosts.lose(HOME);
    hosts.reads(2, 5);
    assert!(hosts.failed.is_empty());
}

#[test]
fn a_hand_over_of_what_one_replica_is_wanted_of_costs_no_message() {
    let mut hosts = hosts(4, 1);
    for (host, version) in [(1, 1), (2, 2), (3, 3), (1, 4)] {
        hosts.write(host, version);
    }
    assert!(!hosts.said.iter().any(is_replica));
    assert_eq!(hosts.kept, [Some(0), None, None, Some(3)]);
    // With two of them, one more host has what is handed over.
    let mut hosts = self::hosts(4, 2);
    hosts.write(1, 1);
    hosts.write(2, 2);
    assert_eq!(hosts.said.iter().filter(|message| is_replica(message)).count(), 2);
    assert_eq!(hosts.kept, [Some(1), Some(1), None, None]);
}

#[test]
fn a_version_is_kept_before_its_first_copy_and_once() {
    let mut hosts = hosts(5, 2);
    hosts.write(4, 7);
    for host in [1, 2, 3] {
        hosts.reads(host, 7);
    }
    assert_eq!(hosts.kept, [Some(7), Some(7), None, None, None]);
    let replicas = hosts.said.iter().filter(|message| is_replica(message)).count();
    // One for the hand-over by the home, two for the version that was read.
    assert_eq!(replicas, 3);
    // The next version: what was kept before is forgotten when that is kept.
    hosts.write(4, 8);
    assert_eq!(hosts.kept[1], Some(7));
    hosts.reads(2, 8);
    assert_eq!(hosts.kept, [Some(8), Some(8), None, None, None]);
}

#[test]
fn too_few_hosts_are_said_and_filled_up_when_there_are_more() {
    let mut hosts = hosts(2, 2);
    hosts.write(1, 3);
    hosts.reads(HOME, 3);
    assert!(hosts.nodes.iter().all(|node| node.is_short_of_keepers()));
    hosts.comes();
    assert!(!hosts.nodes[1].is_short_of_keepers());
    assert_eq!(hosts.kept[2], Some(3));
    // All that were there before die.
    hosts.lose(1);
    hosts.lose(HOME);
    hosts.reads(2, 3);
    assert_eq!(hosts.nodes[2].access(PAGE), Access::Read);
}
