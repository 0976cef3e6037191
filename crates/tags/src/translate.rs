//! From one machine's format to another's.

use crate::machine::{ByteOrder, Floats, Machine};
use crate::swap::swap;
use crate::tag::{Tag, Type};
use crate::vax::{Losses, d_of_double, double_of_d, f_of_single, single_of_f};

/// Why nothing was translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The buffers are not of one length.
    Lengths,
    /// Part of an element would be left over.
    Rest {
        /// Bytes of an element.
        element: usize,
    },
}

/// What is to be done with data of a tag that comes from another machine.
#[derive(Clone, Copy, Debug)]
pub struct Translation<'t> {
    tag: &'t Tag,
    from: Machine,
    to: Machine,
}

/// What is done with one type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Copy,
    Swap(usize),
    /// Singles and doubles: the byte order of the IEEE side.
    FromVax(usize, ByteOrder),
    ToVax(usize, ByteOrder),
}

fn step(of: Type, from: Machine, to: Machine) -> Step {
    let bytes = of.bytes();
    match (of, from.floats, to.floats) {
        (Type::Float32 | Type::Float64, Floats::Vax, Floats::Ieee) => Step::FromVax(bytes, to.order),
        (Type::Float32 | Type::Float64, Floats::Ieee, Floats::Vax) => Step::ToVax(bytes, from.order),
        (Type::Float32 | Type::Float64, Floats::Vax, Floats::Vax) => Step::Copy,
        (Type::Bytes | Type::Integer(1), ..) => Step::Copy,
        _ if from.order != to.order => Step::Swap(bytes),
        _ => Step::Copy,
    }
}

impl<'t> Translation<'t> {
    /// `None`: both machines have the same bytes for it, and nothing is to be done.
    pub fn between(tag: &'t Tag, from: Machine, to: Machine) -> Option<Translation<'t>> {
        let differs = |of: Type| step(of, from, to) != Step::Copy;
        let needed = match tag {
            Tag::Of(of) => differs(*of),
            Tag::Record { fields, .. } => fields.iter().any(|field| differs(field.of)),
        };
        needed.then_some(Translation { tag, from, to })
    }

    /// Translates bytes that begin so far inside of an element, to another buffer as long. A part of a number at the end stays
    /// as it is. Gives what had no counterpart.
    pub(crate) fn apply_inside(&self, begin: usize, source: &[u8], target: &mut [u8]) -> Losses {
        let mut losses = Losses::default();
        let Tag::Record { bytes, fields } = self.tag else {
            let whole = source.len() / self.tag.bytes() * self.tag.bytes();
            if let Tag::Of(of) = self.tag {
                let step = step(*of, self.from, self.to);
                translate(step, &source[..whole], &mut target[..whole], &mut losses);
            }
            target[whole..].copy_from_slice(&source[whole..]);
            return losses;
        };
        target.copy_from_slice(source);
        let record = *bytes as usize;
        let (mut done, mut at) = (0, begin % record);
        while done < source.len() {
            let length = (record - at).min(source.len() - done);
            for field in fields {
                let size = field.of.bytes();
                let first = field.offset as usize;
                let low = first.max(at);
                let high = (first + field.count as usize * size).min(at + length);
                let numbers = high.saturating_sub(low) / size * size;
                if numbers > 0 {
                    let begin = done + low - at;
                    let part = begin..begin + numbers;
                    let step = step(field.of, self.from, self.to);
                    translate(step, &source[part.clone()], &mut target[part], &mut losses);
                }
            }
            done += length;
            at = 0;
        }
        losses
    }

    /// Translates whole elements from one buffer to another as long. Gives what had no counterpart.
    pub fn apply(&self, source: &[u8], target: &mut [u8]) -> Result<Losses, Refused> {
        let element = self.tag.bytes();
        if source.len() != target.len() {
            return Err(Refused::Lengths);
        }
        if !source.len().is_multiple_of(element) {
            return Err(Refused::Rest { element });
        }
        let mut losses = Losses::default();
        match self.tag {
            Tag::Of(of) => translate(step(*of, self.from, self.to), source, target, &mut losses),
            Tag::Record { fields, .. } => {
                target.copy_from_slice(source);
                for (from, to) in source.chunks_exact(element).zip(target.chunks_exact_mut(element)) {
                    for field in fields {
                        let first = field.offset as usize;
                        let part = first..first + field.count as usize * field.of.bytes();
                        let step = step(field.of, self.from, self.to);
                        translate(step, &from[part.clone()], &mut to[part], &mut losses);
                    }
                }
            }
        }
        Ok(losses)
    }
}

fn translate(step: Step, source: &[u8], target: &mut [u8], losses: &mut Losses) {
    match step {
        Step::Copy => target.copy_from_slice(source),
        Step::Swap(bytes) => swap(bytes, source, target),
        Step::FromVax(4, order) => singles(source, target, |bytes| {
            let single = single_of_f(u32::from_le_bytes(bytes), losses);
            if order == ByteOrder::Big { single.to_be_bytes() } else { single.to_le_bytes() }
        }),
        Step::ToVax(4, order) => singles(source, target, |bytes| {
            let big = order == ByteOrder::Big;
            let single = if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
            f_of_single(single, losses).to_le_bytes()
        }),
        Step::FromVax(_, order) => doubles(source, target, |bytes| {
            let double = double_of_d(u64::from_le_bytes(bytes), losses);
            if order == ByteOrder::Big { double.to_be_bytes() } else { double.to_le_bytes() }
        }),
        Step::ToVax(_, order) => doubles(source, target, |bytes| {
            let big = order == ByteOrder::Big;
            let double = if big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) };
            d_of_double(double, losses).to_le_bytes()
        }),
    }
}

fn singles(source: &[u8], target: &mut [u8], mut each: impl FnMut([u8; 4]) -> [u8; 4]) {
    let elements = source.as_chunks::<4>().0.iter().zip(target.as_chunks_mut::<4>().0);
    elements.for_each(|(from, to)| *to = each(*from));
}

fn doubles(source: &[u8], target: &mut [u8], mut each: impl FnMut([u8; 8]) -> [u8; 8]) {
    let elements = source.as_chunks::<8>().0.iter().zip(target.as_chunks_mut::<8>().0);
    elements.for_each(|(from, to)| *to = each(*from));
}
