//! `rebase.clang_private`, `rebase.chromium_private`: relocated pages that processes have for themselves.

use crate::context::Context;
use crate::failure::{Doing, Failure, Result, failed};
use crate::processes::kill_group;
use crate::rebase::memory::{family, relocated};
use crate::rebase::programs::{chromium, clang};
use crate::rebase::{Program, Rebased};
use crate::row::{Bar, Measured, Row};
use commonhold_rebase::check::compare;
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

/// The row of clang.
pub struct ClangPrivate;

impl Row for ClangPrivate {
    fn id(&self) -> &'static str {
        "rebase.clang_private"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.2))
    }

    fn about(&self) -> &'static str {
        "memory of a clang that ends, changed and then read-only (RELRO): with copies of its libraries ÷ with the libraries"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let program = clang(context)?;
        let rebased = Rebased::new(context, &[&program])?;
        let words: Vec<OsString> = program.arguments.iter().map(Into::into).collect();
        let compared = compare(&rebased.store, &program.path, &program.path.clone().into(), &words)
            .map_err(|error| Failure::Failed(error.to_string()))?;
        if !compared.same() {
            return failed("with copies it does something else: `commonhold rebase check` says what");
        }
        let (stock, ours) = (compared.stock.relocated_kib, compared.rebased.relocated_kib);
        if stock == 0 || compared.rebased.private_kib == 0 {
            return failed("the program's memory could not be read: it has none of its own");
        }
        let detail = json!({
            "relocated_kib": { "commonhold": ours, "stock": stock },
            "all_private_kib": { "commonhold": compared.rebased.private_kib, "stock": compared.stock.private_kib },
            "copies": compared.rebased.copies,
            "words_compared": compared.words,
        });
        Ok(Measured::single(ours as f64 / stock as f64, 1, detail))
    }
}

/// The row of chromium.
pub struct ChromiumPrivate;

impl Row for ChromiumPrivate {
    fn id(&self) -> &'static str {
        "rebase.chromium_private"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.05))
    }

    fn about(&self) -> &'static str {
        "Pss_Dirty of the relocated pages of chromium's program, of all processes of a headless chromium: with a copy of it ÷ \
         without"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let profile = format!("--user-data-dir={}", context.directory.join("profile").display());
        let program = chromium(&[
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            &profile,
            "--remote-debugging-port=0",
            "about:blank",
        ])?;
        let rebased = Rebased::new(context, &[&program])?;
        let rounds = context.pick(3, 1);
        let mut ratios = Vec::new();
        let mut details = Vec::new();
        for _ in 0..rounds {
            let (stock, processes) = settled(&rebased, &program, false)?;
            let (ours, ours_processes) = settled(&rebased, &program, true)?;
            ratios.push(ours as f64 / stock as f64);
            details.push(json!({
                "pss_dirty_kib": { "commonhold": ours, "stock": stock },
                "processes": { "commonhold": ours_processes, "stock": processes },
            }));
        }
        Ok(Measured::median(&ratios, json!({ "rounds": details })))
    }
}

/// KiB, once no more processes come; and how many those are.
fn settled(rebased: &Rebased, program: &Program, with_copies: bool) -> Result<(u64, usize)> {
    let mut command = rebased.command(program, with_copies);
    let mut child = command.process_group(0).spawn()?;
    let deadline = Instant::now() + Duration::from_secs(300);
    let (mut last, mut same) = (0, 0);
    // Three seconds without a change.
    while same < 6 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(500));
        let now = family(child.id()).len();
        same = if now == last && now > 1 { same + 1 } else { 0 };
        last = now;
    }
    let file = program.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let processes = family(child.id());
    let read = processes.iter().map(|pid| relocated(*pid, &file)).collect::<std::io::Result<Vec<_>>>();
    kill_group(child.id());
    child.wait()?;
    let mapped: Vec<u64> =
        read.doing("reading the memory of chromium's processes")?.into_iter().flatten().collect();
    if same < 6 {
        return failed("chromium does not come to rest within five minutes");
    }
    if mapped.is_empty() {
        return failed(format!("none of {} processes maps {file} read-only", processes.len()));
    }
    Ok((mapped.iter().sum(), processes.len()))
}
