//! What is known of types: for Rust from a macro, for C and Python from tables. From it a seal knows where the pointers are,
//! and a reader whether an image was made with the same fields.

use crate::{Error, Result};

/// A type among [`Types`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeRef(pub(super) usize);

/// What has no pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// A number without sign, of 1, 2, 4, 8 or 16 bytes.
    Unsigned,
    /// With one.
    Signed,
    /// Of 4 or 8 bytes.
    Float,
    /// One byte, 0 or 1.
    Bool,
    /// A byte of text in UTF-8.
    Utf8,
    /// A character of Unicode, of 4 bytes.
    Char,
}

impl Scalar {
    /// What it is called where something is wrong.
    fn name(self, bytes: usize) -> &'static str {
        match (self, bytes) {
            (Scalar::Unsigned, 1) => "u8",
            (Scalar::Unsigned, 2) => "u16",
            (Scalar::Unsigned, 4) => "u32",
            (Scalar::Unsigned, 8) => "u64",
            (Scalar::Unsigned, _) => "u128",
            (Scalar::Signed, 1) => "i8",
            (Scalar::Signed, 2) => "i16",
            (Scalar::Signed, 4) => "i32",
            (Scalar::Signed, 8) => "i64",
            (Scalar::Signed, _) => "i128",
            (Scalar::Float, 4) => "f32",
            (Scalar::Float, _) => "f64",
            (Scalar::Bool, _) => "bool",
            (Scalar::Utf8, _) => "byte of text",
            (Scalar::Char, _) => "char",
        }
    }
}

/// A field of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Where it begins.
    pub offset: usize,
    /// What it is.
    pub of: TypeRef,
}

/// One of the values that a choice may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// Its bits; signed ones may be extended.
    pub value: u64,
}

/// How a type is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Without pointers.
    Scalar(Scalar),
    /// The address of another value.
    Pointer {
        /// Of which type.
        to: TypeRef,
        /// Whether it may be null.
        nullable: bool,
    },
    /// An address and a count: so many values one behind the other. If the count is 0, the address says nothing.
    Run {
        /// Of which type.
        of: TypeRef,
    },
    /// So many of another.
    Array {
        /// Of which type.
        of: TypeRef,
        /// How many.
        count: usize,
    },
    /// Fields, by offset.
    Struct(Vec<Field>),
    /// One of these values, by value: an enumeration.
    Choice(Vec<Variant>),
    /// It was named and not described yet.
    Open,
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Type {
    /// What people call it; it does not count.
    pub name: String,
    /// Its size.
    pub bytes: usize,
    /// Its alignment.
    pub alignment: usize,
    /// How it is made.
    pub shape: Shape,
}

/// Types that may mention each other.
#[derive(Clone, Debug, Default)]
pub struct Types {
    all: Vec<Type>,
    /// By key.
    known: Vec<(usize, TypeRef)>,
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a. Tells layouts apart that were made by accident; it is computed at each inclusion.
#[unsafe(link_section = ".commonhold.include")]
fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// An address.
const POINTER_BYTES: usize = 8;

impl Types {
    /// None.
    pub const fn new() -> Types {
        Types { all: Vec::new(), known: Vec::new() }
    }

    /// What is known of one.
    pub fn get(&self, of: TypeRef) -> &Type {
        &self.all[of.0]
    }

    /// Names a type, to be described by [`Types::describe`]; so it can be mentioned before.
    #[unsafe(link_section = ".commonhold.include")]
    pub fn open(&mut self, name: &str, bytes: usize, alignment: usize) -> TypeRef {
        self.put(Type { name: name.to_owned(), bytes, alignment, shape: Shape::Open })
    }

    #[unsafe(link_section = ".commonhold.include")]
    fn add(&mut self, name: &str, bytes: usize, alignment: usize, shape: Shape) -> TypeRef {
        let there = self.all.iter().position(|one| {
            (one.bytes, one.alignment, &one.shape) == (bytes, alignment, &shape) && shape != Shape::Open
        });
        let Some(there) = there else {
            return self.put(Type { name: name.to_owned(), bytes, alignment, shape });
        };
        match shape {
            Shape::Struct(fields) => drop(fields),
            Shape::Choice(variants) => drop(variants),
            // It owns nothing, and dropping it is code elsewhere in the program.
            plain => std::mem::forget(plain),
        }
        TypeRef(there)
    }

