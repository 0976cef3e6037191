//! System calls that neither keeper nor host ever make, refused from the keeper's start on, for the
//! hosts that it starts too (seccomp(2)): whoever makes either do what it was not written for finds
//! none of the ways from there to the rest of the machine. What they do make is not listed: a list
//! that lacks one call of one C library ends a host that keeps data.

use seccompiler::{SeccompAction, SeccompFilter, TargetArch, apply_filter};
use std::collections::BTreeMap;
use std::io;

/// The system calls, by what they would be of use for.
const REFUSED: &[libc::c_long] = &[
    // Other programs' memory and descriptors.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    // File systems, name spaces and files by number.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_mknodat,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_fanotify_init,
    // Another user.
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    // The kernel, its programs and keys, and the machine.
    libc::SYS_bpf,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    libc::SYS_io_uring_setup,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_personality,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
];

/// Refuses them from now on, in this process and in all that it starts.
pub(crate) fn refuse_calls() -> io::Result<()> {
    if is_in_force() {
        return Ok(());
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let rules: BTreeMap<i64, _> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).map_err(io::Error::other)?;
    let program: seccompiler::BpfProgram = filter.try_into().map_err(io::Error::other)?;
    apply_filter(&program).map_err(io::Error::other)
}

/// Whether a keeper before this process did so: each filter more would be looked through at each call.
fn is_in_force() -> bool {
    // Asks what the personality is, which other filters allow.
    // SAFETY: with that value it changes nothing.
    unsafe { libc::personality(0xffff_ffff) == -1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a process of its own: a filter stays.
    #[test]
    fn calls_are_refused_here_and_in_children() {
        const CHILD: &str = "COMMONHOLD_TEST_FILTERED";
        if std::env::var_os(CHILD).is_none() {
            let own = std::env::current_exe().unwrap();
            let name = "filter::tests::calls_are_refused_here_and_in_children";
            let status = std::process::Command::new(own).args([name, "--exact"]).env(CHILD, "1").status();
            assert!(status.unwrap().success());
            return;
        }
        assert!(!is_in_force());
        refuse_calls().unwrap();
        assert!(is_in_force());
        refuse_calls().unwrap();
        let program = || std::process::Command::new("sh");
        let refused = program().args(["-c", "unshare --uts true 2>/dev/null"]).status().unwrap();
        assert!(!refused.success());
        assert!(program().args(["-c", "cat /proc/self/status >/dev/null"]).status().unwrap().success());
        // One thread of many: a filter is a process's.
        let elsewhere = std::thread::spawn(is_in_force).join().unwrap();
        assert!(elsewhere);
    }
}
