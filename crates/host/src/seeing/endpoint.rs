//! Where Prometheus asks for the numbers: one thread for all connections, each bounded in bytes and time, so that whoever
//! asks, or asks for nonsense, takes no more of the host than that thread, and keeps nobody else waiting.

use super::conversations;
use super::exposition::{Exposition, OBJECTS_SHOWN};
use crate::server::Host;
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use commonhold_points as points;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Longest question.
const MOST_BYTES: usize = 8192;
/// How long one who asks may take, for the question, and for taking the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two attempts to listen.
const PAUSE: Duration = Duration::from_secs(1);

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where Prometheus may ask for a host's numbers.
#[derive(Clone, Debug)]
pub struct MetricsOptions {
    /// Where to listen.
    pub address: SocketAddr,
    /// Also where other machines reach it.
    pub even_beyond_loopback: bool,
}

impl MetricsOptions {
    /// Refuses what would tell other machines what nobody said they may know.
    pub fn check(&self) -> Result<()> {
        if self.address.ip().is_loopback() || self.even_beyond_loopback {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "--metrics {} is not a loopback address, and whoever reaches it can read the names and numbers of all \
                 objects: use 127.0.0.1, or add --metrics-beyond-loopback",
                self.address
            ),
        ))
    }

    /// Answers from now on, until the process ends. An address that is taken is tried again: that is no reason for the
    /// host not to serve.
    pub fn serve(self, host: &Arc<Host>) -> Result<()> {
        self.check()?;
        let host = Arc::downgrade(host);
        let serving = move || {
            let mut said = false;
            while let Some(strong) = host.upgrade() {
                match TcpListener::bind(self.address) {
                    Ok(listener) => {
                        drop(strong);
                        return answer_all(&listener, &host);
                    }
                    Err(error) if !std::mem::replace(&mut said, true) => {
                        let address = self.address;
                        strong.machine.log(format_args!("--metrics {address}: {error}; trying again"));
                    }
                    Err(_) => {}
                }
                drop(strong);
                std::thread::sleep(PAUSE);
            }
        };
        points::thread(|| std::thread::Builder::new().name("metrics".into()).spawn(serving))
            .doing("starting a thread")?;
        Ok(())
    }
}

fn answer_all(listener: &TcpListener, host: &Weak<Host>) {
    let mut answers =
        |heard: &[u8]| understand(heard).map(|asked| answer(&asked, || text(&*host.upgrade()?)));
    let ended = conversations::answer_all(listener, PATIENCE, &mut answers, &|| host.strong_count() > 0);
    if let (Err(error), Some(host)) = (ended, host.upgrade()) {
        host.machine.log(format_args!("--metrics is not served any more: {error}"));
    }
}

fn text(host: &Host) -> Option<String> {
    let (objects, not_shown) = host.counts_for_all(OBJECTS_SHOWN);
    Exposition { status: host.status(), objects, not_shown }.text().ok()
}

/// What is asked, as far as it matters.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Metrics { body: bool },
    Elsewhere,
    OtherMethod,
    Nonsense,
}

/// The whole answer.
pub(super) fn answer(asked: &Asked, text: impl FnOnce() -> Option<String>) -> Vec<u8> {
    let (status, kind, body) = match asked {
        Asked::Metrics { body } => match text() {
            Some(text) if *body => ("200 OK", METRICS, text),
            Some(_) => ("200 OK", METRICS, String::new()),
            None => ("500 Internal Server Error", TEXT, "the numbers cannot be written\n".into()),
        },
        Asked::Elsewhere => ("404 Not Found", TEXT, "there is /metrics, and nothing else\n".into()),
        Asked::OtherMethod => ("405 Method Not Allowed", TEXT, "GET or HEAD\n".into()),
        Asked::Nonsense => ("400 Bad Request", TEXT, "not a request of HTTP/1.1 within 8 KiB\n".into()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// What is asked; none while the question is not whole.
pub(super) fn understand(bytes: &[u8]) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < MOST_BYTES => return None,
        _ => return Some(Asked::Nonsense),
    }
    let body = match request.method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => return Some(Asked::OtherMethod),
    };
    let path = request.path.unwrap_or("").split('?').next().unwrap_or("");
    Some(if path == "/metrics" { Asked::Metrics { body } } else { Asked::Elsewhere })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_understood_and_nonsense_is_bounded() {
        assert_eq!(understand(b"GET /metrics HTT"), None);
        let metrics = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(understand(metrics), Some(Asked::Metrics { body: true }));
        assert_eq!(understand(b"HEAD /metrics HTTP/1.1\r\n\r\n"), Some(Asked::Metrics { body: false }));
        assert_eq!(understand(b"GET / HTTP/1.1\r\n\r\n"), Some(Asked::Elsewhere));
        assert_eq!(understand(b"POST /metrics HTTP/1.1\r\n\r\n"), Some(Asked::OtherMethod));
        assert_eq!(understand(b"\x16\x03\x01\x02\x00\x01"), Some(Asked::Nonsense));
        let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'x'; MOST_BYTES]].concat();
        assert_eq!(understand(&long), Some(Asked::Nonsense));
        assert_eq!(understand(&long[..100]), None);
    }

    #[test]
    fn loopback_alone_unless_said_otherwise() {
        let options = |address: &str, even_beyond_loopback| MetricsOptions {
            address: address.parse().unwrap(),
            even_beyond_loopback,
        };
        assert!(options("127.0.0.1:9", false).check().is_ok() && options("[::1]:9", false).check().is_ok());
        let refused = options("0.0.0.0:9", false).check().unwrap_err();
        assert!(refused.message.contains("--metrics-beyond-loopback"));
        assert!(options("192.0.2.1:9", true).check().is_ok());
    }
}
