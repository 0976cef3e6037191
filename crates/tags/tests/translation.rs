//! Each type between all machines, against numbers that were worked out by hand and against
//! arithmetic that knows nothing of bits.

use commonhold_tags::{Floats, Losses, Machine, Refused, Tag, Translation, Type};

/// Fewer where each step is looked at (Miri).
const ROUNDS: u64 = if cfg!(miri) { 1100 } else { 200_000 };
const BYTES: usize = if cfg!(miri) { 4096 } else { 5 << 20 };

fn translated(tag: &str, from: Machine, to: Machine, source: &[u8]) -> (Vec<u8>, Losses) {
    let tag = Tag::of_text(tag).unwrap();
    let mut target = vec![0xee; source.len()];
    let losses = match Translation::between(&tag, from, to) {
        Some(translation) => translation.apply(source, &mut target).unwrap(),
        None => {
            target.copy_from_slice(source);
            Losses::default()
        }
    };
    (target, losses)
}

/// Numbers that are the same each time.
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

#[test]
fn integers_are_swapped_where_the_order_is_another() {
    let bytes: Vec<u8> = (0..96).collect();
    for (word, of) in [("int8", 1), ("int16", 2), ("int32", 4), ("int64", 8), ("int128", 16), ("offset", 8)] {
        for (from, to) in [(Machine::LITTLE, Machine::BIG), (Machine::BIG, Machine::VAX)] {
            let (swapped, losses) = translated(word, from, to, &bytes);
            let expected: Vec<u8> = bytes.chunks(of).flat_map(|one| one.iter().rev().copied()).collect();
            assert_eq!(swapped, expected, "{word}");
            assert_eq!(losses, Losses::default());
            assert_eq!(translated(word, to, from, &swapped).0, bytes);
        }
        assert_eq!(translated(word, Machine::LITTLE, Machine::VAX, &bytes).0, bytes, "the same order");
    }
    // All lengths, for what is less than a register; and buffers at all alignments.
    let bytes: Vec<u8> = (0..300).map(|n| n as u8).collect();
    for elements in 0..70 {
        for shift in 0..4 {
            let source = &bytes[shift..shift + 4 * elements];
            let (swapped, _) = translated("int32", Machine::BIG, Machine::LITTLE, source);
            let expected: Vec<u8> = source.chunks(4).flat_map(|one| one.iter().rev().copied()).collect();
            assert_eq!(swapped, expected);
        }
    }
}

#[test]
fn large_buffers_are_swapped_past_the_caches() {
    let mut next = random(7);
    let source: Vec<u8> = (0..BYTES / 8 + 1).flat_map(|_| next().to_le_bytes()).collect();
    let (swapped, _) = translated("int64", Machine::BIG, Machine::LITTLE, &source);
    assert!(source.chunks(8).zip(swapped.chunks(8)).all(|(a, b)| a.iter().eq(b.iter().rev())));
}

/// A number as VAX manuals define it: sign × 0.1fraction × 2^(exponent - 128).
fn value_of_vax(bytes: &[u8]) -> Option<f64> {
    let words: Vec<u64> = bytes.chunks(2).map(|word| u64::from(word[0]) | u64::from(word[1]) << 8).collect();
    let (sign, exponent) = (words[0] >> 15, (words[0] >> 7 & 0xff) as i32);
    let bits = 16 * words.len() as i32 - 9;
    let fraction = words[1..].iter().fold(words[0] & 0x7f, |so_far, word| so_far << 16 | word);
    match (sign, exponent) {
        (0, 0) => Some(0.0),
        (_, 0) => None,
        _ => {
            // Of D a double has no room for the last three bits: these tests give it none.
            let mantissa = 0.5 + fraction as f64 / 2_f64.powi(bits + 1);
            let value = mantissa * 2_f64.powi(exponent - 128);
            Some(if sign == 1 { -value } else { value })
        }
    }
}

