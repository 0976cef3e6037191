//! A store on a file system with fs-verity, which is made for it where kernel and rights allow: the kernel itself keeps
//! images as they were published.

mod common;

use common::left_out::{left_out, not_installed};
use common::{Made, Place};
use commonhold_images::include::include_from;
use commonhold_images::ranges::Owner;
use commonhold_images::store::Store;
use commonhold_images::{Error, verity};
use rustix::fs::Advice;
use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
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
    // Not even its owner changes it, who gives himself the right.
    std::fs::set_permissions(&published.path, PermissionsExt::from_mode(0o644)).unwrap();
    let changed = File::options().write(true).open(&published.path).unwrap_err();
    assert_eq!(changed.raw_os_error(), Some(libc::EPERM));
    std::fs::set_permissions(&published.path, PermissionsExt::from_mode(0o444)).unwrap();
    // It serves like any other.
    let image = include_from(std::slice::from_ref(&store), "words@1", false).unwrap();
    // SAFETY: the second page of an image that is included for good.
    assert_eq!(unsafe { *((image.base() + 4096) as *const u8) }, 0xa7);
    assert!(store.verify().unwrap().0.is_empty());
    assert!(!place.publish(&made).unwrap().is_new, "again is once");
    assert!(matches!(store.remove("words@1.0.0"), Err(Error::InUse { .. })));
    place.publish(&Made::data("other", "1.0.0")).unwrap();
    store.remove("other@1.0.0").unwrap();
    // Only who mounted it has what lies under it.
    if let Ok(disk) = std::env::var("DISK") {
        bytes_that_change_on_the_disk_are_not_given_out(&place, Path::new(&disk));
    }
}

fn bytes_that_change_on_the_disk_are_not_given_out(place: &Place, disk: &Path) {
    let made = Made { fill: 0x5c, ..Made::data("damaged", "1.0.0") };
    let published = place.publish(&made).unwrap();
    let disk = File::options().read(true).write(true).open(disk).unwrap();
    let is_its = |page: &u64| {
        let mut bytes = [0; 4096];
        disk.read_exact_at(&mut bytes, page * 4096).unwrap();
        bytes == [0x5c; 4096]
    };
    let pages: Vec<u64> = (0..disk.metadata().unwrap().len() / 4096).filter(is_its).collect();
    assert_eq!(pages.len(), 1, "{pages:?}");
    disk.write_all_at(b"changed", pages[0] * 4096 + 100).unwrap();
    let forget = |file: &File| rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
    forget(&File::open(&published.path).unwrap());
    let error = std::fs::read(&published.path).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    let (wrong, checked) = place.store.verify().unwrap();
    assert_eq!((wrong.len(), checked), (1, 2), "{wrong:?}");
    assert_eq!(wrong[0].0, "damaged@1.0.0");
    // What is published again takes its place.
    assert!(!place.publish(&made).unwrap().is_new);
    forget(&File::open(&published.path).unwrap());
    assert!(place.store.verify().unwrap().0.is_empty());
    assert!(place.store.open(published.id).unwrap().has_verity());
}
