//! The programs: compiled in the row's folder from the sources that this program has in it.

use super::Task;
use crate::context::Context;
use crate::failure::{Doing, Result, failed, skipped};
use crate::host::program;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What every application is made of, and their own sources.
const SOURCES: [(&str, &str); 10] = [
    ("app.c", include_str!("../../applications/app.c")),
    ("app.h", include_str!("../../applications/app.h")),
    ("sync.c", include_str!("../../applications/sync.c")),
    ("sync.h", include_str!("../../applications/sync.h")),
    ("matrix.c", include_str!("../../applications/matrix.c")),
    ("path.c", include_str!("../../applications/path.c")),
    ("locus.c", include_str!("../../applications/locus.c")),
    ("mp3d.c", include_str!("../../applications/mp3d.c")),
    ("commonhold.h", include_str!("../../../include/commonhold.h")),
    ("commonhold_sync.h", include_str!("../../../include/commonhold_sync.h")),
];
const LIBRARY: &str = "libcommonhold.so";
/// Seconds that an activity waits for another, or for a page. Spin locks between hosts are not fair.
const DEADLINE_S: u32 = 300;

/// How activities wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronisation {
    /// By words in the memory that they share, as the paper's programs.
    Memory,
    /// By locks with names.
    Named,
}

impl Synchronisation {
    /// The word of the command line.
    pub fn word(self) -> &'static str {
        match self {
            Synchronisation::Memory => "memory",
            Synchronisation::Named => "named",
        }
    }
}

/// The compiled programs.
#[derive(Debug)]
pub struct Programs {
    folder: PathBuf,
    seed: u64,
}

impl Programs {
    /// Compiles them.
    pub fn compile(context: &Context) -> Result<Programs> {
        let library = library()?;
        let folder = context.new_directory("applications")?;
        for (name, text) in SOURCES {
            std::fs::write(folder.join(name), text).doing(format!("writing {name}"))?;
        }
        for application in super::Application::ALL {
            compile(&folder, application.name(), &["app.c", "sync.c"], &library)?;
        }
        Ok(Programs { folder, seed: context.seed })
    }

    /// The command line of a task. What it says on standard error is in the file that [`Programs::said`] reads.
    pub fn command(
        &self,
        task: &Task,
        memory: &str,
        activities: usize,
        how: Synchronisation,
    ) -> Result<Command> {
        let mut command = Command::new(self.folder.join(task.application.name()));
        command.args(["--stepped", "--memory", memory, "--sync", how.word()]);
        for (word, number) in [
            ("--activities", activities as u64),
            ("--size", task.size),
            ("--steps", task.steps),
            ("--seed", self.seed),
            ("--deadline", DEADLINE_S.into()),
        ] {
            command.args([word, &number.to_string()]);
        }
        let errors = std::fs::File::options().create(true).append(true).open(self.errors())?;
        command.stdin(Stdio::piped()).stderr(errors);
        Ok(command)
    }

    /// What programs have said on standard error since the last time.
    pub fn said(&self) -> Result<String> {
        let text = std::fs::read_to_string(self.errors())?;
        std::fs::File::options().write(true).truncate(true).open(self.errors())?;
        Ok(text.trim().to_owned())
    }

    fn errors(&self) -> PathBuf {
        self.folder.join("errors")
    }
}

/// The library that belongs to the program `commonhold`: beside it, or where cargo puts what others depend on.
pub fn library() -> Result<PathBuf> {
    let program = program()?;
    let places = [program.with_file_name(LIBRARY), program.with_file_name("deps").join(LIBRARY)];
    match places.iter().find(|place| place.is_file()) {
        Some(found) => Ok(found.canonicalize()?),
        None => skipped(format!("there is no {LIBRARY} beside {}: ./run build makes it", program.display())),
    }
}

/// Compiles a program of that name in the folder, of `NAME.c` there and these sources, with the library.
pub fn compile(folder: &Path, name: &str, sources: &[&str], library: &Path) -> Result<()> {
    let place = library.parent().unwrap_or(Path::new("/"));
    let mut cc = Command::new("cc");
    cc.current_dir(folder).args(["-std=c11", "-O2", "-I.", "-o", name]).args(sources);
    cc.arg(format!("{name}.c")).arg(library).arg("-lm").arg(format!("-Wl,-rpath,{}", place.display()));
    let output = match cc.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return skipped("there is no C compiler (apt install gcc)");
        }
        other => other.doing("starting cc")?,
    };
    if output.status.success() {
        return Ok(());
    }
    failed(format!("cc of {name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
