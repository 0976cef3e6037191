//! Bytes as hexadecimal digits.

/// Lower-case digits.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of exactly `N` pairs of digits.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * n..2 * n + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn there_and_back() {
        assert_eq!(super::encode(&[0, 15, 255]), "000fff");
        assert_eq!(super::decode("000fff"), Some([0, 15, 255]));
        assert_eq!(super::decode::<3>("000ff"), None);
        assert_eq!(super::decode::<1>("+f"), None);
        assert_eq!(super::decode::<2>("é00"), None);
    }
}
