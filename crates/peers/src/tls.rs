//! TLS as the hosts use it, and its failures in words.

use crate::verify::{ClusterVerifier, Trust};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore, ServerConfig, version::TLS13};
use std::io;
use std::sync::Arc;

/// A certificate with its key.
pub struct Credentials {
    /// The certificate, and what it was issued by where that must be shown.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its key.
    pub key: PrivateKeyDer<'static>,
}

/// The cryptography.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn wrong(what: &'static str) -> impl Fn(rustls::Error) -> Error {
    move |error| Error::invalid(format!("{what}: {error}"))
}

/// For the end that begins; with a certificate, unless it has none yet.
pub fn client(trust: Trust, credentials: Option<Credentials>) -> Result<Arc<ClientConfig>> {
    let provider = provider();
    let verifier = Arc::new(ClusterVerifier { trust, provider: provider.clone() });
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(wrong("this TLS library has no TLS 1.3"))?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match credentials {
        None => builder.with_no_client_auth(),
        Some(own) => builder
            .with_client_auth_cert(own.chain, own.key)
            .map_err(wrong("this host's certificate and key do not go together"))?,
    };
    // A resumed session would be as good as the certificate was then.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// For the end that is called; clients must show a certificate issued by one of `roots`, if there are any.
pub fn server(roots: Option<Arc<RootCertStore>>, own: Credentials) -> Result<Arc<ServerConfig>> {
    let provider = provider();
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(wrong("this TLS library has no TLS 1.3"))?;
    let builder = match roots {
        None => builder.with_no_client_auth(),
        Some(roots) => {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots, provider).build().doing_verifier()?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(own.chain, own.key)
        .map_err(wrong("this host's certificate and key do not go together"))?;
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

trait DoingVerifier<T> {
    fn doing_verifier(self) -> Result<T>;
}

impl<T, E: std::fmt::Display> DoingVerifier<T> for std::result::Result<T, E> {
    fn doing_verifier(self) -> Result<T> {
        self.map_err(|error| Error::invalid(format!("the authority's certificate cannot be used: {error}")))
    }
}

/// What went wrong in a handshake, or on a connection: in words that tell whose fault it is and what to do.
pub fn explain(doing: &str, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::TimedOut {
        return Error::new(ErrorKind::TimedOut, format!("{doing}: the peer took too long"));
    }
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Error::new(ErrorKind::Disconnected, format!("{doing}: the peer closed the connection"));
    }
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => {
            let (kind, words) = words(error);
            Error::new(kind, format!("{doing}: {words}"))
        }
        None => Err::<(), _>(error).doing(doing).unwrap_err(),
    }
}

fn words(error: &rustls::Error) -> (ErrorKind, String) {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext, UnknownIssuer};
    let clock = "if that is not so, set the clock of this machine";
    let said = match error {
        rustls::Error::InvalidCertificate(ExpiredContext { time, not_after }) => {
            format!(
                "the peer's certificate expired {} ago: issue it a new one; {clock}",
                between(*not_after, *time)
            )
        }
        rustls::Error::InvalidCertificate(Expired) => {
            format!("the peer's certificate has expired: issue it a new one; {clock}")
        }
        rustls::Error::InvalidCertificate(NotValidYetContext { time, not_before }) => {
            format!("the peer's certificate becomes valid only in {}; {clock}", between(*time, *not_before))
        }
        rustls::Error::InvalidCertificate(NotValidYet) => {
            format!("the peer's certificate is not valid yet; {clock}")
        }
        rustls::Error::InvalidCertificate(UnknownIssuer | CertificateError::BadSignature) => {
            "the peer's certificate was not issued by this cluster's authority".to_owned()
        }
        rustls::Error::InvalidCertificate(other) => {
            format!("the peer's certificate is not accepted: {other}")
        }
        rustls::Error::NoCertificatesPresented => "the peer shows no certificate".to_owned(),
        rustls::Error::AlertReceived(alert) => alert_words(*alert),
        other => return (ErrorKind::Protocol, format!("what came in is not TLS as hosts speak it: {other}")),
    };
    (ErrorKind::Permission, said)
}

fn alert_words(alert: AlertDescription) -> String {
    let refused = "the peer refuses this host's certificate";
    match alert {
        AlertDescription::CertificateExpired => {
            format!(
                "{refused}: to its clock it is expired or not valid yet; compare the clocks, or issue a new one"
            )
        }
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            format!("{refused}: another authority issued it than the peer's")
        }
        AlertDescription::CertificateRequired => {
            "the peer wants a certificate, and this side has none".to_owned()
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateRevoked
        | AlertDescription::AccessDenied => format!("{refused} ({alert:?})"),
        other => format!("the peer ended the handshake: {other:?}"),
    }
}

/// A time between two, in its largest unit.
fn between(from: UnixTime, to: UnixTime) -> String {
    let seconds = to.as_secs().saturating_sub(from.as_secs());
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
