//! Arguments of `ca`.

use super::Form;
use crate::units::parse_duration;
use clap::{Args, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// `ca`.
#[derive(Debug, Subcommand)]
pub enum CaCommand {
    /// Make the authority of a new cluster; its key never leaves the directory
    Init(Init),
    /// Make key and certificate of a host
    Issue(Issue),
    /// Make a token by which one host gets its certificate itself
    Token(Token),
    /// Give newcomers who have a token their certificates, until interrupted
    Serve(Serve),
    /// Get a certificate for this host by a token
    Join(Join),
}

/// Where the authority is.
#[derive(Debug, Args)]
pub struct Place {
    /// Directory of the authority; `ca` in the state directory of the host unless given
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// `ca init`.
#[derive(Debug, Args)]
pub struct Init {
    /// Where.
    #[command(flatten)]
    pub place: Place,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `ca issue`.
#[derive(Debug, Args)]
pub struct Issue {
    /// Name of the host
    #[arg(value_name = "HOST")]
    pub name: String,
    /// The host gets pages and never changes any
    #[arg(long)]
    pub read_only: bool,
    /// Directory for the certificate; ./HOST unless given. Take it to the host by a way that others do not see
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// How long it is valid, such as 365d
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "365d")]
    pub valid_for: Duration,
    /// Also for a name that has a certificate already; the old one stays valid until it ends
    #[arg(long)]
    pub renew: bool,
    /// Where the authority is.
    #[command(flatten)]
    pub place: Place,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `ca token`.
#[derive(Debug, Args)]
pub struct Token {
    /// Where `ca serve` is reached by the newcomer
    #[arg(long, value_name = "HOST:PORT")]
    pub address: String,
    /// Good for a host of this name alone
    #[arg(long, value_name = "HOST")]
    pub name: Option<String>,
    /// The host gets pages and never changes any
    #[arg(long)]
    pub read_only: bool,
    /// How long it is good, such as 1h
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "1h")]
    pub good_for: Duration,
    /// Where the authority is.
    #[command(flatten)]
    pub place: Place,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `ca serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// Where to listen
    #[arg(long, value_name = "IP:PORT")]
    pub listen: SocketAddr,
    /// Where the authority is.
    #[command(flatten)]
    pub place: Place,
    /// How to answer: once, when it listens.
    #[command(flatten)]
    pub form: Form,
}

/// `ca join`.
#[derive(Debug, Args)]
pub struct Join {
    /// The token; - reads it from standard input, where other users of this machine do not see it
    pub token: String,
    /// Name of this host; its host name unless given
    #[arg(long, value_name = "HOST")]
    pub name: Option<String>,
    /// Directory for the certificate; `identity` in the state directory of the host unless given
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}
