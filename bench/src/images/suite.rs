//! Govindan's suite (section 5.3): a library of 1,000 null functions, and 20 programs that make 50, 100, … 1,000 calls.

use super::spent::Start;
use super::{image, tool};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::installed::find_or_install;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Functions of the library.
pub const FUNCTIONS: usize = 1000;
/// Calls of the programs.
pub const STEP: usize = 50;

/// How a program is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    /// To an archive with a member for each function.
    Static,
    /// To a shared library whose functions are looked up at their first calls.
    Lazy,
    /// To a shared library whose functions are looked up at the start.
    Now,
    /// To a code image.
    Image,
}

impl Linked {
    /// All, in the order of tables.
    pub const ALL: [Linked; 4] = [Linked::Static, Linked::Lazy, Linked::Now, Linked::Image];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Linked::Static => "static",
            Linked::Lazy => "lazy",
            Linked::Now => "now",
            Linked::Image => "image",
        }
    }
}

/// Whether programs have a C library. (With one, static programs have it in them; the others too, but for the library
/// of functions itself.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libc {
    /// They begin and end by themselves.
    None,
    /// glibc, linked statically into a position-independent program.
    Static,
}

/// The suite in a folder.
pub struct Suite {
    directory: PathBuf,
}

/// The loader that the C compiler writes into programs.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

impl Suite {
    /// Compiles library and programs. Nothing is linked to programs yet.
    pub fn new(context: &Context, references: &[usize]) -> Result<Suite> {
        let directory = context.directory.clone();
        library(&directory)?;
        image(&directory, &directory.join("libf.so"), "f", BTreeSet::new())?;
        for calls in references {
            program(&directory, *calls)?;
        }
        Ok(Suite { directory })
    }

    fn linked(&self, calls: usize, linked: Linked, libc: Libc) -> String {
        let libc = if libc == Libc::None { "" } else { "_libc" };
        format!("p{calls}_{}{libc}", linked.name())
    }

    /// Links a program by the compiler, as users do, to be run.
    pub fn link(&self, calls: usize, linked: Linked, libc: Libc) -> Result<()> {
        let out = self.linked(calls, linked, libc);
        if libc == Libc::None {
            let arguments = self.arguments(calls, linked, &out);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            return tool(&self.directory, "ld.bfd", &arguments);
        }
        let object = format!("m{calls}.o");
        let with = if linked == Linked::Image { "f_stub.o" } else { "libf.a" };
        tool(&self.directory, "gcc", &["-static-pie", "-o", &out, &object, with])
    }

    /// What the linker is told for a program without libc: a default, position-independent one.
    fn arguments(&self, calls: usize, linked: Linked, out: &str) -> Vec<String> {
        let object = format!("{}{calls}.o", if linked == Linked::Image { "i" } else { "p" });
        let mut arguments = vec!["-pie", "-z", "noexecstack", "-o", out, &object];
        let run_path = format!("-rpath={}", self.directory.display());
        match linked {
            Linked::Static => arguments.extend(["--no-dynamic-linker", "libf.a"]),
            Linked::Image => arguments.extend(["--no-dynamic-linker", "f_stub.o"]),
            Linked::Lazy => arguments.extend(["-z", "lazy", "-dynamic-linker", LOADER, &run_path, "libf.so"]),
            Linked::Now => arguments.extend(["-z", "now", "-dynamic-linker", LOADER, &run_path, "libf.so"]),
        }
        arguments.into_iter().map(str::to_owned).collect()
    }

    /// The start of a program that was linked.
    pub fn start(&self, calls: usize, linked: Linked, libc: Libc) -> Result<Start> {
        Start::new(&self.directory, &self.directory.join(self.linked(calls, linked, libc)), &[])
    }

    /// The linking of a program without libc, by a linker.
    pub fn linking(&self, calls: usize, linked: Linked, linker: &Path) -> Result<Start> {
        let out = format!("linked_{}", linked.name());
        Start::new(&self.directory, linker, &self.arguments(calls, linked, &out))
    }
}

/// GNU's linker.
pub fn bfd() -> Result<PathBuf> {
    let missing = || Failure::Skipped("ld.bfd is not installed (apt install binutils)".into());
    find_or_install(&["ld.bfd"], "binutils").ok_or_else(missing)
}

/// 1,000 objects from what the compiler makes of `void f(void) {}`, an archive and a shared library of them.
fn library(directory: &Path) -> Result<()> {
    std::fs::write(directory.join("null.c"), "void f0000(void) {}\n")?;
    tool(directory, "gcc", &["-O2", "-fPIC", "-fno-asynchronous-unwind-tables", "-S", "null.c"])?;
    let one = std::fs::read_to_string(directory.join("null.s"))?;
    let mut objects = Vec::new();
    for index in 0..FUNCTIONS {
        let name = format!("f{index:04}");
        std::fs::write(directory.join(format!("{name}.s")), one.replace("f0000", &name))?;
        let object = format!("{name}.o");
        tool(directory, "as", &["-o", &object, &format!("{name}.s")])?;
        objects.push(object);
    }
    let mut archive = vec!["rcs", "libf.a"];
    archive.extend(objects.iter().map(String::as_str));
    tool(directory, "ar", &archive)?;
    let mut shared = vec!["-shared", "-nostdlib", "-o", "libf.so", "-Wl,-soname,libf.so"];
    shared.extend(objects.iter().map(String::as_str));
    tool(directory, "gcc", &shared)
}

/// A program that calls the first functions: `pN.o` without libc, `mN.o` with; `iN.o` without libc includes the image
/// first, which the start-up code of a libc would do.
fn program(directory: &Path, calls: usize) -> Result<()> {
    let mut text = String::new();
    for index in 0..calls {
        let _ = writeln!(text, "void f{index:04}(void);");
    }
    let body: String = (0..calls).fold(String::new(), |mut body, index| {
        let _ = writeln!(body, "    f{index:04}();");
        body
    });
    let _ = writeln!(text, "void body(void) {{\n{body}}}");
    text.push_str(
        "#ifdef MAIN\nint main(void) { body(); return 0; }\n#else\n\
         #ifdef IMAGE\nint commonhold_image_include(const char *);\n#define include() commonhold_image_include(\"f@1\")\n\
         #else\n#define include() 0\n#endif\n\
         void _start(void) { if (include() == 0) body(); __asm__ volatile(\"xor %edi, %edi; mov $231, %eax; syscall\"); }\n#endif\n",
    );
    let source = format!("p{calls}.c");
    std::fs::write(directory.join(&source), text)?;
    let common = ["-O1", "-fPIE", "-fno-stack-protector", "-c", &source, "-o"];
    for (letter, define) in [("p", "-DPLAIN"), ("i", "-DIMAGE"), ("m", "-DMAIN")] {
        tool(directory, "gcc", &[&common[..], &[&format!("{letter}{calls}.o"), define]].concat())?;
    }
    Ok(())
}
