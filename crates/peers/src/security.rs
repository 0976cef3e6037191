//! How hosts speak with each other.

use crate::identity::Identity;
use commonhold_object::{Error, ErrorKind, Result};
use std::net::SocketAddr;

/// Encrypted and authenticated, or neither.
#[derive(Clone, Debug)]
pub enum Security {
    /// Mutual TLS 1.3: both ends show a certificate of the cluster's authority.
    Tls(Identity),
    /// Nothing is encrypted, and anybody who reaches the port can say to be any host.
    Plain {
        /// Also between machines.
        even_beyond_loopback: bool,
    },
}

impl Security {
    /// Whether an address may be spoken with, or listened on.
    pub fn check(&self, address: SocketAddr) -> Result<()> {
        match self {
            Security::Plain { even_beyond_loopback: false } if !address.ip().to_canonical().is_loopback() => {
                Err(Error::new(
                    ErrorKind::Permission,
                    format!(
                        "plain connections end at this machine, and {address} is not on its loopback: use certificates \
                         (`commonhold ca init`), or allow plain connections beyond it as well"
                    ),
                ))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_connections_stay_on_the_machine_unless_told_twice() {
        let allowed = |even_beyond_loopback, address: &str| {
            Security::Plain { even_beyond_loopback }.check(address.parse().unwrap()).is_ok()
        };
        for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(allowed(false, address), "{address}");
        }
        for address in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "192.0.2.1:1", "[2001:db8::1]:1"] {
            assert!(!allowed(false, address), "{address}");
            assert!(allowed(true, address), "{address}");
        }
    }
}
