//! For the fuzz targets: files of code images, and libraries that are to become images.

use crate::existing::Existing;
use crate::format::{HEADER_AT, Header};
use crate::{make, refuse};
use commonhold_images::format::{Header as Page, Id, PAGE_BYTES, Version};
use commonhold_images::ranges::Owner;
use commonhold_images::store::{Opened, Rest, Store};
use commonhold_rebase::elf::Elf;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::hint::black_box;
use std::path::Path;

/// Any bytes as the file of an image; with an odd first byte all sums are made right. `file`: an
/// empty one that is used for it.
pub fn images(bytes: &[u8], file: &File) {
    use std::os::unix::fs::FileExt;
    let Some((kind, rest)) = bytes.split_first() else { return };
    let mut image = rest.to_vec();
    if kind & 1 != 0 {
        seal(&mut image);
    }
    let length = image.len() as u64;
    let written = file.set_len(length).and_then(|()| file.write_all_at(&image, 0));
    written.expect("memory can be written");
    let open = || Opened::of_file(file.try_clone().expect("a descriptor"), length);
    let Ok(mut opened) = open() else { return };
    let _ = (opened.exports(), opened.hash()); // what they are
    let store = Store::at(Path::new("/nowhere"), Owner::Machine);
    let path = Path::new("image");
    if let Ok(opened) = open() {
        let _ = Existing::check_image(&store, opened, Id([0; 32]), path); // whether they agree
    }
    if let Ok(opened) = open()
        && let Ok(image) = Existing::read(opened, &store, Id([0; 32]))
    {
        let header = &image.header;
        for slot in 0..header.slots.min(64) {
            let within = header.base..header.base + header.extent;
            assert!(within.contains(&image.slot(slot)) && within.contains(&image.entry(slot)));
        }
        black_box((image.major_name(), image.slots().count()));
    }
}

/// Makes the sums of first page, header and rest right.
fn seal(image: &mut [u8]) {
    let at = HEADER_AT as usize;
    if let Some(raw) = image.get(at..at + size_of::<Header>()) {
        let aligned: Vec<u64> = raw.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
        let bytes: Vec<u8> = aligned.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let sum = crate::format::sum(&bytes[16..]);
        image[at + 8..at + 16].copy_from_slice(&sum.to_le_bytes());
    }
    if let Some((page, rest)) = image.split_first_chunk_mut::<PAGE_BYTES>() {
        let mut sum = Rest::default();
        sum.add(rest);
        page[PAGE_BYTES - 16..PAGE_BYTES - 8].copy_from_slice(&sum.sum().to_le_bytes());
        let sum = commonhold_record::sum(&page[..PAGE_BYTES - 8]);
        page[PAGE_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
    }
}

fn wanted(library: &Path) -> make::Wanted {
    make::Wanted {
        library: library.to_owned(),
        name: "sample".into(),
        version: Version { major: 1, minor: 2, patch: 3 },
        group: None,
        exports: None,
        imports: Vec::new(),
        table: BTreeSet::new(),
    }
}

/// Any bytes as a library that is to be an image. The image, if it can be one.
pub fn libraries(bytes: &[u8]) -> Option<Vec<u8>> {
    let path = Path::new("library");
    let library = Elf::parse(path, bytes.to_vec()).ok()?;
    refuse::check(&library).ok()?;
    // An image is as long as the library says to be, up to 1 GiB: of those that are short enough to
    // be tried often.
    if library.extent().1 > 16 << 20 {
        return None;
    }
    let made = make::make_of(&wanted(path), library, &[], &BTreeMap::new(), |_| Ok(0x3000_0000_0000)).ok()?;
    let page = Page::new(&made.bytes).expect("what was made is an image");
    assert_eq!(page.check_here(made.bytes.len() as u64), Ok(()));
    Some(made.bytes)
}
