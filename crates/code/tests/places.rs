//! Images in stores and processes that are not as usual: full, read-only, noexec, another user's, setuid, with a sandbox,
//! with limits, with libraries put in front. Nothing is called that is not there, and one line says why.

mod common;
#[path = "../../../tests/left_out.rs"]
mod left_out;

use common::Place;
use commonhold_code::stub::When;
use commonhold_images::ranges::Owner;
use commonhold_images::store::Store;
use left_out::{left_out, not_installed};
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output};

const LIBRARY: &str = "static int n = 41; int next(void) { return ++n; }";
const CALLS: &str = "int next(void); int main(void) { return next(); }";
const NOBODY: u32 = 65_534;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// It ended with one line of its own that has these words.
fn refused(output: &Output, words: &str) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(127), "{said}");
    assert!(said.starts_with("commonhold: the image lib@1: ") && said.lines().count() == 1, "{said}");
    assert!(said.contains(words), "{words}: {said}");
}

/// Runs this in a name space where `mount` was done; nothing where the machine does not let that be done.
fn mounted(mount: &str, command: &str) -> Option<Output> {
    let inner = format!("{mount} && {command}");
    let output =
        Command::new("unshare").args(["-m", "--map-root-user", "--user", "sh", "-c", &inner]).output();
    let output = output.unwrap();
    if said(&output).contains("Operation not permitted") && said(&output).contains("unshare") {
        left_out("a store on a file system of its own (no mounts in a name space here)");
        return None;
    }
    Some(output)
}

/// A test of this file that is only run by another, in a command for a shell.
fn this_test(name: &str, store: &Path) -> String {
    let own = std::env::current_exe().unwrap();
    format!(
        "CODE_TEST_STORE={} exec {} --exact {name} --ignored --nocapture --test-threads=1",
        store.display(),
        own.display()
    )
}

fn given_store() -> Store {
    Store::at(Path::new(&std::env::var_os("CODE_TEST_STORE").unwrap()), Owner::Machine)
}

#[test]
fn a_store_that_is_read_only_serves_and_takes_nothing() {
    let place = Place::new();
    place.image("lib", "1.0.0", LIBRARY);
    let program = place.program("calls", CALLS, &[&place.stub("lib@1", When::First)]);
    let root = place.store.root().display();
    let mount = format!("mount --bind {root} {root} && mount -o remount,bind,ro {root}");
    let Some(output) = mounted(&mount, &format!("exec {}", program.display())) else { return };
    assert_eq!(output.status.code(), Some(42), "{}", said(&output));
    let output =
        mounted(&mount, &this_test("builds_in_a_store_that_takes_nothing", place.store.root())).unwrap();
    assert!(output.status.success() && said(&output).contains("1 passed"), "{}", said(&output));
}

#[test]
#[ignore = "is run by another"]
fn builds_in_a_store_that_takes_nothing() {
    let place = Place::new();
    let library = place.library("more", LIBRARY, &[]);
    let error = commonhold_code::build(&place.wanted(&library, "more", "1.0.0"), &given_store()).unwrap_err();
    assert!(error.to_string().to_lowercase().contains("read-only file system"), "{error}");
}

#[test]
fn a_full_store_keeps_what_it_had_and_programs_go_on() {
    let folder = tempfile::TempDir::new().unwrap();
    let mount = format!("mount -t tmpfs -o size=3m,mode=755 none {}", folder.path().display());
    let Some(output) = mounted(&mount, &this_test("fills_the_store", &folder.path().join("store"))) else {
        return;
    };
    assert!(output.status.success() && said(&output).contains("1 passed"), "{}", said(&output));
}

#[test]
#[ignore = "is run by another"]
fn fills_the_store() {
    let mut place = Place::new();
    place.store = given_store();
    place.store.create().unwrap();
    place.image("lib", "1.0.0", LIBRARY);
    let program = place.program("calls", CALLS, &[&place.stub("lib@1", When::First)]);
    let large = "int next(void) { return 0; } const char large[4 << 20] = { 1 };\n\
        const char *all(void) { return large; }";
    let library = place.library("large", large, &[]);
    for name in ["lib", "large"] {
        let error = place.build(&place.wanted(&library, name, "1.1.0")).unwrap_err().to_string();
        assert!(error.contains("No space left"), "{error}");
    }
    assert_eq!(place.store.names().unwrap(), ["lib"]);
    assert_eq!(place.store.versions("lib").unwrap().len(), 1);
    assert_eq!(std::fs::read_dir(place.store.root().join("content")).unwrap().count(), 1);
    assert_eq!(place.try_run(&program).status.code(), Some(42));
}

