//! How a newcomer gets its certificate: it shows the authority a token, and the authority shows the newcomer that it is
//! the one the token speaks of. The newcomer's key stays with it.

#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod newcomer;
mod service;

pub use newcomer::join;
pub use service::{Event, Service};

use crate::handshake::Talk;
use commonhold_object::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// What a newcomer says.
#[derive(Serialize, Deserialize)]
struct Request {
    secret: [u8; 32],
    name: String,
    /// A point of P-256, not compressed.
    public_key: Vec<u8>,
    /// A signature of [`proof_text`] by that key.
    proof: Vec<u8>,
}

/// What the authority answers.
#[derive(Serialize, Deserialize)]
enum Answer {
    /// The certificates, PEM.
    Granted { certificate: String, authority: String },
    /// No, and why.
    Refused(String),
}

/// What a newcomer signs: bound to this very TLS connection, so that nobody passes on the proof of another.
fn proof_text(talk: &Talk, name: &str) -> Result<Vec<u8>> {
    let wrong = || Error::new(ErrorKind::Protocol, "joining takes TLS");
    let tls = talk.tls().ok_or_else(wrong)?;
    let text = tls.export_keying_material([0; 32], b"EXPORTER-commonhold-join", Some(name.as_bytes()));
    text.map(|text: [u8; 32]| text.to_vec()).map_err(|_| wrong())
}

fn say(talk: &mut Talk, message: &impl Serialize) -> Result<()> {
    let body = postcard::to_stdvec(message)
        .map_err(|error| Error::invalid(format!("a message to the other end cannot be written: {error}")))?;
    let length =
        u16::try_from(body.len()).map_err(|_| Error::invalid("a message to the other end is too long"))?;
    talk.write(&[&length.to_le_bytes(), &body[..]].concat())
}

fn hear<T: serde::de::DeserializeOwned>(talk: &mut Talk) -> Result<T> {
    postcard::from_bytes(&talk.hear_bytes()?).map_err(|error| {
        Error::new(ErrorKind::Protocol, format!("what the other end says makes no sense: {error}"))
    })
}

/// What is said, for the golden file.
#[cfg(test)]
pub(crate) fn samples() -> Vec<Vec<u8>> {
    let request =
        Request { secret: [5; 32], name: "new".into(), public_key: vec![4; 65], proof: vec![6; 70] };
    let granted = Answer::Granted { certificate: "a".into(), authority: "b".into() };
    let refused = Answer::Refused("no".into());
    let bytes = [postcard::to_stdvec(&request), postcard::to_stdvec(&granted), postcard::to_stdvec(&refused)];
    bytes.map(|bytes| bytes.expect("it can be written")).into()
}

/// They are read to what they were.
#[cfg(test)]
pub(crate) fn are_samples(all: &[Vec<u8>]) {
    let request: Request = postcard::from_bytes(&all[0]).expect("a request");
    assert_eq!((request.secret, request.name.as_str(), request.proof.len()), ([5; 32], "new", 70));
    let granted: Answer = postcard::from_bytes(&all[1]).expect("certificates");
    assert!(matches!(granted, Answer::Granted { authority, .. } if authority == "b"));
    let refused: Answer = postcard::from_bytes(&all[2]).expect("a refusal");
    assert!(matches!(refused, Answer::Refused(why) if why == "no"));
}
