//! What may be chosen together, and what not.

use super::*;

#[test]
fn what_asks_for_something_is_controlled() {
    let plain = CreateOptions { size_bytes: 1, ..Default::default() };
    assert!(!plain.is_controlled() && plain.reserves());
    assert!(CreateOptions { sync: SyncMode::Atomic, ..plain.clone() }.is_controlled());
    assert!(CreateOptions { budget_bytes: Some(1 << 20), ..plain.clone() }.is_controlled());
    assert!(!CreateOptions { pager: PagerKind::File, ..plain }.reserves());
}

#[test]
fn what_hosts_share_has_a_fault_deadline_and_a_hold_within_it() {
    let good = CreateOptions { size_bytes: 4096, ..Default::default() };
    assert_eq!(good.fault_deadline(), None);
    let strict = |hold_us, fault_deadline_ms| {
        let coherence = Coherence::strict(OnLoss::Error).with_hold(hold_us);
        CreateOptions { coherence, fault_deadline_ms, ..good.clone() }
    };
    assert_eq!(strict(0, None).fault_deadline(), Some(60_000));
    assert_eq!(strict(0, Some(5)).fault_deadline(), Some(5));
    strict(30_000_000, None).check().unwrap();
    strict(2_500, Some(5)).check().unwrap();
    for bad in [strict(30_000_001, None), strict(2_501, Some(5)), strict(u32::MAX, None)] {
        let why = bad.check().unwrap_err().message;
        assert!(why.contains("more than half of the fault deadline"), "{why}");
    }
}

#[test]
fn impossible_options_are_refused() {
    let good = CreateOptions { size_bytes: 4096, ..Default::default() };
    good.check().unwrap();
    let bad = [
        CreateOptions { size_bytes: 0, ..good.clone() },
        CreateOptions { size_bytes: limits::OBJECT_BYTES + 1, ..good.clone() },
        CreateOptions { description: "x".repeat(4097), ..good.clone() },
        CreateOptions { mode: 0o1777, ..good.clone() },
        CreateOptions { budget_bytes: Some(4096), ..good.clone() },
        CreateOptions { fault_deadline_ms: Some(0), ..good.clone() },
        CreateOptions { pager_deadline_ms: Some(limits::PAGER_DEADLINE_MS + 1), ..good.clone() },
        CreateOptions { pager: PagerKind::External { pager: "x".into() }, ..good.clone() },
        CreateOptions { page_size: PageSize::LARGEST, ..good.clone() },
        CreateOptions { page_size: PageSize::LARGEST, coherence: Coherence::Explicit, ..good.clone() },
    ];
    let forwarded =
        |replicas| CreateOptions { coherence: Coherence::strict(OnLoss::Revert), replicas, ..good.clone() };
    forwarded(limits::REPLICAS).check().unwrap();
    forwarded(limits::REPLICAS + 1).check().unwrap_err();
    for coherence in [Coherence::Local, Coherence::Explicit, Coherence::central(OnLoss::Revert)] {
        CreateOptions { coherence, ..forwarded(1) }.check().unwrap_err();
    }
    let replicated = |coherence| CreateOptions { coherence, home_moves: true, replicas: 2, ..good.clone() };
    replicated(Coherence::central(OnLoss::Error)).check().unwrap();
    for coherence in [Coherence::Local, Coherence::Explicit, Coherence::strict(OnLoss::Error)] {
        replicated(coherence).check().unwrap_err();
    }
    let strict = replicated(Coherence::central(OnLoss::Error));
    CreateOptions { sync: SyncMode::Atomic, ..strict.clone() }.check().unwrap_err();
    CreateOptions { replicas: 0, ..strict }.check().unwrap_err();
    let moving =
        |coherence| CreateOptions { coherence, home_moves: true, pager: PagerKind::File, ..good.clone() };
    moving(Coherence::central(OnLoss::Error)).check().unwrap();
    moving(Coherence::Explicit).check().unwrap();
    moving(Coherence::strict(OnLoss::Revert)).check().unwrap();
    moving(Coherence::Local).check().unwrap_err();
    let explicit = moving(Coherence::Explicit);
    CreateOptions { sync: SyncMode::Atomic, ..explicit.clone() }.check().unwrap_err();
    CreateOptions { pager: PagerKind::Anonymous, ..explicit }.check().unwrap_err();
    for options in bad {
        options.check().unwrap_err();
    }
    let coherence = Coherence::strict(OnLoss::Error);
    CreateOptions { page_size: PageSize::LARGEST, coherence, ..good.clone() }.check().unwrap();
}

#[test]
fn strict_means_forwarding_but_for_what_one_host_must_see() {
    let good = CreateOptions { size_bytes: 4096, ..Default::default() };
    let plain = good.clone().strict(OnLoss::Revert);
    assert_eq!(plain.coherence, Coherence::strict(OnLoss::Revert));
    assert!(plain.coherence.is_forwarded());
    let frozen = CreateOptions { freezable: true, ..good.clone() }.strict(OnLoss::Error);
    let moving = CreateOptions { home_moves: true, replicas: 1, ..good }.strict(OnLoss::Error);
    for options in [frozen, moving] {
        assert_eq!(options.coherence, Coherence::central(OnLoss::Error));
        options.check().unwrap();
    }
}
