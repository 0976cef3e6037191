//! Whether programs can be rebased here.

use super::report::Check;
use commonhold_rebase::bind::Loader;

/// The C library's loader.
pub fn loader() -> Check {
    match Loader::of_machine().check() {
        Ok(version) => Check::ok("rebase", format!("glibc {version}")),
        // Nothing else needs it.
        Err(why) => Check::info("rebase", why),
    }
}
