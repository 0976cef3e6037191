//! The newcomer's side.

use super::{Answer, Request, hear, proof_text, say};
use crate::ca::{Issued, Token, new_key, prepare_identity, write_identity};
use crate::certificate::{Role, Subject, check_host_name};
use crate::greeting::Mode;
use crate::handshake::{DEADLINE, Talk};
use crate::socket;
use crate::tls;
use crate::verify::Trust;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use rcgen::SigningKey;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Instant;

/// Gets a certificate for a host of this name by a token, and writes it with its key into a directory that has none.
pub fn join(token: &Token, name: &str, directory: &Path) -> Result<()> {
    check_host_name(name)?;
    // Before the token is used up: who cannot write there must not lose it.
    prepare_identity(directory)?;
    let key = new_key()?;
    let mut talk = call(token)?;
    let signed = key.sign(&proof_text(&talk, name)?);
    let proof = signed.map_err(|error| Error::invalid(format!("the new key cannot sign: {error}")))?;
    let public_key = key.public_key_raw().to_vec();
    say(&mut talk, &Request { secret: token.secret, name: name.to_owned(), public_key, proof })?;
    match hear(&mut talk)? {
        Answer::Granted { certificate, authority } => {
            write_identity(directory, &key.serialize_pem(), &Issued { certificate, authority })
        }
        Answer::Refused(why) => Err(Error::new(
            ErrorKind::Permission,
            format!("the authority at {} refuses: {why}", token.address),
        )),
    }
}

/// Speaks with the authority that the token names, and no other.
fn call(token: &Token) -> Result<Talk> {
    let what = || format!("the authority at {} cannot be reached", token.address);
    let config = tls::client(Trust::Fingerprint(token.fingerprint), None)?;
    let deadline = Instant::now() + DEADLINE;
    let mut addresses = token.address.to_socket_addrs().doing(what())?;
    let address = addresses.next().ok_or_else(|| Error::new(ErrorKind::NotFound, what()))?;
    let stream = TcpStream::connect_timeout(&address, DEADLINE).doing(what())?;
    socket::prepare(&stream)?;
    let connection = ClientConnection::new(config, ServerName::IpAddress(address.ip().into()))
        .map_err(|error| Error::invalid(format!("TLS cannot begin: {error}")))?;
    let talk = Talk::open_with(stream, Mode::Joining, Some(Connection::Client(connection)), deadline)
        .map_err(|error| Error::new(error.kind, format!("{}: {}", what(), error.message)))?;
    // A host has a certificate of the same authority; the secret is not for it.
    match talk.subject()? {
        Some(Subject { role: Role::Authority, .. }) => Ok(talk),
        _ => Err(Error::new(
            ErrorKind::Permission,
            format!("who answers at {} is not the authority", token.address),
        )),
    }
}
