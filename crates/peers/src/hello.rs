//! Who a host says it is.

use crate::certificate::check_host_name;
use commonhold_coherence::HostId;
use commonhold_object::Result;
use commonhold_tags::Machine;
use serde::{Deserialize, Serialize};

/// Version of the messages that hosts of this version send each other. Hosts of one cluster speak the same. From the
/// first release on, whoever changes a message gives it another; a test of the host (`cluster/specimens.rs`) fails
/// with each change, until it is noted there.
pub const PROTOCOL_VERSION: u16 = 4;

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
    /// Its machine type, by name: what the pages that it sends mean.
    pub machine: String,
}

impl Hello {
    /// Of a host of this version.
    pub fn new(cluster: [u8; 16], host: HostId, name: &str, incarnation: u64) -> Result<Hello> {
        check_host_name(name)?;
        let (name, machine) = (name.to_owned(), Machine::HERE.word().to_owned());
        Ok(Hello { cluster, host, name, incarnation, version: PROTOCOL_VERSION, machine })
    }

    /// Of a host of another machine type than this program's.
    pub fn on(self, machine: Machine) -> Hello {
        Hello { machine: machine.word().to_owned(), ..self }
    }

    /// `host 3 ("left")`: for errors.
    pub fn who(&self) -> String {
        format!("{} ({:?})", self.host, self.name)
    }
}
