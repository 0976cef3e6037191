//! Marks the extension module as never to be unloaded: the client in it has a thread, and handlers of fork and exit.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
