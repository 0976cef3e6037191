//! Marks libcommonhold_sysv.so as never to be unloaded: it has handlers of fork and exit.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
