//! Eight users at work: shells, editors, compilers and a database, each as a user of its own.

use crate::audit::programs::Waiting;
use crate::failure::{Doing, Result, skipped};
use crate::installed::{find, find_or_install};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many.
pub const USERS: u32 = 8;
/// Their numbers: nobody's on a usual machine.
const FIRST_UID: u32 = 61_000;

/// A real source: the program of the demonstration, and the header that it needs.
const SOURCE: &str = include_str!("../../../demo/index.c");
const HEADER: &str = include_str!("../../../include/commonhold.h");

/// Compiles again and again, as a user does who looks for a fault.
const COMPILE: &str = "cd \"$1\" && while :; do cc -O2 -I.. -c ../source.c -o out.o || exit 1; sleep 1; done";
/// What a shell is given to do before it waits for more.
const SHELL_WORK: &str = "cd /usr\nls > /dev/null\nfor n in 1 2 3; do echo $n > /dev/null; done\n";
/// What an editor is given to do; vim's and ed's commands are the same here.
const EDITOR_WORK: &str = "r ../source.c\n1,20p\n";
/// What the database is given to do.
const DATABASE_WORK: &str = "CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT);\n\
    WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 20000)\n\
    INSERT INTO t SELECT n, hex(n * 7919) FROM c;\n\
    CREATE INDEX i ON t (text);\nSELECT count(*) FROM t WHERE text LIKE '%3%';\n";

/// The users' processes; they end when this is dropped.
#[derive(Debug)]
pub struct Users {
    members: Vec<Waiting>,
    /// How many of each program were started.
    pub programs: BTreeMap<String, usize>,
    // Removed when the processes are gone.
    folder: tempfile::TempDir,
}

/// Programs that are here.
struct Tools {
    shells: Vec<PathBuf>,
    editors: Vec<(PathBuf, &'static [&'static str])>,
    compiler: bool,
    database: Option<PathBuf>,
}

impl Users {
    /// Starts all of them. Root's alone to do.
    pub fn start() -> Result<Users> {
        let editors: [(&str, &[&str]); 3] =
            [("vim", &["-es", "-u", "NONE"]), ("vim.tiny", &["-es", "-u", "NONE"]), ("ed", &["-s"])];
        let compiler = find_or_install(&["cc"], "gcc").is_some();
        let database = find_or_install(&["sqlite3"], "sqlite3");
        let _ = find_or_install(&["vim", "vim.tiny"], "vim-tiny");
        let _ = find_or_install(&["ed"], "ed");
        let tools = Tools {
            shells: ["bash", "sh"].iter().filter_map(|name| find(name)).collect(),
            editors: editors.iter().filter_map(|(name, words)| Some((find(name)?, *words))).collect(),
            compiler,
            database,
        };
        let mut missing = Vec::new();
        for (is_here, what) in [
            (!tools.editors.is_empty(), "vim and no ed"),
            (tools.compiler, "cc"),
            (tools.database.is_some(), "sqlite3"),
        ] {
            if !is_here {
                missing.push(what);
            }
        }
        // With less it would be another load than the one that is described.
        if !missing.is_empty() {
            return skipped(format!("this machine has no {}: install them", missing.join(", no ")));
        }
        let folder = tempfile::tempdir()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        fs::write(folder.path().join("source.c"), SOURCE)?;
        fs::write(folder.path().join("commonhold.h"), HEADER)?;
        let mut users = Users { members: Vec::new(), programs: BTreeMap::new(), folder };
        for n in 0..USERS {
            users.user(n, &tools)?;
        }
        Ok(users)
    }

    /// How many processes were started; compilers come and go besides.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    fn user(&mut self, n: u32, tools: &Tools) -> Result<()> {
        let uid = FIRST_UID + n;
        let home = self.folder.path().join(n.to_string());
        fs::create_dir(&home)?;
        chown(&home, Some(uid), Some(uid)).doing("giving a user a directory")?;
        // A shell to work in, and one more for every second user.
        let count = 1 + n.is_multiple_of(2) as usize;
        for shell in tools.shells.iter().cycle().skip(n as usize).take(count) {
            self.add(uid, &home, shell, &["-s"], SHELL_WORK, true)?;
        }
        if let Some((editor, words)) = tools.editors.get(n as usize % tools.editors.len().max(1)) {
            self.add(uid, &home, editor, words, EDITOR_WORK, true)?;
        }
        if let Some(database) = &tools.database {
            self.add(uid, &home, database, &["-batch", "data.db"], DATABASE_WORK, true)?;
        }
        if tools.compiler {
            let place = home.display().to_string();
            self.add(uid, &home, Path::new("/bin/sh"), &["-c", COMPILE, "compile", &place], "", false)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        uid: u32,
        home: &Path,
        program: &Path,
        words: &[&str],
        work: &str,
        rests: bool,
    ) -> Result<()> {
        let mut command = Command::new(program);
        command.args(words).current_dir(home).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("HOME", home).env("TMPDIR", home).uid(uid).gid(uid);
        let mut process = Waiting::start(&mut command)?;
        process.tell(work)?;
        if rests {
            process.rest()?;
        }
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        *self.programs.entry(if rests { name } else { "sh, compiling with cc".into() }).or_default() += 1;
        self.members.push(process);
        Ok(())
    }
}
