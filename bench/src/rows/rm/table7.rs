//! Table 7: find and grep over a tree of small files.

use super::super::mount::Mounted;
use super::super::wired;
use super::memory::options;
use super::round::Rounds;
use super::{ALIKE, Found, Line, Table};
use crate::conclusions::{Conclusion, named};
use crate::context::Context;
use crate::failure::{Doing, Result, failed, skipped};
use crate::installed;
use crate::measure::{most, seconds};
use crate::row::Bar;
use commonhold::{Host, Translation};
use rand::RngExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The row.
pub const TABLE_7: Table = Table {
    id: "mach.rm_table7",
    about: "Bernadat & Black's Table 7, find that starts grep for each file, find alone, grep \
            alone, over 115 files with the sizes of C headers: files of a disk, paged objects and \
            wired objects through the mount",
    measure,
};

const PLACES: [&str; 3] = ["files", "paged", "wired"];
const PAGED: usize = 1;
const WIRED: usize = 2;

const COMMANDS: [&str; 3] = ["find + grep", "find", "grep"];
const PUBLISHED: [(f64, f64); 3] = [(37.4, 46.8), (0.7, 0.9), (24.3, 24.5)];

/// The programs, and the three trees.
struct Trees {
    find: PathBuf,
    grep: PathBuf,
    places: [PathBuf; 3],
    names: Vec<String>,
}

impl Trees {
    fn command(&self, command: usize, place: usize) -> Command {
        let place = &self.places[place];
        let mut run = Command::new(if command == 2 { &self.grep } else { &self.find });
        run.stdin(Stdio::null());
        if command == 2 {
            run.args(["-i", "copyright"]).args(self.names.iter().map(|name| place.join(name)));
            return run;
        }
        // Arenas are objects, too: they are no files of the tree.
        run.arg(place).args(["-type", "f", "!", "-name", ".arena-*"]);
        match command {
            0 => run.arg("-exec").arg(&self.grep).args(["-i", "copyright", "{}", ";"]),
            _ => run.arg("-print"),
        };
        run
    }

    /// Seconds of one command over one tree.
    fn once(&self, command: usize, place: usize) -> Result<f64> {
        let mut run = self.command(command, place);
        seconds(|| {
            let status = run.stdout(Stdio::null()).status().doing("starting find or grep")?;
            if status.success() { Ok(()) } else { failed(format!("{} said {status}", COMMANDS[command])) }
        })
    }

    /// Lines that a command says.
    fn lines(&self, command: usize, place: usize) -> Result<usize> {
        let output = self.command(command, place).output().doing("starting find or grep")?;
        Ok(output.stdout.iter().filter(|byte| **byte == b'\n').count())
    }
}

/// Text with the sizes of C headers, a notice at its top, and what is no notice below.
fn texts(context: &Context, count: usize) -> Vec<(String, String)> {
    let mut random = context.random(7);
    let text = |n: usize| {
        let lines = 1 << random.random_range(4..9);
        let below =
            (0..lines).map(|line| format!("#define VALUE_{n}_{line} {}\n", line * n)).collect::<String>();
        (format!("header-{n:03}.h"), format!("/* Copyright of nobody, file {n} */\n{below}"))
    };
    (0..count).map(text).collect()
}

fn write_objects(
    host: &Host,
    directory: &str,
    translation: Translation,
    texts: &[(String, String)],
) -> Result<()> {
    for (name, text) in texts {
        let object = host.create(&format!("{directory}/{name}"), &options(translation, text.len()), None)?;
        object.write_at(text.as_bytes(), 0)?;
    }
    Ok(())
}

fn write_files(directory: &Path, texts: &[(String, String)]) -> Result<()> {
    std::fs::create_dir_all(directory)?;
    Ok(texts.iter().try_for_each(|(name, text)| std::fs::write(directory.join(name), text))?)
}

