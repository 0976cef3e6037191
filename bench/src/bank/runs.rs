//! Runs of the bank: with tables that all share, or tables of each process's own.

use super::Layout;
use crate::context::Context;
use crate::failure::{Doing, Result, failed, skipped};
use crate::group::Group;
use crate::host::BenchHost;
use crate::objects;
use crate::processes::page_tables_kib;
use crate::row::rounded;
use crate::view::{RawMapping, View};
use crate::worker::Worker;
use commonhold::{Access, CreateOptions, Host, Translation};
use commonhold_tables::{HUGE, Pool};
use rustix::fs::Advice;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

const NAME: &str = "/bench/bank";

/// Who has the tables.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tables {
    /// All share them: a segment of huge pages.
    Shared,
    /// Each process has its own: a mapped file, in pages of 4 KiB.
    Own,
}

/// A bank, in a segment and in a file.
pub struct Bank {
    layout: Layout,
    file: PathBuf,
    host: Host,
    bench: BenchHost,
    seed: u64,
    /// How long to run before it is counted, while it is, and after: milliseconds.
    spans: [u64; 3],
    _pool: Pool,
}

/// What a run gave.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Operations in a second, of all processes.
    pub per_second: f64,
    /// Minor faults in a second.
    faults: f64,
    /// Memory of all page tables while it ran, beyond what was there before.
    pub tables_kib: u64,
    /// What the group may have, and what its processes had before they attached.
    limit: u64,
    base: u64,
}

impl Figures {
    /// For the detail: where the memory went.
    pub fn detail(&self) -> Value {
        json!({
            "operations_in_a_second": rounded(self.per_second),
            "faults_in_a_second": rounded(self.faults),
            "page_tables_kib": self.tables_kib,
            "limit_kib": self.limit / 1024,
            "processes_alone_kib": self.base / 1024,
        })
    }
}

impl Bank {
    /// Makes one within so many bytes, empty.
    pub fn new(context: &Context, bytes: usize, spans: [u64; 3]) -> Result<Bank> {
        let layout = Layout::within(bytes);
        let pages = (layout.bytes() as u64).div_ceil(HUGE);
        let pool = Pool::more(pages)
            .or_else(|error| skipped(format!("{pages} huge pages cannot be had: {error}")))?;
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let size_bytes = layout.bytes() as u64;
        let options =
            CreateOptions { size_bytes, translation: Translation::SharedTables, ..CreateOptions::default() };
        host.create(NAME, &options, None)?;
        let file = context.directory.join("bank");
        let zeros = vec![0u8; 1 << 20];
        let mut made = File::create_new(&file)?;
        for _ in 0..layout.bytes().div_ceil(zeros.len()) {
            std::io::Write::write_all(&mut made, &zeros)?;
        }
        made.set_len(size_bytes)?;
        made.sync_all()?;
        Ok(Bank { layout, file, host, bench, seed: context.seed, spans, _pool: pool })
    }

    /// What the bank takes.
    pub fn detail(&self) -> Value {
        json!({ "scale_tps": self.layout.scale, "bytes": self.layout.bytes(), "run_ms": self.spans })
    }

    /// Runs it with so many processes, which have memory for the data, one set of tables and a tenth more.
    pub fn run(&self, tables: Tables, processes: usize) -> Result<Figures> {
        self.run_within(tables, processes, true)
    }

    /// The same; `limited`: whether they have no more memory than that.
    pub fn run_within(&self, tables: Tables, processes: usize, limited: bool) -> Result<Figures> {
        // What was brought in before is charged to others.
        let file = File::open(&self.file)?;
        file.sync_all()?;
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).map_err(std::io::Error::from)?;
        let group = Group::new()?;
        let before = page_tables_kib()?;
        let started: Result<Vec<Worker>> = (0..processes).map(|n| self.start(&group, tables, n)).collect();
        let mut workers = started?;
        let base = group.usage()?;
        let bytes = self.layout.bytes() as u64;
        // One set of tables: eight bytes for each page of 4 KiB.
        let mut limit = base + (bytes + bytes / 512) * 11 / 10;
        if tables == Tables::Shared {
            limit -= bytes; // huge pages are charged to no group
        }
        if limited {
            group.limit(limit)?;
        }
        for worker in &mut workers {
            worker.ask("attach").and_then(|said| if said == "attached" { Ok(()) } else { failed(said) })?;
        }
        for (part, worker) in workers.iter_mut().enumerate() {
            worker.tell(&format!("{part} {processes}"))?;
        }
        workers.iter_mut().try_for_each(|worker| worker.expect("warm"))?;
        let spans = self.spans.map(|span| span.to_string()).join(" ");
        workers.iter_mut().try_for_each(|worker| worker.tell(&spans))?;
        std::thread::sleep(Duration::from_millis(self.spans[0] + self.spans[1] * 9 / 10));
        let tables_kib = page_tables_kib()?.saturating_sub(before);
        let (mut per_second, mut faults) = (0.0, 0.0);
        for worker in &mut workers {
            let line = worker.line()?;
            let numbers: Vec<f64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
            let [of_worker, faulted] = numbers[..] else { return failed(format!("a client said {line:?}")) };
            per_second += of_worker;
            faults += faulted;
        }
        drop(workers);
        self.check(tables)?;
        Ok(Figures { per_second, faults, tables_kib, limit, base })
    }

    fn start(&self, group: &Group, tables: Tables, number: usize) -> Result<Worker> {
        let seed = self.seed.wrapping_add(number as u64);
        let mut arguments: Vec<OsString> =
            vec![group.members().into(), self.layout.scale.to_string().into(), seed.to_string().into()];
        match tables {
            Tables::Shared => arguments.extend(["segment".into(), self.bench.state().into(), NAME.into()]),
            Tables::Own => arguments.extend(["file".into(), self.file.clone().into_os_string()]),
        }
        Worker::start("bank-client", &arguments)
    }

    /// Nothing was lost: what branches, tellers and accounts have is the same.
    fn check(&self, tables: Tables) -> Result<()> {
        let sums = match tables {
            Tables::Shared => {
                let mapping = self.host.open(NAME, Access::ReadWrite)?.map(&objects::everything())?;
                self.layout.sums(View::of(&mapping))
            }
            Tables::Own => {
                let file =
                    File::options().read(true).write(true).open(&self.file).doing("opening the bank")?;
                let mapping = RawMapping::shared(&file, self.layout.bytes())?;
                self.layout.sums(mapping.view())
            }
        };
        match sums {
            [branches, tellers, accounts] if branches == tellers && tellers == accounts => Ok(()),
            other => failed(format!("branches, tellers and accounts have {other:?}")),
        }
    }
}
