//! `install.wheel_failures`, `install.wheel_mib` and `install.deb_failures`: what users install, as they get it
//! (`./run package`, `./run test-packages`).

use crate::context::Context;
use crate::failure::{Result, failed, skipped};
use crate::row::{Bar, Measured, Row};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Environments in which it does not work.
pub struct WheelFailures;
/// How large it is.
pub struct WheelMib;
/// Steps of Debian's packages that fail, and files that stay.
pub struct DebFailures;

impl Row for WheelFailures {
    fn id(&self) -> &'static str {
        "install.wheel_failures"
    }

    fn unit(&self) -> &'static str {
        "environments"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn about(&self) -> &'static str {
        "empty environments (with a network, without a compiler, without a network, without NumPy, roots of Debian 12 and 13) in which \
         two processes do not share memory after `pip install` of the wheel"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let (project, wheel) = project_and_wheel()?;
        let mut command = Command::new("python3");
        command.arg(project.join("tests/wheel.py")).arg(wheel);
        if !context.quick {
            command.arg("--roots").arg(project.join("target/roots/wheel"));
        }
        counted(self.id(), "environments", &mut command)
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(1200)
    }
}

impl Row for WheelMib {
    fn id(&self) -> &'static str {
        "install.wheel_mib"
    }

    fn unit(&self) -> &'static str {
        "MiB"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(15.0))
    }

    fn about(&self) -> &'static str {
        "size of the wheel, with the programs in it"
    }

    fn run(&self, _: &Context) -> Result<Measured> {
        let (_, wheel) = project_and_wheel()?;
        let mib = wheel.metadata()?.len() as f64 / f64::from(1 << 20);
        Ok(Measured::single(mib, 1, json!({ "wheel": wheel.file_name().map(|name| name.to_string_lossy()) })))
    }
}

impl Row for DebFailures {
    fn id(&self) -> &'static str {
        "install.deb_failures"
    }

    fn unit(&self) -> &'static str {
        "steps"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::Exactly(0.0))
    }

    fn about(&self) -> &'static str {
        "packages in roots of Debian 12 and 13: steps of installing, using, upgrading and purging that fail, and files that stay"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let project = project()?;
        let [packages, newer] = ["target/package", "target/package-newer"].map(|place| project.join(place));
        if !rustix::process::geteuid().is_root() {
            return skipped("roots are made and entered by root alone: run it as root");
        }
        if [&packages, &newer].iter().any(|place| first_of(place, "deb").is_none()) {
            return skipped("there are no packages of two versions: make them by `./run test-packages`");
        }
        let mut command = Command::new("sh");
        command.arg(project.join("tests/packages/roots.sh"));
        command.args([packages, newer, project.join("target/roots")]);
        if context.quick {
            command.arg("bookworm");
        }
        counted(self.id(), "steps", &mut command)
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(1200)
    }
}

/// Runs a script that says how many of its parts failed; each part is a line.
fn counted(id: &str, parts: &str, command: &mut Command) -> Result<Measured> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let Some(number) = text.lines().find_map(|line| line.strip_prefix(id)?.trim().parse().ok()) else {
        return failed(format!("it ended early: {text}{}", String::from_utf8_lossy(&output.stderr)));
    };
    let is_part = |line: &&str| ["ok ", "passed ", "FAILED "].iter().any(|word| line.starts_with(word));
    let tried: Vec<&str> = text.lines().map(str::trim).filter(is_part).collect();
    Ok(Measured::single(number, tried.len(), json!({ parts: tried })))
}

/// Where the project is of which this program was built.
fn project() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    match own.ancestors().find(|place| place.join("tests/wheel.py").is_file()) {
        Some(project) => Ok(project.to_owned()),
        None => skipped("this program is not in the folder of the project: build it there"),
    }
}

/// The project, and the wheel that was made there.
fn project_and_wheel() -> Result<(PathBuf, PathBuf)> {
    let project = project()?;
    match first_of(&project.join("target/package"), "whl") {
        Some(wheel) => Ok((project, wheel)),
        None => skipped("there is no wheel in target/package: make it by `./run package wheel`"),
    }
}

fn first_of(directory: &Path, extension: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|its| its == extension))
}
