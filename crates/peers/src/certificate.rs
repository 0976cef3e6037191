//! What a certificate says of its holder: one URI among its names, `commonhold:CLUSTER/host/NAME`, with
//! `?rights=read-only` behind it for a host that may not write, or `commonhold:CLUSTER/ca` for the service that admits
//! newcomers. No host can pass for that service, nor for another host.

use crate::hex;
use commonhold_object::{Error, ErrorKind, Result};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

/// Longest name of a host, as in DNS.
const LONGEST_NAME: usize = 63;

/// What a host may do in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PeerRights {
    /// Everything that its users may.
    ReadWrite,
    /// It gets pages and never changes any, whatever its users may.
    ReadOnly,
}

/// What a certificate is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A host of this name and these rights.
    Host(String, PeerRights),
    /// The service that gives newcomers their certificates.
    Authority,
}

/// Whose certificate it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The cluster.
    pub cluster: [u8; 16],
    /// What in it.
    pub role: Role,
}

impl Subject {
    /// As the URI in the certificate.
    pub fn to_uri(&self) -> String {
        let cluster = hex::encode(&self.cluster);
        match &self.role {
            Role::Authority => format!("commonhold:{cluster}/ca"),
            Role::Host(name, PeerRights::ReadWrite) => format!("commonhold:{cluster}/host/{name}"),
            Role::Host(name, PeerRights::ReadOnly) => {
                format!("commonhold:{cluster}/host/{name}?rights=read-only")
            }
        }
    }

    /// From such a URI. What is not understood makes it none: a right that a later version takes away must not be had.
    pub fn from_uri(uri: &str) -> Option<Subject> {
        let (cluster, rest) = uri.strip_prefix("commonhold:")?.split_once('/')?;
        let cluster = hex::decode(cluster)?;
        if rest == "ca" {
            return Some(Subject { cluster, role: Role::Authority });
        }
        let host = rest.strip_prefix("host/")?;
        let (name, rights) = match host.split_once('?') {
            None => (host, PeerRights::ReadWrite),
            Some((name, "rights=read-only")) => (name, PeerRights::ReadOnly),
            Some(_) => return None,
        };
        check_host_name(name).ok()?;
        Some(Subject { cluster, role: Role::Host(name.to_owned(), rights) })
    }

    /// Of a certificate. Whether it is good is not asked here.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Subject> {
        let wrong = |what: String| Error::new(ErrorKind::Permission, what);
        let parsed = webpki::EndEntityCert::try_from(certificate)
            .map_err(|error| wrong(format!("it is no certificate: {error}")))?;
        let mut ours = parsed.valid_uri_names().filter(|uri| uri.starts_with("commonhold:"));
        let (Some(uri), None) = (ours.next(), ours.next()) else {
            return Err(wrong(
                "the certificate names no host of a cluster: `commonhold ca issue` makes those that do"
                    .into(),
            ));
        };
        Subject::from_uri(uri).ok_or_else(|| {
            wrong(format!(
                "the certificate is for {uri:?}, which this version does not understand: upgrade this side"
            ))
        })
    }
}

/// Whether a host may have this name: letters, digits, `-`, `_` and `.`, as host names have them.
pub fn check_host_name(name: &str) -> Result<()> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let begins_well = name.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
    if begins_well && name.len() <= LONGEST_NAME && name.bytes().all(good) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{name:?} cannot be a host's name: it takes 1 to {LONGEST_NAME} letters, digits, '-', '_' and '.', and begins \
         with a letter or digit"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_written_and_read() {
        let roles = [
            Role::Host("left".into(), PeerRights::ReadWrite),
            Role::Host("a-b_c.example".into(), PeerRights::ReadOnly),
            Role::Authority,
        ];
        for role in roles {
            let subject = Subject { cluster: [7; 16], role };
            assert_eq!(Subject::from_uri(&subject.to_uri()), Some(subject));
        }
        let cluster = hex::encode(&[7; 16]);
        for wrong in ["host/", "host/a?rights=none", "host/a?", "host/a/b", "ca/x", "host/-a", "hosts/a", ""]
        {
            assert_eq!(Subject::from_uri(&format!("commonhold:{cluster}/{wrong}")), None, "{wrong}");
        }
        assert_eq!(Subject::from_uri("commonhold:77/ca"), None);
        assert_eq!(Subject::from_uri("https://example.com/ca"), None);
    }

    #[test]
    fn names_are_those_of_hosts() {
        assert!(check_host_name("node-1.example_x").is_ok());
        for wrong in ["", ".a", "-a", "a b", "a/b", "a?b", "é", &"a".repeat(64)] {
            assert!(check_host_name(wrong).is_err(), "{wrong}");
        }
    }
}
