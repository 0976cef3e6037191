//! The environment, for programs that may have rights that their caller lacks (setuid, setgid, file capabilities): the
//! caller says its variables, and must not say with whose program or directory these rights are used.

use std::ffi::OsString;

/// Whether this program has rights that its caller lacks: what the kernel told the loader (`AT_SECURE`).
pub fn has_foreign_rights() -> bool {
    // SAFETY: reads a number that the kernel left; any key is allowed.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// A variable that is set, and not empty; none in programs with such rights.
pub fn variable(name: &str) -> Option<OsString> {
    if has_foreign_rights() {
        return None;
    }
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_foreign_rights_reads_what_is_set() {
        assert!(!has_foreign_rights());
        assert_eq!(variable("PATH"), std::env::var_os("PATH"));
        assert_eq!(variable("COMMONHOLD_NO_SUCH_VARIABLE"), None);
    }
}
