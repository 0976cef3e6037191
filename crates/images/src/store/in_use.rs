//! Who has an image in memory now.

use commonhold_image::Id;
use std::fs;

/// The processes that map the content of that build ID, as far as the caller may see them. Their maps name the file by its
/// path, whose last part is found nowhere else.
pub fn processes_with(id: Id) -> Vec<u32> {
    let name = id.to_string();
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(number) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(maps) = fs::read(process.path().join("maps")) else { continue };
        if maps.windows(name.len()).any(|part| part == name.as_bytes()) {
            found.push(number);
        }
    }
    found.sort_unstable();
    found
}