#[test]
fn a_store_that_is_mounted_noexec_is_told() {
    let place = Place::new();
    place.image("lib", "1.0.0", LIBRARY);
    let program = place.program("calls", CALLS, &[&place.stub("lib@1", When::First)]);
    let root = place.store.root().display();
    let mount = format!("mount --bind {root} {root} && mount -o remount,bind,noexec {root}");
    let Some(output) = mounted(&mount, &format!("exec {}", program.display())) else { return };
    refused(&output, "noexec");
}

#[test]
fn what_another_user_could_have_put_into_a_shared_store_is_not_used() {
    let place = Place::new();
    let published = place.image("lib", "1.0.0", LIBRARY);
    let program = place.program("calls", CALLS, &[&place.stub("lib@1", When::First)]);
    let link = place.store.newest_link("lib", 1);
    let hash = "0".repeat(64);
    let hostile = place.store.root().join("content").join(&hash);
    let put = |mode| {
        let _ = std::fs::remove_file(&hostile);
        std::fs::copy(&published.path, &hostile).unwrap();
        std::fs::set_permissions(&hostile, Permissions::from_mode(mode)).unwrap();
    };
    std::fs::remove_file(&link).unwrap();
    symlink(format!("../../content/{hash}"), &link).unwrap();
    put(0o444);
    assert_eq!(place.try_run(&program).status.code(), Some(42));
    for mode in [0o464, 0o446, 0o466] {
        put(mode);
        refused(&place.try_run(&program), "others may write it");
    }
    // A pipe is not waited for.
    std::fs::remove_file(&hostile).unwrap();
    assert!(Command::new("mkfifo").arg(&hostile).status().unwrap().success());
    refused(&place.try_run(&program), "damaged");
    put(0o444);
    if chown(&hostile, Some(NOBODY), None).is_err() {
        return left_out("a file of another user (needs root)");
    }
    refused(&place.try_run(&program), "belongs to another user");
}

#[test]
fn a_link_that_leads_anywhere_but_to_content_is_not_followed() {
    let place = Place::new();
    let published = place.image("lib", "1.0.0", LIBRARY);
    let program = place.program("calls", CALLS, &[&place.stub("lib@1", When::First)]);
    let link = place.store.newest_link("lib", 1);
    let hash = published.id.to_string();
    let elsewhere = place.path("elsewhere");
    std::fs::copy(&published.path, &elsewhere).unwrap();
    std::fs::set_permissions(&elsewhere, Permissions::from_mode(0o444)).unwrap();
    let lead = |target: &str| {
        std::fs::remove_file(&link).unwrap();
        symlink(target, &link).unwrap();
        place.try_run(&program)
    };
    // The very image, or a file that nobody else could have written, but by another way.
    for target in [
        elsewhere.to_str().unwrap().to_owned(),
        "../../../elsewhere".to_owned(),
        published.path.to_str().unwrap().to_owned(),
        format!("../../content/./{hash}"),
        format!("../../content/{hash}/"),
        format!("../../content/{}", &hash[..63]),
        format!("../../content/{hash}0"),
        format!("../../nontent/{hash}"),
        "1.0.0".to_owned(),
    ] {
        refused(&lead(&target), "a link leads elsewhere");
    }
    // The content is a link itself.
    let also = place.store.root().join("content").join("0".repeat(64));
    symlink(&elsewhere, also).unwrap();
    refused(&lead(&format!("../../content/{}", "0".repeat(64))), "a link leads elsewhere");
    assert_eq!(lead(&format!("../../content/{hash}")).status.code(), Some(42));
    // No link at all.
    std::fs::remove_file(&link).unwrap();
    std::fs::copy(&published.path, &link).unwrap();
    refused(&place.try_run(&program), "a link leads elsewhere");
}

