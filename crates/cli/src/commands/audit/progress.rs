//! What an audit is doing, on a terminal, once it takes longer than a moment.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A line on standard error; nothing where that is no terminal.
pub struct Progress(Option<ProgressBar>);

impl Progress {
    const TICK: Duration = Duration::from_millis(500);

    /// Shows what is done, and for how long.
    pub fn start() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // The template is ours and right (tested); the library's own style would do as well.
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        bar.set_message("reading processes and files");
        bar.enable_steady_tick(Self::TICK);
        Self(Some(bar))
    }

    /// Something else is done now.
    pub fn say(&self, what: impl Into<String>) {
        if let Some(bar) = &self.0 {
            bar.set_message(what.into());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

const TEMPLATE: &str = "{elapsed}  {msg}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_understood() {
        assert!(ProgressStyle::with_template(TEMPLATE).is_ok());
    }
}
