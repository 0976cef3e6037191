//! Which kernel this is.

/// The oldest with PAGEMAP_SCAN, asynchronous write protection and UFFDIO_POISON.
pub const NEEDED: (u32, u32) = (6, 7);

/// What it calls itself, as `6.12.5-amd64`.
pub fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Whether a release has all that a host needs.
pub fn is_enough(release: &str) -> bool {
    is_at_least(release, NEEDED)
}

/// Whether a release is of that version, or of a later one.
pub fn is_at_least(release: &str, least: (u32, u32)) -> bool {
    version(release).is_some_and(|version| version >= least)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (release, enough) in [
            ("6.7.0", true),
            ("6.10.11-amd64", true),
            ("10.0", true),
            ("6.6.99-lts", false),
            ("6.1.0-28-amd64", false),
            ("5.15.167.4-microsoft-standard-WSL2", false),
            ("strange", false),
        ] {
            assert_eq!(is_enough(release), enough, "{release}");
        }
    }
}
