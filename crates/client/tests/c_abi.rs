//! The C ABI: the header against the Rust side, and a C program under AddressSanitizer.

#[path = "common/c.rs"]
mod c;
mod common;

use c::{compile, library_directory};
use common::real::RealHost;
use common::{Do, FakeHost};
use commonhold::Host;
use commonhold::c_api::{ch_field, ch_info, ch_message, ch_options, ch_pager, ch_place, ch_region, ch_type};
use commonhold_object::PageState;
use commonhold_object::wire::Request;
use std::fmt::Write;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

macro_rules! describe {
    ($out:expr, $type:ident: $($field:ident)*) => {
        writeln!($out, concat!("sizeof ", stringify!($type), " {}"), size_of::<$type>()).unwrap();
        $({
            fn size<T, F>(_: impl Fn(&T) -> &F) -> usize {
                size_of::<F>()
            }
            let bytes = size(|whole: &$type| &whole.$field);
            let at = offset_of!($type, $field);
            let name = stringify!($field).trim_start_matches("r#");
            writeln!($out, "{}.{name} {at} {bytes}", stringify!($type)).unwrap();
        })*
    };
}

#[test]
fn the_header_says_what_the_library_does() {
    let mut expected = String::new();
    describe!(expected, ch_options: struct_bytes size_bytes budget_bytes pager_name description pager sync on_last_death
        reserve controlled freezable fault_deadline_ms pager_deadline_ms mode coherence page_size_bytes
        replicas home_moves translation fixed room_bytes ephemeral linger_ms);
    describe!(expected, ch_info: struct_bytes id size_bytes resident_bytes dirty_bytes spilled_bytes budget_bytes
        mappings opens is_directory pager sync on_last_death controlled freezable uid gid mode unused name description
        file_path warning home lost_pages reverted_pages loss_generation is_elsewhere translation
        page_tables address room_bytes);
    describe!(expected, ch_message: struct_bytes length landing landed_bytes kind unused object);
    describe!(expected, ch_place: address length generation);
    describe!(expected, ch_region: address length protection sharing object offset);
    describe!(expected, ch_pager: struct_bytes page_in page_out user);
    describe!(expected, ch_type: name kind bytes alignment of fields field_count);
    describe!(expected, ch_field: name offset r#type count);
    let version = env!("CARGO_PKG_VERSION");
    writeln!(expected, "version {version} {version} 1 {version}").unwrap();
    let states = [PageState::Invalid, PageState::Absent, PageState::Clean, PageState::Dirty, PageState::Lost];
    let states: Vec<String> = states.iter().map(|state| state.encode(false).to_string()).collect();
    writeln!(expected, "states {} {}", states.join(" "), PageState::Invalid.encode(true)).unwrap();
    writeln!(expected, "defaults equal 1").unwrap();
    let program = compile("layout.c", &["-std=c11"]);
    let output = Command::new(&program).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    std::fs::remove_file(program).unwrap();
}

#[test]
fn every_function_of_the_header_is_in_the_library() {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let read = |name: &str| std::fs::read_to_string(include.join(name)).unwrap();
    let header = ["commonhold.h", "commonhold_sync.h", "commonhold_heap.h"].map(read).concat();
    let library = library_directory().join("libcommonhold.so");
    let symbols = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().expect("nm").stdout;
    let symbols = String::from_utf8(symbols).unwrap();
    let exported: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .filter(|name| name.starts_with("ch_"))
        .collect();
    let code: Vec<&str> = header.lines().filter(|line| !line.starts_with([' ', '#', '/', '}'])).collect();
    let declared: Vec<&str> = code
        .iter()
        .filter(|line| !line.starts_with("typedef") && !line.starts_with("static"))
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("ch_"))
        .collect();
    assert!(declared.len() > 25, "{declared:?}");
    for name in &declared {
        assert!(exported.contains(name), "{name} is declared and not exported");
    }
    for name in &exported {
        assert!(declared.contains(name), "{name} is exported and not declared");
    }
}

#[test]
fn the_header_is_c_plus_plus_too() {
    let program = compile("layout.c", &["-x", "c++", "-std=c++11", "-fsyntax-only"]);
    assert!(!program.exists(), "only the syntax was checked");
}

