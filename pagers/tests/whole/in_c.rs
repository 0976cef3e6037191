//! The pager written in C, compiled here.

use crate::harness::{PAGE, Process, TestHost, content};
use commonhold::{CreateOptions, SyncMode};
use std::path::Path;
use std::process::Command;

#[test]
fn a_pager_in_c_keeps_pages() {
    let host = TestHost::start();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Cargo puts the library beside the tests.
    let own = std::env::current_exe().unwrap();
    let library = own.parent().unwrap();
    assert!(library.join("libcommonhold.so").exists());
    let program = host.file("ram_pager");
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-I"]).arg(root.join("../include"));
    cc.arg(root.join("c/ram_pager.c")).arg("-o").arg(&program).arg("-L").arg(library).arg("-lcommonhold");
    let output = cc.arg(format!("-Wl,-rpath,{}", library.display())).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let size = 64 * PAGE;
    let mut command = Command::new(&program);
    command.args(["/pagers/ram", &size.to_string()]).env("COMMONHOLD_HOST", host.state());
    let _pager = Process::start(&mut command);
    let options =
        CreateOptions { sync: SyncMode::Ordered, budget_bytes: Some(1 << 20), ..CreateOptions::default() };
    let object = host.create("/lab/x", "/pagers/ram", size as u64, options);
    object.write_at(&content(size, 1), 0).unwrap();
    assert_eq!(object.sync(0, size as u64).unwrap(), 64);
    drop(object);
    // Another host process asks the same pager, and finds what was stored.
    host.kill_host();
    host.connect().remove("/lab/x").unwrap();
    let object = host.create("/lab/x", "/pagers/ram", size as u64, CreateOptions::default());
    let mut found = vec![0; size];
    object.read_at(&mut found, 0).unwrap();
    assert!(found == content(size, 1));
}
