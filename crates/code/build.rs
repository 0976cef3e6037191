//! Builds what every stub has in it (`runtime`): one piece of code and constants that runs at any address. The compiler is
//! called itself, because that piece has no standard library and ends rather than unwinds, which cargo knows as settings
//! of a whole workspace only.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where"));
    println!("cargo::rerun-if-changed=runtime/src");
    println!("cargo::rerun-if-changed=src/format.rs");
    let library = out.join("libcommonhold_include.so");
    let target = std::env::var("TARGET").expect("cargo says for what");
    if !target.starts_with("x86_64-") || !target.contains("-linux-") {
        // Elsewhere code images are refused with a reason.
        std::fs::write(&library, b"").expect("cannot write into the build's own directory");
        return;
    }
    let compiler = std::env::var_os("RUSTC").expect("cargo says which");
    let status = Command::new(compiler)
        .args([
            "--edition=2024",
            "--crate-type=cdylib",
            "--crate-name=commonhold_include",
            "--cap-lints=warn",
        ])
        .args([
            "--cfg=commonhold_runtime",
            "-Cpanic=abort",
            "-Copt-level=2",
            "-Ccodegen-units=1",
            "-Coverflow-checks=off",
            "-Clto=fat",
        ])
        .args([
            "-Cforce-unwind-tables=no",
            "-Cstrip=symbols",
            "-Crelocation-model=pie",
            "-Clink-arg=-nostdlib",
        ])
        .arg("-Clink-arg=-nostartfiles")
        .arg("-Clink-arg=-Wl,-N,-z,norelro,-Bsymbolic,--hash-style=gnu,--build-id=none,--gc-sections")
        .args(["--target", &target, "-o"])
        .arg(&library)
        .arg("runtime/src/lib.rs")
        .status()
        .expect("the compiler does not start");
    assert!(status.success(), "the inclusion code does not compile");
}
