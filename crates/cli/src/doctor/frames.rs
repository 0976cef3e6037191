//! What eviction needs of frames: small pages, and references that outlive a punch.

use super::probe::PAGE;
use super::report::Check;
use commonhold_sys::frames;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage";

/// Shared memory is not put into huge pages unasked: a punch would zero part of one under a reference to it.
pub fn small_pages() -> Check {
    judge_small_pages(&settings(Path::new(HUGE_PAGES)))
}

/// Every `shmem_enabled`: the file's path, and the word chosen in it.
fn settings(directory: &Path) -> Vec<(String, String)> {
    let mut files = vec![directory.join("shmem_enabled")];
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("hugepages-") {
            files.push(entry.path().join("shmem_enabled"));
        }
    }
    files.sort();
    let chosen = |text: String| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned());
    let read = |path: &std::path::PathBuf| {
        Some((path.display().to_string(), chosen(std::fs::read_to_string(path).ok()?)?))
    };
    files.iter().filter_map(read).collect()
}

fn judge_small_pages(settings: &[(String, String)]) -> Check {
    const NAME: &str = "small frames";
    let unasked = |(_, word): &&(String, String)| matches!(word.as_str(), "always" | "force" | "within_size");
    let wrong: Vec<_> = settings.iter().filter(unasked).collect();
    if wrong.is_empty() {
        let found = match settings.first() {
            Some((_, word)) => format!("huge pages for shared memory: {word}"),
            None => "this kernel has no huge pages for shared memory".to_owned(),
        };
        return Check::ok(NAME, found);
    }
    let found: Vec<_> = wrong.iter().map(|(path, word)| format!("{path} is {word}")).collect();
    let fix: Vec<_> = wrong.iter().map(|(path, _)| format!("echo advise > {path}")).collect();
    Check::fail(NAME, found.join(", "), format!("as root: {}", fix.join("; ")))
}

/// A reference to a frame in a pipe still has its content after the frame was punched out of its file.
pub fn outlive_a_punch() -> Check {
    const NAME: &str = "eviction";
    match try_punch() {
        Ok(true) => Check::ok(NAME, "a frame that was taken away can still be read through a reference"),
        Ok(false) => Check::fail(
            NAME,
            "a frame that was taken away lost its content",
            "objects under a memory budget would lose writes: set the huge pages of shared memory to advise (see \
             small frames)",
        ),
        Err(error) => Check::fail(
            NAME,
            format!("cannot be tried: {error}"),
            "memfd_create, splice and fallocate must be allowed: in a container, look at its seccomp profile",
        ),
    }
}

fn try_punch() -> io::Result<bool> {
    let content: Vec<u8> = (0..PAGE).map(|n| (n % 251) as u8 + 1).collect();
    let memory = File::from(frames::create("commonhold-doctor", 2 * PAGE as u64)?);
    memory.write_all_at(&content, PAGE as u64)?;
    let (read, write) = frames::frame_pipe(1)?;
    if frames::reference_into_pipe(&memory, PAGE as u64, PAGE, &write)? != PAGE {
        return Err(io::Error::other("the pipe took less than a page"));
    }
    frames::punch(&memory, PAGE as u64, PAGE as u64)?;
    let mut kept = vec![0; PAGE];
    File::from(read).read_exact(&mut kept)?;
    let mut left = vec![1; PAGE];
    memory.read_exact_at(&mut left, PAGE as u64)?;
    if left.iter().any(|byte| *byte != 0) {
        return Err(io::Error::other("a page that was punched out is still there"));
    }
    Ok(kept == content)
}

#[cfg(test)]
mod tests {
    use super::super::report::State;
    use super::*;

    fn setting(path: &str, word: &str) -> (String, String) {
        (path.to_owned(), word.to_owned())
    }

    #[test]
    fn huge_frames_unasked_are_refused() {
        assert_eq!(judge_small_pages(&[]).state, State::Ok);
        assert_eq!(judge_small_pages(&[setting("a", "never"), setting("b", "inherit")]).state, State::Ok);
        for word in ["always", "within_size", "force"] {
            let check = judge_small_pages(&[setting("a", "advise"), setting("b", word)]);
            assert_eq!(check.state, State::Fail);
            assert!(check.fix.unwrap().contains("echo advise > b"));
        }
    }

    #[test]
    fn settings_are_read_from_every_size() {
        let directory = std::env::temp_dir().join(format!("commonhold-settings-{}", std::process::id()));
        let size = directory.join("hugepages-64kB");
        std::fs::create_dir_all(&size).unwrap();
        std::fs::write(directory.join("shmem_enabled"), "always within_size [advise] never\n").unwrap();
        std::fs::write(size.join("shmem_enabled"), "[always] inherit within_size advise never\n").unwrap();
        let words: Vec<_> = settings(&directory).into_iter().map(|(_, word)| word).collect();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(words, ["always", "advise"]);
    }
}
