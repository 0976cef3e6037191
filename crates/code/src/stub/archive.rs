//! An archive with one object: whoever links with `-l` has the stub only if something of it is called.

/// The archive; `symbols` are those that lead the linker to the object.
pub fn archive(name: &str, object: &[u8], symbols: &[&str]) -> Vec<u8> {
    const HEADER_BYTES: usize = 60;
    let names: Vec<u8> = symbols.iter().flat_map(|name| name.bytes().chain([0])).collect();
    let index_bytes = (4 + 4 * symbols.len() + names.len()).next_multiple_of(2);
    let object_at = (8 + HEADER_BYTES + index_bytes) as u32;
    let mut file = b"!<arch>\n".to_vec();
    file.extend(header("/", index_bytes));
    let start = file.len();
    file.extend((symbols.len() as u32).to_be_bytes());
    for _ in symbols {
        file.extend(object_at.to_be_bytes());
    }
    file.extend(names);
    file.resize(start + index_bytes, 0);
    file.extend(header(&format!("{}/", &name[..name.len().min(13)]), object.len()));
    file.extend(object);
    if !object.len().is_multiple_of(2) {
        file.push(b'\n');
    }
    file
}

fn header(name: &str, bytes: usize) -> Vec<u8> {
    format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{bytes:<10}`\n", 0, 0, 0, 644).into_bytes()
}
