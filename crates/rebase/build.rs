//! Builds the audit library, which is part of this crate: whoever has the `commonhold` program has all that is needed.

use std::path::{Path, PathBuf};
use std::process::Command;

include!("../kernel/compile.rs");

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where"));
    let crates = Path::new("..");
    println!("cargo::rerun-if-changed=../kernel/compile.rs");
    println!("cargo::rerun-if-changed=../start/src");
    let library = out.join("libcommonhold_start.so");
    let target = std::env::var("TARGET").expect("cargo says for what");
    if !target.starts_with("x86_64-") || !target.ends_with("-linux-gnu") {
        // Elsewhere rebasing is refused with a reason.
        std::fs::write(&library, b"").expect("cannot write into the build's own directory");
        return;
    }
    let record = compile_part(crates, "record", "commonhold_record", &target, &[], &out);
    let kernel = compile_part(crates, "kernel", "commonhold_kernel", &target, &[], &out);
    // Nothing is linked to it, and it is mapped in few pieces: every call to the kernel at every start counts.
    let link = [
        "--crate-type=cdylib",
        "-Clto=fat",
        "-Clink-arg=-nostdlib",
        "-Clink-arg=-nostartfiles",
        "-Clink-arg=-Wl,-z,norelro,-Bsymbolic,--hash-style=gnu,--build-id",
        "-Cstrip=symbols",
        "--extern",
        &record,
        "--extern",
        &kernel,
    ];
    compile(&crates.join("start/src/lib.rs"), "commonhold_start", &target, &link, &library);
}
