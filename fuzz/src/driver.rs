//! Between libFuzzer and a format.

use crate::formats::Format;
use crate::memory;
use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{ExitCode, abort};
use std::sync::OnceLock;

// Links libFuzzer.
use libfuzzer_sys as _;

unsafe extern "C" {
    fn LLVMFuzzerRunDriver(
        count: *mut c_int,
        words: *mut *mut *mut c_char,
        one: extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

/// Longest time of one input, in s.
const HANG_S: u32 = 10;
/// Memory of the whole process, in MiB. What one input may take is far less (`memory`).
const MOST_MIB: u32 = 2048;

static FORMAT: OnceLock<&Format> = OnceLock::new();

thread_local! {
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Runs libFuzzer with these words, the first of which is this program. What libFuzzer starts anew
/// gets the same words.
pub fn run(format: &'static Format, words: &[String]) -> ExitCode {
    FORMAT.get_or_init(|| format);
    // A panic that the product itself catches is no failure, and is not told.
    std::panic::set_hook(Box::new(|panic| {
        memory::lift();
        SAID.set(format!("{panic}\n{}", Backtrace::capture()));
    }));
    // What parsers take and give back again stays with this process.
    // SAFETY: two numbers.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 30);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 1 << 30);
    }
    let ours = [
        format!("-max_len={}", format.longest),
        format!("-timeout={HANG_S}"),
        format!("-rss_limit_mb={MOST_MIB}"),
        "-print_final_stats=1".to_owned(),
    ];
    let (program, given) = words.split_at(2);
    let all = program.iter().chain(&ours).chain(given);
    let all: Vec<CString> = all.filter_map(|word| CString::new(word.as_str()).ok()).collect();
    let mut pointers: Vec<*mut c_char> = all.iter().map(|word| word.as_ptr().cast_mut()).collect();
    let mut count = pointers.len() as c_int;
    pointers.push(std::ptr::null_mut());
    let mut pointer = pointers.as_mut_ptr();
    // SAFETY: words of a program as `main` in C has them, which live until it returns.
    let code = unsafe { LLVMFuzzerRunDriver(&mut count, &mut pointer, one) };
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

extern "C" fn one(data: *const u8, length: usize) -> c_int {
    let bytes = if length == 0 {
        &[]
    } else {
        // SAFETY: libFuzzer's own bytes, which nobody changes meanwhile.
        unsafe { std::slice::from_raw_parts(data, length) }
    };
    let Some(format) = FORMAT.get() else { abort() };
    let limit = memory::limit(format.takes_mib, length);
    let outcome = catch_unwind(AssertUnwindSafe(|| (format.check)(bytes)));
    drop(limit);
    if outcome.is_err() {
        eprintln!("commonhold-fuzz: {}: {}", format.name, SAID.take());
        abort() // libFuzzer keeps the input
    }
    0
}
