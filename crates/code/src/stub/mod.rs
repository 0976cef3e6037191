//! What programs are linked to in place of the library: one small function for each export, which jumps to where the
//! image's slot says; a record of the image; and the code that includes it.
//!
//! ```text
//! f:     movabs $slot, %r11
//!        cmpb   $0, record(%rip)      included? These two only where functions are called before that (`When::First`)
//!        je     first                 include it, then go on
//!        jmp    *(%r11)               the slot has the function's address
//!        int3
//! ```

pub mod archive;
pub mod object;
mod runtime;

pub use runtime::Runtime;

use crate::existing::Existing;
use crate::format::{MOST_PATH, NAME_BYTES, Record, SECTION};
use crate::{Error, Result};
use object::{
    ADDRESS, ALLOC, Binding, DISTANCE, EXECUTE, INIT_ARRAY, Object, PROGBITS, Relocation, Section, Symbol,
    To, WRITE,
};
use std::mem::offset_of;

/// When the image is included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// It is on the program's list: before `main`, by the start-up code of the C library.
    Start,
    /// When the program calls `commonhold_image_include`, which it must do before it calls one of its functions.
    Call,
    /// At the first call of one of its functions, or before, by `commonhold_image_include`: each call looks.
    First,
}

/// Places of the sections.
const CODE: usize = 0;
const RECORDS: usize = 1;

/// The stub of an image as an object file. `imports`: all images that it calls, and those that they call.
pub fn object(image: &Existing, imports: &[Existing], when: When) -> Result<Vec<u8>> {
    let runtime = Runtime::new()?;
    let section = |name: &str, flags, alignment| Section {
        name: name.into(),
        kind: PROGBITS,
        flags,
        alignment,
        bytes: Vec::new(),
        relocations: Vec::new(),
    };
    let mut stub = Stub {
        object: Object {
            sections: vec![
                section(".text.commonhold_image", ALLOC | EXECUTE, Runtime::ALIGNMENT),
                section(SECTION, ALLOC | WRITE, 8),
                section(".note.GNU-stack", 0, 1),
            ],
            symbols: Vec::new(),
        },
        runtime,
    };
    for end in ["start", "stop"] {
        stub.symbol(&format!("__{end}_{SECTION}"), None, 0, 0, Binding::Global, true);
    }
    stub.object.sections[CODE].bytes.clone_from(&stub.runtime.bytes);
    for image in std::iter::once(image).chain(imports) {
        stub.record(image)?;
    }
    stub.interface();
    if when == When::Start {
        stub.on_the_list();
    }
    stub.thunks(image, when);
    Ok(stub.object.write())
}

/// The symbols that lead a linker to the stub in an archive.
pub fn symbols(image: &Existing) -> Vec<&str> {
    let own = ["commonhold_image_include", "commonhold_image_error"];
    image.exports.iter().map(|(name, _)| name.as_str()).chain(own).collect()
}

struct Stub {
    object: Object,
    runtime: Runtime,
}

/// Symbols that each stub has first.
const FIRST_RECORD: usize = 0;
const LAST_RECORD: usize = 1;

impl Stub {
    fn symbol(
        &mut self,
        name: &str,
        section: Option<usize>,
        at: usize,
        bytes: usize,
        binding: Binding,
        hidden: bool,
    ) {
        let is_function = section == Some(CODE);
        let (at, bytes) = (at as u64, bytes as u64);
        self.object.symbols.push(Symbol {
            name: name.into(),
            section,
            at,
            bytes,
            binding,
            is_function,
            hidden,
        });
    }

    /// Where the next code goes, at a multiple of 16.
    fn align(&mut self) -> usize {
        let code = &mut self.object.sections[CODE].bytes;
        code.resize(code.len().next_multiple_of(16), 0xcc);
        code.len()
    }

    fn code(&mut self, bytes: &[u8]) {
        self.object.sections[CODE].bytes.extend(bytes);
    }

    /// The last four bytes of an instruction that has `behind` more bytes: the distance to something.
    fn distance(&mut self, to: To, at: i64, behind: i64) {
        let code = &mut self.object.sections[CODE];
        let place = code.bytes.len() as u64;
        code.bytes.extend([0; 4]);
        code.relocations.push(Relocation { at: place, kind: DISTANCE, to, addend: at - 4 - behind });
    }

    /// The distance to a place of the code, which is known.
    fn jump_to(&mut self, to: u64) {
        let from = self.object.sections[CODE].bytes.len() as u64 + 4;
        let distance = to.wrapping_sub(from) as u32;
        self.code(&distance.to_le_bytes());
    }

