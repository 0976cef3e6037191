//! What the loader itself says of a program: which files it loads, and which definition each reference finds. It is asked
//! to list and to relocate, not to run: no code of the program runs, but functions that choose among others (IFUNC).

use crate::{Error, Result};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A loader: `/lib64/ld-linux-x86-64.so.2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loader {
    /// Where it is.
    pub path: PathBuf,
}

/// One answer: a reference and the object that defines it. Objects by their place in [`Loaded::objects`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// Who refers.
    pub from: usize,
    /// Who defines.
    pub to: usize,
    /// What.
    pub name: Vec<u8>,
    /// Of which version.
    pub version: Option<Vec<u8>>,
}

/// What the loader said.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The files in the order in which names are searched, the program first; paths as the loader has them.
    pub objects: Vec<PathBuf>,
    /// By which name each was asked for; the program by none.
    pub names: Vec<Vec<u8>>,
    /// Where each was mapped that time; of the program it is not said.
    pub addresses: Vec<u64>,
    /// All answers.
    pub answers: HashSet<Answer>,
}

/// Makes the loader say what it loads, and run nothing.
const TO_LIST: &str = "LD_TRACE_LOADED_OBJECTS";
/// The value by which the audit library knows a trial; the loader takes any.
const TRIAL: &str = "commonhold";
/// The oldest glibc that puts a library at its address in every program, and asks an audit library before it relocates.
const OLDEST: (u32, u32) = (2, 36);

impl Loader {
    /// The one of x86-64 and glibc.
    pub const PATH: &str = "/lib64/ld-linux-x86-64.so.2";

    /// The machine's.
    pub fn of_machine() -> Loader {
        Loader { path: Loader::PATH.into() }
    }

    /// Says whether rebasing works with it; the version, or why not.
    pub fn check(&self) -> std::result::Result<String, String> {
        let needed = format!("glibc {}.{} or later on x86-64 is needed for rebasing", OLDEST.0, OLDEST.1);
        let output = Command::new(&self.path).arg("--version").env_clear().stdin(Stdio::null()).output();
        let output =
            output.map_err(|error| format!("{needed}, and {} does not run: {error}", self.path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().next().unwrap_or_default();
        let version = line.trim_end_matches('.').rsplit(' ').next().unwrap_or_default();
        let mut numbers = version.split('.').map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) if line.contains("stable release") => {
                if (major, minor) >= OLDEST {
                    Ok(version.to_owned())
                } else {
                    Err(format!("{needed}: here it is {version}"))
                }
            }
            _ => Err(format!(
                "{needed}, and what {} says of itself is not understood: {line}",
                self.path.display()
            )),
        }
    }

    /// The files that the loader would load for a program; nothing is relocated.
    pub fn list(&self, program: &Path) -> Result<Vec<PathBuf>> {
        let mut command = Command::new(&self.path);
        command.arg(program).env_clear().env(TO_LIST, "1").stdin(Stdio::null());
        Ok(self.said(program, command.output())?.objects)
    }

    /// What it said of the files; an error if it does not load the program.
    fn said(&self, program: &Path, output: std::io::Result<Output>) -> Result<Loaded> {
        let output = output.map_err(Error::file(&self.path))?;
        let wrong = |why: String| Error::program(program, why);
        let objects = vec![program.to_owned()];
        let mut loaded = Loaded { objects, names: vec![Vec::new()], addresses: vec![0], ..Loaded::default() };
        for line in output.stdout.split(|byte| *byte == b'\n') {
            loaded.add_object(line).map_err(wrong)?;
        }
        if output.status.success() {
            return Ok(loaded);
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        let said = if said.is_empty() { format!("it ends with {}", output.status) } else { said };
        Err(wrong(format!("its loader does not load it: {said}")))
    }

    /// Asks the loader what it does for a program that is started with these variables.
    pub fn ask(&self, program: &Path, variables: &[(&str, OsString)], scratch: &Path) -> Result<Loaded> {
        let mut command = Command::new(&self.path);
        command.arg(program).env_clear().envs(variables.iter().map(|(name, value)| (name, value)));
        self.told(program, command.env(TO_LIST, "1"), scratch)
    }

    /// The same of a program that is started itself, as its users do, but not to run: with its copies, if it has any.
    pub fn try_start(
        &self,
        program: &Path,
        variables: &[(&str, OsString)],
        scratch: &Path,
    ) -> Result<Loaded> {
        let mut command = Command::new(program);
        command.env_clear().envs(variables.iter().map(|(name, value)| (name, value)));
        self.told(program, command.env(TO_LIST, TRIAL), scratch)
    }

    fn told(&self, program: &Path, command: &mut Command, scratch: &Path) -> Result<Loaded> {
        let wrong = |why: String| Error::program(program, why);
        let told = scratch.join("bindings");
        let child = command
            // To list, and (by the next) to relocate too; never to run.
            .env("LD_WARN", "yes")
            .env("LD_BIND_NOW", "1")
            .env("LD_DEBUG", "bindings")
            .env("LD_DEBUG_OUTPUT", &told)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(Error::file(&self.path))?;
        let told = PathBuf::from(format!("{}.{}", told.display(), child.id()));
        let output = child.wait_with_output();
        let text = std::fs::read(&told).map_err(Error::file(&told));
        let _ = std::fs::remove_file(&told);
        let mut loaded = self.said(program, output)?;
        loaded.add_answers(&text?).map_err(wrong)?;
        Ok(loaded)
    }
}

fn trim(line: &[u8]) -> &[u8] {
    line.trim_ascii()
}

/// Splits at the first occurrence.
fn split<'a>(text: &'a [u8], at: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let place = text.windows(at.len()).position(|part| part == at)?;
    Some((&text[..place], &text[place + at.len()..]))
}

impl Loaded {
    /// `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f…)`, or a path alone, or `linux-vdso.so.1 (0x…)`.
    pub(crate) fn add_object(&mut self, line: &[u8]) -> std::result::Result<(), String> {
        let line = trim(line);
        let (name, path) = split(line, b" => ").unwrap_or((line, line));
        if path.starts_with(b"not found") {
            return Err(format!("{} is not found", String::from_utf8_lossy(name)));
        }
        // Without an address: `statically linked`, or a symbol that is missing.
        let Some(end) = path.windows(4).rposition(|part| part == b" (0x") else { return Ok(()) };
        let (path, address) = (&path[..end], &path[end + 4..]);
        if path.contains(&b'/') {
            let address = std::str::from_utf8(address).ok().and_then(|text| text.strip_suffix(')'));
            let address = address.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            self.addresses
                .push(address.ok_or_else(|| "its loader does not say where it puts files".to_owned())?);
            self.objects.push(OsStr::from_bytes(path).into());
            let name = if name == line { path } else { name };
            self.names.push(name.to_vec());
        }
        Ok(())
    }

    /// `17: binding file A [0] to B [0]: normal symbol `read' [GLIBC_2.2.5]`
    pub(crate) fn add_answers(&mut self, text: &[u8]) -> std::result::Result<(), String> {
        let places: HashMap<&[u8], usize> =
            self.objects.iter().map(|path| path.as_os_str().as_bytes()).zip(0..).collect();
        let place = |path: &[u8]| {
            let unknown = || format!("its loader speaks of {}", String::from_utf8_lossy(path));
            places.get(path).copied().ok_or_else(unknown)
        };
        for line in text.split(|byte| *byte == b'\n') {
            let Some((_, rest)) = split(line, b"binding file ") else { continue };
            if split(rest, b" [1] to ").is_some() {
                continue; // the audit library's own, in a name space apart
            }
            let parts = split(rest, b" [0] to ").and_then(|(from, rest)| {
                let (to, rest) = split(rest, b" [0]: ")?;
                let (_, rest) = split(rest, b" symbol `")?;
                let (name, rest) = split(rest, b"'")?;
                let version = split(rest, b" [").and_then(|(_, rest)| split(rest, b"]"));
                Some((from, to, name, version.map(|(version, _)| version.to_vec())))
            });
            let (from, to, name, version) =
                parts.ok_or_else(|| format!("its loader says: {}", String::from_utf8_lossy(line)))?;
            if from.starts_with(b"linux-vdso.so") {
                continue; // the kernel's, which the loader looks at for itself
            }
            let (from, to) = (place(from)?, place(to)?);
            self.answers.insert(Answer { from, to, name: name.to_vec(), version });
        }
        Ok(())
    }
}
