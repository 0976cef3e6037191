//! Data images in a process to which the kernel refuses something: it is told, and the process goes on.
#![cfg(target_arch = "x86_64")]

mod common;

use common::left_out::left_out;
use common::{Place, arena};
use commonhold_images::Error;
use commonhold_images::include::include_from;
use commonhold_images::ranges::Owner;
use commonhold_images::store::Store;
use commonhold_object::ErrorKind;
use std::process::Command;

/// From now on a call of this thread is refused with EPERM, if an argument has any of these bits.
fn refuse(call: i64, argument: u32, bits: u32) -> bool {
    let step = |code: u32, jump_if: u8, jump_else: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt: jump_if,
        jf: jump_else,
        k,
    };
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    // `struct seccomp_data`: the call's number, then 12 bytes, then the arguments.
    let filter = [
        step(LOAD, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 3, call as u32),
        step(LOAD, 0, 0, 16 + 8 * argument),
        step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0, 1, bits),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: numbers, and a filter that the kernel copies.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

#[test]
fn what_a_sandbox_refuses_is_told() {
    let place = Place::new();
    let made = arena(&place, "words@1.0.0", &[]);
    made.root("one", made.place(7_u64).unwrap()).unwrap();
    made.seal().unwrap();
    for test in ["may_open_nothing", "may_map_nothing_at_an_address"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
        let output = command.env("IMAGES_TEST_STORE", place.store.root()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said} {output:?}");
    }
}

fn include() -> Error {
    let store = Store::at(std::env::var("IMAGES_TEST_STORE").unwrap().as_ref(), Owner::Machine);
    include_from(&[store], "words@1", false).unwrap_err()
}

#[test]
#[ignore = "is run by another"]
fn may_open_nothing() {
    // Any mode of opening: all paths.
    if !refuse(libc::SYS_openat, 0, u32::MAX) {
        return left_out("a sandbox that refuses calls to the kernel (no seccomp filters here)");
    }
    let error = include();
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
    assert!(error.to_string().contains("/store") && error.to_string().lines().count() == 1, "{error}");
}

#[test]
#[ignore = "is run by another"]
fn may_map_nothing_at_an_address() {
    if !refuse(libc::SYS_mmap, 3, libc::MAP_FIXED_NOREPLACE as u32) {
        return left_out("a sandbox that refuses calls to the kernel (no seccomp filters here)");
    }
    let error = include();
    assert!(matches!(error, Error::NoPlace { .. }), "{error}");
    assert!(error.to_string().contains("the kernel does not let it be mapped so"), "{error}");
}
