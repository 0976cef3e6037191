//! The dynamic section: tags and values, and where in the file they are.

/// `p_type` of the dynamic section.
pub(super) const SEGMENT: u32 = 2;

macro_rules! tags {
    ($($name:ident = $value:expr),* $(,)?) => { $(#[allow(missing_docs)] pub const $name: u64 = $value;)* };
}

tags! {
    NEEDED = 1, PLTRELSZ = 2, PLTGOT = 3, HASH = 4, STRTAB = 5, SYMTAB = 6, RELA = 7, RELASZ = 8, STRSZ = 10,
    INIT = 12, FINI = 13, SONAME = 14, SYMBOLIC = 16, REL = 17, PLTREL = 20, TEXTREL = 22, JMPREL = 23,
    BIND_NOW = 24, INIT_ARRAY = 25, FINI_ARRAY = 26, INIT_ARRAYSZ = 27, FINI_ARRAYSZ = 28, FLAGS = 30, PREINIT_ARRAY = 32, RELRSZ = 35, RELR = 36,
    RELRENT = 37, GNU_HASH = 0x6fff_fef5, TLSDESC_PLT = 0x6fff_fef6, TLSDESC_GOT = 0x6fff_fef7,
    VERSYM = 0x6fff_fff0, RELACOUNT = 0x6fff_fff9, FLAGS_1 = 0x6fff_fffb, VERDEF = 0x6fff_fffc,
    VERDEFNUM = 0x6fff_fffd, VERNEED = 0x6fff_fffe, VERNEEDNUM = 0x6fff_ffff,
    AUXILIARY = 0x7fff_fffd, FILTER = 0x7fff_ffff, DEPAUDIT = 0x6fff_fefb, AUDIT = 0x6fff_fefc,
    GNU_CONFLICT = 0x6fff_fef8, X86_64_PLT = 0x7000_0000, X86_64_PLTSZ = 0x7000_0001, X86_64_PLTENT = 0x7000_0003, GNU_LIBLIST = 0x6fff_fef9,
}

/// Tags whose value is an address.
pub const ADDRESSES: [u64; 19] = [
    PLTGOT,
    HASH,
    STRTAB,
    SYMTAB,
    RELA,
    INIT,
    FINI,
    JMPREL,
    INIT_ARRAY,
    FINI_ARRAY,
    PREINIT_ARRAY,
    RELR,
    GNU_HASH,
    TLSDESC_PLT,
    TLSDESC_GOT,
    VERSYM,
    VERDEF,
    VERNEED,
    X86_64_PLT,
];

/// Tags that are known, and whose value is no address.
const OTHERS: [u64; 25] = [
    NEEDED,
    PLTRELSZ,
    RELASZ,
    9,
    STRSZ,
    11,
    SONAME,
    15,
    SYMBOLIC,
    PLTREL,
    21,
    BIND_NOW,
    INIT_ARRAYSZ,
    FINI_ARRAYSZ,
    29,
    FLAGS,
    33,
    RELRSZ,
    RELRENT,
    RELACOUNT,
    FLAGS_1,
    VERDEFNUM,
    VERNEEDNUM,
    X86_64_PLTSZ,
    X86_64_PLTENT,
];

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What.
    pub tag: u64,
    /// Its value.
    pub value: u64,
    /// Offset of the entry in the file.
    pub offset: usize,
}

/// What DT_FLAGS, DT_FLAGS_1 and the older tags of the same meaning say together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Its own symbols come first for its own references.
    pub symbolic: bool,
    /// Functions are looked up when it is loaded.
    pub bind_now: bool,
    /// Text is relocated.
    pub text_relocations: bool,
    /// It may not be unloaded.
    pub no_delete: bool,
    /// It is a program, although it can be anywhere.
    pub position_independent_program: bool,
}

/// The section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dynamic {
    /// Its entries, without the last, in their order.
    pub entries: Vec<Entry>,
}

impl Dynamic {
    pub(super) fn new(entries: Vec<Entry>) -> Dynamic {
        Dynamic { entries }
    }

    /// The values of a tag, in order.
    pub fn values(&self, tag: u64) -> impl Iterator<Item = u64> {
        self.entries.iter().filter(move |entry| entry.tag == tag).map(|entry| entry.value)
    }

    /// The value of a tag. Of several the last, as the loader takes them.
    pub fn value(&self, tag: u64) -> Option<u64> {
        self.values(tag).last()
    }

    /// The entry of a tag.
    pub fn entry(&self, tag: u64) -> Option<&Entry> {
        self.entries.iter().rev().find(|entry| entry.tag == tag)
    }

    /// The flags.
    pub fn flags(&self) -> Flags {
        let flags = self.value(FLAGS).unwrap_or(0);
        let flags_1 = self.value(FLAGS_1).unwrap_or(0);
        Flags {
            symbolic: flags & 2 != 0 || self.value(SYMBOLIC).is_some(),
            bind_now: flags & 8 != 0 || flags_1 & 1 != 0 || self.value(BIND_NOW).is_some(),
            text_relocations: flags & 4 != 0 || self.value(TEXTREL).is_some(),
            no_delete: flags_1 & 8 != 0,
            position_independent_program: flags_1 & 0x0800_0000 != 0,
        }
    }

    /// Tags that nobody here knows: what they mean for a moved file is not known either.
    pub fn unknown(&self) -> Option<u64> {
        let known = |tag: &u64| ADDRESSES.contains(tag) || OTHERS.contains(tag);
        self.entries.iter().map(|entry| entry.tag).find(|tag| !known(tag))
    }
}
