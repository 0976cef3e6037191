//! Objects that have one address in all processes: where they are mapped, and what is said when something lies there.

use crate::addresses::ADDRESSES;
use crate::link::lock;
use crate::object::Core;
use crate::{Error, ErrorKind, MapFlags, MapOptions, Result};
use commonhold_object::{Fixed, Part};

/// How the library maps an object for itself: its user may have it mapped at its address.
pub(crate) const ANYWHERE: MapFlags = MapFlags {
    lock: false,
    fixed: false,
    prefetch: false,
    in_thread: false,
    own_tables: false,
    anywhere: true,
};

/// The object's own addresses, unless they do not matter for this mapping.
fn of(core: &Core, options: &MapOptions) -> Option<Fixed> {
    core.options().fixed.filter(|_| !options.flags.anywhere)
}

/// Whether a mapping is at the object's own addresses.
pub(crate) fn has_one(core: &Core, options: &MapOptions) -> bool {
    of(core, options).is_some()
}

/// The options with the address that the object has. What the host says is believed as far as it is an address that hosts give;
/// and whatever it says, nothing that lies there is touched.
pub(crate) fn at_its_address(core: &Core, options: &MapOptions) -> Result<MapOptions> {
    let Some(fixed) = of(core, options) else { return Ok(options.clone()) };
    let part = if core.options().is_shared() { Part::Shared } else { Part::Local };
    fixed.check_given(part, 0)?;
    let address = fixed.address.saturating_add(options.offset);
    if options.flags.fixed && options.hint as u64 != address {
        return Err(Error::invalid(format!(
            "byte {} of object {} is at {address:#x} in all processes, and {:#x} was asked for: leave the address out, or map \
             it anywhere",
            options.offset,
            core.label(),
            options.hint
        )));
    }
    let hint = usize::try_from(address)
        .map_err(|_| Error::invalid(format!("{address:#x} is no address of this machine")))?;
    Ok(MapOptions { hint, flags: MapFlags { fixed: true, ..options.flags }, ..options.clone() })
}

/// Refuses what would reach into the addresses of another object.
pub(crate) fn check_length(core: &Core, options: &MapOptions, length: u64) -> Result<()> {
    let Some(fixed) = of(core, options) else { return Ok(()) };
    if options.offset.saturating_add(length) <= fixed.room_bytes {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "object {} has {} bytes of addresses: what lies behind them is another's; map less, or anywhere",
        core.label(),
        fixed.room_bytes
    )))
}

/// Something lies where the object is to be mapped.
pub(crate) fn is_taken(core: &Core, address: u64, length: u64) -> Error {
    let name = core.label();
    let own = {
        let map = lock(&ADDRESSES);
        let labels = |region: &commonhold_object::Region<crate::addresses::Piece>| {
            let other = region.value.object();
            (other.id() == core.id() && std::ptr::eq(other.shared(), core.shared()), other.label())
        };
        map.overlapping(address, length).next().map(labels)
    };
    let there = match own {
        Some((true, _)) => {
            let what = format!(
                "object {name} has one address, {address:#x}, and this process has mapped it there already: use that mapping, \
                 or unmap it first, or map it anywhere"
            );
            return Error::new(ErrorKind::Busy, what);
        }
        Some((false, other)) => format!("object {other}"),
        None => in_maps(address, length).unwrap_or_else(|| "something that is gone by now".into()),
    };
    let what = format!(
        "object {name} is at {address:#x}..{:#x} in all processes, and here {there} lies there: map it before that, or unmap \
         that, or map it anywhere (its pointers are of no use then)",
        address + length
    );
    Error::new(ErrorKind::Busy, what)
}

/// What the kernel says that is mapped there first.
fn in_maps(address: u64, length: u64) -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| overlaps(line, address, length))
}

/// What a line of `/proc/self/maps` is about, if that overlaps: `first-end perms offset device inode path`.
fn overlaps(line: &str, address: u64, length: u64) -> Option<String> {
    let (range, rest) = line.split_once(' ')?;
    let (first, end) = range.split_once('-')?;
    let number = |hex| u64::from_str_radix(hex, 16).ok();
    let (first, end) = (number(first)?, number(end)?);
    if first >= address.saturating_add(length) || end <= address {
        return None;
    }
    let path = rest.splitn(5, ' ').nth(4).map_or("", str::trim_start);
    let what = if path.is_empty() { "memory without a name" } else { path };
    Some(format!("{what} ({first:#x}..{end:#x})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_say_what_is_there() {
        let line =
            "200000000000-200000200000 rw-s 00000000 00:01 1029                       /memfd:a b (deleted)";
        let is = |address, length| overlaps(line, address, length);
        assert_eq!(is(0x2000_0010_0000, 1).unwrap(), "/memfd:a b (deleted) (0x200000000000..0x200000200000)");
        assert_eq!(is(0x2000_0020_0000, 4096), None);
        assert_eq!(is(0x1fff_ffff_f000, 4096), None);
        assert!(is(0x1fff_ffff_f000, 8192).is_some());
        let nameless = "200000000000-200000200000 rw-p 00000000 00:00 0 ";
        assert!(overlaps(nameless, 0x2000_0000_0000, 1).unwrap().starts_with("memory without a name"));
        for bad in ["", "x-y rw", "12 rw-p", "200000000000-"] {
            assert_eq!(overlaps(bad, 0, u64::MAX), None, "{bad}");
        }
    }
}
