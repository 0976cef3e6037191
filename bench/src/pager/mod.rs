//! A user's pager in C, and objects whose pages come from it.

mod stand_in;

pub use stand_in::StandIn;

use crate::applications;
use crate::context::Context;
use crate::failure::{Doing, Result};
use crate::host::BenchHost;
use crate::objects;
use commonhold::{CreateOptions, Host, Mapping, PagerKind};
use std::path::PathBuf;
use std::process::{Child, Command};

const SOURCE: &str = include_str!("../../../pagers/c/ram_pager.c");
const HEADER: &str = include_str!("../../../include/commonhold.h");
const NAME: &str = "/bench/ram";
const OBJECT: &str = "/bench/paged";

/// The pager of the examples, which keeps its objects in its own memory.
pub struct RamPager(Child);

impl RamPager {
    /// Compiles it.
    pub fn compile(context: &Context) -> Result<PathBuf> {
        let (library, folder) = (applications::library()?, context.new_directory("pager")?);
        std::fs::write(folder.join("ram_pager.c"), SOURCE).doing("writing ram_pager.c")?;
        std::fs::write(folder.join("commonhold.h"), HEADER).doing("writing commonhold.h")?;
        applications::compile(&folder, "ram_pager", &[], &library)?;
        Ok(folder.join("ram_pager"))
    }

    /// Starts it for objects of that size. It serves as soon as it is asked.
    pub fn start(program: &PathBuf, bench: &BenchHost, size_bytes: usize) -> Result<RamPager> {
        let mut command = Command::new(program);
        command.args([NAME, &size_bytes.to_string()]).env("COMMONHOLD_HOST", bench.state());
        Ok(RamPager(command.spawn().doing("starting ram_pager")?))
    }

    /// A new object, of which nothing is in memory; what was there of another is removed.
    pub fn fresh(host: &Host, size_bytes: usize) -> Result<Mapping> {
        let _ = host.remove(OBJECT); // the first time there is none
        let options = CreateOptions {
            size_bytes: size_bytes as u64,
            pager: PagerKind::External { pager: NAME.to_owned() },
            ..CreateOptions::default()
        };
        let object = host.create(OBJECT, &options, None).doing("creating an object of the pager")?;
        Ok(object.map(&objects::everything())?)
    }
}

impl Drop for RamPager {
    fn drop(&mut self) {
        // One that has ended already cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
