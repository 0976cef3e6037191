//! For the fuzz targets: what is private of what peers, newcomers and files say.

use crate::ca::Token;
use crate::ca::fuzzing::{records, sample_records};
use crate::certificate::Subject;
use crate::verify;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::hint::black_box;

pub use crate::joining::fuzzing::{newcomers, sample_newcomers};

/// An authority, and a host that it has issued a certificate to. Nobody has their keys.
const CERTIFICATES: [&str; 2] = [include_str!("fuzzing/authority.pem"), include_str!("fuzzing/host.pem")];

fn from_pem(text: &[u8]) -> Option<CertificateDer<'static>> {
    CertificateDer::from_pem_slice(text).ok()
}

/// The authority's records, the name in a certificate, and a token: text.
pub fn texts(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    records(text);
    if let Some(subject) = Subject::from_uri(text) {
        assert_eq!(Subject::from_uri(&subject.to_uri()), Some(subject));
    }
    if let Ok(token) = text.parse::<Token>() {
        assert_eq!(token.to_string().parse::<Token>().ok(), Some(token));
    }
}

/// Samples of those.
pub fn sample_texts() -> Vec<Vec<u8>> {
    let cluster = crate::hex::encode(&[7; 16]);
    let token = Token { secret: [1; 32], fingerprint: [2; 32], address: "a-b.example:7000".into() };
    let words = [
        format!("commonhold:{cluster}/ca"),
        format!("commonhold:{cluster}/host/left?rights=read-only"),
        token.to_string(),
    ];
    sample_records().into_iter().chain(words.map(String::into_bytes)).collect()
}

/// A certificate as peers show it, or (behind a 1) as it is in a file.
pub fn certificates(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let certificate = if *kind == 1 { from_pem(rest) } else { Some(CertificateDer::from(rest)) };
    let Some(certificate) = certificate else { return };
    if let Ok(subject) = Subject::of(&certificate) {
        assert_eq!(Subject::from_uri(&subject.to_uri()), Some(subject));
    }
    let mut roots = RootCertStore::empty();
    roots.add(from_pem(CERTIFICATES[0].as_bytes()).expect("a certificate")).expect("an authority's");
    black_box((verify::good_until(&certificate, &roots), roots.add(certificate.clone()).is_ok()));
}

/// Samples of those.
pub fn sample_certificates() -> Vec<Vec<u8>> {
    let both = |text: &&str| {
        let der = from_pem(text.as_bytes()).expect("a certificate");
        [[&[0], der.as_ref()].concat(), [&[1], text.as_bytes()].concat()]
    };
    CERTIFICATES.iter().flat_map(both).collect()
}
