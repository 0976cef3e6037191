//! Whether programs can be rebased here, and their copies sealed.

use super::report::Check;
use commonhold_images::verity;
use commonhold_rebase::bind::Loader;
use std::path::Path;

/// The C library's loader.
pub fn loader() -> Check {
    judge(&Loader::of_machine())
}

fn judge(loader: &Loader) -> Check {
    match loader.check() {
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

#[cfg(test)]
mod tests {
    use super::super::report::State;
    use super::*;
    use std::process::Command;

    /// The check of a loader that answers so.
    fn of(lines: &str) -> Check {
        let folder = tempfile::tempdir().unwrap();
        let (text, path) = (folder.path().join("text"), folder.path().join("loader"));
        std::fs::write(&text, format!("#!/bin/sh\n{lines}\n")).unwrap();
        // By another process: what this one has open for writing a child of another test may have too.
        assert!(Command::new("install").arg("-m755").arg(&text).arg(&path).status().unwrap().success());
        judge(&Loader { path })
    }

    #[test]
    fn each_kind_of_loader_has_its_line() {
        let good = of("echo 'ld.so (Debian GLIBC 2.41-12) stable release version 2.41.'");
        assert_eq!((good.name, good.state), ("rebase", State::Ok));
        assert!(good.found.starts_with("glibc 2.41; ") && good.found.contains("fs-verity"), "{}", good.found);
        let old = of("echo 'ld.so (Debian GLIBC 2.35-4) stable release version 2.35.'");
        assert_eq!(old.found, "glibc 2.36 or later on x86-64 is needed for rebasing: here it is 2.35");
        let musl = of("echo 'musl libc (x86_64)' >&2; exit 1");
        assert!(musl.found.contains("says of itself is not understood"), "{}", musl.found);
        let none = judge(&Loader { path: "/no/such/loader".into() });
        assert!(none.found.contains("/no/such/loader does not run"), "{}", none.found);
        for check in [old, musl, none] {
            // Nothing else needs it: it is no fault of the machine.
            assert_eq!((check.state, check.fix), (State::Info, None));
        }
    }
}
