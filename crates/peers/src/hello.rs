//! Who a host says it is.

use crate::certificate::check_host_name;
use commonhold_coherence::HostId;
use commonhold_object::Result;
use serde::{Deserialize, Serialize};

/// Version of the messages that hosts of this version send each other. Hosts of one cluster speak the same. From the
/// first release on, whoever changes a message gives it another; a test of the host (`cluster/specimens.rs`) fails
/// with each change, until it is noted there.
pub const PROTOCOL_VERSION: u16 = 3;

/// What the two ends of a new connection tell each other first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The cluster; over TLS, the one of the certificate.
    pub cluster: [u8; 16],
    /// The host's number in the cluster, given by the registry.
    pub host: HostId,
    /// Its name; over TLS, the one of its certificate.
    pub name: String,
    /// Grows whenever a host starts under this number or name: the newer one is the real one.
    pub incarnation: u64,
    /// Version of the messages: [`PROTOCOL_VERSION`].
    pub version: u16,
}

impl Hello {
    /// Of a host of this version.
    pub fn new(cluster: [u8; 16], host: HostId, name: &str, incarnation: u64) -> Result<Hello> {
        check_host_name(name)?;
        Ok(Hello { cluster, host, name: name.to_owned(), incarnation, version: PROTOCOL_VERSION })
    }

    /// `host 3 ("left")`: for errors.
    pub fn who(&self) -> String {
        format!("{} ({:?})", self.host, self.name)
    }
}