#[test]
fn a_store_with_a_directory_that_others_could_have_changed_is_not_used() {
    let place = Place::new();
    place.image("lib", "1.0.0", LIBRARY);
    let program = place.program("calls", CALLS, &[&place.stub("lib@1", When::First)]);
    let root = place.store.root().to_owned();
    for directory in [root.clone(), root.join("names"), root.join("names/lib"), root.join("content")] {
        for mode in [0o775, 0o757, 0o1777] {
            std::fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
            refused(&place.try_run(&program), "others may write it");
        }
        std::fs::set_permissions(&directory, Permissions::from_mode(0o711)).unwrap();
        assert_eq!(place.try_run(&program).status.code(), Some(42), "{directory:?}");
        if directory != root {
            // A link in its place, to the very same.
            let aside = place.path("aside");
            std::fs::rename(&directory, &aside).unwrap();
            symlink(&aside, &directory).unwrap();
            refused(&place.try_run(&program), "a link leads elsewhere");
            std::fs::remove_file(&directory).unwrap();
            std::fs::rename(&aside, &directory).unwrap();
        }
        if chown(&directory, Some(NOBODY), None).is_err() {
            left_out("a directory of another user (needs root)");
            continue;
        }
        refused(&place.try_run(&program), "belongs to another user");
        chown(&directory, Some(0), None).unwrap();
    }
}

#[test]
fn a_program_with_foreign_rights_has_images_of_root_alone() {
    let place = Place::new();
    let published = place.image("lib", "1.0.0", LIBRARY);
    let program = place.program("calls", CALLS, &[&place.stub("lib@1", When::First)]);
    let folder = program.parent().unwrap();
    std::fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    if chown(&published.path, Some(NOBODY), Some(NOBODY)).is_err() {
        return left_out("images of other users for programs with foreign rights (needs root)");
    }
    let by = |user: u32| Command::new(&program).uid(user).gid(user).output().unwrap();
    assert_eq!(by(NOBODY).status.code(), Some(42), "{}", said(&by(NOBODY)));
    let rights = |owner: u32, group: u32, mode: u32| {
        chown(&program, Some(owner), Some(group)).unwrap();
        std::fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
    };
    // Root's, that user's own and one of a group: what the user could have written is not used by any of them.
    for (owner, group, mode, user) in
        [(0, 0, 0o4755, NOBODY), (NOBODY, 0, 0o4755, 1234), (0, 0, 0o2755, NOBODY)]
    {
        rights(owner, group, mode);
        refused(&by(user), "root's for setuid programs");
    }
    chown(&published.path, Some(0), Some(0)).unwrap();
    for (owner, mode) in [(0, 0o4755), (0, 0o2755), (NOBODY, 0o4755)] {
        rights(owner, 0, mode);
        assert_eq!(by(1234).status.code(), Some(42), "{mode:o}: {}", said(&by(1234)));
    }
}

#[test]
fn a_limit_on_addresses_is_told() {
    let place = Place::new();
    place.image("lib", "1.0.0", "char room[64 << 20]; int next(void) { return 42 + room[12345]; }");
    let program = place.program("calls", CALLS, &[&place.stub("lib@1", When::First), "-static"]);
    assert_eq!(place.try_run(&program).status.code(), Some(42));
    let limited = |kib: u32| {
        let script = format!("ulimit -v {kib}; exec {}", program.display());
        Command::new("sh").args(["-c", &script]).output().unwrap()
    };
    refused(&limited(60_000), "ulimit -v");
    assert_eq!(limited(200_000).status.code(), Some(42));
}

/// A filter that answers a system call like this instead of the kernel, before the image is included.
fn sandboxed(place: &Place, stub: &str, call: &str, executable_only: bool, answer: &str) -> Output {
    let only = if executable_only {
        "BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),\n\
         BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),"
    } else {
        ""
    };
    let skipped = if executable_only { 3 } else { 1 };
    let text = format!(
        "#include <errno.h>\n#include <linux/filter.h>\n#include <linux/seccomp.h>\n#include <stddef.h>\n\
         #include <sys/mman.h>\n#include <sys/prctl.h>\n#include <sys/syscall.h>\nint next(void);\n\
         int main(void) {{ struct sock_filter filter[] = {{\n\
         BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),\n\
         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, {call}, 0, {skipped}),\n{only}\n\
         BPF_STMT(BPF_RET | BPF_K, {answer}), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) }};\n\
         struct sock_fprog program = {{ sizeof filter / sizeof *filter, filter }};\n\
         if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 9;\n\
         return next(); }}"
    );
    place.try_run(&place.program("sandboxed", &text, &[stub]))
}

