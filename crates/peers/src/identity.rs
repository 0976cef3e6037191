//! A host's certificate, its key, and the authority of its cluster.

use crate::certificate::{PeerRights, Role, Subject};
use crate::tls::{self, Credentials};
use crate::verify::{self, Trust};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// The certificate in a host's directory.
pub const CERTIFICATE_FILE: &str = "host.crt";
/// Its key.
pub const KEY_FILE: &str = "host.key";
/// The certificate of the cluster's authority.
pub const AUTHORITY_FILE: &str = "ca.crt";

/// What a host proves with who it is, and tells others by.
#[derive(Clone)]
pub struct Identity {
    cluster: [u8; 16],
    name: String,
    rights: PeerRights,
    roots: Arc<RootCertStore>,
    good_until: Option<SystemTime>,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({:?}, {:?})", self.name, self.rights)
    }
}

impl Identity {
    /// Reads `host.crt`, `host.key` and `ca.crt` of a directory, as `commonhold ca issue` makes them.
    pub fn load(directory: &Path) -> Result<Identity> {
        let certificate = read_certificate(&directory.join(CERTIFICATE_FILE))?;
        let authority = read_certificate(&directory.join(AUTHORITY_FILE))?;
        let key_path = directory.join(KEY_FILE);
        let key = read_key(&key_path)?;
        Self::new(certificate, authority, key)
            .map_err(|error| Error::new(error.kind, format!("{}: {}", directory.display(), error.message)))
    }

    fn new(
        certificate: CertificateDer<'static>,
        authority: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Identity> {
        let subject = Subject::of(&certificate)?;
        let Role::Host(name, rights) = subject.role else {
            return Err(Error::invalid("the certificate is not a host's: `commonhold ca issue` makes one"));
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(|error| {
            Error::invalid(format!("the authority's certificate cannot be used: {error}"))
        })?;
        let roots = Arc::new(roots);
        let own = || Credentials { chain: vec![certificate.clone()], key: key.clone_key() };
        let client = tls::client(Trust::Authority(roots.clone()), Some(own()))?;
        let server = tls::server(Some(roots.clone()), own())?;
        let good_until = verify::good_until(&certificate, &roots);
        Ok(Identity { cluster: subject.cluster, name, rights, roots, good_until, client, server })
    }

    /// The cluster it belongs to.
    pub fn cluster(&self) -> [u8; 16] {
        self.cluster
    }

    /// The host's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Until when it is good.
    pub fn good_until(&self) -> Option<SystemTime> {
        self.good_until
    }

    /// Until when that certificate of another host is.
    pub(crate) fn good_until_of(&self, certificate: &CertificateDer<'_>) -> Option<SystemTime> {
        verify::good_until(certificate, &self.roots)
    }

    /// Its TLS, for both ends: to measure connections against a bare stream with the same TLS.
    pub fn tls(&self) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
        (self.client.clone(), self.server.clone())
    }

    /// What the host may do.
    pub fn rights(&self) -> PeerRights {
        self.rights
    }
}

/// Reads one certificate.
pub fn read_certificate(path: &Path) -> Result<CertificateDer<'static>> {
    let bytes = std::fs::read(path).doing(format!("cannot read the certificate {}", path.display()))?;
    CertificateDer::from_pem_slice(&bytes)
        .map_err(|error| Error::invalid(format!("{} holds no certificate: {error}", path.display())))
}

/// Reads a key, which must be for its owner alone.
pub fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let what = || format!("cannot read the key {}", path.display());
    let found = std::fs::metadata(path).doing(what())?;
    let (owner, own) = (found.uid(), rustix::process::geteuid().as_raw());
    if owner != own && owner != 0 {
        return Err(Error::new(
            ErrorKind::Permission,
            format!(
                "the key {} belongs to user {owner}, who has it too: have another one issued",
                path.display()
            ),
        ));
    }
    let mode = found.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Error::new(
            ErrorKind::Permission,
            format!("the key {} has mode {mode:04o}, so others can read it: `chmod 600` it", path.display()),
        ));
    }
    let bytes = std::fs::read(path).doing(what())?;
    PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|error| Error::invalid(format!("{} holds no key: {error}", path.display())))
}
