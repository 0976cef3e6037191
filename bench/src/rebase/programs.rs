//! The programs, and what each has to do.

use super::Program;
use super::server::Server;
use crate::context::Context;
use crate::failure::{Failure, Result};
use std::path::Path;
use std::process::{Command, Stdio};

/// The program of the first of these paths that is there.
pub fn find(paths: &[&str], arguments: &[&str]) -> Option<Program> {
    let path = paths.iter().map(Path::new).find(|path| path.exists())?;
    Some(Program {
        path: path.canonicalize().ok()?,
        arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
        moved: false,
        variables: Vec::new(),
        user: None,
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

/// The same programs, asked for more: what they say depends on their surroundings, too. Each that can names a file that is
/// not there, which the C library puts into words, in the locale's language; some say what time it is somewhere, or how
/// letters are written.
pub fn outspoken(context: &Context) -> Result<Vec<Program>> {
    let file = context.directory.join("größe");
    std::fs::write(&file, "one\n")?;
    let (file, nowhere) = (file.to_str().unwrap_or_default(), "/nowhere");
    let python = "import locale, os, time; locale.setlocale(locale.LC_ALL, ''); \
                  print(locale.nl_langinfo(locale.CODESET), os.strerror(2), time.strftime('%c %z', time.localtime(0)))";
    let node = "console.log([1, 2].map(n => n * 2), process.versions.v8, new Date(0).toString())";
    let gdb = ["-nx", "-batch", "-ex", "print 6 * 7", "-ex", "show host-charset", "-ex", "file /nowhere"];
    let also = [
        find(&["/usr/bin/git"], &["hash-object", file, nowhere]),
        find(&["/usr/bin/gdb"], &gdb),
        find(&["/usr/bin/node"], &["-e", node]),
        find(&["/usr/bin/python3"], &["-c", python]),
        find(&["/usr/lib/postgresql/15/bin/psql"], &["-X", "-h", nowhere, "-c", "select 1"]),
        find(&["/usr/bin/ls"], &["-lnb", "--time-style=+%FT%H%z", file, nowhere]),
    ];
    let also: Vec<Program> = also.into_iter().flatten().collect();
    let mut all = programs(context)?;
    // Python with numpy is another launch of the same program, and stays.
    let numpy = |program: &Program| program.arguments.last().is_some_and(|code| code.contains("numpy"));
    all.retain(|one| numpy(one) || !also.iter().any(|other| other.path == one.path));
    all.extend(also);
    Ok(all)
}

/// The same programs as far as they can be made to wait for their input, or for visitors; and PostgreSQL's server, whose
/// client is the last program of all.
pub fn waiting(context: &Context) -> Result<(Vec<Program>, Option<Server>)> {
    let profile = format!("--user-data-dir={}", context.directory.join("profile").display());
    let show =
        ["--headless", "--no-sandbox", "--disable-gpu", &profile, "--remote-debugging-port=0", "about:blank"];
    let compile = clang(context).map(|clang| {
        let arguments = ["-x", "c", "-c", "-", "-o", "/dev/null"].map(str::to_owned).to_vec();
        Program { arguments, ..clang }
    });
    let python = "import json, re, zlib, sys; sys.stdin.read()";
    let server = Server::new(context)?;
    let all = [
        compile.ok(),
        chromium(&show).ok(),
        find(&["/usr/bin/git"], &["hash-object", "--stdin"]),
        find(&["/usr/bin/gdb"], &["-nx", "-q"]),
        find(&["/usr/bin/node"], &["-"]),
        find(&["/usr/bin/python3"], &["-I", "-c", python]),
        numpy("import numpy, sys; sys.stdin.read()"),
        qt_waiting(context),
        server.as_ref().and_then(Server::client),
    ];
    let all: Vec<Program> = all.into_iter().flatten().collect();
    if all.len() < 2 {
        return Err(Failure::Skipped(
            "of clang, chromium, git, gdb, node, python3 and PostgreSQL hardly any is installed".into(),
        ));
    }
    Ok((all, server))
}

/// The program of Qt, which reads its page from standard input.
fn qt_waiting(context: &Context) -> Option<Program> {
    let mut program = qt(context, "/dev/null")?;
    let page = program.arguments.len() - 2;
    program.arguments[page] = "-".to_owned();
    Some(program)
}
