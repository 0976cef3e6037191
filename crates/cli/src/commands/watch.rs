//! `wait` and `notify`.

use super::contents::resolve;
use crate::arguments::objects::{Notify, Wait};
use crate::failure::Done;
use crate::output::answer;
use commonhold::{Access, Error, ErrorKind, Host};
use serde_json::json;
use std::time::Instant;

/// Waits until somebody notifies.
pub fn wait(host: &Host, arguments: &Wait) -> Done {
    let object = host.open(&arguments.name, Access::Read)?;
    let (offset, length) = resolve(arguments.part, object.size_bytes())?;
    let deadline = arguments.timeout.and_then(|time| Instant::now().checked_add(time));
    if !object.watch(offset, length)?.wait(deadline)? {
        let what = format!("nobody has notified of {} in that time", arguments.name);
        return Err(Error::new(ErrorKind::TimedOut, what).into());
    }
    answer(arguments.form.json, &json!({ "name": arguments.name, "woken": true }), |_| {
        format!("{}: woken", arguments.name)
    })
}

/// Wakes all who wait.
pub fn notify(host: &Host, arguments: &Notify) -> Done {
    let object = host.open(&arguments.name, Access::ReadWrite)?;
    let (offset, length) = resolve(arguments.part, object.size_bytes())?;
    object.notify(offset, length)?;
    answer(arguments.form.json, &json!({ "name": arguments.name, "notified_bytes": length }), |_| {
        format!("{}: notified", arguments.name)
    })
}
