//! `local.sync_ten_vs_sqlite`: a small atomic sync, against a transaction of the store that people would use instead.

use super::local_python_attach_ratio::script;
use crate::context::Context;
use crate::failure::{Result, failed, skipped};
use crate::installed::find_or_install;
use crate::measure::{alternate, each};
use crate::objects;
use crate::row::{Bar, Measured, Row};
use crate::view::{PAGE, View};
use commonhold::SyncMode;
use serde_json::json;

/// Pages, and rows.
const PAGES: usize = 65_536;
const AT_ONCE: usize = 10;
const THEIRS: &str = include_str!("../../python/sqlite_ten.py");

/// The row.
pub struct SyncTenVsSqlite;

impl Row for SyncTenVsSqlite {
    fn id(&self) -> &'static str {
        "local.sync_ten_vs_sqlite"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.0))
    }

    fn about(&self) -> &'static str {
        "writing 10 random pages of an atomic object of 256 MiB and syncing it ÷ a transaction of SQLite (WAL, synchronous=FULL) \
         that updates 10 random rows of 4,000 bytes of as many; means of 200, checkpoints included"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let Some(python) = find_or_install(&["python3"], "python3") else {
            return skipped("there is no Python, whose library has SQLite (apt install python3)");
        };
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let pages = context.pick(PAGES, PAGES / 16);
        let path = context.directory.join("sqlite.db");
        let arguments = [path.to_string_lossy().into_owned(), pages.to_string()];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut theirs = script(context, &python, "theirs.py", THEIRS, &arguments)?;
        let (_, file) = context.make_file("ten", pages * PAGE)?;
        let mapping =
            objects::on_file(&host, "/bench/ten", &file, SyncMode::Atomic)?.map(&objects::everything())?;
        View::of(&mapping).touch_pages();
        let (rounds, mut random) = (context.pick(200, 20), context.random(1));
        let content = [1; PAGE];
        let mut sync_ten = || {
            for page in rand::seq::index::sample(&mut random, pages, AT_ONCE) {
                View::of(&mapping).write(page * PAGE, &content);
            }
            match mapping.sync()? {
                stored if stored == AT_ONCE as u64 => Ok(()),
                stored => failed(format!("a sync stored {stored} pages of {AT_ONCE}")),
            }
        };
        let pairs = alternate(
            context.pick(15, 3),
            |_| Ok(each(rounds, &mut sync_ten)? * 1e6),
            |_| Ok(theirs.ask(&rounds.to_string())?.parse::<f64>()? * 1e6),
        )?;
        let detail = json!({ "unit_of_times": "µs", "times": pairs.summary(1.0), "python": python.display().to_string() });
        Ok(pairs.measured(pairs.ratio(), detail))
    }
}
