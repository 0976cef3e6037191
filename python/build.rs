//! Refuses systems on which nothing of it would work, and marks the extension module as never to be unloaded: the client in it has a
//! thread, and handlers of fork and exit.

fn main() {
    let system = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if system != "linux" {
        println!(
            "cargo:error=commonhold shares memory through the Linux kernel (6.7 or later), and this is built for {system}: build \
             and use it in a virtual machine with Linux"
        );
        std::process::exit(1);
    }
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
