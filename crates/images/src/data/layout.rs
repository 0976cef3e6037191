//! Types of Rust that can be in images.

use super::run::{Run, Text};
use super::types::{Scalar, TypeRef, Types};

/// A type whose values may be read by another process, at the same address.
///
/// # Safety
/// The description says where all pointers are; every other byte means the same in every process; values own nothing and do
/// not change while they are shared.
pub unsafe trait Layout: Sized {
    /// Adds the type, and those that it mentions.
    fn describe(types: &mut Types) -> TypeRef;
}

macro_rules! scalars {
    ($($scalar:ident: $($type:ty)*;)*) => {
        $($(
            // SAFETY: a number.
            unsafe impl Layout for $type {
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
    fn describe(types: &mut Types) -> TypeRef {
        let to = T::describe(types);
        types.pointer(to, false)
    }
}

// SAFETY: Rust promises that this is a pointer, null for none.
unsafe impl<T: Layout> Layout for Option<&T> {
    fn describe(types: &mut Types) -> TypeRef {
        let to = T::describe(types);
        types.pointer(to, true)
    }
}

// SAFETY: a pointer and a count.
unsafe impl<T: Layout> Layout for Run<'_, T> {
    fn describe(types: &mut Types) -> TypeRef {
        let of = T::describe(types);
        types.run(of)
    }
}

// SAFETY: a pointer and a count.
unsafe impl Layout for Text<'_> {
    fn describe(types: &mut Types) -> TypeRef {
        let of = types.scalar(Scalar::Utf8, 1).expect("a size that exists");
        types.run(of)
    }
}

// SAFETY: one behind the other.
unsafe impl<T: Layout, const N: usize> Layout for [T; N] {
    fn describe(types: &mut Types) -> TypeRef {
        let of = T::describe(types);
        types.array(of, N).expect("it fits into memory")
    }
}

/// Declares structures that can be in images: `repr(C)`, each field of a type that can be.
#[macro_export]
macro_rules! layout {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident $(<$life:lifetime>)? {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty),* $(,)?
    })*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        $vis struct $name $(<$life>)? { $($(#[$field_meta])* $field_vis $field: $type),* }

        // SAFETY: every field is such a type, and is described; it can be copied, so it owns nothing.
        unsafe impl $(<$life>)? $crate::data::Layout for $name $(<$life>)? {
            fn describe(types: &mut $crate::data::Types) -> $crate::data::TypeRef {
                types.known(
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
    )*};
}
