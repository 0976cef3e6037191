//! Questions to etcd, from threads that wait for the answers.

use super::super::place::{EtcdPlace, TlsFiles};
use commonhold_object::error::Doing;
use commonhold_object::{Error, ErrorKind, Result};
use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// One attempt is over after this long: another member of etcd may answer the next.
const ATTEMPT: Duration = Duration::from_millis(1500);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// The connections to etcd.
pub(in super::super) struct Client {
    runtime: Runtime,
    etcd: etcd_client::Client,
    place: String,
}

impl Client {
    /// Connects when it is first asked something.
    pub fn new(place: &EtcdPlace, files: Option<&TlsFiles>) -> Result<Client> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("etcd")
            .enable_all()
            .build()
            .doing("starting a thread for etcd")?;
        let scheme = if place.tls { "https" } else { "http" };
        let endpoints: Vec<String> =
            place.members.iter().map(|member| format!("{scheme}://{member}")).collect();
        let mut options = ConnectOptions::new()
            .with_connect_timeout(ATTEMPT)
            .with_keep_alive(Duration::from_secs(1), ATTEMPT)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true);
        if let Some(files) = files.filter(|_| place.tls) {
            options = options.with_tls(tls(files)?);
        }
        let etcd = runtime
            .block_on(etcd_client::Client::connect(endpoints, Some(options)))
            .map_err(|error| failed(&place.to_string(), &error))?;
        Ok(Client { runtime, etcd, place: place.to_string() })
    }

    /// Asks, and again if a member of etcd cannot answer, until the time is over. What is asked is such that asking twice
    /// is asking once.
    pub fn ask<T>(
        &self,
        within: Duration,
        question: impl AsyncFn(etcd_client::Client) -> std::result::Result<T, etcd_client::Error>,
    ) -> Result<T> {
        let deadline = Instant::now() + within;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let etcd = self.etcd.clone();
            let asking = async { tokio::time::timeout(left.min(ATTEMPT), question(etcd)).await };
            let error = match self.runtime.block_on(asking) {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) if is_final(&error) => return Err(failed(&self.place, &error)),
                Ok(Err(error)) => failed(&self.place, &error),
                Err(_) => away(&self.place, "it does not answer"),
            };
            if Instant::now() + PAUSE > deadline {
                return Err(error);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// For a conversation that goes on.
    pub fn converse<T>(&self, talk: impl AsyncFnOnce(etcd_client::Client) -> T) -> T {
        self.runtime.block_on(talk(self.etcd.clone()))
    }
}

fn tls(files: &TlsFiles) -> Result<TlsOptions> {
    let read = |path: &std::path::Path| {
        std::fs::read(path).doing(format_args!("reading {} for etcd", path.display()))
    };
    let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(read(&files.authority)?));
    if let Some((certificate, key)) = &files.own {
        tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    Ok(tls)
}

/// Whether no other answer is to be expected.
fn is_final(error: &etcd_client::Error) -> bool {
    use etcd_client::Error as E;
    match error {
        E::LeaseKeepAliveError(_) | E::InvalidArgs(_) | E::InvalidUri(_) => true,
        // The names of gRPC's codes: etcd's own errors, which a repetition does not change.
        E::GRpcStatus(status) => matches!(
            format!("{:?}", status.code()).as_str(),
            "InvalidArgument" | "NotFound" | "PermissionDenied" | "Unauthenticated" | "FailedPrecondition"
        ),
        _ => false,
    }
}

fn away(place: &str, why: &str) -> Error {
    Error::new(
        ErrorKind::Disconnected,
        format!(
            "the cluster's registry {place} cannot be reached: {why}: what is mapped goes on until this host's lease ends; \
             try again later"
        ),
    )
}

fn failed(place: &str, error: &etcd_client::Error) -> Error {
    let said = error.to_string().replace('\n', " ");
    match error {
        etcd_client::Error::LeaseKeepAliveError(_) => Error::new(
            ErrorKind::NotFound,
            "this host is lost to the others: its lease ended, or the registry forgot everything",
        ),
        _ => away(place, &said),
    }
}
