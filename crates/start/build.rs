//! The library is linked to nothing: it must not bring a C library into programs. It is laid out to be mapped in two
//! pieces, because every call to the kernel at the start of every program counts.

fn main() {
    for argument in ["-nostdlib", "-nostartfiles", "-Wl,-z,norelro,-z,noseparate-code", "-Wl,--hash-style=gnu,--build-id"] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
