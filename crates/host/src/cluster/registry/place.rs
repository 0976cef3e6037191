//! Where a cluster's registry is, as people write it.

use commonhold_object::{Error, ErrorKind, Result};
use commonhold_peers::HostAddress;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where the registry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this host.
    Here,
    /// In the host that listens there.
    Host(HostAddress),
    /// In etcd.
    Etcd(EtcdPlace, Option<TlsFiles>),
}

/// `etcd://HOST:PORT,…` or `etcds://HOST:PORT,…` (TLS), and after a slash what the cluster is called there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdPlace {
    /// `HOST:PORT` of each member of etcd that may be asked.
    pub members: Vec<String>,
    /// What the cluster is called there.
    pub cluster: String,
    /// Encrypted.
    pub tls: bool,
}

/// How this host and etcd know each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Who issued etcd's certificates.
    pub authority: PathBuf,
    /// This host's certificate for etcd, and its key.
    pub own: Option<(PathBuf, PathBuf)>,
}

impl EtcdPlace {
    /// Whether every member is on this machine.
    pub fn is_loopback(&self) -> bool {
        let local = |member: &String| {
            let host = member.rsplit_once(':').map_or(member.as_str(), |(host, _)| host);
            let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        };
        self.members.iter().all(local)
    }
}

impl Place {
    /// Refuses what this program cannot do, what would go over a network in the clear, or to nobody knows whom.
    pub fn check(&self, even_beyond_loopback: bool) -> Result<()> {
        match self {
            Place::Etcd(place, _) if cfg!(not(feature = "etcd")) => Err(without_etcd(place)),
            Place::Etcd(place, None) if place.tls => {
                Err(Error::invalid(format!("{place} is to be known by a certificate: give --registry-ca")))
            }
            Place::Etcd(place, _) if !place.tls && !place.is_loopback() && !even_beyond_loopback => {
                Err(Error::invalid(format!(
                    "{place} is beyond this machine, and nothing would be encrypted: use etcds://, or for a trial --plain \
                     and --even-beyond-loopback"
                )))
            }
            _ => Ok(()),
        }
    }
}

/// The error for a registry in etcd where the program has no etcd.
pub fn without_etcd(place: &EtcdPlace) -> Error {
    let why = format!(
        "--registry {place}: this program was built without etcd. Install protoc (Debian: protobuf-compiler and \
         libprotobuf-dev) and build it again by `./run build`, or keep the registry in a host: start one host without \
         --registry, and the others with --join"
    );
    Error::new(ErrorKind::Unsupported, why)
}

impl FromStr for EtcdPlace {
    type Err = Error;

    fn from_str(text: &str) -> Result<EtcdPlace> {
        let wrong = || {
            Error::invalid(format!(
                "{text:?} is no registry: give etcd://HOST:PORT,HOST:PORT (etcds:// with TLS), and /NAME behind it where \
                 several clusters share one etcd"
            ))
        };
        let (tls, rest) = match (text.strip_prefix("etcd://"), text.strip_prefix("etcds://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(wrong()),
        };
        let (members, cluster) = rest.split_once('/').unwrap_or((rest, "default"));
        let members: Vec<String> = members.split(',').map(str::to_owned).collect();
        let is_member = |member: &String| {
            let parts = member.rsplit_once(':');
            parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        let named = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !members.iter().all(is_member) || cluster.is_empty() || !cluster.chars().all(named) {
            return Err(wrong());
        }
        Ok(EtcdPlace { members, cluster: cluster.to_owned(), tls })
    }
}

impl fmt::Display for EtcdPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}/{}", self.members.join(","), self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_understood_or_refused() {
        let place: EtcdPlace = "etcd://127.0.0.1:2379,[::1]:22379/lab".parse().unwrap();
        assert_eq!((place.members.len(), place.cluster.as_str(), place.tls), (2, "lab", false));
        assert!(place.is_loopback());
        assert_eq!(place.to_string().parse::<EtcdPlace>().unwrap(), place);
        let place: EtcdPlace = "etcds://etcd.example:2379".parse().unwrap();
        assert_eq!((place.cluster.as_str(), place.tls, place.is_loopback()), ("default", true, false));
        let plain = Place::Etcd("etcd://192.0.2.1:2379".parse().unwrap(), None);
        assert!(plain.check(false).is_err() && plain.check(true).is_ok() == cfg!(feature = "etcd"));
        let unknown = Place::Etcd("etcds://192.0.2.1:2379".parse().unwrap(), None);
        assert!(unknown.check(true).is_err());
        for wrong in [
            "",
            "http://a:1",
            "etcd://",
            "etcd://a",
            "etcd://a:x",
            "etcd://a:1/",
            "etcd://a:1/b/c",
            "etcd://a:1,",
        ] {
            assert!(wrong.parse::<EtcdPlace>().is_err(), "{wrong}");
        }
    }
}
