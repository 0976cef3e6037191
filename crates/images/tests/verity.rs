//! A store on a file system with fs-verity, which is made for it where kernel and rights allow: the kernel itself keeps
//! images as they were published.

mod common;

use common::left_out::{left_out, not_installed};
use common::{Made, Place};
use commonhold_images::include::include_from;
use commonhold_images::ranges::Owner;
use commonhold_images::store::Store;
use commonhold_images::{Error, verity};
use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

#[test]
fn where_the_file_system_has_fs_verity_images_are_sealed() {
    let folder = tempfile::TempDir::new().unwrap();
    let disk = folder.path().join("disk");
    File::create(&disk).unwrap().set_len(64 << 20).unwrap();
    let make = Command::new("mkfs.ext4").args(["-q", "-b", "4096", "-O", "verity"]).arg(&disk).output();
    if !make.is_ok_and(|made| made.status.success()) {
        return not_installed("e2fsprogs", "a file system with fs-verity");
    }
    let mount = folder.path().join("mount");
    std::fs::create_dir(&mount).unwrap();
    let script = "mount -o loop \"$DISK\" \"$MOUNT\" || exit 77\n\
        exec \"$0\" --exact publishes_on_what_is_mounted --nocapture --ignored --test-threads=1";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).arg(std::env::current_exe().unwrap());
    let output = command.env("DISK", &disk).env("MOUNT", &mount).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(77) || why.contains("unshare") {
        return left_out(&format!("a file system with fs-verity (nothing may be mounted: {})", why.trim()));
    }
    assert!(output.status.success(), "{said}{why}");
}

#[test]
#[ignore = "is run by another"]
fn publishes_on_what_is_mounted() {
    let mount = PathBuf::from(std::env::var("MOUNT").unwrap());
    if let Err(error) = verity::probe(&mount) {
        let without = [libc::EOPNOTSUPP, libc::ENOTTY];
        assert!(error.raw_os_error().is_some_and(|code| without.contains(&code)), "{error}");
        return left_out("images sealed by fs-verity (this kernel has none: CONFIG_FS_VERITY)");
    }
    let store = Store::at(&mount.join("store"), Owner::Machine);
    store.create().unwrap();
    let place = Place::of(store.clone());
    let made = Made { fill: 0xa7, ..Made::data("words", "1.0.0") };
    let published = place.publish(&made).unwrap();
    assert!(published.has_verity && store.open(published.id).unwrap().has_verity());
    assert!(verity::is_sealed(File::open(&published.path).unwrap()));
    // Not even its owner changes it.
    let changed = File::options().write(true).open(&published.path).unwrap_err();
    assert_eq!(changed.raw_os_error(), Some(libc::EPERM));
    // It serves like any other.
    let image = include_from(std::slice::from_ref(&store), "words@1", false).unwrap();
    // SAFETY: the second page of an image that is included for good.
    assert_eq!(unsafe { *((image.base() + 4096) as *const u8) }, 0xa7);
    assert!(store.verify().unwrap().0.is_empty());
    assert!(!place.publish(&made).unwrap().is_new, "again is once");
    assert!(matches!(store.remove("words@1.0.0"), Err(Error::InUse { .. })));
    place.publish(&Made::data("other", "1.0.0")).unwrap();
    store.remove("other@1.0.0").unwrap();
}
