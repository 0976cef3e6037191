//! Arguments of `audit`.

use super::Form;
use crate::units::parse_duration;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// `audit`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:\n  \
    commonhold audit\n  \
    commonhold audit --container 3f2a --html report.html\n  \
    commonhold audit --every 5m --for 6h\n  \
    commonhold audit --set desktop='/usr/bin/x*' --set /bin\n  \
    commonhold audit --json > before; ...; commonhold audit --json > after; commonhold audit diff before after")]
pub struct Audit {
    /// Compare reports instead
    #[command(subcommand)]
    pub command: Option<AuditCommand>,
    /// Only this process and its descendants
    #[arg(long, value_name = "PID", group = "scope", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Only this control group and those below it, such as /system.slice
    #[arg(long, value_name = "PATH", group = "scope")]
    pub cgroup: Option<String>,
    /// Only this container, by the start of its id
    #[arg(long, value_name = "ID", group = "scope")]
    pub container: Option<String>,
    /// Only the files below this directory, running or not, and the processes whose root it is
    #[arg(long, value_name = "DIR", group = "scope")]
    pub root: Option<PathBuf>,
    /// Look again and again, so long after each other, such as 5m; an interrupt ends it early and reports
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "span")]
    pub every: Option<Duration>,
    /// For so long, such as 6h
    #[arg(long = "for", id = "span", value_name = "TIME", value_parser = parse_duration, requires = "every")]
    pub span: Option<Duration>,
    /// Measure library code in a set of programs: a directory or a pattern, under a name if it is to have one
    #[arg(long = "set", value_name = "[NAME=]GLOB", value_parser = parse_set)]
    pub sets: Vec<ProgramSet>,
    /// Another archive (libNAME.a) whose members count as library code; may be given several times
    #[arg(long = "archive", value_name = "FILE", requires = "sets")]
    pub archives: Vec<PathBuf>,
    /// At most about so much processor time for each look, such as 10s; what does not fit is left out and said
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub budget: Option<Duration>,
    /// Also write the report as one page with charts
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Show lists whole
    #[arg(long)]
    pub all: bool,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// What else `audit` does.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// Tell what changed between two reports, and which savings were got
    Diff(Diff),
}

/// `audit diff`.
#[derive(Debug, Args)]
pub struct Diff {
    /// The earlier report, as `audit --json` wrote it
    pub before: PathBuf,
    /// The later one
    pub after: PathBuf,
    /// Show lists whole
    #[arg(long)]
    pub all: bool,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `--set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramSet {
    /// Its name: the pattern itself unless given.
    pub name: String,
    /// A path, or a pattern of paths.
    pub pattern: String,
}

/// Reads `NAME=GLOB` or `GLOB`. A name has no slash, so that a path with an equals sign is a path.
fn parse_set(text: &str) -> Result<ProgramSet, String> {
    let (name, pattern) = match text.split_once('=') {
        Some((name, pattern)) if !name.contains('/') => (name, pattern),
        _ => (text, text),
    };
    let wrong = |why: &str| format!("{why}: write a set as /usr/bin, '/usr/bin/x*' or NAME='/usr/bin/x*'");
    if name.is_empty() || pattern.is_empty() {
        return Err(wrong("the name or the pattern is missing"));
    }
    glob::Pattern::new(pattern)
        .map_err(|error| wrong(&format!("{} at character {}", error.msg, error.pos)))?;
    Ok(ProgramSet { name: name.to_owned(), pattern: pattern.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_with_and_without_a_name() {
        let set =
            |name: &str, pattern: &str| ProgramSet { name: name.to_owned(), pattern: pattern.to_owned() };
        assert_eq!(parse_set("desktop=/usr/bin/x*"), Ok(set("desktop", "/usr/bin/x*")));
        assert_eq!(parse_set("/bin"), Ok(set("/bin", "/bin")));
        assert_eq!(parse_set("/srv/a=b/bin"), Ok(set("/srv/a=b/bin", "/srv/a=b/bin")));
        for text in ["", "name=", "=/bin", "x=/usr/bin/[a", "/usr/***"] {
            assert!(parse_set(text).unwrap_err().contains("NAME="), "{text}");
        }
    }
}
