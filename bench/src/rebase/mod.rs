//! Real programs with the libraries that the machine has, and with copies of them.

pub mod memory;
pub mod trouble;

use crate::context::Context;
use crate::failure::{Failure, Result, failed};
use crate::measure::seconds;
use commonhold_rebase::build::build;
use commonhold_rebase::images::Owner;
use commonhold_rebase::store::{Set, Store};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program and what it is to do.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its path.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Whether it is to have a copy itself.
    pub moved: bool,
    /// Variables that it is always started with.
    pub variables: Vec<(&'static str, PathBuf)>,
}

impl Program {
    /// Ready to be started with its libraries as they are.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).env_remove("LD_AUDIT");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// The program of the first of these paths that is there.
pub fn find(paths: &[&str], arguments: &[&str]) -> Option<Program> {
    let path = paths.iter().map(Path::new).find(|path| path.exists())?;
    Some(Program {
        path: path.canonicalize().ok()?,
        arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
        moved: false,
        variables: Vec::new(),
    })
}

/// A program of Qt with something to do: it makes a picture of a page, without a screen. To a file, or to standard output.
pub fn qt(context: &Context, picture: &str) -> Option<Program> {
    let page = context.directory.join("picture.html");
    let text = "<h1>A page</h1><p>with <b>text</b></p><script>document.body.append(6 * 7)</script>";
    std::fs::write(&page, text).ok()?;
    let page = page.to_str()?.to_owned();
    let program = find(&["/usr/bin/wkhtmltoimage"], &["--quiet", "--format", "png", &page, picture])?;
    let place = context.directory.clone();
    Some(Program {
        variables: vec![("QT_QPA_PLATFORM", "offscreen".into()), ("XDG_RUNTIME_DIR", place)],
        ..program
    })
}

/// Python with numpy, where that is installed.
pub fn numpy(code: &str) -> Option<Program> {
    let program = find(&["/usr/bin/python3"], &["-I", "-c", code])?;
    let mut ask = Command::new(&program.path);
    ask.args(["-I", "-c", "import numpy"]).stdout(Stdio::null()).stderr(Stdio::null());
    ask.status().is_ok_and(|status| status.success()).then_some(program)
}

/// clang, which compiles `hello.cc` of this folder.
pub fn clang(context: &Context) -> Result<Program> {
    let source = context.directory.join("hello.cc");
    std::fs::write(&source, include_str!("hello.cc"))?;
    let object = context.directory.join("hello.o");
    let paths: Vec<String> = (14..23).rev().map(|n| format!("/usr/lib/llvm-{n}/bin/clang")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let arguments =
        ["-O2", "-c", source.to_str().unwrap_or_default(), "-o", object.to_str().unwrap_or_default()];
    find(&paths, &arguments)
        .ok_or_else(|| Failure::Skipped("clang is not installed (apt install clang)".into()))
}

/// chromium's own program (not the script that starts it), with a copy of itself.
pub fn chromium(arguments: &[&str]) -> Result<Program> {
    let program = find(&["/usr/lib/chromium/chromium"], arguments);
    let program =
        program.ok_or_else(|| Failure::Skipped("chromium is not installed (apt install chromium)".into()))?;
    Ok(Program { moved: true, ..program })
}

/// Programs with large libraries and small ones, each with something short to do; those that are installed.
pub fn programs(context: &Context) -> Result<Vec<Program>> {
    let python = "import json, re, zlib; print(json.dumps({'a': [1, 2.5]}), re.findall('b+', 'abba'), zlib.crc32(b'x'))";
    // What it makes is what it says here.
    let said = clang(context).map(|mut clang| {
        clang.arguments.pop();
        clang.arguments.push("-".to_owned());
        clang
    });
    let all = [
        said.ok(),
        chromium(&["--version"]).ok(),
        find(&["/usr/bin/git"], &["version", "--build-options"]),
        find(&["/usr/bin/gdb"], &["-nx", "-batch", "-ex", "print 6 * 7"]),
        find(&["/usr/bin/node"], &["-e", "console.log([1, 2].map(n => n * 2), process.versions.v8)"]),
        find(&["/usr/bin/python3"], &["-I", "-c", python]),
        find(&["/usr/lib/postgresql/15/bin/postgres"], &["--describe-config"]),
        find(&["/usr/lib/postgresql/15/bin/psql"], &["--help"]),
        numpy("import numpy as n; print(n.linalg.det(n.diag([1, 2, 3.])), n.fft.fft(n.arange(8)).real)"),
        qt(context, "-"),
        find(&["/usr/bin/ls"], &["-d", "/"]),
    ];
    let all: Vec<Program> = all.into_iter().flatten().collect();
    if all.len() < 2 {
        return Err(Failure::Skipped(
            "of clang, chromium, git, gdb, node, python3, PostgreSQL and Qt (wkhtmltopdf) none is installed"
                .into(),
        ));
    }
    Ok(all)
}

/// The same programs as far as they can be made to wait for their input, or for visitors.
pub fn waiting(context: &Context) -> Result<Vec<Program>> {
    let profile = format!("--user-data-dir={}", context.directory.join("profile").display());
    let show =
        ["--headless", "--no-sandbox", "--disable-gpu", &profile, "--remote-debugging-port=0", "about:blank"];
    let compile = clang(context).map(|clang| {
        let arguments = ["-x", "c", "-c", "-", "-o", "/dev/null"].map(str::to_owned).to_vec();
        Program { arguments, ..clang }
    });
    let python = "import json, re, zlib, sys; sys.stdin.read()";
    let all = [
        compile.ok(),
        chromium(&show).ok(),
        find(&["/usr/bin/git"], &["hash-object", "--stdin"]),
        find(&["/usr/bin/gdb"], &["-nx", "-q"]),
        find(&["/usr/bin/node"], &["-"]),
        find(&["/usr/bin/python3"], &["-I", "-c", python]),
        numpy("import numpy, sys; sys.stdin.read()"),
        qt_waiting(context),
        find(&["/usr/bin/cat"], &[]),
    ];
    let all: Vec<Program> = all.into_iter().flatten().collect();
    if all.len() < 3 {
        return Err(Failure::Skipped(
            "of clang, chromium, git, gdb, node and python3 hardly any is installed".into(),
        ));
    }
    Ok(all)
}

/// The program of Qt, which reads its page from standard input.
fn qt_waiting(context: &Context) -> Option<Program> {
    let mut program = qt(context, "/dev/null")?;
    let page = program.arguments.len() - 2;
    program.arguments[page] = "-".to_owned();
    Some(program)
}

/// A store in which programs are set.
pub struct Rebased {
    /// Where.
    pub store: Store,
}

impl Rebased {
    /// Sets programs in a store of the row's own.
    pub fn new(context: &Context, programs: &[&Program]) -> Result<Rebased> {
        let wrong = |error: commonhold_rebase::Error| Failure::Failed(error.to_string());
        let store = Store::open(&context.directory.join("rebase"), Owner::Machine).map_err(wrong)?;
        store.install().map_err(wrong)?;
        let set: Set = programs.iter().map(|program| (program.path.clone(), program.moved)).collect();
        let report = build(&store, &set, &|_, _| ()).map_err(wrong)?;
        match report.unset.first() {
            Some(unset) => failed(format!("{}: {}", unset.path.display(), unset.why)),
            None => Ok(Rebased { store }),
        }
    }

    /// Whether the program has copies when it is started.
    pub fn is_current(&self, program: &Program) -> Result<bool> {
        let state = commonhold_rebase::state::of(&self.store, &program.path);
        let state = state.map_err(|error| Failure::Failed(error.to_string()))?;
        Ok(matches!(state, commonhold_rebase::state::State::Current { .. }))
    }

    /// The program, ready to be started with copies or without, saying nothing.
    pub fn command(&self, program: &Program, with_copies: bool) -> Command {
        let mut command = program.command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if with_copies {
            command.envs(self.store.variables());
        }
        command
    }

    /// Seconds from its start to its end.
    pub fn time(&self, program: &Program, with_copies: bool) -> Result<f64> {
        let mut command = self.command(program, with_copies);
        seconds(|| match command.status()? {
            status if status.success() => Ok(()),
            status => failed(format!("{} ended with {status}", program.path.display())),
        })
    }
}
