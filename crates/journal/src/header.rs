//! One header slot of a journal file: encoding, and decoding that tells empty, damaged and newer apart.

use crate::error::FileId;
use crate::format::{
    BLOCK_BYTES, FORMAT_VERSION, Identity, NUMBER_LIMIT, PAGE_BYTES, get_u32, get_u64, get_uuid, put,
};

const MAGIC: &[u8; 8] = b"CmnhJrnl";
const CRC_AT: usize = 4092;

/// The contents of one header slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub identity: Identity,
    pub file: FileId,
    pub epoch: u64,
    /// The next sequence number when this header was written.
    pub base: u64,
    /// The lowest sequence number the other file still had to keep then; `base` if none.
    pub live: u64,
    /// The file has been at least so long, durably, ever since.
    pub least_bytes: u64,
}

/// What a header slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// An intact header.
    Valid(FileHeader),
    /// An intact header of another format version.
    OtherVersion(u32),
    /// Anything else: never written, torn, or damaged.
    Bad,
}

impl FileHeader {
    pub(crate) fn encode(&self, block: &mut [u8]) {
        block[..PAGE_BYTES].fill(0);
        put(block, 0, MAGIC);
        put(block, 8, &FORMAT_VERSION.to_le_bytes());
        put(block, 12, &(self.file.index() as u32).to_le_bytes());
        put(block, 16, &self.identity.uuid.0);
        put(block, 32, &self.identity.salt.to_le_bytes());
        put(block, 40, &self.epoch.to_le_bytes());
        put(block, 48, &self.base.to_le_bytes());
        put(block, 56, &self.live.to_le_bytes());
        put(block, 64, &self.least_bytes.to_le_bytes());
        put(block, 72, &(PAGE_BYTES as u32).to_le_bytes());
        seal(block);
    }

    pub(crate) fn decode(block: &[u8]) -> Slot {
        if &block[..8] != MAGIC || get_u32(block, CRC_AT) != crc32c::crc32c(&block[..CRC_AT]) {
            return Slot::Bad;
        }
        let version = get_u32(block, 8);
        if version != FORMAT_VERSION {
            return Slot::OtherVersion(version);
        }
        let file = match get_u32(block, 12) {
            0 => FileId::A,
            1 => FileId::B,
            _ => return Slot::Bad,
        };
        let header = FileHeader {
            identity: Identity { uuid: get_uuid(block, 16), salt: get_u64(block, 32) },
            file,
            epoch: get_u64(block, 40),
            base: get_u64(block, 48),
            live: get_u64(block, 56),
            least_bytes: get_u64(block, 64),
        };
        let sane = header.epoch < NUMBER_LIMIT
            && header.base < NUMBER_LIMIT
            && (1..=header.base).contains(&header.live)
            && get_u32(block, 72) == PAGE_BYTES as u32;
        if sane { Slot::Valid(header) } else { Slot::Bad }
    }
}

/// Writes the checksum of a header block.
pub(crate) fn seal(block: &mut [u8]) {
    let crc = crc32c::crc32c(&block[..CRC_AT]);
    put(block, CRC_AT, &crc.to_le_bytes());
}

/// Whether two slots without an intact header can be what a crash left of a creation: only slot 0 had
/// been written, over zeros, and some of its sectors are there. Keeps `open` from formatting a file
/// that was never a journal.
pub(crate) fn looks_uncreated(slots: &[u8]) -> bool {
    let zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    let (first, second) = slots.split_at(PAGE_BYTES);
    zero(second) && (first.starts_with(MAGIC) || zero(&first[..CRC_AT]))
}

/// Where slot 0 or 1 starts.
pub(crate) fn slot_offset(slot: usize) -> u64 {
    slot as u64 * BLOCK_BYTES
}

/// Whether a block carries the magic of a header slot (the fuzz entry seals such blocks again).
#[cfg(any(test, feature = "testing"))]
pub(crate) fn is_header(block: &[u8]) -> bool {
    block.starts_with(MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Uuid;

    fn sample() -> FileHeader {
        FileHeader {
            identity: Identity { uuid: Uuid([7; 16]), salt: 99 },
            file: FileId::B,
            epoch: 5,
            base: 12,
            live: 9,
            least_bytes: 65536,
        }
    }

    #[test]
    fn round_trip_and_every_flipped_byte_is_noticed() {
        let mut block = [0; PAGE_BYTES];
        sample().encode(&mut block);
        assert_eq!(FileHeader::decode(&block), Slot::Valid(sample()));
        for at in 0..PAGE_BYTES {
            block[at] ^= 0x10;
            assert_eq!(FileHeader::decode(&block), Slot::Bad, "byte {at}");
            block[at] ^= 0x10;
        }
    }

    #[test]
    fn an_intact_header_of_another_version_is_named() {
        let mut block = [0; PAGE_BYTES];
        sample().encode(&mut block);
        block[8] = 2;
        seal(&mut block);
        assert_eq!(FileHeader::decode(&block), Slot::OtherVersion(2));
    }

    #[test]
    fn a_torn_first_header_is_told_from_a_foreign_file() {
        let mut block = [0; PAGE_BYTES];
        sample().encode(&mut block);
        for kept in 0..256u32 {
            let mut slots = [0; 2 * PAGE_BYTES];
            for sector in (0..8).filter(|sector| kept & (1 << sector) != 0) {
                let range = sector * 512..(sector + 1) * 512;
                slots[range.clone()].copy_from_slice(&block[range]);
            }
            assert!(looks_uncreated(&slots), "sectors {kept:#b}");
        }
        let mut foreign = [0; 2 * PAGE_BYTES];
        foreign[100] = 1;
        assert!(!looks_uncreated(&foreign));
        foreign[100] = 0;
        foreign[5000] = 1;
        assert!(!looks_uncreated(&foreign));
    }

    #[test]
    fn the_block_is_that_of_its_version() {
        let mut block = [0; PAGE_BYTES];

        sample().encode(&mut block);
        let version = crate::FORMAT_VERSION.into();
        let kept = crate::golden::check(env!("CARGO_MANIFEST_DIR"), "journal-header", version, &block);
        let kept: [u8; PAGE_BYTES] = kept.try_into().unwrap();
        assert_eq!(FileHeader::decode(&kept), Slot::Valid(sample()));
    }
}
