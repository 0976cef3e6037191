// What has no C library is compiled by the build scripts of who has it in them, which include this file: it has no
// standard library and ends rather than unwinds, which cargo knows as settings of a whole workspace only.

/// Calls the compiler itself.
fn compile(source: &Path, name: &str, target: &str, more: &[&str], out: &Path) {
    let compiler = std::env::var_os("RUSTC").expect("cargo says which");
    let status = Command::new(compiler)
        .args(["--edition=2024", "-Cpanic=abort", "-Copt-level=2", "-Ccodegen-units=1"])
        .args(["--cap-lints=warn", "-Coverflow-checks=off"])
        .args(["--target", target, "--crate-name", name])
        .args(more)
        .arg("-o")
        .arg(out)
        .arg(source)
        .status()
        .expect("the compiler does not start");
    assert!(status.success(), "{name} does not compile");
}

/// Compiles a crate that another one uses, with the same settings of the compiler; gives what `--extern` is to say.
fn compile_part(parts: &Path, directory: &str, name: &str, target: &str, more: &[&str], out: &Path) -> String {
    println!("cargo::rerun-if-changed={}", parts.join(directory).display());
    let library = out.join(format!("lib{name}.rlib"));
    let more = [&["--crate-type=rlib"], more].concat();
    compile(&parts.join(directory).join("lib.rs"), name, target, &more, &library);
    format!("{name}={}", library.display())
}
