//! What a process takes from its start to its end: processor time as the kernel says it when it is reaped.

use crate::failure::{Result, failed};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A program with its arguments, ready to be started often.
pub struct Start {
    strings: Vec<CString>,
    directory: CString,
}

fn text(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).or_else(|_| failed("a path with a zero in it"))
}

impl Start {
    /// The program in `directory`, by its whole path, with these arguments.
    pub fn new(directory: &Path, program: &Path, arguments: &[String]) -> Result<Start> {
        let mut strings = vec![text(program.as_os_str().as_bytes())?];
        for argument in arguments {
            strings.push(text(argument.as_bytes())?);
        }
        Ok(Start { strings, directory: text(directory.as_os_str().as_bytes())? })
    }

    /// Starts it, waits for its end, and gives the seconds of processor time that it took: of its own and in the
    /// kernel. It must end well.
    pub fn once(&self) -> Result<f64> {
        let mut arguments: Vec<*mut libc::c_char> =
            self.strings.iter().map(|text| text.as_ptr().cast_mut()).collect();
        arguments.push(std::ptr::null_mut());
        let variable = c"LC_ALL=C";
        let variables = [variable.as_ptr().cast_mut(), std::ptr::null_mut()];
        let mut pid = 0;
        // SAFETY: zeroed is what the calls that initialise expect.
        let (mut actions, mut usage): (libc::posix_spawn_file_actions_t, libc::rusage) =
            unsafe { std::mem::zeroed() };
        // SAFETY: an action list, made and given back here; strings that live; lists that end with null pointers.
        let error = unsafe {
            libc::posix_spawn_file_actions_init(&mut actions);
            libc::posix_spawn_file_actions_addchdir_np(&mut actions, self.directory.as_ptr());
            let error = libc::posix_spawn(
                &mut pid,
                self.strings[0].as_ptr(),
                &actions,
                std::ptr::null(),
                arguments.as_ptr(),
                variables.as_ptr(),
            );
            libc::posix_spawn_file_actions_destroy(&mut actions);
            error
        };
        if error != 0 {
            return failed(format!("{:?} does not start: error {error}", self.strings[0]));
        }
        let mut status = 0;
        // SAFETY: a child of this process, and places for what is said of it.
        let reaped = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
        if reaped != pid || status != 0 {
            return failed(format!("{:?} ended with status {status:#x}", self.strings[0]));
        }
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Ok(seconds(usage.ru_utime) + seconds(usage.ru_stime))
    }

    /// The mean of several starts, one right after the other.
    pub fn mean(&self, starts: usize) -> Result<f64> {
        let mut sum = 0.0;
        for _ in 0..starts {
            sum += self.once()?;
        }
        Ok(sum / starts as f64)
    }
}
