//! Sizes, times and mode bits, as people write and read them.

use commonhold::PageSize;
use commonhold::tags::Machine;
use std::time::Duration;

/// The suffixes of sizes, smallest first: alone or with `iB` they count in 1024s, with `B` in 1000s.
const PREFIXES: [char; 5] = ['k', 'm', 'g', 't', 'p'];

/// Bytes of a size such as `4096`, `512M`, `1GiB`, `1.5g` or `10MB`.
///
/// # Errors
/// A sentence that says what is wrong and how a size looks.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = |why: &str| format!("{why}: write a size as 4096, 512M, 1GiB or 10MB");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    if number.is_empty() {
        return Err(wrong("a size begins with a number"));
    }
    let unit = unit_of(suffix.trim()).ok_or_else(|| wrong("the unit is not known"))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty()
        || fraction.contains('.')
        || fraction.len() > 9
        || (number.contains('.') && fraction.is_empty())
    {
        return Err(wrong("this is not a number"));
    }
    let whole: u64 = whole.parse().map_err(|_| wrong("the number is too large"))?;
    let scale = 10u128.pow(fraction.len() as u32);
    let part: u128 =
        if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| wrong("this is not a number"))? };
    let bytes = u128::from(whole) * u128::from(unit) + part * u128::from(unit) / scale;
    u64::try_from(bytes).map_err(|_| wrong("the size is too large"))
}

/// The size of pages that hosts share, such as `64KiB`.
///
/// # Errors
/// A sentence that says what is wrong and which sizes there are.
pub fn parse_page_size(text: &str) -> Result<PageSize, String> {
    PageSize::new(parse_size(text)?).map_err(|error| error.message)
}

/// A type of machine, such as `big-ieee`.
///
/// # Errors
/// A sentence that says which there are.
pub fn parse_machine(text: &str) -> Result<Machine, String> {
    let unknown = || format!("no such type of machine is known: give one of {}", Machine::words());
    Machine::of_word(text).ok_or_else(unknown)
}

fn unit_of(suffix: &str) -> Option<u64> {
    let suffix = suffix.to_ascii_lowercase();
    if suffix.is_empty() || suffix == "b" {
        return Some(1);
    }
    let mut letters = suffix.chars();
    let first = letters.next()?;
    let power = PREFIXES.iter().position(|p| *p == first)? as u32 + 1;
    match letters.as_str() {
        "" | "ib" => Some(1024u64.pow(power)),
        "b" => Some(1000u64.pow(power)),
        _ => None,
    }
}

/// A size with one digit after the point, as `1.0 GiB`; below 1 KiB the bytes.
pub fn format_size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        // 1023.95 and more would be printed as 1024.0.
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

/// Milliseconds of a time such as `5s`, `500ms` or `2m`.
///
/// # Errors
/// A sentence that says what is wrong and how a time looks.
pub fn parse_milliseconds(text: &str) -> Result<u32, String> {
    let time =
        humantime::parse_duration(text).map_err(|e| format!("{e}: write a time as 5s, 500ms or 2m"))?;
    match u32::try_from(time.as_millis()) {
        Ok(0) => Err("the least is 1ms".to_owned()),
        Ok(milliseconds) => Ok(milliseconds),
        Err(_) => Err("the most is 49 days".to_owned()),
    }
}

/// A time such as `10s`, `5m` or `6h`.
///
/// # Errors
/// A sentence that says what is wrong and how a time looks.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|e| format!("{e}: write a time as 10s, 5m or 6h"))?;
    if time < Duration::from_millis(1) { Err("the least is 1ms".to_owned()) } else { Ok(time) }
}

/// A time in two units at most, as `2h 5m`.
pub fn format_milliseconds(milliseconds: u64) -> String {
    let time = match milliseconds {
        0..1_000 => Duration::from_millis(milliseconds),
        1_000..3_600_000 => Duration::from_secs(milliseconds / 1_000),
        _ => Duration::from_secs(milliseconds / 60_000 * 60),
    };
    humantime::format_duration(time).to_string()
}

/// Mode bits of an octal number such as `0640`.
///
/// # Errors
/// A sentence that says how mode bits look.
pub fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text.strip_prefix("0o").unwrap_or(text), 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("write the mode bits as an octal number up to 777, as 0640".to_owned()),
    }
}

/// Mode bits as `rw-r-----`.
pub fn format_mode(mode: u32) -> String {
    (0..9).map(|bit| if mode & (0o400 >> bit) == 0 { '-' } else { ['r', 'w', 'x'][bit % 3] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512B", 512),
            ("1k", 1024),
            ("512M", 512 << 20),
            ("1GiB", 1 << 30),
            ("1 gib", 1 << 30),
            ("1.5G", 3 << 29),
            ("10MB", 10_000_000),
            ("0.5TiB", 1 << 39),
            ("2P", 2 << 50),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "G", "-1", "1X", "1.2.3", "1.", ".5G", "1GiBB", "99999999999999999999", "99999999P", "1e9"]
        {
            assert!(parse_size(text).unwrap_err().contains("1GiB"), "{text}");
        }
    }

    #[test]
    fn sizes_as_people_read_them() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1 << 30, "1.0 GiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (1536 << 20, "1.5 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(format_size(bytes), text);
        }
    }

    #[test]
    fn times() {
        assert_eq!(parse_milliseconds("5s"), Ok(5000));
        assert_eq!(parse_milliseconds("500ms"), Ok(500));
        for text in ["", "5", "0s", "1us", "1year", "-1s"] {
            assert!(parse_milliseconds(text).is_err(), "{text}");
        }
        assert_eq!(parse_duration("6h"), Ok(Duration::from_secs(6 * 3600)));
        for text in ["", "5", "0s", "1us", "-1s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(format_milliseconds(250), "250ms");
        assert_eq!(format_milliseconds(7_500_999), "2h 5m");
    }

    #[test]
    fn modes() {
        assert_eq!(parse_mode("0640"), Ok(0o640));
        assert_eq!(parse_mode("7"), Ok(7));
        for text in ["", "888", "1777", "u+w", "-1"] {
            assert!(parse_mode(text).is_err(), "{text}");
        }
        assert_eq!(format_mode(0o640), "rw-r-----");
        assert_eq!(format_mode(0o751), "rwxr-x--x");
    }
}
