//! How a server of a mount begins: with a new mount, or with that of the server before.

use crate::fuse::Device;
use crate::kind::NewFiles;
use crate::log::{self, NodeLog};
use crate::mounting;
use crate::server::{AGREED_KEY, Server};
use commonhold::{Error, Result};
use commonhold_keeper::{
    Inheritance, KeeperCommand, KeeperEvent, Kept, Key, STUCK_PART, Serves, StateLog, Vault,
};
use commonhold_object::error::Doing;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::rand::GetRandomFlags;
use signal_hook::consts::{SIGHUP, SIGTERM, SIGXFSZ};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The key of the mount's descriptor; with it the number that no other mount has.
const DEVICE_KEY: &str = "fuse";

/// What the server of a mount must know.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Where its log lies.
    pub state_directory: PathBuf,
    /// Where to mount.
    pub directory: PathBuf,
    /// State directory of the host whose objects are shown.
    pub host_directory: PathBuf,
    /// What a new file is.
    pub new_files: NewFiles,
    /// Program of the next server, and of keepers.
    pub program: PathBuf,
}

/// Serves a mount until it ends. This is a process's main function.
pub fn serve(options: MountOptions, keeper: OwnedFd) -> Result<()> {
    let log = StateLog::new(&options.state_directory, "mount");
    let (vault, inheritance) = Vault::inherited(keeper)?;
    let told = Told::default();
    for (signal, flag) in [(SIGHUP, &told.to_be_replaced), (SIGTERM, &told.to_end)] {
        signal_hook::flag::register(signal, flag.clone()).doing("preparing for signals")?;
    }
    // A write past the limit of file sizes fails; it does not end the server.
    signal_hook::flag::register(SIGXFSZ, Arc::default()).doing("preparing for signals")?;
    let server = Arc::new(begin(&options, &vault, inheritance, log.clone())?);
    watch(&options, &server, log.clone(), told)?;
    vault.ready();
    server.serve()?;
    log.say("the mount has ended");
    vault.exit();
    Ok(())
}

fn begin(options: &MountOptions, vault: &Vault, inherited: Inheritance, log: StateLog) -> Result<Server> {
    if !inherited.complete {
        // With a part of it, files would be taken for others. So nobody goes on, and the kernel ends the mount.
        vault.forget(&Key::new(DEVICE_KEY));
        vault.exit();
        return Err(ended_together());
    }
    // Servers that were killed and cannot end until this one answers: nothing here waits for their
    // end.
    let stuck = inherited.kept.iter().filter(|kept| kept.key.0.starts_with(STUCK_PART));
    stuck.for_each(|kept| vault.forget(&kept.key));
    let find = |key: &str| inherited.kept.iter().find(|kept| kept.key.0 == key);
    log::check_version(find(log::VERSION_KEY))?;
    let make = |device: Device, nodes, instance| {
        Server::new(device, vault.clone(), nodes, options, instance, log.clone())
    };
    match find(DEVICE_KEY) {
        Some(Kept { fd: Some(fd), blob, .. }) => {
            let nodes = find(log::KEY).and_then(|kept| kept.fd.clone());
            let (Some(memory), true) = (nodes, find(AGREED_KEY).is_some()) else {
                vault.forget(&Key::new(DEVICE_KEY));
                vault.exit();
                return Err(ended_together());
            };
            let instance = u64::from_le_bytes(blob.as_slice().try_into().unwrap_or_default());
            let nodes = NodeLog::inherited(vault.clone(), memory)?;
            let server = make(Device::of(fd.clone()), nodes, instance)?;
            inherited.kept.iter().try_for_each(|kept| server.files.inherit(kept))?;
            server.device.resend().doing("asking the kernel for what was under way")?;
            watch_again(&server);
            log.say(&format!("goes on with the mount at {}", options.directory.display()));
            Ok(server)
        }
        _ => {
            // A server that died before it had kept the mount left one that nobody serves.
            mounting::check_place(&options.directory)?;
            let mut instance = [0; 8];
            rustix::rand::getrandom(&mut instance, GetRandomFlags::empty())
                .map_err(std::io::Error::from)
                .doing("drawing the mount's number")?;
            let nodes = NodeLog::new(vault.clone())?;
            let source = options.host_directory.to_string_lossy().into_owned();
            let device = mounting::mount(&options.directory, &source)?;
            vault.put(&Key::new(DEVICE_KEY), &instance, Some(device.fd().clone()))?;
            log.say(&format!("mounted at {}", options.directory.display()));
            make(device, nodes, u64::from_le_bytes(instance))
        }
    }
}

