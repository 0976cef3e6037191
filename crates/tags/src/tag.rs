//! What is in a range of memory.

use crate::map::PAGE_BYTES;
use std::fmt;

/// A type that machines have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Bytes that mean the same on each machine.
    Bytes,
    /// Integers, signed or not, of so many bytes: 1, 2, 4, 8 or 16.
    Integer(u8),
    /// Where something lies in an object: an unsigned number of 8 bytes.
    Offset,
    /// IEEE half precision, on every machine.
    Float16,
    /// The upper half of an IEEE single, on every machine.
    Bfloat16,
    /// Single precision, as the machine has it: IEEE, or VAX F.
    Float32,
    /// Double precision, as the machine has it: IEEE, or VAX D.
    Float64,
}

const WORDS: [(Type, &str); 12] = [
    (Type::Bytes, "bytes"),
    (Type::Integer(1), "int8"),
    (Type::Integer(2), "int16"),
    (Type::Integer(4), "int32"),
    (Type::Integer(8), "int64"),
    (Type::Integer(16), "int128"),
    (Type::Offset, "offset"),
    (Type::Float16, "float16"),
    (Type::Bfloat16, "bfloat16"),
    (Type::Float32, "float32"),
    (Type::Float64, "float64"),
    // What C programs say.
    (Type::Integer(1), "char"),
];

impl Type {
    /// Bytes of one.
    pub const fn bytes(self) -> usize {
        match self {
            Type::Bytes => 1,
            Type::Integer(bytes) => bytes as usize,
            Type::Float16 | Type::Bfloat16 => 2,
            Type::Float32 => 4,
            Type::Offset | Type::Float64 => 8,
        }
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        WORDS.iter().find(|(known, _)| *known == self).map_or("bytes", |(_, word)| word)
    }

    /// The type of a name; `None`: it is not known.
    pub fn of_word(word: &str) -> Option<Type> {
        // Signs mean nothing to a translation.
        let word = word.strip_prefix('u').filter(|rest| rest.starts_with("int")).unwrap_or(word);
        WORDS.iter().find(|(_, known)| *known == word).map(|(found, _)| *found)
    }
}

/// A part of a record: so many of a type, from a byte on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Its first byte.
    pub offset: u32,
    /// What it is.
    pub of: Type,
    /// How many, one behind the other.
    pub count: u32,
}

/// What is in a range of memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    /// One type, again and again.
    Of(Type),
    /// One record, again and again: fields in order, and between them bytes that mean nothing.
    Record {
        /// Bytes of one.
        bytes: u32,
        /// None overlaps another.
        fields: Vec<Field>,
    },
}

/// Fields of a record at most.
const MOST_FIELDS: usize = 256;

impl Tag {
    /// Bytes of one element.
    pub fn bytes(&self) -> usize {
        match self {
            Tag::Of(of) => of.bytes(),
            Tag::Record { bytes, .. } => *bytes as usize,
        }
    }

    /// A record, if it can be one: of 1 byte at least, its fields in order, inside, and not one over
    /// another.
    pub fn record(bytes: u32, fields: Vec<Field>) -> Option<Tag> {
        let mut end = 0_u64;
        for field in &fields {
            if u64::from(field.offset) < end || field.count == 0 {
                return None;
            }
            end = u64::from(field.offset) + u64::from(field.count) * field.of.bytes() as u64;
        }
        let fits = bytes > 0 && end <= u64::from(bytes) && fields.len() <= MOST_FIELDS;
        fits.then_some(Tag::Record { bytes, fields })
    }

    /// Whether a page never ends within a number, wherever in a row of records it ends: they divide a page, or each number
    /// lies at a multiple of its size, as C and NumPy's aligned types have it.
    pub fn fits_pages(&self) -> bool {
        match self {
            Tag::Of(_) => true,
            Tag::Record { bytes, fields } => {
                let aligned = |field: &Field| {
                    let size = field.of.bytes() as u32;
                    field.offset.is_multiple_of(size) && bytes.is_multiple_of(size)
                };
                self.divides_page() || fields.iter().all(aligned)
            }
        }
    }

    /// Whether so many bytes, from the first element on, end between numbers.
    pub fn ends_after(&self, bytes: u64) -> bool {
        match self {
            Tag::Of(of) => bytes.is_multiple_of(of.bytes() as u64),
            Tag::Record { bytes: record, fields } => {
                let end = bytes % u64::from(*record);
                let cuts = |field: &Field| {
                    let (first, size) = (u64::from(field.offset), field.of.bytes() as u64);
                    let inside = first < end && end < first + u64::from(field.count) * size;
                    inside && !(end - first).is_multiple_of(size)
                };
                !fields.iter().any(cuts)
            }
        }
    }

    /// Whether a page holds whole elements.
    pub fn divides_page(&self) -> bool {
        PAGE_BYTES.is_multiple_of(self.bytes())
    }

    /// By what it is known where its text is too long: FNV-1a of the text, of 64 bits.
    pub fn hash(&self) -> u64 {
        let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        self.to_string().bytes().fold(0xcbf2_9ce4_8422_2325, step)
    }

    /// The tag of a text: a type (`float32`), or a record (`{24: 0 int32, 8 float64*2}`). `None`: it
    /// is not known, or cannot be.
    pub fn of_text(text: &str) -> Option<Tag> {
        let Some(inside) = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else {
            return Type::of_word(text).map(Tag::Of);
        };
        let (bytes, rest) = inside.split_once(':')?;
        let mut fields = Vec::new();
        for field in rest.split(',').map(str::trim).filter(|field| !field.is_empty()).take(MOST_FIELDS + 1) {
            let (offset, of) = field.split_once(' ')?;
            let (of, count) = of.split_once('*').unwrap_or((of, "1"));
            fields.push(Field {
                offset: offset.parse().ok()?,
                of: Type::of_word(of)?,
                count: count.parse().ok()?,
            });
        }
        Tag::record(bytes.trim().parse().ok()?, fields)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tag::Of(of) => f.write_str(of.word()),
            Tag::Record { bytes, fields } => {
                write!(f, "{{{bytes}:")?;
                for (index, field) in fields.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma} {} {}", field.offset, field.of.word())?;
                    if field.count != 1 {
                        write!(f, "*{}", field.count)?;
                    }
                }
                f.write_str("}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_they_are_written_and_nothing_else_is() {
        let texts = [
            "bytes",
            "int8",
            "int128",
            "offset",
            "bfloat16",
            "float64",
            "{8:}",
            "{24: 0 int32, 8 float64*2}",
        ];
        for text in texts {
            let tag = Tag::of_text(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(tag.to_string(), text);
        }
        assert_eq!(Tag::of_text("uint32"), Some(Tag::Of(Type::Integer(4))));
        let none = [
            "",
            "int",
            "int24",
            "ufloat32",
            "{",
            "{}",
            "{0:}",
            "{4: 1 int32}",
            "{8: 4 int32, 0 int32}",
            "{8: 0 int32, 2 int16}",
            "{8: 0 int32*3}",
            "{8: 0 int32*0}",
            "{8: x int32}",
            "{8: 0 what}",
            "{99999999999: 0 int8}",
            "{8: 4294967295 int32*4294967295}",
            "{8: 0 int32",
        ];
        none.iter().for_each(|text| assert_eq!(Tag::of_text(text), None, "{text}"));
        let many = format!("{{1000: {}}}", (0..257).map(|n| format!("{n} int8,")).collect::<String>());
        assert_eq!(Tag::of_text(&many), None);
    }
}
