//! Whether programs can be rebased here, and their copies sealed.

use super::report::Check;
use commonhold_images::verity;
use commonhold_rebase::bind::Loader;
use std::path::Path;

/// The C library's loader.
pub fn loader() -> Check {
    match Loader::of_machine().check() {
        Ok(version) => Check::ok("rebase", format!("glibc {version}; {}", sealing())),
        // Nothing else needs it.
        Err(why) => Check::info("rebase", why),
    }
}

/// Of the machine's store, or where it would be.
fn sealing() -> String {
    let store = Path::new("/var/lib/commonhold/rebase/copies");
    let place = store.ancestors().find(|above| above.exists()).unwrap_or(Path::new("/"));
    match verity::probe(place) {
        Ok(()) => "copies are sealed by fs-verity".to_owned(),
        Err(why) => format!("no fs-verity in {} ({why}): `rebase verify` compares copies", place.display()),
    }
}