    #[unsafe(link_section = ".commonhold.include")]
    fn put(&mut self, one: Type) -> TypeRef {
        if self.all.capacity() == 0 {
            // Growing is code elsewhere in the program, a fault each.
            (self.all, self.known) = (Vec::with_capacity(16), Vec::with_capacity(16));
        }
        self.all.push(one);
        TypeRef(self.all.len() - 1)
    }

    /// One without pointers.
    #[unsafe(link_section = ".commonhold.include")]
    pub fn scalar(&mut self, scalar: Scalar, bytes: usize) -> Result<TypeRef> {
        let sound = match scalar {
            Scalar::Unsigned | Scalar::Signed => [1, 2, 4, 8, 16].contains(&bytes),
            Scalar::Float => [4, 8].contains(&bytes),
            Scalar::Bool | Scalar::Utf8 => bytes == 1,
            Scalar::Char => bytes == 4,
        };
        if !sound {
            return Err(Error::Invalid(format!("there is no {scalar:?} of {bytes} bytes in images")));
        }
        Ok(self.add(scalar.name(bytes), bytes, bytes, Shape::Scalar(scalar)))
    }

    /// One of some values, of 1, 2, 4 or 8 bytes.
    pub fn choice(&mut self, name: &str, bytes: usize, mut variants: Vec<Variant>) -> Result<TypeRef> {
        let invalid = |why: String| Err(Error::Invalid(format!("type {name}: {why}")));
        if ![1, 2, 4, 8].contains(&bytes) || variants.is_empty() {
            return invalid("an enumeration has 1, 2, 4 or 8 bytes, and at least one value".into());
        }
        let unused = 64 - 8 * bytes as u32;
        for variant in &mut variants {
            let bits = variant.value << unused >> unused;
            let extended = ((variant.value << unused).cast_signed() >> unused).cast_unsigned();
            if ![bits, extended].contains(&variant.value) {
                return invalid(format!(
                    "{} = {} needs more than {bytes} bytes",
                    variant.name, variant.value
                ));
            }
            variant.value = bits;
        }
        variants.sort_by_key(|variant| variant.value);
        if let Some([one, other]) = variants.array_windows().find(|[one, other]| one.value == other.value) {
            return invalid(format!("{} and {} are one value", one.name, other.name));
        }
        Ok(self.add(name, bytes, bytes, Shape::Choice(variants)))
    }

    /// The address of another.
    #[unsafe(link_section = ".commonhold.include")]
    pub fn pointer(&mut self, to: TypeRef, nullable: bool) -> TypeRef {
        self.add("pointer", POINTER_BYTES, POINTER_BYTES, Shape::Pointer { to, nullable })
    }

    /// An address and a count.
    pub fn run(&mut self, of: TypeRef) -> TypeRef {
        self.add("run", 2 * POINTER_BYTES, POINTER_BYTES, Shape::Run { of })
    }

    /// So many of another. One that is not described yet cannot be in an array.
    #[unsafe(link_section = ".commonhold.include")]
    pub fn array(&mut self, of: TypeRef, count: usize) -> Result<TypeRef> {
        let Type { bytes, alignment, .. } = *self.get(of);
        let bytes = bytes.checked_mul(count).filter(|bytes| *bytes <= 1 << 40);
        let bytes =
            bytes.ok_or_else(|| Error::Invalid(format!("an array of {count} is too large for an image")))?;
        Ok(self.add("array", bytes, alignment, Shape::Array { of, count }))
    }

    /// Says what a type that was named consists of.
    #[unsafe(link_section = ".commonhold.include")]
    pub fn describe(&mut self, of: TypeRef, mut fields: Vec<Field>) -> Result<()> {
        if !fields.is_sorted_by_key(|field| field.offset) {
            fields.sort_by_key(|field| field.offset);
        }
        let Type { name, bytes, alignment, shape } = self.get(of);
        let invalid = |why: String| Err(Error::Invalid(format!("type {name}: {why}")));
        if *shape != Shape::Open {
            return invalid("it is described already".into());
        }
        if !alignment.is_power_of_two() || *alignment > 4096 || !bytes.is_multiple_of(*alignment) {
            return invalid(format!(
                "{bytes} bytes are no multiple of its alignment {alignment}, or that is no power of 2"
            ));
        }
        let mut free = 0;
        for field in &fields {
            let inner = self.get(field.of);
            let end = field.offset.saturating_add(inner.bytes);
            if field.of == of || (inner.shape == Shape::Open) {
                return invalid(format!(
                    "field {} is of a type that is not described yet: use a pointer",
                    field.name
                ));
            }
            if field.offset < free || end > *bytes {
                return invalid(format!("field {} overlaps another, or the end", field.name));
            }
            if !field.offset.is_multiple_of(inner.alignment) || inner.alignment > *alignment {
                return invalid(format!("field {} is not aligned to {}", field.name, inner.alignment));
            }
            free = end;
        }
        // What was open owns nothing.
        std::mem::forget(std::mem::replace(&mut self.all[of.0].shape, Shape::Struct(fields)));
        Ok(())
    }