fn measure(context: &Context) -> Result<Found> {
    let (Some(find), Some(grep)) = (installed::find("find"), installed::find("grep")) else {
        return skipped("this machine has no find, or no grep");
    };
    let (bench, host, _pool) = wired::begin(context, 16 << 20)?;
    let mounted = Mounted::of(&bench, context)?;
    let texts = texts(context, context.pick(115, 20));
    let plain = context.directory.join("files");
    write_files(&plain, &texts)?;
    write_objects(&host, "/paged", Translation::Paged, &texts)?;
    write_objects(&host, "/wired", Translation::Wired, &texts)?;
    let places = [plain, mounted.directory().join("paged"), mounted.directory().join("wired")];
    let names = texts.iter().map(|(name, _)| name.clone()).collect();
    let trees = Trees { find, grep, places, names };
    // Each command says a line for each file, wherever they are.
    for (place, name) in PLACES.iter().enumerate() {
        for (command, words) in COMMANDS.iter().enumerate() {
            let (found, all) = (trees.lines(command, place)?, texts.len());
            if found != all {
                return failed(format!("{words} found {found} of {all} files, {name}"));
            }
        }
    }
    let kinds = COMMANDS.len() * PLACES.len();
    let rounds = Rounds::run(kinds, context.pick(21, 3), |n| trees.once(n / PLACES.len(), n % PLACES.len()))?;
    let figures = Figures {
        seconds: std::array::from_fn(|command| {
            std::array::from_fn(|place| rounds.of(command * PLACES.len() + place))
        }),
        relative: std::array::from_fn(|command| {
            rounds.ratio(command * PLACES.len() + PAGED, command * PLACES.len() + WIRED)
        }),
    };
    let bytes: usize = texts.iter().map(|(_, text)| text.len()).sum();
    Ok(Found {
        runs: rounds.len(),
        lines: lines(&figures, texts.len()),
        conclusions: conclude(&figures),
        notes: vec![
            format!("{} files of {bytes} bytes together, in memory; elapsed times.", texts.len()),
            "The programs read objects as files, through the mount: that is how a program that \
             knows nothing of objects has them. What is paged is read by the kernel itself, what \
             is wired is given by the mount's server."
                .into(),
            "find + grep is slower where grep alone is: for what it reads, not for its start.".into(),
            "find and grep themselves are started from the kernel's page cache, in each column: \
             there is no wired memory for programs."
                .into(),
        ],
    })
}

/// By command and place; of paged by wired, by command.
struct Figures {
    seconds: [[f64; 3]; 3],
    relative: [f64; 3],
}

fn lines(figures: &Figures, files: usize) -> Vec<Line> {
    let starts = [files as f64 + 1.0, 1.0, 1.0];
    let line = |command: usize| {
        let [plain, paged, wired] = figures.seconds[command];
        let (mach, real) = PUBLISHED[command];
        Line::new(COMMANDS[command])
            .with("programs started", starts[command])
            .with("files, s", plain)
            .with("paged, s", paged)
            .with("wired, s", wired)
            .with("relative", figures.relative[command])
            .with("paper: paged, s", mach)
            .with("paper: real memory, s", real)
            .with("paper: relative", mach / real)
    };
    (0..COMMANDS.len()).map(line).collect()
}

fn conclude(figures: &Figures) -> Vec<Conclusion> {
    let share = |place: usize| (PLACES[place], figures.seconds[1][place] / figures.seconds[0][place]);
    let shares = [share(PAGED), share(WIRED)];
    vec![
        Conclusion::new(
            "grep alone is as fast on real memory (0.99)",
            "relative, grep",
            figures.relative[2],
            ALIKE,
        )
        .unless(
            "wired objects are read by way of the mount's server, and paged ones by the kernel \
             alone",
        ),
        Conclusion::new(
            "find's time is negligible",
            named("find ÷ find + grep, the most", &shares),
            most(&shares.map(|(_, share)| share)),
            Bar::AtMost(0.1),
        ),
        Conclusion::new(
            "a grep for each file is slower on real memory (0.80)",
            "relative, find + grep",
            figures.relative[0],
            Bar::AtMost(0.95),
        )
        .unless("the programs that are started are not in wired memory"),
        Conclusion::not_asked(
            "it is slower because fork and exec are",
            "without counterpart: find and grep are started from the page cache in each column, and \
             only what they read is wired",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::held;
    use super::*;

    #[test]
    fn the_papers_own_figures_have_all_that_it_says() {
        let seconds = PUBLISHED.map(|(paged, real)| [paged, paged, real]);
        let relative = PUBLISHED.map(|(paged, real)| paged / real);
        let figures = Figures { seconds, relative };
        assert_eq!(held(&conclude(&figures)), (3, 3));
        let other = Figures { seconds: [[1.0, 1.0, 1.0], [0.3; 3], [0.2; 3]], relative: [1.0, 1.0, 0.5] };
        assert_eq!(held(&conclude(&other)), (0, 3));
    }
}
