//! Marks libcommonhold.so as never to be unloaded: it has a thread, and handlers of fork and exit.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
