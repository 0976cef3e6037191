//! C programs against the header and the library that cargo builds with the tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo puts the library that it builds with the tests: beside them.
pub fn library_directory() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let directory = test.parent().unwrap().to_path_buf();
    assert!(directory.join("libcommonhold.so").exists(), "cargo builds the library with its tests");
    directory
}

/// Compiles a C program against header and library.
pub fn compile(source: &str, flags: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = library_directory();
    let name = Path::new(source).file_name().unwrap().display();
    let program =
        std::env::temp_dir().join(format!("commonhold-{name}-{}-{}", std::process::id(), flags.len()));
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-g"])
        .args(flags)
        .arg("-I")
        .arg(root.join("../../include"))
        .arg(root.join("tests/c").join(source))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&library)
        .arg("-lcommonhold")
        .arg(format!("-Wl,-rpath,{}", library.display()))
        .output()
        .expect("cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}