    /// The type of that key, which no other has; described now if it was not. For types whose descriptions mention each
    /// other.
    #[unsafe(link_section = ".commonhold.include")]
    pub fn known(
        &mut self,
        key: usize,
        name: &str,
        bytes: usize,
        alignment: usize,
        fields: impl FnOnce(&mut Types) -> Vec<Field>,
    ) -> TypeRef {
        if let Some((_, there)) = self.known.iter().find(|one| one.0 == key) {
            return *there;
        }
        let of = self.open(name, bytes, alignment);
        self.known.push((key, of));
        let fields = fields(self);
        self.describe(of, fields).expect("the compiler laid it out");
        of
    }

    /// All that can be reached from a type, in an order that only its structure decides.
    #[unsafe(link_section = ".commonhold.include")]
    fn reachable(&self, from: TypeRef) -> Vec<TypeRef> {
        let mut order = Vec::with_capacity(self.all.len());
        order.push(from);
        let reach = |order: &mut Vec<TypeRef>, of: TypeRef| {
            if !order.contains(&of) {
                order.push(of);
            }
        };
        let mut next = 0;
        while let Some(of) = order.get(next) {
            match &self.get(*of).shape {
                Shape::Scalar(_) | Shape::Choice(_) | Shape::Open => {}
                Shape::Pointer { to: of, .. } | Shape::Run { of } | Shape::Array { of, .. } => {
                    reach(&mut order, *of);
                }
                Shape::Struct(fields) => fields.iter().for_each(|field| reach(&mut order, field.of)),
            }
            next += 1;
        }
        order
    }

    /// Every type that this one mentions is described.
    pub fn check(&self, of: TypeRef) -> Result<()> {
        match self.reachable(of).into_iter().find(|of| self.get(*of).shape == Shape::Open) {
            Some(open) => {
                Err(Error::Invalid(format!("type {} was named and never described", self.get(open).name)))
            }
            None => Ok(()),
        }
    }

    /// Tells one layout from another, in every language: sizes, offsets, names of fields and where pointers lead.
    #[unsafe(link_section = ".commonhold.include")]
    pub fn hash(&self, of: TypeRef) -> u64 {
        let order = self.reachable(of);
        let place = |of: &TypeRef| order.iter().position(|one| one == of).unwrap_or(0) as u64;
        let mut hash = FNV_START;
        let mut put = |numbers: &[u64]| {
            for number in numbers {
                hash = fnv(hash, &number.to_le_bytes());
            }
        };
        for of in &order {
            let one = self.get(*of);
            put(&[one.bytes as u64, one.alignment as u64]);
            match &one.shape {
                Shape::Open => put(&[0]),
                Shape::Scalar(scalar) => put(&[1, *scalar as u64]),
                Shape::Pointer { to, nullable } => put(&[2, u64::from(*nullable), place(to)]),
                Shape::Run { of } => put(&[3, place(of)]),
                Shape::Array { of, count } => put(&[4, place(of), *count as u64]),
                Shape::Choice(variants) => {
                    put(&[6, variants.len() as u64]);
                    variants.iter().for_each(|variant| put(&[variant.value]));
                }
                Shape::Struct(fields) => {
                    put(&[5, fields.len() as u64]);
                    fields.iter().for_each(|field| put(&[field.offset as u64, place(&field.of)]));
                }
            }
        }
        for of in &order {
            let mut put = |name: &String| hash = fnv(fnv(hash, name.as_bytes()), &[0]);
            match &self.get(*of).shape {
                Shape::Choice(variants) => variants.iter().for_each(|variant| put(&variant.name)),
                Shape::Struct(fields) => fields.iter().for_each(|field| put(&field.name)),
                _ => {}
            }
        }
        hash.max(1)
    }
}