fn ended_together() -> Error {
    Error::invalid("the server and the keeper before died together, and the mount with them: mount again")
}

/// What changed while no server watched is not known: so the kernel reads anew.
fn watch_again(server: &Server) {
    for file in server.files.all().into_iter().filter(|file| file.is_cached()) {
        server.watches.inherit(file.saved.node, &file.saved.path);
    }
}

/// What signals this process has had.
#[derive(Default)]
struct Told {
    /// SIGHUP: the next server takes its place, of the program that is at its path now.
    to_be_replaced: Arc<AtomicBool>,
    /// SIGTERM: the mount ends, if need be for those who still use it.
    to_end: Arc<AtomicBool>,
}

/// Has another keeper take the place of one that died, and does what signals say.
fn watch(options: &MountOptions, server: &Arc<Server>, log: StateLog, told: Told) -> Result<()> {
    /// How often it is looked whether a signal has come.
    const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    let (command, directory) = (keeper_command(options), options.directory.clone());
    let (server, vault) = (server.clone(), server.vault.clone());
    // Which mount is ours: by then another may be at its place.
    let minor = mounting::mounted_at(&directory)?.map(|mounted| mounted.minor());
    let watch = move || loop {
        let mut polled = [PollFd::from_borrowed_fd(vault.watch_fd(), PollFlags::IN)];
        let _ = rustix::event::poll(&mut polled, Some(&LOOK)); // what there is to hear is heard below
        while let Some(event) = vault.next_event() {
            hear(event, &vault, &command, &log);
        }
        if told.to_end.swap(false, Ordering::Relaxed) {
            end(&directory, minor, &vault, &log);
        }
        if told.to_be_replaced.swap(false, Ordering::Relaxed) {
            server.publish();
            match vault.restart_me(None) {
                // What is under way is sent to the next again.
                Ok(()) => std::process::exit(0),
                Err(error) => log.say(&error.message),
            }
        }
    };
    let begun = std::thread::Builder::new().name("watch".into()).spawn(watch);
    begun.map(drop).map_err(|error| Error::io("starting the thread that watches the keeper", &error))
}

/// How the keeper of this mount is started.
pub fn keeper_command(options: &MountOptions) -> KeeperCommand {
    KeeperCommand {
        serves: Serves::Mount,
        program: options.program.clone(),
        state_directory: options.state_directory.clone(),
        host_arguments: vec![
            "--at".into(),
            options.directory.clone().into(),
            "--of".into(),
            options.host_directory.clone().into(),
            "--new-files".into(),
            options.new_files.word().into(),
        ],
    }
}

fn hear(event: KeeperEvent, vault: &Vault, command: &KeeperCommand, log: &StateLog) {
    match event {
        KeeperEvent::Gone(why) => {
            log.say(&why);
            while let Err(error) = vault.replace_gone_keeper(command) {
                log.say(&format!("no keeper can be started: {error}"));
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        KeeperEvent::Problem(what) => log.say(&format!("the keeper says: {what}")),
        KeeperEvent::Ended { .. } => {}
    }
}

/// Takes the mount out of the way, and ends when nobody uses it any more, or soon.
fn end(directory: &std::path::Path, minor: Option<u32>, vault: &Vault, log: &StateLog) {
    /// How long users may take to let go of it.
    const GRACE: Duration = Duration::from_secs(3);
    let is_there = mounting::mounted_at(directory)
        .is_ok_and(|there| there.is_some_and(|there| Some(there.minor()) == minor));
    if let Err(error) = if is_there { mounting::unmount(directory, true) } else { Ok(()) } {
        log.say(&error.message);
    }
    std::thread::sleep(GRACE);
    log.say("told to end (SIGTERM), while the mount is in use");
    vault.exit();
    std::process::exit(0);
}
