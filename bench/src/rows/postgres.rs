//! `postgres.…`: Debian's PostgreSQL, untouched, with its buffers in a segment whose page tables all its processes share.

use crate::context::Context;
use crate::failure::{Doing, Result, failed, skipped};
use crate::host::{BenchHost, program};
use crate::installed::find_or_install;
use crate::measure::alternate;
use crate::processes::page_tables_kib;
use crate::rebase::server::Server;
use crate::row::{Bar, Measured, Row, rounded};
use commonhold_tables::{HUGE, Pool};
use serde_json::json;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// Clients at once.
const CLIENTS: u32 = 100;
/// What a server has besides its buffers, and what the last huge page wastes.
const MORE: u64 = 160 << 20;

/// Memory of page tables.
pub struct PageTablesRatio;
/// Throughput beside pages of 4 KiB.
pub struct TpsVs4k;
/// Throughput beside PostgreSQL's own huge pages.
pub struct TpsVsHuge;

/// Where a server has its buffers.
#[derive(Clone, Copy, PartialEq)]
enum Buffers {
    /// In a segment of ours.
    Shared,
    /// In pages of 4 KiB.
    Small,
    /// In huge pages, by its own `huge_pages = on`.
    Huge,
}

/// How much of everything.
#[derive(Clone, Copy)]
struct Size {
    buffers_mib: u64,
    scale: u32,
    clients: u32,
    seconds: u32,
}

impl Size {
    fn of(context: &Context, seconds: u32) -> Size {
        context.pick(
            Size { buffers_mib: 2048, scale: 100, clients: CLIENTS, seconds },
            Size { buffers_mib: 128, scale: 2, clients: 10, seconds: 1 },
        )
    }

    /// Huge pages for one server.
    fn pool(self) -> Result<Pool> {
        let pages = ((self.buffers_mib << 20) + MORE) / HUGE;
        Pool::more(pages).or_else(|error| skipped(format!("{pages} huge pages cannot be had: {error}")))
    }
}

/// A server, with the tables of `pgbench` in its buffers.
struct Running {
    server: Server,
    child: Child,
    size: Size,
}

impl Drop for Running {
    fn drop(&mut self) {
        Server::stop(&mut self.child);
    }
}

