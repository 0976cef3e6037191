//! PostgreSQL's server on an empty data directory, and a client of it. The server refuses to run as root: as root it is
//! started as nobody.

use super::Program;
use super::programs::find;
use crate::context::Context;
use crate::failure::{Doing, Failure, Result, failed};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// Debian's and most others' number of nobody.
const NOBODY: u32 = 65534;
const USER: &str = "bench";
/// For its start and for its end.
const PATIENCE: Duration = Duration::from_secs(300);

/// A data directory, with nothing in it but what `initdb` puts there.
pub struct Server {
    /// The server's own program.
    pub program: Program,
    data: PathBuf,
    // The paths of sockets are short, and a row's folder may lie deep.
    sockets: tempfile::TempDir,
}

impl Server {
    /// Makes one, if PostgreSQL is installed.
    pub fn new(context: &Context) -> Result<Option<Server>> {
        let Some(program) = find(&[&format!("{PROGRAMS}/postgres")], &[]) else { return Ok(None) };
        let user = rustix::process::geteuid().is_root().then_some(NOBODY);
        let sockets = tempfile::tempdir()?;
        let data = context.directory.join("postgresql");
        std::fs::create_dir(&data)?;
        if user.is_some() {
            // The server reads its copies there.
            std::fs::set_permissions(&context.directory, PermissionsExt::from_mode(0o711))?;
            reachable(&context.directory)?;
            for place in [&data, sockets.path()] {
                chown(place, user, user)?;
                std::fs::set_permissions(place, PermissionsExt::from_mode(0o700))?;
            }
        }
        let mut make = Command::new(format!("{PROGRAMS}/initdb"));
        make.arg("-D").arg(&data).args(["-A", "trust", "-U", USER, "--locale=C", "--no-sync"]);
        make.current_dir(&data).stdin(Stdio::null());
        if let Some(user) = user {
            make.uid(user).gid(user);
        }
        let output = make.output().doing("starting initdb")?;
        if !output.status.success() {
            return failed(format!("initdb: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let arguments = ["-D", &text(&data), "-k", &text(sockets.path()), "-c", "listen_addresses="];
        let arguments = arguments.map(str::to_owned).to_vec();
        Ok(Some(Server { program: Program { arguments, user, ..program }, data, sockets }))
    }

    /// A client that waits for what it is to ask.
    pub fn client(&self) -> Option<Program> {
        let place = self.sockets.path().to_string_lossy();
        find(&[&format!("{PROGRAMS}/psql")], &["-X", "-q", "-h", &place, "-U", USER, "postgres"])
    }

    /// Where its socket is.
    pub fn sockets(&self) -> &Path {
        self.sockets.path()
    }

    /// Waits until clients are let in.
    pub fn wait(&self, server: &mut Child) -> Result<()> {
        let begun = Instant::now();
        // The eighth line of the file says how far the server is.
        let says = || std::fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        while says().lines().nth(7).map(str::trim) != Some("ready") {
            if let Some(status) = server.try_wait()? {
                return failed(format!("PostgreSQL's server ended with {status}"));
            }
            if begun.elapsed() > PATIENCE {
                return failed("PostgreSQL's server does not begin within five minutes");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Ends it as its users do, so that the next start finds nothing to mend. Its processes are groups of their own.
    pub fn stop(server: &mut Child) {
        let begun = Instant::now();
        if let Some(pid) = i32::try_from(server.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::INT);
        }
        while matches!(server.try_wait(), Ok(None)) && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Whether everybody may come to a folder.
fn reachable(folder: &Path) -> Result<()> {
    for place in folder.ancestors() {
        if std::fs::metadata(place)?.permissions().mode() & 0o001 == 0 {
            return Err(Failure::Skipped(format!(
                "PostgreSQL's server runs as nobody, who may not come to {}: name another folder in COMMONHOLD_BENCH_DIR",
                place.display()
            )));
        }
    }
    Ok(())
}
