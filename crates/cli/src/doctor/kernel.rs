//! The kernel's version, and the kernel module.

use super::report::Check;

/// The floor: PAGEMAP_SCAN, asynchronous write protection and UFFDIO_POISON came with it.
const NEEDED: (u32, u32) = (6, 7);

/// Version of the kernel.
pub fn version() -> Check {
    judge(&rustix::system::uname().release().to_string_lossy())
}

fn judge(release: &str) -> Check {
    let found = format!("Linux {release}");
    match parse(release) {
        Some(version) if version >= NEEDED => Check::ok("kernel", found),
        _ => Check::fail(
            "kernel",
            found,
            format!(
                "Linux {}.{} or later is needed: on Debian 12, install linux-image-amd64 from bookworm-backports \
                 and boot it",
                NEEDED.0, NEEDED.1
            ),
        ),
    }
}

fn parse(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// The kernel module for shared page tables.
pub fn module() -> Check {
    Check::info("kernel module", "not part of this version; nothing needs it")
}

#[cfg(test)]
mod tests {
    use super::super::report::State;
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (release, state) in [
            ("6.7.0", State::Ok),
            ("6.10.11-amd64", State::Ok),
            ("10.0", State::Ok),
            ("6.6.99-lts", State::Fail),
            ("6.1.0-28-amd64", State::Fail),
            ("5.15.167.4-microsoft-standard-WSL2", State::Fail),
            ("strange", State::Fail),
        ] {
            assert_eq!(judge(release).state, state, "{release}");
        }
    }
}