#[test]
fn well_known_numbers_are_what_manuals_say() {
    // 1, -2.5, 0.1 in F: 4080, C120, 3ECC CCCD in words.
    let f = [0x80, 0x40, 0, 0, 0x20, 0xc1, 0, 0, 0xcc, 0x3e, 0xcd, 0xcc];
    let singles: Vec<u8> = [1.0_f32, -2.5, 0.1].iter().flat_map(|one| one.to_le_bytes()).collect();
    assert_eq!(translated("float32", Machine::VAX, Machine::LITTLE, &f).0, singles);
    assert_eq!(translated("float32", Machine::LITTLE, Machine::VAX, &singles).0, f);
    let d = [0x80, 0x40, 0, 0, 0, 0, 0, 0, 0x20, 0xc1, 0, 0, 0, 0, 0, 0];
    let doubles: Vec<u8> = [1.0_f64, -2.5].iter().flat_map(|one| one.to_be_bytes()).collect();
    assert_eq!(translated("float64", Machine::VAX, Machine::BIG, &d).0, doubles);
    assert_eq!(translated("float64", Machine::BIG, Machine::VAX, &doubles).0, d);
}

#[test]
fn singles_and_f_numbers_have_one_value() {
    let mut next = random(11);
    for round in 0..ROUNDS as u32 {
        // Every exponent, and fractions at both ends.
        let exponent = round % 256;
        let fraction = [0, 1, 0x7f_ffff, next() as u32 & 0x7f_ffff][round as usize / 256 % 4];
        let single = f32::from_bits((next() as u32 & 1 << 31) | exponent << 23 | fraction);
        let (vax, losses) = translated("float32", Machine::LITTLE, Machine::VAX, &single.to_le_bytes());
        let (back, again) = translated("float32", Machine::VAX, Machine::LITTLE, &vax);
        let back = f32::from_le_bytes(back.try_into().unwrap());
        let value = value_of_vax(&vax);
        let largest = 2_f64.powi(127) * (1.0 - 2_f64.powi(-24));
        if single.is_nan() {
            assert_eq!((value, losses.nans, again.nans), (None, 1, 1));
            assert!(back.is_nan());
        } else if f64::from(single).abs() > largest {
            assert_eq!((value.map(f64::abs), losses.overflows), (Some(largest), 1), "{single}");
        } else if single == 0.0 {
            assert_eq!((value, losses.negative_zeros), (Some(0.0), u64::from(single.is_sign_negative())));
        } else if f64::from(single).abs() < 2_f64.powi(-128) {
            assert_eq!((value, losses.underflows), (Some(0.0), 1), "{single:e}");
        } else {
            assert_eq!((value, losses), (Some(f64::from(single)), Losses::default()), "{single:e}");
            assert_eq!((back, again), (single, Losses::default()));
        }
    }
}

#[test]
fn f_numbers_below_singles_are_rounded_to_the_nearest() {
    for exponent in 1..=3_u16 {
        for fraction in [0_u32, 1, 2, 3, 5, 6, 7, 0x7f_fffd, 0x7f_fffe, 0x7f_ffff] {
            let first = exponent << 7 | (fraction >> 16) as u16;
            let f = [first.to_le_bytes(), (fraction as u16).to_le_bytes()].concat();
            let (single, losses) = translated("float32", Machine::VAX, Machine::LITTLE, &f);
            let (single, value) = (f32::from_le_bytes(single.try_into().unwrap()), value_of_vax(&f).unwrap());
            assert_eq!(single, value as f32, "{exponent} {fraction:x}"); // Rust rounds in the same way
            assert_eq!(losses.rounded, u64::from(f64::from(single) != value));
        }
    }
}

#[test]
fn doubles_and_d_numbers_have_one_value() {
    let mut next = random(13);
    for round in 0..ROUNDS {
        let exponent = if round % 2 == 0 { 880 + round / 2 % 300 } else { next() % 2048 };
        let fraction = [0, 1, (1 << 52) - 1, next() & ((1 << 52) - 1)][round as usize / 256 % 4];
        let double = f64::from_bits((next() & 1 << 63) | exponent << 52 | fraction);
        let (vax, losses) = translated("float64", Machine::BIG, Machine::VAX, &double.to_be_bytes());
        let (back, again) = translated("float64", Machine::VAX, Machine::BIG, &vax);
        let back = f64::from_be_bytes(back.try_into().unwrap());
        let largest = 2_f64.powi(127) * (1.0 - f64::EPSILON / 4.0);
        if double.is_nan() {
            assert_eq!((losses.nans, again.nans, back.is_nan()), (1, 1, true));
        } else if double.abs() >= 2_f64.powi(127) {
            assert_eq!(
                (losses.overflows, back.is_sign_negative()),
                (1, double.is_sign_negative()),
                "{double:e}"
            );
            assert!(back.abs() >= largest);
        } else if double == 0.0 {
            assert_eq!((back, losses.negative_zeros), (0.0, u64::from(double.is_sign_negative())));
        } else if double.abs() < 2_f64.powi(-128) {
            assert_eq!((back, losses.underflows), (0.0, 1), "{double:e}");
        } else {
            assert_eq!((value_of_vax(&vax), losses), (Some(double), Losses::default()), "{double:e}");
            assert_eq!((back, again), (double, Losses::default()));
        }
    }
}

