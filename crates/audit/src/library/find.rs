//! Where libraries and archives are: the folders that the loader and the linker look into, below a root directory.

use super::elf::Target;
use object::elf;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use std::fs::File;
use std::io;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Configuration and linker scripts are shorter than this.
const LARGEST_TEXT_BYTES: u64 = 1 << 20;

/// Folders below one root.
#[derive(Debug)]
pub struct Places {
    root: PathBuf,
    /// What `/etc/ld.so.conf` names.
    configured: Vec<PathBuf>,
}

impl Places {
    /// Reads the loader's configuration below `root`.
    pub fn new(root: &Path) -> Self {
        let mut places = Self { root: root.to_owned(), configured: Vec::new() };
        places.configured = places.configuration(Path::new("/etc/ld.so.conf"), 0);
        places
    }

    /// Opens a regular file by its path below the root; symbolic links do not lead out of it.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        let file = if self.root == Path::new("/") { open_plain(path)? } else { self.open_inside(path)? };
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(file)
    }

    /// The path below the root of a path on this machine; paths elsewhere stay.
    pub fn inner<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        path.strip_prefix(&self.root).ok()
    }

    fn open_inside(&self, path: &Path) -> io::Result<File> {
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.root, folder, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file: OwnedFd = rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)?;
        Ok(File::from(file))
    }

    /// Folders that the loader looks into for this target, and the linker too.
    pub fn folders(&self, target: Target) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        for triplet in triplets(target) {
            folders.extend(["/usr/local/lib", "/lib", "/usr/lib"].map(|base| Path::new(base).join(triplet)));
        }
        folders.extend(self.configured.iter().cloned());
        let wide: &[&str] = if target.is_64 { &["/lib64", "/usr/lib64"] } else { &["/lib32", "/usr/lib32"] };
        folders.extend(["/usr/local/lib", "/lib", "/usr/lib"].iter().chain(wide).map(PathBuf::from));
        folders
    }

    /// Folders of the compiler, the newest first: its own libraries have their archives there.
    pub fn compiler_folders(&self, target: Target) -> Vec<PathBuf> {
        let Some(architecture) = triplets(target).first().and_then(|triplet| triplet.split('-').next())
        else {
            return Vec::new();
        };
        let base = Path::new("/usr/lib/gcc");
        let mut folders = Vec::new();
        for compiler in self.list(base) {
            if compiler.split('-').next() != Some(architecture) {
                continue;
            }
            let mut versions = self.list(&base.join(&compiler));
            versions.sort_by_key(|version| {
                let number = |part: &str| part.parse::<u64>().unwrap_or(0);
                std::cmp::Reverse(version.split('.').map(number).collect::<Vec<_>>())
            });
            folders.extend(versions.iter().map(|version| base.join(&compiler).join(version)));
        }
        folders
    }

    fn list(&self, folder: &Path) -> Vec<String> {
        let inside = self.root.join(folder.strip_prefix("/").unwrap_or(folder));
        let entries = std::fs::read_dir(inside).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Archives that a file named `libNAME.a` stands for: itself, or those that its linker script names.
    pub fn archives(&self, path: &Path) -> Vec<(PathBuf, File)> {
        let Ok(mut file) = self.open(path) else { return Vec::new() };
        let mut magic = [0; 8];
        if file.read_exact(&mut magic).is_err() {
            return Vec::new();
        }
        if &magic == b"!<arch>\n" || &magic == b"!<thin>\n" {
            return vec![(path.to_owned(), file)];
        }
        let named = script_inputs(&self.text(path).unwrap_or_default());
        let folder = path.parent().unwrap_or(Path::new("/"));
        named
            .iter()
            .filter_map(|name| Some((folder.join(name), self.open(&folder.join(name)).ok()?)))
            .collect()
    }

    fn text(&self, path: &Path) -> io::Result<String> {
        let mut text = Vec::new();
        self.open(path)?.take(LARGEST_TEXT_BYTES).read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Folders that a configuration names, `include` lines followed.
    fn configuration(&self, path: &Path, depth: u8) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        if depth > 4 {
            return folders;
        }
        for line in self.text(path).unwrap_or_default().lines() {
            let line = line.split('#').next().unwrap_or("").trim();
            if let Some(pattern) = line.strip_prefix("include ") {
                for file in self.matching(path, pattern.trim()) {
                    folders.extend(self.configuration(&file, depth + 1));
                }
            } else if line.starts_with('/') {
                folders.push(PathBuf::from(line));
            }
        }
        folders
    }

    /// Files that `FOLDER/*.conf` stands for; nothing else has ever been seen there.
    fn matching(&self, from: &Path, pattern: &str) -> Vec<PathBuf> {
        let pattern = from.parent().unwrap_or(Path::new("/")).join(pattern);
        let (Some(folder), Some(name)) =
            (pattern.parent(), pattern.file_name().and_then(|name| name.to_str()))
        else {
            return Vec::new();
        };
        let Some(end) = name.strip_prefix('*') else { return vec![pattern] };
        let mut files: Vec<String> = self.list(folder);
        files.retain(|file| file.ends_with(end));
        files.sort();
        files.into_iter().map(|file| folder.join(file)).collect()
    }
}

