//! Types of Rust that can be in images.

use super::run::{Run, Text};
use super::types::{Scalar, TypeRef, Types};

/// A type whose values may be read by another process, at the same address.
///
/// # Safety
/// The description says where all pointers are; every other byte means the same in every process; values own nothing and do
/// not change while they are shared.
pub unsafe trait Layout: Sized {
    /// Whether there may be bytes between its fields, or behind them, that the compiler leaves full of anything.
    const HAS_GAPS: bool = true;

    /// Adds the type, and those that it mentions. May not ask an image for a root: who asks for one waits for this.
    fn describe(types: &mut Types) -> TypeRef;
}

macro_rules! scalars {
    ($($scalar:ident: $($type:ty)*;)*) => {
        $($(
            // SAFETY: a number.
            unsafe impl Layout for $type {
                const HAS_GAPS: bool = false;

                #[unsafe(link_section = ".commonhold.include")]
                fn describe(types: &mut Types) -> TypeRef {
                    types.scalar(Scalar::$scalar, size_of::<$type>()).expect("a size that exists")
                }
            }
        )*)*
    };
}

scalars! {
    Unsigned: u8 u16 u32 u64 usize u128;
    Signed: i8 i16 i32 i64 isize i128;
    Float: f32 f64;
    Bool: bool;
    Char: char;
}

// SAFETY: a pointer that is not null.
unsafe impl<T: Layout> Layout for &T {
    const HAS_GAPS: bool = false;

    #[unsafe(link_section = ".commonhold.include")]
    fn describe(types: &mut Types) -> TypeRef {
        let to = T::describe(types);
        types.pointer(to, false)
    }
}

// SAFETY: Rust promises that this is a pointer, null for none.
unsafe impl<T: Layout> Layout for Option<&T> {
    const HAS_GAPS: bool = false;

    #[unsafe(link_section = ".commonhold.include")]
    fn describe(types: &mut Types) -> TypeRef {
        let to = T::describe(types);
        types.pointer(to, true)
    }
}

// SAFETY: a pointer and a count.
unsafe impl<T: Layout> Layout for Run<'_, T> {
    const HAS_GAPS: bool = false;

    #[unsafe(link_section = ".commonhold.include")]
    fn describe(types: &mut Types) -> TypeRef {
        let of = T::describe(types);
        types.run(of)
    }
}

// SAFETY: a pointer and a count.
unsafe impl Layout for Text<'_> {
    const HAS_GAPS: bool = false;

    #[unsafe(link_section = ".commonhold.include")]
    fn describe(types: &mut Types) -> TypeRef {
        let of = types.scalar(Scalar::Utf8, 1).expect("a size that exists");
        types.run(of)
    }
}

// SAFETY: one behind the other.
unsafe impl<T: Layout, const N: usize> Layout for [T; N] {
    const HAS_GAPS: bool = T::HAS_GAPS;

    #[unsafe(link_section = ".commonhold.include")]
    fn describe(types: &mut Types) -> TypeRef {
        let of = T::describe(types);
        types.array(of, N).expect("it fits into memory")
    }
}

/// Declares structures and enumerations that can be in images: structures are `repr(C)`, each field of a type that
/// can be; enumerations have no fields, and say what they are made of: `enum Kind: u8 { Noun, Verb = 4 }`. One call
/// takes as many of them as the compiler's `recursion_limit` allows, fewer than 128 unless that is raised: declare
/// more in further calls.
#[macro_export]
macro_rules! layout {
    () => {};
    ($(#[$meta:meta])* $vis:vis struct $name:ident $(<$life:lifetime>)? {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty),* $(,)?
    } $($rest:tt)*) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        $vis struct $name $(<$life>)? { $($(#[$field_meta])* $field_vis $field: $type),* }

        // SAFETY: every field is such a type, and is described; it can be copied, so it owns nothing.
        unsafe impl $(<$life>)? $crate::data::Layout for $name $(<$life>)? {
            const HAS_GAPS: bool = 0 $(+ ::std::mem::size_of::<$type>())* < ::std::mem::size_of::<Self>()
                $(|| <$type as $crate::data::Layout>::HAS_GAPS)*;

            #[unsafe(link_section = ".commonhold.include")]
            fn describe(types: &mut $crate::data::Types) -> $crate::data::TypeRef {
                // Two types may have one name; what can be changed has an address of its own, never another's.
                static KEY: ::std::sync::atomic::AtomicU8 = ::std::sync::atomic::AtomicU8::new(0);
                types.known(
                    &raw const KEY as usize,
                    ::std::any::type_name::<Self>(),
                    ::std::mem::size_of::<Self>(),
                    ::std::mem::align_of::<Self>(),
                    |types| vec![$($crate::data::Field {
                        name: stringify!($field).into(),
                        offset: ::std::mem::offset_of!(Self, $field),
                        of: <$type as $crate::data::Layout>::describe(types),
                    }),*],
                )
            }
        }

        $crate::layout! { $($rest)* }
    };
    ($(#[$meta:meta])* $vis:vis enum $name:ident: $repr:ident {
        $($(#[$variant_meta:meta])* $variant:ident $(= $value:expr)?),* $(,)?
    } $($rest:tt)*) => {
        $(#[$meta])*
        #[repr($repr)]
        #[derive(Clone, Copy)]
        $vis enum $name { $($(#[$variant_meta])* $variant $(= $value)?),* }

        // SAFETY: a number, and all that it may be is described.
        unsafe impl $crate::data::Layout for $name {
            const HAS_GAPS: bool = false;

            #[unsafe(link_section = ".commonhold.include")]
            fn describe(types: &mut $crate::data::Types) -> $crate::data::TypeRef {
                let variants = vec![$($crate::data::Variant {
                    name: stringify!($variant).into(),
                    value: Self::$variant as $repr as u64,
                }),*];
                types
                    .choice(stringify!($name), ::std::mem::size_of::<Self>(), variants)
                    .expect("the compiler laid it out")
            }
        }

        $crate::layout! { $($rest)* }
    };
}
