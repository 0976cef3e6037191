//! `rebase.clang_time`, `rebase.chromium_time`: programs with large libraries, from start to end.

use crate::context::Context;
use crate::failure::Result;
use crate::measure::{Pairs, alternate};
use crate::rebase::programs::{chromium, clang};
use crate::rebase::{Program, Rebased};
use crate::row::{Bar, Measured, Row};
use serde_json::json;

fn pairs(rebased: &Rebased, program: &Program, count: usize) -> Result<Pairs> {
    rebased.assert(&[program])?;
    // What both need is in memory then.
    rebased.time(program, true)?;
    rebased.time(program, false)?;
    alternate(count, |_| rebased.time(program, true), |_| rebased.time(program, false))
}

/// The row of clang.
pub struct ClangTime;

impl Row for ClangTime {
    fn id(&self) -> &'static str {
        "rebase.clang_time"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.65))
    }

    fn about(&self) -> &'static str {
        "clang -O2 -c of a file that includes <cstdio>, with copies of its libraries ÷ with the libraries"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let program = clang(context)?;
        let rebased = Rebased::new(context, &[&program])?;
        let pairs = pairs(&rebased, &program, context.pick(41, 3))?;
        let detail = json!({ "program": program.path, "milliseconds": pairs.summary(1e3) });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}

/// The row of chromium.
pub struct ChromiumTime;

impl Row for ChromiumTime {
    fn id(&self) -> &'static str {
        "rebase.chromium_time"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.65))
    }

    fn about(&self) -> &'static str {
        "chromium's program with --version, with copies of itself and its libraries ÷ without"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let program = chromium(&["--version"])?;
        let rebased = Rebased::new(context, &[&program])?;
        let version = pairs(&rebased, &program, context.pick(31, 3))?;
        let page = context.directory.join("page.html");
        std::fs::write(&page, "<p>a page</p><script>document.body.append(1 + 1)</script>")?;
        let url = format!("file://{}", page.display());
        let profile = format!("--user-data-dir={}", context.directory.join("profile").display());
        let show = chromium(&["--headless", "--no-sandbox", "--disable-gpu", &profile, "--dump-dom", &url])?;
        let dump = pairs(&rebased, &show, context.pick(11, 1))?;
        let detail = json!({
            "version_milliseconds": version.summary(1e3),
            "headless_dump_dom_milliseconds": dump.summary(1e3),
        });
        Ok(version.measured(version.ratio(), detail))
    }
}
