//! A life of a cluster: words of one object that hosts share, read and written on each, and judged as one memory.

use super::injector::{Injector, Sort};
use super::tally::Tally;
use crate::failure::Result;
use crate::storm::life::Life;
use crate::storm::plan::Scene;
use std::path::Path;
use std::time::Duration;

/// The whole.
pub struct Shared(Life);

impl Shared {
    /// Starts hosts and clients.
    pub fn begin(directory: &Path, scene: Scene) -> Result<Shared> {
        Life::begin(directory, scene).map(Shared)
    }

    /// Faults, then none; gives what was wrong.
    pub fn round(&mut self, injector: &mut Injector, lasting: Duration, sort: Sort) -> Result<Tally> {
        let found = self.0.disturbed(|| injector.run(lasting, sort))?;
        Ok(Tally {
            wrong_bytes: found.stale,
            lost_syncs: found.lost_syncs,
            late: found.late,
            died: found.errors,
            ..Tally::default()
        })
    }

    /// What the operations are judged by, in words.
    pub fn troubles(&self) -> String {
        self.0.troubles()
    }
}
