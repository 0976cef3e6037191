//! Marks libcommonhold.so as never to be unloaded: it has a thread, and handlers of fork and exit. Gives it the name by which
//! programs that are linked to it look for it, and a link of that name beside it.

use std::io::ErrorKind;
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").expect("cargo says which");
    let name = format!("libcommonhold.so.{major}");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{name}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where"));
    // OUT_DIR is PROFILE/build/PACKAGE/out. The library is in PROFILE, and for tests in PROFILE/deps.
    let profile = out.ancestors().nth(3).expect("cargo's directories");
    for place in [profile.to_path_buf(), profile.join("deps")] {
        match std::os::unix::fs::symlink("libcommonhold.so", place.join(&name)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                panic!("a link {name} in {}: {error}", place.display())
            }
            _ => {}
        }
    }
}
