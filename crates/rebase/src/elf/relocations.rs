//! What the loader has to do to a file before it runs.

use super::dynamic::{self, Dynamic};
use super::{Segment, read};

/// What kinds there are in files that are linked (psABI of x86-64, table 4.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Nothing.
    None,
    /// The symbol's address and the addend.
    Address,
    /// The bytes of the symbol, in programs.
    Copy,
    /// The symbol's address, of data or of a function whose address is taken.
    Global,
    /// The symbol's address, of a function that is called.
    Jump,
    /// The base of the file and the addend.
    Relative,
    /// What the function at base and addend says.
    Indirect,
    /// Thread-local storage.
    ThreadLocal,
    /// Anything else.
    Other(u32),
}

impl From<u32> for Kind {
    fn from(raw: u32) -> Kind {
        match raw {
            0 => Kind::None,
            1 => Kind::Address,
            5 => Kind::Copy,
            6 => Kind::Global,
            7 => Kind::Jump,
            8 => Kind::Relative,
            37 => Kind::Indirect,
            16..=18 | 36 => Kind::ThreadLocal,
            other => Kind::Other(other),
        }
    }
}

/// One.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// The address of the word that it changes.
    pub address: u64,
    /// What is done.
    pub kind: Kind,
    /// Its type's number, as the file has it.
    pub raw: u32,
    /// Of which symbol; 0: none.
    pub symbol: u32,
    /// What is added.
    pub addend: i64,
}

/// All of a file.
#[derive(Clone, Debug, Default)]
pub struct Relocations {
    /// DT_RELA.
    pub table: Vec<Relocation>,
    /// DT_JMPREL: functions, which a lazy loader looks up at their first call.
    pub jumps: Vec<Relocation>,
    /// DT_RELR: addresses of words to which the base is added.
    pub relative: Vec<u64>,
}

const ENTRY_BYTES: usize = 24;

impl Relocations {
    pub(super) fn read(bytes: &[u8], segments: &[Segment], dynamic: &Dynamic) -> Result<Relocations, String> {
        if dynamic.value(dynamic::REL).is_some()
            || dynamic.value(dynamic::PLTREL).is_some_and(|kind| kind != 7)
        {
            return Err("it has relocations without addends, which x86-64 has not".into());
        }
        let table = |address, length: u64| -> Result<Vec<Relocation>, String> {
            let Some(address) = dynamic.value(address) else { return Ok(Vec::new()) };
            let length = dynamic.value(length).unwrap_or(0);
            let raw = read::from(bytes, segments, address).and_then(|raw| raw.get(..length as usize));
            if length == 0 {
                return Ok(Vec::new());
            }
            Ok(raw
                .ok_or("its relocations lie outside the file")?
                .chunks_exact(ENTRY_BYTES)
                .map(one)
                .collect())
        };
        Ok(Relocations {
            table: table(dynamic::RELA, dynamic::RELASZ)?,
            jumps: table(dynamic::JMPREL, dynamic::PLTRELSZ)?,
            relative: packed(bytes, segments, dynamic)?,
        })
    }

    /// All that name a symbol, or could.
    pub fn named(&self) -> impl Iterator<Item = &Relocation> {
        self.table.iter().chain(&self.jumps)
    }
}

fn one(raw: &[u8]) -> Relocation {
    let word = |at: usize| u64::from_le_bytes(raw[at..at + 8].try_into().expect("eight bytes"));
    let info = word(8);
    Relocation {
        address: word(0),
        kind: Kind::from(info as u32),
        raw: info as u32,
        symbol: (info >> 32) as u32,
        addend: word(16) as i64,
    }
}

/// DT_RELR: an even word is an address; an odd one says which of the 63 words that follow are meant too.
fn packed(bytes: &[u8], segments: &[Segment], dynamic: &Dynamic) -> Result<Vec<u64>, String> {
    let Some(address) = dynamic.value(dynamic::RELR) else { return Ok(Vec::new()) };
    let length = dynamic.value(dynamic::RELRSZ).unwrap_or(0) as usize;
    let raw = read::from(bytes, segments, address).and_then(|raw| raw.get(..length));
    let raw = raw.ok_or("its packed relocations lie outside the file")?;
    let mut all = Vec::new();
    let mut next = 0u64;
    for word in raw.chunks_exact(8).map(|raw| u64::from_le_bytes(raw.try_into().expect("eight bytes"))) {
        if word & 1 == 0 {
            all.push(word);
            next = word.wrapping_add(8);
        } else {
            let set = (0..63).filter(|bit| word >> (bit + 1) & 1 == 1);
            all.extend(set.map(|bit| next.wrapping_add(8 * bit)));
            next = next.wrapping_add(8 * 63);
        }
        if all.len() > bytes.len() / 8 {
            return Err("it relocates more words than it has".into());
        }
    }
    Ok(all)
}
