//! Tokens: what they get, and when they get nothing.

mod common;

use commonhold_peers::ca::{Authority, Grant, Token};
use commonhold_peers::greeting::{Mode, preamble};
use commonhold_peers::joining::{Event, Service, join};
use commonhold_peers::{Identity, PeerRights, Result};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tempfile::TempDir;

struct Joining {
    directory: TempDir,
    authority: Authority,
    service: Service,
    events: Receiver<Event>,
}

impl Joining {
    fn start() -> Joining {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().join("ca");
        let authority = Authority::init(&at).unwrap();
        let (sender, events) = channel();
        let service =
            Service::start("127.0.0.1:0".parse().unwrap(), Authority::load(&at).unwrap(), move |event| {
                // The test may be over.
                let _ = sender.send(event);
            });
        Joining { directory, authority, service: service.unwrap(), events }
    }

    fn token(&self, name: Option<&str>, rights: PeerRights) -> Token {
        let grant = Grant { name: name.map(str::to_owned), rights };
        let address = self.service.local_addr().to_string();
        self.authority.give_token(&address, grant, Duration::from_secs(600)).unwrap()
    }

    fn join(&self, token: &Token, name: &str) -> Result<PathBuf> {
        let into = self.directory.path().join(name);
        join(token, name, &into).map(|()| into)
    }

    fn refused(&self) -> String {
        match self.events.recv_timeout(common::PATIENCE).unwrap() {
            Event::Refused(_, why) => why.message,
            other => panic!("not refused: {other:?}"),
        }
    }
}

#[test]
fn a_token_gets_one_host_in() {
    let joining = Joining::start();
    let token = joining.token(None, PeerRights::ReadOnly);
    let identity = Identity::load(&joining.join(&token, "new").unwrap()).unwrap();
    assert_eq!((identity.name(), identity.rights()), ("new", PeerRights::ReadOnly));
    assert_eq!(identity.cluster(), joining.authority.cluster());
    assert!(matches!(joining.events.recv().unwrap(), Event::Joined(_, name) if name == "new"));
    // Replayed, also to a service that started anew: what is used is on disk.
    let error = joining.join(&token, "other").unwrap_err();
    assert!(error.message.contains("used already, by \"new\""), "{error}");
    assert!(joining.refused().contains("used already"));
    assert!(!joining.directory.path().join("other/host.crt").exists());
}

#[test]
fn expired_forged_and_misused_tokens_are_refused() {
    let joining = Joining::start();
    let grant = Grant { name: None, rights: PeerRights::ReadWrite };
    let address = joining.service.local_addr().to_string();
    let short = joining.authority.give_token(&address, grant, Duration::from_secs(1)).unwrap();
    std::thread::sleep(Duration::from_millis(2100));
    let error = joining.join(&short, "late").unwrap_err();
    assert!(error.message.contains("expired"), "{error}");
    let good = joining.token(Some("only"), PeerRights::ReadWrite);
    let forged = Token { secret: [3; 32], ..good.clone() };
    assert!(joining.join(&forged, "x").unwrap_err().message.contains("no such token"));
    assert!(joining.join(&good, "x").unwrap_err().message.contains("\"only\""));
    // The secret is told to the authority of the token alone.
    let elsewhere = Token { fingerprint: [3; 32], ..good.clone() };
    let error = joining.join(&elsewhere, "only").unwrap_err();
    assert!(error.message.contains("authority"), "{error}");
    joining.join(&good, "only").unwrap();
    // A name that is taken.
    let again = joining.token(None, PeerRights::ReadWrite);
    std::fs::remove_dir_all(joining.directory.path().join("only")).unwrap();
    assert!(joining.join(&again, "only").unwrap_err().message.contains("--renew"));
}

/// A host with a good certificate that speaks as the service for newcomers does; what it gets to read.
fn impostor(listener: &TcpListener, identity: &Path) -> Vec<u8> {
    let read = |file| CertificateDer::from_pem_file(identity.join(file)).unwrap();
    let key = PrivateKeyDer::from_pem_file(identity.join("host.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![read("host.crt"), read("ca.crt")], key)
        .unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    socket.write_all(&preamble(Mode::Joining)).unwrap();
    socket.read_exact(&mut [0; 8]).unwrap();
    let mut heard = Vec::new();
    // It ends in one error or another: the newcomer hangs up.
    let _ =
        StreamOwned::new(ServerConnection::new(Arc::new(config)).unwrap(), socket).read_to_end(&mut heard);
    heard
}

#[test]
fn a_host_cannot_pass_for_the_authority() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::init(&directory.path().join("ca")).unwrap();
    let host = directory.path().join("host");
    authority.issue_into(&host, "host", PeerRights::ReadWrite, common::year()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let grant = Grant { name: None, rights: PeerRights::ReadWrite };
    let token = authority.give_token(&address, grant, Duration::from_secs(60)).unwrap();
    let heard = std::thread::spawn(move || impostor(&listener, &host));
    let error = join(&token, "new", &directory.path().join("new")).unwrap_err();
    assert!(error.message.contains("is not the authority"), "{error}");
    assert_eq!(heard.join().unwrap(), b"", "the secret stays with the newcomer");
}

#[test]
fn two_at_once_with_one_token_get_one_certificate() {
    let joining = Joining::start();
    let token = joining.token(None, PeerRights::ReadWrite);
    let joined: Vec<_> = std::thread::scope(|scope| {
        let joins: Vec<_> = (0..6)
            .map(|n| {
                let token = &token;
                let directory = joining.directory.path().join(format!("n{n}"));
                scope.spawn(move || join(token, &format!("n{n}"), &directory).is_ok())
            })
            .collect();
        joins.into_iter().map(|join| join.join().unwrap()).collect()
    });
    assert_eq!(joined.iter().filter(|joined| **joined).count(), 1, "{joined:?}");
}
