//! `ca init|issue|token|serve|join`: who the hosts of a cluster are.

use crate::arguments::ca::{CaCommand, Init, Issue, Join, Place, Serve, Token};
use crate::failure::Done;
use crate::output::{answer, printable};
use crate::place::HostPlace;
use commonhold::{Error, Result};
use commonhold_object::error::Doing;
use commonhold_peers::ca::{self, Authority, Grant, Validity};
use commonhold_peers::{Identity, PeerRights, check_host_name, joining};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Runs the command.
pub fn run(place: &HostPlace, command: CaCommand) -> Done {
    match command {
        CaCommand::Init(arguments) => init(place, &arguments),
        CaCommand::Issue(arguments) => issue(place, &arguments),
        CaCommand::Token(arguments) => token(place, &arguments),
        CaCommand::Serve(arguments) => serve(place, &arguments),
        CaCommand::Join(arguments) => join(place, &arguments),
    }
}

fn directory(place: &HostPlace, given: &Place) -> Result<PathBuf> {
    match &given.dir {
        Some(directory) => Ok(directory.clone()),
        None => place.to_start(None).map(|state| ca::default_directory(&state)),
    }
}

fn rights(read_only: bool) -> PeerRights {
    if read_only { PeerRights::ReadOnly } else { PeerRights::ReadWrite }
}

fn rights_word(rights: PeerRights) -> &'static str {
    match rights {
        PeerRights::ReadWrite => "read-write",
        PeerRights::ReadOnly => "read-only",
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Serialize)]
struct AuthorityView {
    directory: String,
    cluster: String,
    fingerprint: String,
}

fn init(place: &HostPlace, arguments: &Init) -> Done {
    let authority = Authority::init(&directory(place, &arguments.place)?)?;
    let view = AuthorityView {
        directory: authority.directory().display().to_string(),
        cluster: hex(&authority.cluster()),
        fingerprint: hex(&authority.fingerprint()),
    };
    answer(arguments.form.json, &view, |view| {
        format!(
            "made the authority of cluster {} in {}: keep a copy of it safe",
            view.cluster, view.directory
        )
    })
}

#[derive(Serialize)]
struct IdentityView {
    host: String,
    rights: &'static str,
    cluster: String,
    directory: String,
}

/// What is now in a directory: read back, so that a certificate that cannot be used is noticed here.
fn identity(directory: &Path) -> Result<IdentityView> {
    let identity = Identity::load(directory)?;
    Ok(IdentityView {
        host: identity.name().to_owned(),
        rights: rights_word(identity.rights()),
        cluster: hex(&identity.cluster()),
        directory: directory.display().to_string(),
    })
}

fn issue(place: &HostPlace, arguments: &Issue) -> Done {
    let authority = Authority::load(&directory(place, &arguments.place)?)?;
    // Before the name becomes a path.
    check_host_name(&arguments.name)?;
    let into = arguments.into.clone().unwrap_or_else(|| PathBuf::from(&arguments.name));
    let rights = rights(arguments.read_only);
    authority.enroll(&into, &arguments.name, rights, Validity::of(arguments.valid_for), arguments.renew)?;
    answer(arguments.form.json, &identity(&into)?, |view| {
        format!("host {}, {}: its certificate and key are in {}", view.host, view.rights, view.directory)
    })
}

#[derive(Serialize)]
struct TokenView {
    token: String,
    address: String,
    host: Option<String>,
    rights: &'static str,
    good_for_s: u64,
}

fn token(place: &HostPlace, arguments: &Token) -> Done {
    let authority = Authority::load(&directory(place, &arguments.place)?)?;
    let rights = rights(arguments.read_only);
    let grant = Grant { name: arguments.name.clone(), rights };
    let token = authority.give_token(&arguments.address, grant, arguments.good_for)?;
    let view = TokenView {
        token: token.to_string(),
        address: token.address,
        host: arguments.name.clone(),
        rights: rights_word(rights),
        good_for_s: arguments.good_for.as_secs().max(1),
    };
    // Alone on its line: it is for a pipe or a paste.
    answer(arguments.form.json, &view, |view| view.token.clone())
}

#[derive(Serialize)]
struct ServiceView {
    address: String,
    fingerprint: String,
}

fn serve(place: &HostPlace, arguments: &Serve) -> Done {
    let authority = Authority::load(&directory(place, &arguments.place)?)?;
    let fingerprint = hex(&authority.fingerprint());
    let service = joining::Service::start(arguments.listen, authority, |event| match event {
        joining::Event::Joined(from, name) => eprintln!("commonhold: {from} joined as host {name}"),
        joining::Event::Refused(from, why) => {
            eprintln!("commonhold: {from} was refused: {}", printable(&why.message, false));
        }
    })?;
    let view = ServiceView { address: service.local_addr().to_string(), fingerprint };
    answer(arguments.form.json, &view, |view| {
        format!("newcomers may come: authority {} listens on {}", view.fingerprint, view.address)
    })?;
    // Nothing is lost when a signal ends it: what it notes is on the disk before it answers.
    loop {
        std::thread::park();
    }
}

fn join(place: &HostPlace, arguments: &Join) -> Done {
    let text = match arguments.token.as_str() {
        "-" => std::io::read_to_string(std::io::stdin()).doing("reading the token from standard input")?,
        text => text.to_owned(),
    };
    let token: ca::Token = text.parse()?;
    let name = match &arguments.name {
        Some(name) => name.clone(),
        None => host_name()?,
    };
    let into = match &arguments.into {
        Some(directory) => directory.clone(),
        None => place.to_start(None)?.join("identity"),
    };
    joining::join(&token, &name, &into)?;
    answer(arguments.form.json, &identity(&into)?, |view| {
        format!(
            "joined as host {}, {}: its certificate and key are in {}",
            view.host, view.rights, view.directory
        )
    })
}

fn host_name() -> Result<String> {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy().into_owned();
    check_host_name(&name)
        .map_err(|error| Error::invalid(format!("{}; --name gives another", error.message)))?;
    Ok(name)
}
