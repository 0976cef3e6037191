//! The sets of programs of Govindan's Table 2, and what stands for them today.
//!
//! The paper counts programs of 4.3BSD's directories. Those directories are one today (`/bin` is `/usr/bin`, and
//! `/usr/ucb` is gone), but most of the programs are still there under their names: the names are what a set is made of.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A set as the paper has it.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// Its name.
    pub name: &'static str,
    /// Code fraction.
    pub code: f64,
    /// Disk space fraction.
    pub disk: f64,
    /// Number of programs.
    pub programs: u64,
    /// What it is made of today; none: no program of it is left.
    pub today: Option<Today>,
}

/// What stands for a set today.
#[derive(Clone, Copy, Debug)]
pub enum Today {
    /// Programs with these names, wherever `PATH` finds them.
    Named(&'static str),
    /// What else is in `/usr/bin`.
    Others,
}

/// 4.3BSD's `/bin`.
const BIN: &str = "[ ar as awk cat cc chgrp chmod cmp cp csh date dd df diff du echo ed expr false grep hostname kill \
    ld ln login ls mail make mkdir mt mv nice nm od passwd pr ps pwd ranlib rm rmdir sed sh size strip stty su sum \
    sync tar tee test time true wc who write";
/// 4.3BSD's `/usr/ucb`.
const UCB: &str = "apropos biff chfn chsh clear col colcrt colrm column compress ctags ex expand finger fmt fold from \
    ftp gprof groups head hostid indent last lastcomm leave lock logger look lpq lpr lprm man mesg more mset netstat \
    page printenv quota rcp rdist reset rev rlogin rsh ruptime rwho sccs script soelim strings symorder tail talk \
    tcopy telnet tftp tset ul unexpand unifdef uptime users uuencode uudecode vacation vgrind vi view vmstat w wall \
    whatis whereis which whoami xstr yes zcat";
/// The clients of X11's releases.
const X11: &str = "appres atobm bitmap bmtoa editres ico listres maze oclock puzzle resize twm uwm viewres x11perf \
    xauth xbiff xcalc xclipboard xclock xcmsdb xconsole xcutsel xditview xdpyinfo xdpr xedit xev xeyes xfd xfontsel \
    xgas xgc xhost xinit xkill xload xlogo xlsatoms xlsclients xlsfonts xlswins xmag xman xmessage xmh xmodmap \
    xplaces xpr xprop xrdb xrefresh xset xsetroot xstdcmap xterm xvinfo xwd xwininfo xwud";

/// Table 2.
pub const TABLE: [Published; 5] = [
    Published { name: "x10progs", code: 0.51, disk: 0.27, programs: 22, today: None },
    Published { name: "x11progs", code: 0.82, disk: 0.55, programs: 69, today: Some(Today::Named(X11)) },
    Published { name: "/bin", code: 0.76, disk: 0.48, programs: 45, today: Some(Today::Named(BIN)) },
    Published { name: "/usr/ucb", code: 0.60, disk: 0.40, programs: 64, today: Some(Today::Named(UCB)) },
    Published { name: "/usr/bin", code: 0.60, disk: 0.39, programs: 87, today: Some(Today::Others) },
];

/// Where programs are.
const FOLDERS: [&str; 3] = ["/usr/bin", "/bin", "/usr/sbin"];

impl Today {
    /// The files of a set that are here.
    pub fn programs(self) -> Vec<PathBuf> {
        match self {
            Today::Named(names) => names.split_ascii_whitespace().filter_map(find).collect(),
            Today::Others => {
                let named: HashSet<&str> =
                    [BIN, UCB, X11].iter().flat_map(|names| names.split_ascii_whitespace()).collect();
                let entries = fs::read_dir(FOLDERS[0]).into_iter().flatten().flatten();
                let others = entries.filter(|entry| !named.contains(&*entry.file_name().to_string_lossy()));
                let mut paths: Vec<PathBuf> =
                    others.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
                // The same order everywhere: of several names of one file the first counts.
                paths.sort();
                paths
            }
        }
    }
}

fn find(name: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_in_one_set_alone() {
        let names: Vec<&str> =
            [BIN, UCB, X11].iter().flat_map(|names| names.split_ascii_whitespace()).collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        let others = Today::Others.programs();
        for programs in [Today::Named(BIN).programs(), Today::Named(UCB).programs()] {
            assert!(!programs.is_empty());
            assert!(programs.iter().all(|path| !others.contains(path)));
        }
    }
}
