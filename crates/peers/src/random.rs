//! Random bytes from the kernel.

use commonhold_object::{Error, ErrorKind, Result};
use ring::rand::{SecureRandom, SystemRandom};

/// `N` bytes that nobody can guess.
pub fn bytes<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::new(ErrorKind::Io, "the kernel gives no random bytes"))?;
    Ok(bytes)
}