/// Opens without waiting for the other end of a pipe.
pub fn open_plain(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Names of archives in the GROUP and INPUT commands of a linker script.
fn script_inputs(text: &str) -> Vec<String> {
    let mut text = text.to_owned();
    while let (Some(start), Some(length)) = (text.find("/*"), text.find("*/")) {
        if length < start {
            break;
        }
        text.replace_range(start..length + 2, " ");
    }
    let spaced = text.replace(['(', ')', ',', ';'], " ");
    spaced.split_whitespace().filter(|word| word.ends_with(".a")).map(str::to_owned).collect()
}

/// What multiarch folders of a target are called.
fn triplets(target: Target) -> &'static [&'static str] {
    match (elf::Machine(target.machine), target.is_64, target.little_endian) {
        (elf::EM_X86_64, true, _) => &["x86_64-linux-gnu", "x86_64-linux-musl"],
        (elf::EM_X86_64, false, _) => &["x86_64-linux-gnux32"],
        (elf::EM_386, ..) => &["i386-linux-gnu", "i686-linux-gnu", "i386-linux-musl"],
        (elf::EM_AARCH64, ..) => &["aarch64-linux-gnu", "aarch64-linux-musl"],
        (elf::EM_ARM, ..) => &["arm-linux-gnueabihf", "arm-linux-gnueabi"],
        (elf::EM_RISCV, true, _) => &["riscv64-linux-gnu"],
        (elf::EM_PPC64, _, true) => &["powerpc64le-linux-gnu"],
        (elf::EM_PPC64, _, false) => &["powerpc64-linux-gnu"],
        (elf::EM_S390, true, _) => &["s390x-linux-gnu"],
        (elf::EM_LOONGARCH, true, _) => &["loongarch64-linux-gnu"],
        (elf::EM_MIPS, true, true) => &["mips64el-linux-gnuabi64"],
        (elf::EM_MIPS, false, true) => &["mipsel-linux-gnu"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: Target = Target { machine: 62, is_64: true, little_endian: true };

    #[test]
    fn a_script_names_archives() {
        let text = "/* GNU ld script\n*/ OUTPUT_FORMAT(elf64-x86-64)\n\
            GROUP ( /usr/lib/libm-2.36.a /usr/lib/libmvec.a AS_NEEDED ( libx.a ) )";
        assert_eq!(script_inputs(text), ["/usr/lib/libm-2.36.a", "/usr/lib/libmvec.a", "libx.a"]);
        assert!(script_inputs("*/ x /*").is_empty());
    }

    #[test]
    fn a_root_has_folders_and_compilers_of_its_own() {
        let root = tempfile::tempdir().expect("a folder");
        let make = |path: &str| std::fs::create_dir_all(root.path().join(path)).expect("made");
        for path in
            ["etc/ld.so.conf.d", "usr/lib/gcc/x86_64-linux-gnu/9", "usr/lib/gcc/x86_64-linux-gnu/12.2"]
        {
            make(path);
        }
        make("usr/lib/gcc/aarch64-linux-gnu/13");
        let write = |path: &str, text: &str| std::fs::write(root.path().join(path), text).expect("written");
        write("etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n/opt/own # mine\n");
        write("etc/ld.so.conf.d/a.conf", "/opt/a\n");
        write("etc/ld.so.conf.d/b.txt", "/opt/b\n");
        let places = Places::new(root.path());
        assert_eq!(places.configured, [Path::new("/opt/a"), Path::new("/opt/own")]);
        assert_eq!(
            places.compiler_folders(X86),
            [Path::new("/usr/lib/gcc/x86_64-linux-gnu/12.2"), Path::new("/usr/lib/gcc/x86_64-linux-gnu/9"),]
        );
        assert!(places.folders(X86).contains(&PathBuf::from("/usr/lib/x86_64-linux-gnu")));
    }

    #[test]
    fn links_of_a_root_do_not_lead_out_of_it() {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::write(root.path().join("real"), "inside").expect("written");
        std::os::unix::fs::symlink("/real", root.path().join("link")).expect("linked");
        let places = Places::new(root.path());
        assert_eq!(places.text(Path::new("/link")).expect("opened"), "inside");
        assert!(places.open(Path::new("/etc/passwd")).is_err());
        assert!(places.open(Path::new("/")).is_err(), "a folder is no regular file");
    }
}
