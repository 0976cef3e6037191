//! Whether a server's certificate was issued by the right authority, and is valid now. Addresses do not count: which
//! host it is, its subject says, and that is compared with what the host says of itself.

use crate::tls;
use ring::digest;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, PeerIncompatible, RootCertStore, SignatureScheme,
};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Whom to believe.
#[derive(Debug)]
pub enum Trust {
    /// The cluster's authority.
    Authority(Arc<RootCertStore>),
    /// An authority of which only the SHA-256 of its certificate is known: it must show that with its own.
    Fingerprint([u8; 32]),
}

/// The verifier of clients.
#[derive(Debug)]
pub struct ClusterVerifier {
    /// Whom to believe.
    pub trust: Trust,
    /// The cryptography.
    pub provider: Arc<CryptoProvider>,
}

/// SHA-256 of a certificate.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> [u8; 32] {
    let digest = digest::digest(&digest::SHA256, certificate);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

/// Until when a certificate is good that one of these issued. (The library says so of those that have expired.)
pub fn good_until(certificate: &CertificateDer<'_>, roots: &RootCertStore) -> Option<SystemTime> {
    const NEVER: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(253_402_300_799));
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let algorithms = tls::provider().signature_verification_algorithms.all;
    match verify_server_cert_signed_by_trust_anchor(&parsed, roots, &[], NEVER, algorithms) {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            UNIX_EPOCH.checked_add(Duration::from_secs(not_after.as_secs()))
        }
        _ => None,
    }
}

impl ServerCertVerifier for ClusterVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        let verify = |roots: &RootCertStore| {
            verify_server_cert_signed_by_trust_anchor(&certificate, roots, &[], now, algorithms)
        };
        match &self.trust {
            Trust::Authority(roots) => verify(roots)?,
            Trust::Fingerprint(expected) => {
                let shown = intermediates.iter().find(|shown| fingerprint(shown) == *expected);
                let mut roots = RootCertStore::empty();
                roots.add(shown.ok_or(CertificateError::UnknownIssuer)?.clone().into_owned())?;
                verify(&roots)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOfferedOrEnabled))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
