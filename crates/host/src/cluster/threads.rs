//! Threads of which a host that others rely on lacks none.

use commonhold_points as points;

/// Begins a thread that does what no other would do. Where that is impossible this process ends: the keeper starts the
/// next, which holds nothing.
pub(super) fn begin(name: &str, work: impl FnOnce() + Send + 'static) {
    if points::thread(|| std::thread::Builder::new().name(name.into()).spawn(work)).is_err() {
        std::process::abort();
    }
}