#[test]
fn what_d_has_more_of_is_rounded_to_the_nearest() {
    // The last three bits of D's fraction, on even and odd neighbours, and where all carries.
    for high in [0_u64, 1, 2, (1 << 52) - 1] {
        for low in 0..8 {
            let bits = 129_u64 << 55 | high << 3 | low;
            let words: Vec<u8> = bits.to_be_bytes().chunks(2).flat_map(|word| [word[1], word[0]]).collect();
            let (double, losses) = translated("float64", Machine::VAX, Machine::LITTLE, &words);
            let double = f64::from_le_bytes(double.try_into().unwrap());
            let up = low > 4 || low == 4 && high % 2 == 1;
            let expected = f64::from_bits((1023_u64 << 52) + high + u64::from(up));
            assert_eq!((double, losses.rounded), (expected, u64::from(low != 0)), "{high} {low}");
        }
    }
}

#[test]
fn halves_stay_ieee_on_a_vax() {
    for word in ["float16", "bfloat16"] {
        assert_eq!(translated(word, Machine::LITTLE, Machine::VAX, &[1, 2]).0, [1, 2]);
        assert_eq!(translated(word, Machine::BIG, Machine::VAX, &[1, 2]).0, [2, 1]);
    }
}

#[test]
fn records_are_translated_field_by_field() {
    let tag = "{16: 0 int16, 4 float32, 8 bytes*4, 12 int16*2}";
    let mut source = Vec::new();
    for n in 0..50_u16 {
        source.extend(n.to_be_bytes());
        source.extend([0xaa, 0xbb]); // means nothing
        source.extend(f32::from(n).to_be_bytes());
        source.extend(*b"text");
        source.extend([n + 1, n + 2].iter().flat_map(|one| one.to_be_bytes()));
    }
    let (vax, losses) = translated(tag, Machine::BIG, Machine::VAX, &source);
    assert_eq!(losses, Losses::default());
    for (n, record) in vax.chunks(16).enumerate() {
        assert_eq!(record[..2], (n as u16).to_le_bytes());
        assert_eq!(record[2..4], [0xaa, 0xbb]);
        assert_eq!(value_of_vax(&record[4..8]), Some(n as f64));
        assert_eq!(record[8..12], *b"text");
        assert_eq!(record[12..14], (n as u16 + 1).to_le_bytes());
    }
    assert_eq!(translated(tag, Machine::VAX, Machine::BIG, &vax).0, source);
}

#[test]
fn what_does_not_fit_is_refused_and_what_is_the_same_is_not_touched() {
    let tag = Tag::of_text("{24: 0 float64}").unwrap();
    let translation = Translation::between(&tag, Machine::BIG, Machine::LITTLE).unwrap();
    let mut target = [7; 48];
    assert_eq!(translation.apply(&[0; 40], &mut target[..40]), Err(Refused::Rest { element: 24 }));
    assert_eq!(translation.apply(&[0; 24], &mut target), Err(Refused::Lengths));
    assert_eq!(target, [7; 48]);
    for machine in Machine::ALL {
        assert!(Translation::between(&tag, machine, machine).is_none());
        assert_eq!(Machine::of_word(machine.word()), Some(machine));
        let bytes = Tag::Of(Type::Bytes);
        assert!(Machine::ALL.iter().all(|other| Translation::between(&bytes, machine, *other).is_none()));
    }
    assert_eq!(Machine::of_word("pdp-11"), None);
    assert_eq!(Machine::VAX.floats, Floats::Vax);
}