    /// What the program knows of the image.
    fn record(&mut self, image: &Existing) -> Result<()> {
        let path = image.newest.to_str().ok_or_else(|| {
            Error::Invalid(format!("{} is no text, and programs cannot name it", image.newest.display()))
        })?;
        if path.len() >= MOST_PATH {
            return Err(Error::Invalid(format!(
                "{path} has {} bytes, and programs follow {} at most: put the store where its path is shorter",
                path.len(),
                MOST_PATH - 1
            )));
        }
        let table = self.table(image);
        let start = self.object.sections[RECORDS].bytes.len();
        let bytes = (size_of::<Record>() + path.len() + 1).next_multiple_of(8);
        let mut record = vec![0; bytes];
        let mut put = |at: usize, value: &[u8]| record[at..at + value.len()].copy_from_slice(value);
        put(offset_of!(Record, bytes), &(bytes as u32).to_le_bytes());
        put(offset_of!(Record, slots), &image.header.slots.to_le_bytes());
        put(offset_of!(Record, base), &image.header.base.to_le_bytes());
        put(offset_of!(Record, lineage), &image.header.lineage.to_le_bytes());
        put(offset_of!(Record, table_sum), &image.header.table_sum.to_le_bytes());
        put(offset_of!(Record, table_count), &(image.table.len() as u32).to_le_bytes());
        put(offset_of!(Record, name), &image.header.name[..NAME_BYTES]);
        put(size_of::<Record>(), path.as_bytes());
        let records = &mut self.object.sections[RECORDS];
        records.bytes.extend(record);
        let mut distance = |field: usize, to| {
            records.relocations.push(Relocation {
                at: (start + field) as u64,
                kind: DISTANCE,
                to,
                addend: 0,
            });
        };
        distance(offset_of!(Record, first), To::Symbol(FIRST_RECORD));
        distance(offset_of!(Record, end), To::Symbol(LAST_RECORD));
        if let Some(table) = table {
            distance(offset_of!(Record, table), To::Section(table));
        }
        Ok(())
    }

    /// The program's functions that the image calls.
    fn table(&mut self, image: &Existing) -> Option<usize> {
        if image.table.is_empty() {
            return None;
        }
        let relocations = (0..).zip(&image.table).map(|(index, name)| {
            let known = self.object.symbols.iter().position(|symbol| symbol.name == *name);
            let symbol = known.unwrap_or_else(|| {
                self.symbol(name, None, 0, 0, Binding::Global, false);
                self.object.symbols.len() - 1
            });
            Relocation { at: index * 8, kind: ADDRESS, to: To::Symbol(symbol), addend: 0 }
        });
        let relocations: Vec<Relocation> = relocations.collect();
        self.object.sections.push(Section {
            name: ".data.rel.ro.commonhold_image".into(),
            kind: PROGBITS,
            flags: ALLOC | WRITE,
            alignment: 8,
            bytes: vec![0; image.table.len() * 8],
            relocations,
        });
        Some(self.object.sections.len() - 1)
    }

    /// The C interface. Each stub has it, and any of them will do.
    fn interface(&mut self) {
        let at = self.align();
        self.code(&LANDING);
        self.code(&[0x48, 0x8d, 0x35]); // lea first(%rip), %rsi
        self.distance(To::Symbol(FIRST_RECORD), 0, 0);
        self.code(&[0x48, 0x8d, 0x15]); // lea end(%rip), %rdx
        self.distance(To::Symbol(LAST_RECORD), 0, 0);
        self.code(&[0xe9]);
        self.jump_to(self.runtime.by_name);
        self.symbol("commonhold_image_include", Some(CODE), at, 23, Binding::Weak, true);
        let at = self.align();
        self.code(&LANDING);
        self.code(&[0xe9]);
        self.jump_to(self.runtime.text);
        self.symbol("commonhold_image_error", Some(CODE), at, 9, Binding::Weak, true);
    }

    /// Before all other constructors.
    fn on_the_list(&mut self) {
        let at = self.align();
        self.code(&LANDING);
        self.code(&[0x48, 0x8d, 0x3d]); // lea record(%rip), %rdi
        self.distance(To::Section(RECORDS), 0, 0);
        self.code(&[0xe9]);
        self.jump_to(self.runtime.start);
        self.object.sections.push(Section {
            name: ".init_array.00010".into(),
            kind: INIT_ARRAY,
            flags: ALLOC | WRITE,
            alignment: 8,
            bytes: vec![0; 8],
            relocations: vec![Relocation { at: 0, kind: ADDRESS, to: To::Section(CODE), addend: at as i64 }],
        });
    }

    /// One function for each export.
    fn thunks(&mut self, image: &Existing, when: When) {
        let first = self.align() as u64;
        self.code(&[0x41, 0x53]); // push %r11
        self.code(&[0x4c, 0x8d, 0x1d]); // lea record(%rip), %r11
        self.distance(To::Section(RECORDS), 0, 0);
        self.code(&[0xe9]);
        self.jump_to(self.runtime.first);
        let code = &mut self.object.sections[CODE].bytes;
        code.resize(code.len().next_multiple_of(64), 0xcc);
        let mut exports: Vec<&(String, u32)> = image.exports.iter().collect();
        exports.sort_by_key(|(_, slot)| *slot);
        for (name, slot) in exports {
            let at = self.object.sections[CODE].bytes.len();
            self.code(&[0x49, 0xbb]); // movabs $slot, %r11
            self.code(&image.slot(*slot).to_le_bytes());
            if when == When::First {
                self.code(&[0x80, 0x3d]); // cmpb $0, record(%rip)
                self.distance(To::Section(RECORDS), 0, 1);
                self.code(&[0]);
                self.code(&[0x0f, 0x84]); // je first
                self.jump_to(first);
            }
            self.code(&[0x41, 0xff, 0x23]); // jmp *(%r11)
            // Until a processor knows where a jump leads it may run straight on: not into the next one.
            self.code(&[0xcc]);
            // That follows at once: programs run through them cold.
            let bytes = self.object.sections[CODE].bytes.len() - at;
            self.symbol(name, Some(CODE), at, bytes, Binding::Global, false);
        }
    }
}

/// `endbr64`: indirect jumps may end here.
const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

const _: () = assert!(offset_of!(Record, ready) == 0, "stubs look at the first byte");
