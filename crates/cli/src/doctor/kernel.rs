//! The kernel's version, and the kernel module.

use super::report::Check;
use commonhold_sys::kernel;

/// Version of the kernel.
pub fn version() -> Check {
    judge(&kernel::release())
}

fn judge(release: &str) -> Check {
    let found = format!("Linux {release}");
    if kernel::is_enough(release) {
        return Check::ok("kernel", found);
    }
    let (major, minor) = kernel::NEEDED;
    let fix = format!(
        "Linux {major}.{minor} or later is needed: on Debian 12, install linux-image-amd64 from bookworm-backports and \
         boot it"
    );
    Check::fail("kernel", found, fix)
}

/// The kernel module for shared page tables.
pub fn module() -> Check {
    const NAME: &str = "kernel module";
    match commonhold_tables::Module::open() {
        Ok(_) => Check::ok(
            NAME,
            "segshm is loaded: objects can share page tables of 4 KiB pages (shared-tables-4k)",
        ),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Check::info(NAME, "segshm is loaded, and serves a host of root")
        }
        Err(_) => {
            Check::info(NAME, "segshm is not loaded, or too old: nothing but shared-tables-4k needs it")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::State;
    use super::*;

    #[test]
    fn a_kernel_that_is_too_old_fails() {
        assert_eq!(judge("6.7.0").state, State::Ok);
        assert_eq!(judge("6.6.99-lts").state, State::Fail);
    }
}
