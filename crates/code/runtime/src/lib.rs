//! What programs have in them that includes code images (docs/IMAGES.md): a part of every stub. It has no libc and no
//! data of its own, allocates nothing, and is at home in programs without libc, with a static and with a dynamic one.
//!
//! * [`commonhold_start`]: before `main`, for each image on the program's list.
//! * [`commonhold_first`]: an entry was called, and its image is not there yet.
//! * [`commonhold_by_name`]: `commonhold_image_include` of the C interface.
//!
//! It is linked into one piece without relocations (`crates/code/build.rs`), which the stub has as bytes.
#![no_std]

#[path = "../../src/format.rs"]
#[allow(dead_code)] // some of it is for those who make images
mod format;
mod include;
mod open;
mod records;
mod rights;
mod system;
mod taken;
mod why;
mod words;

use format::{NAME_BYTES, Record, text};
use records::{One, Records};
use why::{NOT_LINKED, Why};

/// Includes an image of the program's list, or ends the program.
///
/// # Safety
/// The stub's own record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn commonhold_start(record: *const Record) {
    // SAFETY: the caller's promise.
    let record = unsafe { One::new(record) };
    if let Err(why) = record.include(None) {
        give_up(&why);
    }
}

/// Includes the image of that name, if the program has a stub of it. 0, or a number that says what is in the way.
///
/// # Safety
/// A string, and the section of records.
unsafe extern "C" fn by_name(name: *const u8, first: *const u8, end: *const u8) -> i32 {
    let mut wanted = [0; NAME_BYTES];
    for (at, place) in wanted.iter_mut().enumerate() {
        // SAFETY: the string goes on until a zero.
        *place = unsafe { name.add(at).read() };
        if *place == 0 {
            break;
        }
    }
    if wanted[NAME_BYTES - 1] != 0 {
        return NOT_LINKED;
    }
    // SAFETY: the caller's promise.
    match unsafe { Records::new(first, end) }.find(&wanted) {
        None => NOT_LINKED,
        Some(record) => record.include(None).err().map_or(0, |why| why.code),
    }
}

/// [`by_name`], wherever the stack is: a program's own first function may be compiled as if it were called.
///
/// # Safety
/// As that.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn commonhold_by_name(name: *const u8, first: *const u8, end: *const u8) -> i32 {
    core::arch::naked_asm!(
        "push rbp", "mov rbp, rsp", "and rsp, -16", "call {by_name}", "leave", "ret",
        by_name = sym by_name,
    )
}

/// What a number says, for people.
#[unsafe(no_mangle)]
pub extern "C" fn commonhold_text(code: i32) -> *const u8 {
    if code == 0 { c"included".as_ptr().cast() } else { why::text(code).as_ptr().cast() }
}

/// A function was called and its image is not there. On the stack: the slot's address, then the caller's. All registers
/// in which arguments may be are kept; r11 has the stub's own record, rax and r10 belong to the call.
///
/// # Safety
/// As stubs go here.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn commonhold_first() {
    core::arch::naked_asm!(
        // A program's own first function may call with the stack anywhere.
        "push rbp", "mov rbp, rsp",
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax", "push r10",
        "sub rsp, 128", "and rsp, -16",
        "movaps [rsp], xmm0", "movaps [rsp + 16], xmm1", "movaps [rsp + 32], xmm2", "movaps [rsp + 48], xmm3",
        "movaps [rsp + 64], xmm4", "movaps [rsp + 80], xmm5", "movaps [rsp + 96], xmm6", "movaps [rsp + 112], xmm7",
        "mov rdi, r11",
        "call {start}",
        "movaps xmm0, [rsp]", "movaps xmm1, [rsp + 16]", "movaps xmm2, [rsp + 32]", "movaps xmm3, [rsp + 48]",
        "movaps xmm4, [rsp + 64]", "movaps xmm5, [rsp + 80]", "movaps xmm6, [rsp + 96]", "movaps xmm7, [rsp + 112]",
        "lea rsp, [rbp - 64]",
        "pop r10", "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi", "pop rbp",
        "pop r11",
        "jmp [r11]",
        start = sym commonhold_start,
    )
}

fn give_up(why: &Why) -> ! {
    let mut line = words::Text::<600>::new();
    for part in [&b"commonhold: the image "[..], text(&why.name), b": ", why::text(why.code).to_bytes()] {
        line.append(part);
    }
    if matches!(why.code, why::TAKEN | why::GROUP) {
        taken::say_what_is_there(&mut line, why.first, why.end);
    }
    line.push(b'\n');
    system::say(line.get());
    system::exit(127)
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    system::exit(127)
}
