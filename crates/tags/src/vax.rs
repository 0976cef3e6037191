//! The VAX's floating point formats, F (32 bits) and D (64 bits), and IEEE 754.
//!
//! Both are a sign, an exponent of 8 bits with the bias 128, and a fraction whose first bit, worth
//! one half, is hidden. They lie in memory as words of 16 bits, each with its less significant byte
//! first, and the most significant word first. An exponent of 0 is the number 0, or, with the sign
//! set, an operand that traps. There are no infinities, and nothing is below the smallest normal
//! number.

use serde::{Deserialize, Serialize};

/// What had no counterpart, and what is there in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Too large, or infinite: the largest number of that sign.
    pub overflows: u64,
    /// Too small: 0.
    pub underflows: u64,
    /// Not a number: the operand that traps, and that is NaN.
    pub nans: u64,
    /// The zero with a sign: 0.
    pub negative_zeros: u64,
    /// Bits of the fraction that there is no room for: the nearest number, of two the even one.
    pub rounded: u64,
}

impl Losses {
    /// How many numbers are not what they were.
    pub fn count(&self) -> u64 {
        self.overflows + self.underflows + self.nans + self.negative_zeros + self.rounded
    }

    /// Those of both.
    pub fn and(self, other: Losses) -> Losses {
        Losses {
            overflows: self.overflows + other.overflows,
            underflows: self.underflows + other.underflows,
            nans: self.nans + other.nans,
            negative_zeros: self.negative_zeros + other.negative_zeros,
            rounded: self.rounded + other.rounded,
        }
    }
}

const SIGN_32: u32 = 1 << 31;
const SIGN_64: u64 = 1 << 63;

/// The bits of an F number in the order of their worth, from those of its four bytes read as a
/// little-endian number; and back.
fn words_32(bits: u32) -> u32 {
    bits.rotate_left(16)
}

/// The same of a D number.
fn words_64(bits: u64) -> u64 {
    let pairs = bits.rotate_left(32);
    (pairs & 0x0000_ffff_0000_ffff) << 16 | (pairs & 0xffff_0000_ffff_0000) >> 16
}

/// From F, as its bytes are read little-endian, to an IEEE single.
#[inline]
pub(crate) fn single_of_f(f: u32, losses: &mut Losses) -> u32 {
    let bits = words_32(f);
    let exponent = bits >> 23 & 0xff;
    if exponent > 2 { bits - (2 << 23) } else { small_single_of_f(bits, losses) }
}

#[cold]
fn small_single_of_f(bits: u32, losses: &mut Losses) -> u32 {
    let (sign, exponent) = (bits & SIGN_32, bits >> 23 & 0xff);
    match (exponent, sign) {
        (0, 0) => 0,
        (0, _) => {
            losses.nans += 1;
            0x7fc0_0000
        }
        // Below the smallest normal single: the hidden bit is one of the fraction's.
        _ => {
            let fraction = u64::from(bits & 0x007f_ffff | 0x0080_0000);
            sign | nearest(fraction, 3 - exponent, losses) as u32
        }
    }
}

/// From an IEEE single to F, as its bytes are read little-endian.
#[inline]
pub(crate) fn f_of_single(bits: u32, losses: &mut Losses) -> u32 {
    let exponent = bits >> 23 & 0xff;
    words_32(if (1..=253).contains(&exponent) { bits + (2 << 23) } else { odd_f_of_single(bits, losses) })
}

#[cold]
fn odd_f_of_single(bits: u32, losses: &mut Losses) -> u32 {
    let (sign, exponent, fraction) = (bits & SIGN_32, bits >> 23 & 0xff, bits & 0x007f_ffff);
    match (exponent, fraction) {
        (0, 0) => {
            losses.negative_zeros += u64::from(sign != 0);
            0
        }
        (0, _) => {
            // Below the smallest normal single, which F numbers go below by two powers of two.
            let shift = fraction.leading_zeros() - 8;
            if shift > 2 {
                losses.underflows += 1;
                return 0;
            }
            sign | (3 - shift) << 23 | fraction << shift & 0x007f_ffff
        }
        (255, fraction) if fraction != 0 => {
            losses.nans += 1;
            SIGN_32
        }
        _ => {
            losses.overflows += 1;
            sign | !SIGN_32
        }
    }
}

/// From D, as its bytes are read little-endian, to an IEEE double, whose range is larger.
#[inline]
pub(crate) fn double_of_d(d: u64, losses: &mut Losses) -> u64 {
    let bits = words_64(d);
    let (sign, exponent) = (bits & SIGN_64, bits >> 55 & 0xff);
    if exponent == 0 {
        losses.nans += u64::from(sign != 0);
        return if sign == 0 { 0 } else { 0x7ff8_0000_0000_0000 };
    }
    // The exponent's bias is another by 894; a fraction that is rounded up may carry into it.
    let wide = bits & !SIGN_64;
    sign | (nearest(wide, 3, losses) + (894 << 52))
}

/// From an IEEE double to D, as its bytes are read little-endian.
#[inline]
pub(crate) fn d_of_double(bits: u64, losses: &mut Losses) -> u64 {
    let exponent = bits >> 52 & 0x7ff;
    let inside = (895..=1149).contains(&exponent);
    words_64(if inside {
        bits & SIGN_64 | ((bits & !SIGN_64) - (894 << 52)) << 3
    } else {
        odd_d_of_double(bits, losses)
    })
}

#[cold]
fn odd_d_of_double(bits: u64, losses: &mut Losses) -> u64 {
    let (sign, exponent, fraction) = (bits & SIGN_64, bits >> 52 & 0x7ff, bits & ((1 << 52) - 1));
    match (exponent, fraction) {
        (0, 0) => {
            losses.negative_zeros += u64::from(sign != 0);
            0
        }
        (0x7ff, fraction) if fraction != 0 => {
            losses.nans += 1;
            SIGN_64
        }
        (0..=894, _) => {
            losses.underflows += 1;
            0
        }
        _ => {
            losses.overflows += 1;
            sign | !SIGN_64
        }
    }
}

/// Shifts to the right; what is lost rounds to the nearest, of two to the even one.
fn nearest(bits: u64, by: u32, losses: &mut Losses) -> u64 {
    let (kept, lost, half) = (bits >> by, bits & ((1 << by) - 1), 1 << by >> 1);
    losses.rounded += u64::from(lost != 0);
    kept + u64::from(lost > half || lost == half && kept & 1 == 1)
}
