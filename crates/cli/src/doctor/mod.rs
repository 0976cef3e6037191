//! `doctor`: whether this machine has what Commonhold needs, and how to get what it lacks.

mod frames;
mod host;
mod kernel;
mod limits;
mod machine;
mod probe;
mod rebase;
mod report;
mod storage;
mod userfaultfd;
mod wired;

use crate::failure::{Done, Failure};
use crate::output::answer;
use crate::place::HostPlace;
use report::{Check, State, table};
use serde_json::json;

/// Makes all checks; fails if something that is needed does not work.
pub fn doctor(place: &HostPlace, json: bool) -> Done {
    let checks = checks(place);
    let failed = checks.iter().filter(|check| check.state == State::Fail).count();
    let said = json!({ "works": failed == 0, "checks": checks });
    answer(json, &said, |_| table(&checks))?;
    if failed == 0 { Ok(()) } else { Err(Failure::Answered) }
}

/// What matters most, first.
fn checks(place: &HostPlace) -> Vec<Check> {
    let mut checks = vec![
        kernel::version(),
        userfaultfd::works(),
        userfaultfd::kernel_accesses(place),
        userfaultfd::dirty_tracking(),
        userfaultfd::poison(),
        frames::small_pages(),
        frames::outlive_a_punch(),
    ];
    checks.extend([
        limits::descriptors(),
        limits::locked_memory(),
        limits::address_space(),
        limits::mappings(),
        storage::state_directory(place),
        host::running(place),
    ]);
    checks.extend([
        machine::memory(),
        machine::swap(),
        machine::control_group(),
        machine::container(),
        wired::huge_pages(),
        wired::compaction(),
        wired::counting(),
        machine::systemd(),
        machine::fuse(),
        kernel::module(),
        rebase::loader(),
    ]);
    checks
}
