//! For the fuzz targets: what newcomers and the authority say to each other.

use super::{Answer, Request};
use crate::certificate::{Subject, check_host_name};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Any bytes as a request, and as its answer: what is done with them before anything else is known.
pub fn newcomers(bytes: &[u8]) {
    if let Ok(request) = postcard::from_bytes::<Request>(bytes) {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &request.public_key);
        assert!(key.verify(b"what it should sign", &request.proof).is_err(), "nobody has signed that");
        let _ = check_host_name(&request.name); // whatever it says
        let again = postcard::to_stdvec(&request).expect("what was read can be written");
        assert!(postcard::from_bytes::<Request>(&again).is_ok());
    }
    if let Ok(Answer::Granted { certificate, authority }) = postcard::from_bytes::<Answer>(bytes) {
        for text in [certificate, authority] {
            let parsed = CertificateDer::from_pem_slice(text.as_bytes());
            let _ = parsed.map(|certificate| Subject::of(&certificate)); // whatever it says
        }
    }
}

/// Samples of those.
pub fn sample_newcomers() -> Vec<Vec<u8>> {
    let key = rcgen::KeyPair::generate().expect("a key");
    let signed = rcgen::SigningKey::sign(&key, b"another text").expect("a signature");
    let public_key = key.public_key_raw().to_vec();
    let request = Request { secret: [5; 32], name: "new".into(), public_key, proof: signed };
    let granted = Answer::Granted {
        certificate: include_str!("../fuzzing/host.pem").into(),
        authority: include_str!("../fuzzing/authority.pem").into(),
    };
    let encoded = [
        postcard::to_stdvec(&request),
        postcard::to_stdvec(&granted),
        postcard::to_stdvec(&Answer::Refused("no".into())),
    ];
    encoded.into_iter().map(|bytes| bytes.expect("it can be encoded")).collect()
}
