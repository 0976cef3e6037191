//! Little endian numbers at places that may not be there.

pub fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

pub fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

pub fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Text that ends at the first zero, or with its place.
pub fn text(bytes: &[u8], at: usize, most: usize) -> Option<&str> {
    let place = bytes.get(at..at.checked_add(most)?)?;
    let end = place.iter().position(|byte| *byte == 0).unwrap_or(most);
    let (text, rest) = place.split_at(end);
    rest.iter().all(|byte| *byte == 0).then_some(())?;
    core::str::from_utf8(text).ok()
}
