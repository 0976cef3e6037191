//! Builds the audit library, which is part of this crate: whoever has the `commonhold` program has all that is needed.

use std::path::{Path, PathBuf};
use std::process::Command;

// `parts/` leads to the sources of other crates; in the package they are files of its own.
include!("parts/compile.rs");

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where"));
    let parts = Path::new("parts");
    println!("cargo::rerun-if-changed=parts/compile.rs");
    println!("cargo::rerun-if-changed=parts/start");
    let library = out.join("libcommonhold_start.so");
    let target = std::env::var("TARGET").expect("cargo says for what");
    if !target.starts_with("x86_64-") || !target.ends_with("-linux-gnu") {
        // Elsewhere rebasing is refused with a reason.
        std::fs::write(&library, b"").expect("cannot write into the build's own directory");
        return;
    }
    let record = compile_part(parts, "record", "commonhold_record", &target, &[], &out);
    let kernel = compile_part(parts, "kernel", "commonhold_kernel", &target, &[], &out);
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
    compile(&parts.join("start/lib.rs"), "commonhold_start", &target, &link, &library);
}
