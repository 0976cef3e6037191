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
#[inline(always)]
pub fn text(bytes: &[u8], at: usize, most: usize) -> Option<&str> {
    let place = bytes.get(at..at.checked_add(most)?)?;
    let mut end = most;
    for (at, byte) in place.iter().enumerate() {
        match byte {
            0 => end = end.min(at),
            _ if end < most => return None,
            _ => {}
        }
    }
    core::str::from_utf8(&place[..end]).ok()
}
