//! A type, unrolled: where in its bytes there is something to follow or to look at, and where there is nothing.

use super::types::{Scalar, Shape, TypeRef, Types};

/// What a place in a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    /// To one value.
    Pointer {
        to: TypeRef,
        nullable: bool,
    },
    /// To any number of values.
    Run {
        of: TypeRef,
    },
    /// Nowhere: a byte that must be 0 or 1.
    Bool,
    Char,
    /// Nowhere: one of the values of that type.
    Choice {
        of: TypeRef,
    },
}

/// A place to look at.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Where.
    pub offset: usize,
    /// As people name it: `left`, `children[3]`, `point.x`.
    pub path: String,
    /// What it is.
    pub leads: Leads,
}

/// A type, unrolled.
#[derive(Clone, Debug, Default)]
pub struct Flat {
    /// Places to look at, by offset.
    pub leaves: Vec<Leaf>,
    /// Offset and length of padding, which the compiler may have left full of anything.
    pub gaps: Vec<(usize, usize)>,
    /// Bytes of text.
    pub is_text: bool,
}

impl Flat {
    /// Of that type.
    pub fn of(types: &Types, of: TypeRef) -> Flat {
        let mut flat =
            Flat { is_text: types.get(of).shape == Shape::Scalar(Scalar::Utf8), ..Flat::default() };
        flat.add(types, of, 0, "");
        flat
    }

    /// Whether there is nothing to do about its values.
    pub fn is_plain(&self) -> bool {
        self.leaves.is_empty() && self.gaps.is_empty() && !self.is_text
    }

    fn leaf(&mut self, offset: usize, path: &str, leads: Leads) {
        self.leaves.push(Leaf { offset, path: path.to_owned(), leads });
    }

    fn add(&mut self, types: &Types, of: TypeRef, at: usize, path: &str) {
        let one = types.get(of);
        match &one.shape {
            Shape::Scalar(Scalar::Bool) => self.leaf(at, path, Leads::Bool),
            Shape::Scalar(Scalar::Char) => self.leaf(at, path, Leads::Char),
            Shape::Choice(_) => self.leaf(at, path, Leads::Choice { of }),
            Shape::Scalar(_) | Shape::Open => {}
            Shape::Pointer { to, nullable } => {
                self.leaf(at, path, Leads::Pointer { to: *to, nullable: *nullable });
            }
            Shape::Run { of } => self.leaf(at, path, Leads::Run { of: *of }),
            Shape::Array { of, count } => {
                let inner = Flat::of(types, *of);
                if inner.leaves.is_empty() && inner.gaps.is_empty() {
                    return;
                }
                let bytes = types.get(*of).bytes;
                (0..*count)
                    .for_each(|index| self.add(types, *of, at + index * bytes, &format!("{path}[{index}]")));
            }
            Shape::Struct(fields) => {
                let mut free = 0;
                for field in fields {
                    self.gap(at + free, field.offset - free);
                    let dot = if path.is_empty() { "" } else { "." };
                    self.add(types, field.of, at + field.offset, &format!("{path}{dot}{}", field.name));
                    free = field.offset + types.get(field.of).bytes;
                }
                self.gap(at + free, one.bytes - free);
            }
        }
    }

    fn gap(&mut self, at: usize, bytes: usize) {
        if bytes > 0 {
            self.gaps.push((at, bytes));
        }
    }
}
