//! Builds the audit library, which is part of this crate: whoever has the `commonhold` program has all that is needed. The
//! compiler is called itself, because the library has no standard library and ends rather than unwinds, which cargo knows
//! as settings of a whole workspace only.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where"));
    let crates = Path::new("..");
    println!("cargo::rerun-if-changed=../record/src");
    println!("cargo::rerun-if-changed=../start/src");
    let library = out.join("libcommonhold_start.so");
    let target = std::env::var("TARGET").expect("cargo says for what");
    if !target.starts_with("x86_64-") || !target.ends_with("-linux-gnu") {
        // Elsewhere rebasing is refused with a reason.
        std::fs::write(&library, b"").expect("cannot write into the build's own directory");
        return;
    }
    let record = out.join("libcommonhold_record.rlib");
    compile(&crates.join("record/src/lib.rs"), "commonhold_record", &target, &["--crate-type=rlib"], &record);
    let external = format!("commonhold_record={}", record.display());
    // Nothing is linked to it, and it is mapped in few pieces: every call to the kernel at every start counts.
    let link = [
        "--crate-type=cdylib",
        "-Clto=fat",
        "-Clink-arg=-nostdlib",
        "-Clink-arg=-nostartfiles",
        "-Clink-arg=-Wl,-z,norelro,-Bsymbolic,--hash-style=gnu,--build-id",
        "-Cstrip=symbols",
        "--extern",
        &external,
    ];
    compile(&crates.join("start/src/lib.rs"), "commonhold_start", &target, &link, &library);
}

fn compile(source: &Path, name: &str, target: &str, more: &[&str], out: &Path) {
    let compiler = std::env::var_os("RUSTC").expect("cargo says which");
    let status = Command::new(compiler)
        .args([
            "--edition=2024",
            "-Cpanic=abort",
            "-Copt-level=2",
            "-Ccodegen-units=1",
            "--cap-lints=warn",
            "-Coverflow-checks=off",
        ])
        .args(["--target", target, "--crate-name", name])
        .args(more)
        .arg("-o")
        .arg(out)
        .arg(source)
        .status()
        .expect("the compiler does not start");
    assert!(status.success(), "{name} does not compile");
}
