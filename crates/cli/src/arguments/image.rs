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
    /// Withdraw a version, named exactly: the newest other one of its major version is had then
    Rollback(One),
    /// Make a version that was withdrawn, named exactly, one like all others again
    Restore(One),
    /// Remove versions, each named exactly; never one that is in use
    Remove(Names),
    /// List who has which addresses
    Ranges(Rest),
    /// Make a code image of a shared library with a C interface, and publish it
    #[command(disable_version_flag = true)]
    Build(Build),
    /// Write what programs are linked to in place of the library that an image was made of
    Stub(Stub),
}

/// `image build`.
#[derive(Debug, Args)]
pub struct Build {
    /// The shared library
    #[arg(value_name = "LIBRARY")]
    pub library: PathBuf,
    /// How the image is to be called
    #[arg(long, value_name = "NAME")]
    pub name: String,
    /// Its version, such as 1.2.0: the same first number only if nothing is taken away
    #[arg(long, value_name = "X.Y.Z")]
    pub version: String,
    /// A group of images that are never in one process with each other, and so may share addresses
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// A file with the functions that programs may call, one a line; without it, all that the library shows
    #[arg(long, value_name = "FILE")]
    pub exports: Option<PathBuf>,
    /// A code image that the library calls, as NAME@X
    #[arg(long = "import", value_name = "NAME@X")]
    pub imports: Vec<String>,
    /// A file with the functions and variables that programs hand over (such as malloc), one a line
    #[arg(long, value_name = "FILE")]
    pub table: Option<PathBuf>,
    /// The rest.
    #[command(flatten)]
    pub rest: Rest,
}

/// `image stub`.
#[derive(Debug, Args)]
pub struct Stub {
    /// The image and its major version
    #[arg(value_name = "NAME@X")]
    pub name: String,
    /// Where to write it: an object file, or, if it ends with .a, an archive with one
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// When the image is included
    #[arg(long, value_enum, default_value_t = Include::Start)]
    pub include: Include,
    /// The rest.
    #[command(flatten)]
    pub rest: Rest,
}

/// When an image is included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Include {
    /// Before main: it is on the program's list
    Start,
    /// When the program calls commonhold_image_include
    Call,
    /// At the first call of one of its functions
    First,
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
