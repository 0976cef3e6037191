//! Threads of which a host that others rely on lacks none.

/// Begins a thread that does what no other would do. Where that is impossible this process ends: the keeper starts the
/// next, which holds nothing.
pub(super) fn begin(name: &str, work: impl FnOnce() + Send + 'static) {
    if std::thread::Builder::new().name(name.into()).spawn(work).is_err() {
        std::process::abort();
    }
}
