//! The header block of one part of a record: encoding, decoding, and the checks it can do alone.

use crate::error::Damage;
use crate::format::{
    BLOCK_BYTES, Identity, MAX_PART_PAGES, NUMBER_LIMIT, PAGE_BYTES, PAGE_LIST_OFFSET, get_u32, get_u64,
    get_uuid, put,
};
use commonhold_points as points;

const MAGIC: &[u8; 8] = b"CmnhPart";
const FLAG_FINAL: u32 = 1;

/// Everything a part header says but the page numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartHeader {
    pub identity: Identity,
    pub payload_crc: u32,
    pub epoch: u64,
    pub sequence: u64,
    pub attempt: u64,
    pub part: u32,
    pub pages: u32,
    pub is_final: bool,
    /// Pages in the record up to and including this part.
    pub record_pages: u64,
    /// Bytes of the record up to and including this part.
    pub record_bytes: u64,
    /// Where in the file this block is.
    pub offset: u64,
}

impl PartHeader {
    /// Bytes of header and payload.
    pub(crate) fn part_bytes(&self) -> u64 {
        (u64::from(self.pages) + 1) * BLOCK_BYTES
    }

    /// Fills in all but the page numbers, which are there already, and seals the block.
    pub(crate) fn encode(&self, block: &mut [u8]) {
        block[..PAGE_LIST_OFFSET].fill(0);
        put(block, 0, MAGIC);
        put(block, 12, &self.payload_crc.to_le_bytes());
        put(block, 16, &self.identity.uuid.0);
        put(block, 32, &self.identity.salt.to_le_bytes());
        put(block, 40, &self.epoch.to_le_bytes());
        put(block, 48, &self.sequence.to_le_bytes());
        put(block, 56, &self.attempt.to_le_bytes());
        put(block, 64, &self.part.to_le_bytes());
        put(block, 68, &self.pages.to_le_bytes());
        put(block, 72, &u32::from(self.is_final).to_le_bytes());
        put(block, 80, &self.record_pages.to_le_bytes());
        put(block, 88, &self.record_bytes.to_le_bytes());
        put(block, 96, &self.offset.to_le_bytes());
        seal(block);
    }

    /// Decodes a block found at `offset`; identity and epoch are for the caller to compare.
    pub(crate) fn decode(block: &[u8], offset: u64) -> Result<PartHeader, Damage> {
        if &block[..8] != MAGIC {
            return Err(Damage::Absent);
        }
        let (expected, found) = (crc32c::crc32c(&block[12..PAGE_BYTES]), get_u32(block, 8));
        if expected != found {
            return Err(Damage::HeaderChecksum { expected, found });
        }
        let flags = get_u32(block, 72);
        let header = PartHeader {
            identity: Identity { uuid: get_uuid(block, 16), salt: get_u64(block, 32) },
            payload_crc: get_u32(block, 12),
            epoch: get_u64(block, 40),
            sequence: get_u64(block, 48),
            attempt: get_u64(block, 56),
            part: get_u32(block, 64),
            pages: get_u32(block, 68),
            is_final: flags & FLAG_FINAL != 0,
            record_pages: get_u64(block, 80),
            record_bytes: get_u64(block, 88),
            offset: get_u64(block, 96),
        };
        header.check(flags, offset)?;
        Ok(header)
    }

    fn check(&self, flags: u32, offset: u64) -> Result<(), Damage> {
        // Only the final part of a record that has pages before it may be empty.
        let empty_allowed = self.is_final && self.part > 0;
        let checks = [
            ("flags", flags & !FLAG_FINAL == 0),
            ("epoch", self.epoch < NUMBER_LIMIT),
            ("sequence", (1..NUMBER_LIMIT).contains(&self.sequence)),
            ("pages", self.pages as usize <= MAX_PART_PAGES && (self.pages > 0 || empty_allowed)),
            ("offset", self.offset == offset),
        ];
        match checks.into_iter().find(|(_, holds)| !holds) {
            Some((field, _)) => Err(Damage::Field { field }),
            None => Ok(()),
        }
    }

    pub(crate) fn page_number(block: &[u8], index: usize) -> u32 {
        get_u32(block, PAGE_LIST_OFFSET + 4 * index)
    }

    /// Checks the payload against the header's checksum.
    pub(crate) fn check_payload(&self, payload: &[u8]) -> Result<(), Damage> {
        let expected = crc32c::crc32c(payload);
        if expected == self.payload_crc || points::mutant("journal.payload_unchecked") {
            Ok(())
        } else {
            Err(Damage::PayloadChecksum { expected, found: self.payload_crc })
        }
    }
}

/// Writes the checksum of a part header block.
pub(crate) fn seal(block: &mut [u8]) {
    let crc = crc32c::crc32c(&block[12..PAGE_BYTES]);
    put(block, 8, &crc.to_le_bytes());
}

/// Whether a block carries the magic of a part: a cheap test before decoding it.
pub(crate) fn is_part(block: &[u8]) -> bool {
    block.starts_with(MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Uuid;

    fn sample() -> PartHeader {
        PartHeader {
            identity: Identity { uuid: Uuid([3; 16]), salt: 4 },
            payload_crc: 5,
            epoch: 6,
            sequence: 7,
            attempt: 8,
            part: 1,
            pages: 2,
            is_final: true,
            record_pages: 10,
            record_bytes: 12 * 4096,
            offset: 8192,
        }
    }

    #[test]
    fn round_trip_and_every_flipped_byte_is_noticed() {
        let mut block = [0; PAGE_BYTES];
        put(&mut block, PAGE_LIST_OFFSET, &17u32.to_le_bytes());
        sample().encode(&mut block);
        assert_eq!(PartHeader::decode(&block, 8192), Ok(sample()));
        assert_eq!(PartHeader::page_number(&block, 0), 17);
        for at in 0..PAGE_BYTES {
            block[at] ^= 1;
            assert!(PartHeader::decode(&block, 8192).is_err(), "byte {at}");
            block[at] ^= 1;
        }
    }

    #[test]
    fn impossible_fields_are_named() {
        let field = |change: fn(&mut PartHeader)| {
            let mut header = sample();
            change(&mut header);
            let mut block = [0; PAGE_BYTES];
            header.encode(&mut block);
            match PartHeader::decode(&block, 8192) {
                Err(Damage::Field { field }) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(field(|header| header.offset = 4096), "offset");
        assert_eq!(field(|header| header.pages = 993), "pages");
        assert_eq!(field(|header| header.sequence = 0), "sequence");
        assert_eq!(field(|header| header.epoch = u64::MAX), "epoch");
        let empty_middle = |header: &mut PartHeader| (header.pages, header.is_final) = (0, false);
        assert_eq!(field(empty_middle), "pages");
    }

    #[test]
    fn the_block_is_that_of_its_version() {
        let mut block = [0; PAGE_BYTES];
        put(&mut block, PAGE_LIST_OFFSET, &17u32.to_le_bytes());
        sample().encode(&mut block);
        let version = crate::FORMAT_VERSION.into();
        let kept = crate::golden::check(env!("CARGO_MANIFEST_DIR"), "journal-part", version, &block);
        let kept: [u8; PAGE_BYTES] = kept.try_into().unwrap();
        assert_eq!(PartHeader::decode(&kept, 8192), Ok(sample()));
    }
}
