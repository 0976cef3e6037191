//! Why the kernel does not tell of a program's faults, and what to do.

use commonhold_object::{Error, ErrorKind};
use std::io;

/// Up to this value of `kernel.perf_event_paranoid` any user may count what the user's own programs
/// do.
const OWN_PROGRAMS: i64 = 2;

/// Says so.
pub(crate) fn explain(error: &io::Error) -> Error {
    let setting = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok(); // none: it cannot be told
    judge(error, setting.and_then(|text| text.trim().parse().ok()))
}

fn judge(error: &io::Error, paranoid: Option<i64>) -> Error {
    let refused = |kind, why: String| Error::new(kind, format!("page faults cannot be counted here: {why}"));
    let in_a_container = "in a container, allow the system call perf_event_open in its seccomp profile";
    match (error.kind(), paranoid) {
        (io::ErrorKind::PermissionDenied, Some(paranoid)) if paranoid > OWN_PROGRAMS => refused(
            ErrorKind::Permission,
            format!(
                "kernel.perf_event_paranoid is {paranoid}, which leaves it to root: run it as root, or as root: sysctl \
                 kernel.perf_event_paranoid=2 (1: faults within system calls can be counted, too)"
            ),
        ),
        (io::ErrorKind::PermissionDenied, Some(_)) => refused(
            ErrorKind::Permission,
            format!("perf_event_open is not allowed ({error}): {in_a_container}"),
        ),
        (io::ErrorKind::OutOfMemory, _) => refused(
            ErrorKind::NoSpace,
            format!(
                "{error}: this user may not lock memory for them: raise the limit (ulimit -l) or kernel.perf_event_mlock_kb, or \
                 run it as root"
            ),
        ),
        (_, None) => refused(
            ErrorKind::Unsupported,
            format!(
                "the kernel has no perf events ({error}): it needs CONFIG_PERF_EVENTS, and /proc must be mounted"
            ),
        ),
        _ => refused(ErrorKind::Unsupported, format!("{error}: {in_a_container}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_to_do() {
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        let of = |error: io::Error, paranoid| judge(&error, paranoid).message;
        assert!(of(refused(), Some(4)).contains("kernel.perf_event_paranoid=2"));
        assert!(of(refused(), Some(2)).contains("seccomp"));
        assert!(of(io::ErrorKind::OutOfMemory.into(), Some(2)).contains("ulimit -l"));
        assert!(of(io::ErrorKind::NotFound.into(), None).contains("CONFIG_PERF_EVENTS"));
        assert!(of(io::ErrorKind::Unsupported.into(), Some(2)).contains("seccomp"));
    }
}