#[test]
fn a_c_program_works_under_address_sanitizer() {
    let fake = FakeHost::start();
    let program = compile("roundtrip.c", &["-std=c11", "-fsanitize=address", "-fno-omit-frame-pointer"]);
    let output =
        Command::new(&program).arg("plain").env("COMMONHOLD_HOST", &fake.directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{said}");
    std::fs::remove_file(program).unwrap();
}

#[test]
fn a_cancelled_thread_ends_after_its_call() {
    let fake = FakeHost::start();
    Host::connect_to(&fake.directory).unwrap().create("/a", &common::plain(4096), None).unwrap();
    let mut refusals = 3;
    fake.rule(move |_, request| match request {
        Request::Hello { .. } if refusals > 0 => {
            refusals -= 1;
            Do::HangUp
        }
        _ => Do::Usual,
    });
    let program = compile("cancel.c", &["-std=c11", "-pthread"]);
    let output = Command::new(&program).env("COMMONHOLD_HOST", &fake.directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{said}");
    std::fs::remove_file(program).unwrap();
}

#[test]
fn a_library_that_was_unloaded_goes_on() {
    let fake = FakeHost::start();
    let program = compile("loaded.c", &["-std=c11", "-D_GNU_SOURCE", "-Wl,--as-needed"]);
    let library = library_directory().join("libcommonhold.so");
    let output =
        Command::new(&program).arg(library).env("COMMONHOLD_HOST", &fake.directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{said}");
    assert_eq!(
        fake.count(|r| matches!(r, Request::Unmap { .. })),
        2,
        "at exit; the child's end was not orderly"
    );
    std::fs::remove_file(program).unwrap();
}

#[test]
fn a_c_program_works_with_a_real_host() {
    let Some(host) = RealHost::start() else { return };
    let program = compile("roundtrip.c", &["-std=c11", "-fsanitize=address", "-O1"]);
    let file = program.with_extension("bin");
    let mut command = Command::new(&program);
    let output = command.arg("full").arg(&file).env("COMMONHOLD_HOST", &host.directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{said}", output.status);
    std::fs::remove_file(program).unwrap();
    std::fs::remove_file(file).unwrap();
}

#[test]
fn channels_work_in_c() {
    let Some(host) = RealHost::start() else { return };
    drop(host.file("samples"));
    let program = compile("channels.c", &["-std=c11", "-D_GNU_SOURCE", "-fsanitize=address", "-O1"]);
    let mut command = Command::new(&program);
    let output = command.arg(host.directory.join("samples")).env("COMMONHOLD_HOST", &host.directory).output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{said}");
    std::fs::remove_file(program).unwrap();
}

#[test]
fn locks_by_name_work_in_c_and_in_a_program_of_pthreads() {
    let Some(host) = RealHost::start() else { return };
    let program = compile("sync.c", &["-std=c11", "-D_GNU_SOURCE", "-fsanitize=address", "-O1", "-pthread"]);
    let output = Command::new(&program).env("COMMONHOLD_HOST", &host.directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{said}");
    std::fs::remove_file(program).unwrap();
}

#[test]
fn watches_work_in_c() {
    let Some(host) = RealHost::start() else { return };
    let program = compile("watches.c", &["-std=c11", "-D_GNU_SOURCE", "-fsanitize=address", "-O1"]);
    let output = Command::new(&program).env("COMMONHOLD_HOST", &host.directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{said}");
    std::fs::remove_file(program).unwrap();
}

#[test]
fn a_heap_works_in_c() {
    let Some(host) = RealHost::start() else { return };
    let program = compile("heap.c", &["-std=c11", "-D_GNU_SOURCE", "-fsanitize=address", "-O1"]);
    let output = Command::new(&program).env("COMMONHOLD_HOST", &host.directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{said}", output.status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{said}");
    std::fs::remove_file(program).unwrap();
}

#[test]
fn the_example_of_an_audio_callback_plays_every_block() {
    let Some(host) = RealHost::start() else { return };
    let program = compile(
        "../../../../examples/audio.c",
        &["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wl,--no-as-needed", "-lm"],
    );
    let output = Command::new(&program).arg("2").env("COMMONHOLD_HOST", &host.directory).output().unwrap();
    let (told, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.starts_with("1501 of 1501 blocks played"), "{told}{said}");
    std::fs::remove_file(program).unwrap();
}

#[test]
fn the_example_of_a_control_loop_has_no_fault() {
    let Some(host) = RealHost::start() else { return };
    let program = compile("../../../../examples/control.c", &["-std=c11", "-D_GNU_SOURCE", "-O2"]);
    let output = Command::new(&program).arg("1").env("COMMONHOLD_HOST", &host.directory).output().unwrap();
    let (told, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(told.starts_with("1000 steps") && told.ends_with(" 0 page faults\n"), "{told}{said}");
    assert!(output.status.success(), "{said}");
    std::fs::remove_file(program).unwrap();
}
