//! `forker`: a program that has an object mapped, or none, and forks.

use crate::failure::{Result, failed};
use crate::view::View;
use crate::worker;
use commonhold::{Access, Host, Inherit, MapOptions};
use std::ffi::CString;
use std::path::Path;
use std::time::Instant;

/// Arguments: state directory; a name, or `-`; what a child has of it: `share`, `copy` or `none`;
/// the path of a program. It touches all of it, and answers a line each with the seconds that one
/// takes: `fork N` (fork, exit, wait), `exec N` (fork, exec of the program, exit, wait).
pub fn run(arguments: &[String]) -> Result<()> {
    let [state, name, inherit, program] = arguments else { return failed("forker takes four arguments") };
    let inherit = match inherit.as_str() {
        "share" => Inherit::Share,
        "copy" => Inherit::Copy,
        "none" => Inherit::None,
        other => return failed(format!("a child has {other} of it?")),
    };
    let program = CString::new(program.as_bytes())?;
    let mapping = match name.as_str() {
        "-" => None,
        name => {
            let object = Host::connect_to(Path::new(state))?.open(name, Access::ReadWrite)?;
            Some(object.map(&MapOptions { inherit, ..MapOptions::default() })?)
        }
    };
    if let Some(mapping) = &mapping {
        View::of(mapping).write_words(1);
    }
    worker::say("ready")?;
    for line in std::io::stdin().lines() {
        let line = line?;
        let (program, count) = match line.split(' ').collect::<Vec<_>>()[..] {
            ["fork", count] => (None, count),
            ["exec", count] => (Some(&program), count),
            _ => return failed(format!("forker does not know {line:?}")),
        };
        let count: u32 = count.parse()?;
        let begun = Instant::now();
        for _ in 0..count {
            fork(program)?;
        }
        worker::say(&(begun.elapsed().as_secs_f64() / f64::from(count)).to_string())?;
    }
    Ok(())
}

/// One child, which starts the program, or ends at once. It is waited for.
fn fork(program: Option<&CString>) -> Result<()> {
    let arguments = [program.map_or(std::ptr::null(), |program| program.as_ptr()), std::ptr::null()];
    let environment = [std::ptr::null()];
    // SAFETY: the library's handlers make the child whole; it allocates nothing, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = match program {
            // SAFETY: a path, and two lists that end with none; it returns only if it failed.
            Some(path) => unsafe {
                libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr());
                1
            },
            None => 0,
        };
        // SAFETY: nothing of the parent is to be ended in order.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for that child.
    let waited = child > 0 && unsafe { libc::waitpid(child, &raw mut status, 0) } == child;
    if waited && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
        return Ok(());
    }
    failed("a child did not end in order")
}
