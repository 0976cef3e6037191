//! What a check found, and how it is shown.

use crate::output::columns;
use serde::Serialize;
use std::io::IsTerminal;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As it should be.
    Ok,
    /// Works, with less than could be had.
    Warn,
    /// Something that is needed does not work.
    Fail,
    /// Nothing to judge.
    Info,
}

/// One check.
#[derive(Debug, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it came out.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do; nothing where all is well.
    pub fix: Option<String>,
}

impl Check {
    /// As it should be.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Check { name, state: State::Ok, found: found.into(), fix: None }
    }

    /// Nothing to judge.
    pub fn info(name: &'static str, found: impl Into<String>) -> Self {
        Check { name, state: State::Info, found: found.into(), fix: None }
    }

    /// Works, with less than could be had.
    pub fn warn(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Check { name, state: State::Warn, found: found.into(), fix: Some(fix.into()) }
    }

    /// Something that is needed does not work.
    pub fn fail(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Check { name, state: State::Fail, found: found.into(), fix: Some(fix.into()) }
    }
}

/// The checks for people: a line each, and below it what to do.
pub fn table(checks: &[Check]) -> String {
    let rows = checks
        .iter()
        .map(|check| vec![word(check.state).to_owned(), check.name.to_owned(), check.found.clone()])
        .collect();
    let lines = columns(None, rows, &[]);
    let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let mut text = String::new();
    for (line, check) in lines.lines().zip(checks) {
        text += &if colours { coloured(line, check.state) } else { line.to_owned() };
        text.push('\n');
        if let Some(fix) = &check.fix {
            text += &format!("      -> {fix}\n");
        }
    }
    text + &summary(checks)
}

fn word(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Warn => "warn",
        State::Fail => "FAIL",
        State::Info => "info",
    }
}

fn coloured(line: &str, state: State) -> String {
    let colour = match state {
        State::Ok => 32,
        State::Warn => 33,
        State::Fail => 31,
        State::Info => return line.to_owned(),
    };
    let end = word(state).len();
    format!("\x1b[{colour}m{}\x1b[0m{}", &line[..end], &line[end..])
}

fn summary(checks: &[Check]) -> String {
    let number = |state| checks.iter().filter(|check| check.state == state).count();
    match (number(State::Fail), number(State::Warn)) {
        (0, 0) => "Everything works here.".to_owned(),
        (0, warnings) => format!("All that is needed works here. Could be better: {warnings}."),
        (failures, _) => format!("Commonhold does not work fully here. Failed: {failures}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lack_is_followed_by_its_fix() {
        let checks = [
            Check::ok("one", "fine"),
            Check::warn("second", "so so", "do this"),
            Check::fail("third", "bad", "do that"),
        ];
        assert_eq!(
            table(&checks),
            "ok    one     fine\nwarn  second  so so\n      -> do this\nFAIL  third   bad\n      -> do that\n\
             Commonhold does not work fully here. Failed: 1."
        );
    }
}