impl Running {
    fn start(context: &Context, host: &BenchHost, buffers: Buffers, size: Size) -> Result<Running> {
        if find_or_install(&[&format!("{PROGRAMS}/pgbench")], "postgresql-15").is_none() {
            return skipped("PostgreSQL 15 is not installed: apt-get install postgresql-15");
        }
        let own = Context { directory: context.new_directory("server")?, ..context.clone() };
        let Some(server) = Server::new(&own)? else { return skipped("PostgreSQL 15 is not installed") };
        let mut command = match buffers {
            Buffers::Shared => {
                let mut command = Command::new(program()?);
                command.args(["run", "--share-page-tables", "--"]).arg(&server.program.path);
                command.env("COMMONHOLD_HOST", host.state());
                command
            }
            Buffers::Small | Buffers::Huge => Command::new(&server.program.path),
        };
        let kind = if buffers == Buffers::Huge { "mmap" } else { "sysv" };
        let huge = if buffers == Buffers::Huge { "on" } else { "off" };
        let shared = format!("shared_buffers={}MB", size.buffers_mib);
        let (kind, huge) = (format!("shared_memory_type={kind}"), format!("huge_pages={huge}"));
        command.args(&server.program.arguments);
        for setting in [&shared, &kind, &huge, "max_connections=200", "fsync=off", "autovacuum=off"] {
            command.arg("-c").arg(setting);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        if let Some(user) = server.program.user {
            command.uid(user).gid(user);
        }
        let mut child = command.spawn().doing("starting PostgreSQL's server")?;
        if let Err(error) = server.wait(&mut child) {
            Server::stop(&mut child);
            return Err(error);
        }
        let this = Running { server, child, size };
        this.bench(&["-i", "-q", "-s", &size.scale.to_string()])?;
        this.ask("create extension pg_prewarm")?;
        this.ask("select pg_prewarm('pgbench_accounts'), pg_prewarm('pgbench_accounts_pkey')")?;
        Ok(this)
    }

    fn client(&self, name: &str) -> Command {
        let mut command = Command::new(format!("{PROGRAMS}/{name}"));
        command.arg("-h").arg(self.server.sockets()).args(["-U", "bench"]).stdin(Stdio::null());
        command
    }

    fn ask(&self, query: &str) -> Result<()> {
        let output = self.client("psql").args(["-q", "-c", query, "postgres"]).output()?;
        if !output.status.success() {
            return failed(format!("{query}: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(())
    }

    fn bench<S: AsRef<OsStr>>(&self, words: &[S]) -> Result<String> {
        let output = self.client("pgbench").args(words).arg("postgres").output().doing("running pgbench")?;
        if !output.status.success() {
            return failed(format!("pgbench: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn load(&self) -> Vec<String> {
        let Size { clients, seconds, .. } = self.size;
        ["-S", "-n", "-j", "2", "-c", &clients.to_string(), "-T", &seconds.to_string()]
            .map(str::to_owned)
            .to_vec()
    }

    /// Transactions in a second: each reads an account.
    fn per_second(&self) -> Result<f64> {
        let said = self.bench(&self.load())?;
        let line = said.lines().find_map(|line| line.strip_prefix("tps = "));
        match line.and_then(|rest| rest.split(' ').next()?.parse().ok()) {
            Some(tps) => Ok(tps),
            None => failed(format!("pgbench says no throughput: {said}")),
        }
    }

    /// Memory of page tables that all the clients' processes add, in KiB: the most while they work.
    fn page_tables(&self) -> Result<f64> {
        let before = page_tables_kib()?;
        let mut clients =
            self.client("pgbench").args(self.load()).arg("postgres").stdout(Stdio::null()).spawn()?;
        let mut most = before;
        while clients.try_wait()?.is_none() {
            most = most.max(page_tables_kib()?);
            std::thread::sleep(Duration::from_millis(100));
        }
        if !clients.wait()?.success() {
            return failed("pgbench failed");
        }
        Ok(most.saturating_sub(before) as f64)
    }
}

impl Row for PageTablesRatio {
    fn id(&self) -> &'static str {
        "postgres.page_tables_ratio"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(0.1))
    }

    fn about(&self) -> &'static str {
        "page tables of 100 clients of PostgreSQL (`pgbench -S`, 2 GB of buffers that hold all data) run by `commonhold run \
         --share-page-tables` ÷ the same with pages of 4 KiB; with its own huge pages in detail"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let size = Size::of(context, 20);
        let _pool = size.pool()?;
        let host = context.start_host()?;
        let measure = |buffers| Running::start(context, &host, buffers, size)?.page_tables();
        let (ours, small) = (measure(Buffers::Shared)?, measure(Buffers::Small)?);
        let huge = measure(Buffers::Huge)?;
        let detail = json!({
            "clients": size.clients,
            "buffers_mib": size.buffers_mib,
            "page_tables_kib": { "shared": ours, "4 KiB": small, "huge_pages=on": huge },
            "huge_pages=on by 4 KiB": rounded(huge / small),
        });
        Ok(Measured::single(ours / small, 1, detail))
    }
}

/// Throughput of ours and of another, in turns.
fn compare(context: &Context, with: Buffers) -> Result<Measured> {
    let size = Size::of(context, 8);
    // The second makes the pool of the first larger, and goes before it.
    let _pool = size.pool()?;
    let _theirs = if with == Buffers::Huge { Some(size.pool()?) } else { None };
    let host = context.start_host()?;
    let ours = Running::start(context, &host, Buffers::Shared, size)?;
    let theirs = Running::start(context, &host, with, size)?;
    let pairs = alternate(context.pick(11, 1), |_| ours.per_second(), |_| theirs.per_second())?;
    let detail = json!({
        "clients": size.clients,
        "transactions_in_a_second": pairs.summary(1.0),
        "ours": pairs.ours.iter().copied().map(rounded).collect::<Vec<_>>(),
        "theirs": pairs.theirs.iter().copied().map(rounded).collect::<Vec<_>>(),
    });
    Ok(pairs.measured(pairs.ratio(), detail))
}

impl Row for TpsVs4k {
    fn id(&self) -> &'static str {
        "postgres.tps_vs_4k"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtLeast(1.0))
    }

    fn about(&self) -> &'static str {
        "transactions in a second of `pgbench -S` with 100 clients, all data in 2 GB of buffers: PostgreSQL run by `commonhold \
         run --share-page-tables` ÷ the same with pages of 4 KiB"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        compare(context, Buffers::Small)
    }
}

impl Row for TpsVsHuge {
    fn id(&self) -> &'static str {
        "postgres.tps_vs_huge"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtLeast(0.97))
    }

    fn about(&self) -> &'static str {
        "the same ÷ PostgreSQL with its own huge pages (huge_pages=on)"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        compare(context, Buffers::Huge)
    }
}