#[test]
fn a_sandbox_that_refuses_is_told() {
    let place = Place::new();
    place.image("lib", "1.0.0", LIBRARY);
    let stub = place.stub("lib@1", When::First);
    let run = |call: &str, only, answer: &str| sandboxed(&place, &stub, call, only, answer);
    if run("__NR_getppid", false, "SECCOMP_RET_ERRNO | EPERM").status.code() == Some(9) {
        return left_out("a sandbox that refuses calls to the kernel (no seccomp filters here)");
    }
    assert_eq!(run("__NR_getppid", false, "SECCOMP_RET_ERRNO | EPERM").status.code(), Some(42));
    for error in ["EPERM", "EACCES", "ENOSYS"] {
        let answer = format!("SECCOMP_RET_ERRNO | {error}");
        refused(&run("__NR_mmap", true, &answer), "sandbox");
        refused(&run("__NR_openat", false, &answer), "cannot be opened: make the store readable");
        refused(&run("__NR_fstat", false, &answer), "sandbox");
    }
    // The kernel ends it: nothing is left that could say more than its own signal.
    let output = run("__NR_mmap", true, "SECCOMP_RET_KILL_PROCESS");
    assert_eq!(output.status.signal(), Some(31), "{}", said(&output));
}

#[test]
fn sanitizers_work_or_it_is_said_which_addresses_clash() {
    let place = Place::new();
    place.image("lib", "1.0.0", LIBRARY);
    let base = place.find("lib@1").header.base;
    let stub = place.stub("lib@1", When::First);
    let has = |sanitizer: &str| {
        let source = place.write("empty.c", "int main(void) { return 0; }");
        let out = place.path("empty");
        let output = Command::new("gcc").arg(sanitizer).arg("-o").arg(out).arg(source).output().unwrap();
        if !output.status.success() {
            not_installed("a compiler with its sanitizers (gcc)", sanitizer);
        }
        output.status.success()
    };
    if has("-fsanitize=address") {
        let program = place.program("address", CALLS, &[&stub, "-fsanitize=address,undefined"]);
        let output = Command::new(&program).env("ASAN_OPTIONS", "detect_leaks=0").output().unwrap();
        assert_eq!(output.status.code(), Some(42), "{}", said(&output));
    }
    if has("-fsanitize=thread") {
        let program = place.program("thread", CALLS, &[&stub, "-fsanitize=thread"]);
        let output = place.try_run(&program);
        if said(&output).contains("FATAL: ThreadSanitizer") {
            return left_out(&format!(
                "images under ThreadSanitizer (it does not start: {})",
                said(&output).trim()
            ));
        }
        refused(&output, &format!("ThreadSanitizer has them all); it wants {base:#x} to 0x"));
        assert!(said(&output).contains(", and 0x"), "{}", said(&output));
    }
}

#[test]
fn libraries_that_are_put_in_front_are_as_with_any_program() {
    let place = Place::new();
    let library =
        place.library("lib", "int getppid(void); int next(void) { return getppid() == 4711; }", &[]);
    let mut wanted = place.wanted(&library, "lib", "1.0.0");
    wanted.table = ["getppid".to_owned()].into();
    place.build(&wanted).unwrap();
    let base = place.find("lib@1").header.base;
    let before = "int getppid(void) { return 4711; } int next(void) { return 7; }";
    let before = place.library("before", before, &[]);
    let audit = "unsigned la_version(unsigned version) { return version; }";
    let audit = place.library("audit", audit, &[]);
    let takes = format!(
        "#include <sys/mman.h>\n__attribute__((constructor)) static void take(void) {{\n\
         mmap((void *){base:#x}, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0); }}"
    );
    let takes = place.library("takes", &takes, &[]);
    for when in [When::Start, When::First] {
        let program = place.program("calls", CALLS, &[&place.stub("lib@1", when)]);
        let with = |name: &str, library: &Path| Command::new(&program).env(name, library).output().unwrap();
        assert_eq!(place.try_run(&program).status.code(), Some(0));
        // What the program hands over is what the loader gives it; the image's functions are the program's own.
        assert_eq!(with("LD_PRELOAD", &before).status.code(), Some(1), "{when:?}");
        assert_eq!(with("LD_AUDIT", &audit).status.code(), Some(0), "{when:?}");
        refused(&with("LD_PRELOAD", &takes), &format!("{base:#x} to {:#x} is memory", base + 4096));
    }
}
