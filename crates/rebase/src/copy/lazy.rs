//! Functions that are looked up at their first call. Each has a few instructions that put its place in the table of such
//! functions on the stack and go to the loader; its word in the table of offsets leads there until then.

use crate::elf::Elf;

/// `push imm32`, by itself or behind `endbr64`, which is where indirect jumps may end.
const PUSH: u8 = 0x68;
const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];

/// Where in the file the numbers stand that the instructions of the functions at these places push; none if one of them
/// does not look as linkers make them.
pub(super) fn stubs(elf: &Elf, places: &[usize]) -> Option<Vec<usize>> {
    places.iter().map(|place| stub(elf, *place)).collect()
}

fn stub(elf: &Elf, place: usize) -> Option<usize> {
    let relocation = elf.relocations.jumps.get(place)?;
    let code = elf.offset_of(elf.word(relocation.address)?)?;
    let code = if elf.bytes.get(code..code + 4)? == LANDING { code + 4 } else { code };
    let number = code + 1;
    let pushes = elf.bytes.get(code) == Some(&PUSH);
    let says = u32::from_le_bytes(elf.bytes.get(number..number + 4)?.try_into().ok()?);
    (pushes && says as usize == place).then_some(number)
}
