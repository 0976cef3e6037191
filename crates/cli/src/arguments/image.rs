//! Arguments of `image`.

use super::Form;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `image`.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Publish images from files, each under the name, version and addresses that it says
    Add(Add),
    /// List images, each with its newest version
    List(Rest),
    /// Show the versions of images as a tree
    Versions(Names),
    /// Tell which version is had by a name such as words, words@1 or words@1.2
    Resolve(One),
    /// Tell what an image says of itself: addresses, roots or exports, and what it leads into
    Show(One),
    /// Compare the bytes of all images with what was published
    Verify(Rest),
    /// Withdraw the newest version that is had by a name: the one before it is had then
    Rollback(One),
    /// Make a version that was withdrawn, named exactly, one like all others again
    Restore(One),
    /// Remove versions, each named exactly; never one that is in use
    Remove(Names),
    /// List who has which addresses
    Ranges(Rest),
}

/// What every command has.
#[derive(Debug, Args)]
pub struct Rest {
    /// Directory of the store; /var/lib/commonhold/images for root, else in the user's own data directory
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `image add`.
#[derive(Debug, Args)]
pub struct Add {
    /// Images as files
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// The rest.
    #[command(flatten)]
    pub rest: Rest,
}

/// Commands about one image.
#[derive(Debug, Args)]
pub struct One {
    /// Its name, and as much of its version as counts
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The rest.
    #[command(flatten)]
    pub rest: Rest,
}

/// Commands about several.
#[derive(Debug, Args)]
pub struct Names {
    /// Names
    #[arg(required = true, value_name = "NAME")]
    pub names: Vec<String>,
    /// The rest.
    #[command(flatten)]
    pub rest: Rest,
}
