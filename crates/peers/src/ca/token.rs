//! A join token: what a newcomer is told once, out of the cluster's sight. `cmh1-SECRET-FINGERPRINT-ADDRESS`.

use crate::hex;
use commonhold_object::{Error, ErrorKind, Result};
use std::fmt;
use std::str::FromStr;

/// What a newcomer needs to get a certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Who knows it may join, once.
    pub secret: [u8; 32],
    /// SHA-256 of the authority's certificate: only to that does the newcomer tell the secret.
    pub fingerprint: [u8; 32],
    /// Where the authority's service listens: `host:port`.
    pub address: String,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token(for the authority at {})", self.address)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cmh1-{}-{}-{}", hex::encode(&self.secret), hex::encode(&self.fingerprint), self.address)
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Token> {
        let mut parts = text.trim().splitn(4, '-');
        let mut next = || parts.next().unwrap_or_default();
        let (kind, secret, fingerprint, address) = (next(), next(), next(), next());
        match (kind, hex::decode(secret), hex::decode(fingerprint)) {
            ("cmh1", Some(secret), Some(fingerprint)) if address.contains(':') => {
                Ok(Token { secret, fingerprint, address: address.to_owned() })
            }
            (kind, ..)
                if kind
                    .strip_prefix("cmh")
                    .is_some_and(|version| version.parse::<u32>().is_ok_and(|n| n != 1)) =>
            {
                Err(Error::new(
                    ErrorKind::Version,
                    format!(
                        "this join token is of another version of Commonhold (it begins with {kind}-, and cmh1- is known \
                         here): upgrade the older of the two hosts, and make another by `commonhold ca token`"
                    ),
                ))
            }
            _ => Err(Error::invalid(
                "this is no join token: one begins with cmh1- and is a single word; `commonhold ca token` makes them",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_written_and_read() {
        let token = Token { secret: [1; 32], fingerprint: [2; 32], address: "my-host.example:7000".into() };
        assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
        assert!(!format!("{token:?}").contains(&hex::encode(&token.secret)), "secrets do not get into logs");
        let text = token.to_string();
        assert_eq!(text, format!("cmh1-{}-{}-my-host.example:7000", "01".repeat(32), "02".repeat(32)));
        let other = text.replace("cmh1", "cmh2").parse::<Token>().unwrap_err();
        assert!(other.kind == ErrorKind::Version && other.message.contains("another version"), "{other}");
        for wrong in ["", "cmh1", &text[..60], &text.replace("cmh1", "cmh2"), &text.replace(':', "")] {
            assert!(wrong.parse::<Token>().unwrap_err().message.contains("ca token"), "{wrong}");
        }
    }
}
