//! Files of programs and libraries that nobody would link: word by word.

use std::ops::Range;

/// Where the headers of segments are.
const HEADERS_AT: usize = 64;
const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const READ_AND_EXECUTE: u32 = 5;
/// Bytes of a symbol, of a relocation, and of a section's header.
const SYMBOL: usize = 24;
const SECTION: usize = 64;

/// A shared library in the making.
pub struct Library {
    bytes: Vec<u8>,
    dynamic: Vec<(u64, u64)>,
    segments: usize,
}

impl Library {
    /// With so many headers of segments, of which all but two say nothing.
    pub fn of(segments: usize) -> Library {
        let mut bytes = vec![0; HEADERS_AT + segments * 56];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let halves = [(16, 3), (18, 62), (52, 64), (54, 56), (56, segments), (58, SECTION)];
        halves.iter().for_each(|(at, value)| put(&mut bytes, *at, &(*value as u16).to_le_bytes()));
        put(&mut bytes, 20, &1_u32.to_le_bytes());
        put(&mut bytes, 32, &(HEADERS_AT as u64).to_le_bytes());
        Library { bytes, dynamic: Vec::new(), segments }
    }

    /// Adds bytes; where they are.
    pub fn add(&mut self, bytes: &[u8]) -> u64 {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.bytes.extend(bytes);
        (self.bytes.len() - bytes.len()) as u64
    }

    /// Adds an entry of the dynamic section.
    pub fn tag(&mut self, tag: u64, value: u64) {
        self.dynamic.push((tag, value));
    }

    /// Adds these names, and symbols: where the name is, and whether it is defined, and has a value.
    pub fn symbols(&mut self, names: &[u8], symbols: impl Iterator<Item = (u32, bool, u64)>) -> Range<u64> {
        let strings = self.add(names);
        let mut table = vec![0; SYMBOL];
        for (name, is_defined, value) in symbols {
            table.extend(name.to_le_bytes());
            table.extend([0x12, 0, u8::from(is_defined), 0]);
            table.extend(value.to_le_bytes());
            table.extend(1_u64.to_le_bytes());
        }
        let first = self.add(&table);
        let count = (table.len() / SYMBOL) as u32;
        let hash = self.add(&[1, count, 0].map(u32::to_le_bytes).concat());
        [(4, hash), (5, strings), (6, first), (10, names.len() as u64), (11, 24)]
            .iter()
            .for_each(|(tag, value)| self.tag(*tag, *value));
        first..first + table.len() as u64
    }

    /// Adds so many relocations of one word by one symbol (its address, for data).
    pub fn relocations(&mut self, count: usize, symbol: u32) {
        let word = self.add(&[0; 8]);
        let one = [word, u64::from(symbol) << 32 | 6, 0].map(u64::to_le_bytes).concat();
        let first = self.add(&one.repeat(count));
        [(7, first), (8, (count * 24) as u64), (9, 24)]
            .iter()
            .for_each(|(tag, value)| self.tag(*tag, *value));
    }

    /// Adds the headers of so many sections that all are this table of symbols.
    pub fn tables(&mut self, count: u16, table: Range<u64>) {
        let mut one = vec![0; SECTION];
        put(&mut one, 4, &2_u32.to_le_bytes());
        put(&mut one, 24, &table.start.to_le_bytes());
        put(&mut one, 32, &(table.end - table.start).to_le_bytes());
        let first = self.add(&one.repeat(count.into()));
        put(&mut self.bytes, 40, &first.to_le_bytes());
        put(&mut self.bytes, 60, &count.to_le_bytes());
    }

    /// The file.
    pub fn finish(mut self) -> Vec<u8> {
        let all = self.dynamic.iter().chain([&(0, 0)]).flat_map(|(tag, value)| [*tag, *value]);
        let all: Vec<u8> = all.flat_map(u64::to_le_bytes).collect();
        let dynamic = self.add(&all);
        let whole = self.bytes.len() as u64;
        for (place, kind, at, bytes) in [(2, LOAD, 0, whole), (1, DYNAMIC, dynamic, all.len() as u64)] {
            let header = HEADERS_AT + (self.segments - place) * 56;
            put(&mut self.bytes, header, &[kind, READ_AND_EXECUTE].map(u32::to_le_bytes).concat());
            let longs = [at, at, at, bytes, bytes, 4096].map(u64::to_le_bytes).concat();
            put(&mut self.bytes, header + 8, &longs);
        }
        // Those that say nothing are segments of no bytes.
        for index in 0..self.segments - 2 {
            put(&mut self.bytes, HEADERS_AT + index * 56, &LOAD.to_le_bytes());
        }
        self.bytes
    }
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

/// A library with one function, which can be an image.
pub fn plain() -> Library {
    let mut library = Library::of(2);
    library.symbols(b"\0f\0", [(1, true, 64)].into_iter());
    library
}

/// What takes long to read, or much memory: of files of some megabytes.
pub fn hostile() -> [(&'static str, Vec<u8>); 5] {
    const MANY: usize = 150_000;
    let mut alike = Library::of(2);
    let symbols = (0..MANY).map(|index| if index == 0 { (1, false, 0) } else { (1, true, 0) });
    alike.symbols(b"\0x\0", symbols.chain([(1, true, 64)]));
    alike.relocations(MANY, 1);
    let mut long = Library::of(2);
    let name = [&b"\0"[..], &vec![b'n'; 1 << 20], b"\0f\0"].concat();
    long.symbols(&name, [(1, true, 64), (2 + (1 << 20), true, 64)].into_iter());
    long.relocations(MANY, 1);
    let mut tables = plain();
    let names = vec![0; 8];
    let table = tables.symbols(&names, (0..100_000).map(|_| (0, true, 64)).chain([(0, true, 64)]));
    // The symbols of the loader are those of `plain`.
    tables.dynamic.truncate(5);
    tables.tables(60_000, table);
    let mut packed = plain();
    let words = packed.add(&vec![0xff; 16 << 20]);
    packed.tag(36, words);
    packed.tag(35, 16 << 20);
    packed.tag(37, 8);
    let mut segments = Library::of(65_000);
    segments.symbols(b"\0f\0", [(1, true, 64)].into_iter());
    segments.relocations(MANY, 1);
    [
        ("symbols of one name", alike.finish()),
        ("a long name for each relocation", long.finish()),
        ("many tables of symbols", tables.finish()),
        ("packed relocations of everything", packed.finish()),
        ("many segments", segments.finish()),
    ]
}
