//! Which addresses a segment's tables can be shared at: a page directory's entry is for a gigabyte.

use std::io;

/// Bytes that one table of 2 MiB pages maps. Tables are shared whole.
pub const GIGABYTE: u64 = 1 << 30;

/// Bytes of addresses that an attached segment takes: a table is shared only where a mapping covers all of its gigabyte.
pub fn spanned(size_bytes: u64) -> u64 {
    size_bytes.next_multiple_of(GIGABYTE)
}

/// Refuses an address at which no table can be shared, and says which one near by can.
pub fn check_address(address: u64) -> io::Result<()> {
    if address.is_multiple_of(GIGABYTE) {
        return Ok(());
    }
    let below = address - address % GIGABYTE;
    let nearest = match address - below < GIGABYTE / 2 {
        true if below > 0 => below,
        _ => below.saturating_add(GIGABYTE),
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!(
            "page tables are shared where a gigabyte begins, and {address:#x} is not such an address: the nearest is \
             {nearest:#x}; or leave the address out, or map it with page tables of its own"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_a_gigabyte_begins() {
        assert!(check_address(0x100_0000_0000).is_ok());
        for (address, nearest) in [
            (0x100_0000_1000u64, "0x10000000000"),
            (0x100_3fff_f000, "0x10040000000"),
            (0x1000, "0x40000000"),
        ] {
            assert!(check_address(address).unwrap_err().to_string().contains(nearest), "{address:#x}");
        }
    }

    #[test]
    fn whole_gigabytes_are_taken() {
        assert_eq!([1, GIGABYTE, GIGABYTE + 1].map(spanned), [GIGABYTE, GIGABYTE, 2 * GIGABYTE]);
    }
}
