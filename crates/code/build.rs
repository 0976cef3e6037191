//! Builds what every stub has in it (`runtime`): one piece of code and constants that runs at any address.

use std::path::{Path, PathBuf};
use std::process::Command;

// `parts/` leads to the sources of other crates; in the package they are files of its own.
include!("parts/compile.rs");

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where"));
    println!("cargo::rerun-if-changed=parts/compile.rs");
    println!("cargo::rerun-if-changed=parts/runtime");
    println!("cargo::rerun-if-changed=src/format.rs");
    let library = out.join("libcommonhold_include.so");
    let target = std::env::var("TARGET").expect("cargo says for what");
    if !target.starts_with("x86_64-") || !target.contains("-linux-") {
        // Elsewhere code images are refused with a reason.
        std::fs::write(&library, b"").expect("cannot write into the build's own directory");
        return;
    }
    let settings = ["-Cforce-unwind-tables=no", "-Crelocation-model=pie"];
    let kernel = compile_part(Path::new("parts"), "kernel", "commonhold_kernel", &target, &settings, &out);
    let link = [
        "--crate-type=cdylib",
        "-Clto=fat",
        "-Cstrip=symbols",
        "-Clink-arg=-nostdlib",
        "-Clink-arg=-nostartfiles",
        "-Clink-arg=-Wl,-N,-z,norelro,-Bsymbolic,--hash-style=gnu,--build-id=none,--gc-sections",
        "--extern",
        &kernel,
    ];
    let more = [&settings[..], &link[..]].concat();
    compile(Path::new("parts/runtime/lib.rs"), "commonhold_include", &target, &more, &library);
}
