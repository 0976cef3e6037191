//! `heap`.

use super::Form;
use clap::{Args, Subcommand};

/// `heap`.
#[derive(Debug, Subcommand)]
pub enum HeapCommand {
    /// Read all of a heap, and tell what is in it and what is wrong
    Check(Check),
}

/// `heap check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Name of the object that the heap is in
    pub name: String,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}
