//! Makes libcommonhold_preload.so, beside what cargo makes itself.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=src/preload.c");
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where"));
    let made = out.join("libcommonhold_preload.so");
    let mut compiler = cc::Build::new().opt_level(2).get_compiler().to_command();
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-shared"]);
    compiler.args([
        "-Wl,-z,relro,-z,now,-z,defs",
        "-Wl,--hash-style=gnu",
        "-Wl,-soname,libcommonhold_preload.so",
    ]);
    let status = compiler.arg("-o").arg(&made).args(["src/preload.c", "-ldl"]).status();
    // For another kind of processor Rust can be checked where C cannot be compiled.
    if status.is_err() && std::env::var("HOST") != std::env::var("TARGET") {
        println!("cargo:warning=no C compiler for this target: libcommonhold_preload.so is not made");
        return;
    }
    assert!(status.expect("there is a C compiler").success(), "src/preload.c was not compiled");
    // OUT_DIR is PROFILE/build/PACKAGE/out.
    let profile = out.ancestors().nth(3).unwrap_or(Path::new("."));
    let (fresh, place) =
        (profile.join(".libcommonhold_preload.so"), profile.join("libcommonhold_preload.so"));
    // A program that is running has the old one mapped: that file must not change.
    std::fs::copy(&made, &fresh)
        .and_then(|_| std::fs::rename(&fresh, place))
        .expect("it is put in its place");
}
