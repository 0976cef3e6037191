//! `install.wheel_failures` and `install.wheel_mib`: the Python package as users get it (`./run package wheel`).

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
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = text.lines().find_map(|line| line.strip_prefix("install.wheel_failures "));
        let Some(number) = number else {
            return failed(format!("tests/wheel.py: {text}{}", String::from_utf8_lossy(&output.stderr)));
        };
        let tried: Vec<&str> = text.lines().filter(|line| line.starts_with(['o', 'F'])).collect();
        Ok(Measured::single(number.parse()?, tried.len(), json!({ "environments": tried })))
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

/// Where the project is of which this program was built, and the wheel that was made there.
fn project_and_wheel() -> Result<(PathBuf, PathBuf)> {
    let own = std::env::current_exe()?;
    let Some(project) = own.ancestors().find(|place| place.join("tests/wheel.py").is_file()) else {
        return skipped("this program is not in the folder of the project: build it there");
    };
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    let made = std::fs::read_dir(project.join("target/package")).into_iter().flatten().flatten();
    match made.map(|entry| entry.path()).find(is_wheel) {
        Some(wheel) => Ok((Path::to_owned(project), wheel)),
        None => skipped("there is no wheel in target/package: make it by `./run package wheel`"),
    }
}
