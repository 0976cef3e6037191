//! `local.sync_vs_lmdb`: an atomic sync, against a durable transaction of LMDB.

use crate::context::Context;
use crate::durable::{self, AtomicObject, PAGES, Side};
use crate::failure::{Doing, Result};
use crate::row::{Bar, Measured, Row};
use heed::byteorder::NativeEndian;
use heed::types::{Bytes, U32};
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions, IntegerComparator, PutFlags};
use std::path::Path;
use std::time::Instant;

type Values = Database<'static, U32<NativeEndian>, Bytes, IntegerComparator>;

/// Bytes of a value: with LMDB's own header it fills a page.
const VALUE: usize = 4000;
/// Room for the data, the pages that are free after each commit, and a reserve.
const MAP_BYTES: usize = 4 << 30;

/// The row.
pub struct SyncVsLmdb;

impl Row for SyncVsLmdb {
    fn id(&self) -> &'static str {
        "local.sync_vs_lmdb"
    }

    fn unit(&self) -> &'static str {
        "ratio"
    }

    fn bar(&self) -> Option<Bar> {
        Some(Bar::AtMost(1.0))
    }

    fn about(&self) -> &'static str {
        "writing 1,000 random 4 KiB pages of a 1 GiB atomic object and syncing it ÷ an LMDB transaction that \
         durably commits 1,000 values of 4,000 bytes at random keys of 1 GiB of values; checkpoints paid for, \
         totals compared"
    }

    fn run(&self, context: &Context) -> Result<Measured> {
        let bench = context.start_host()?;
        let host = bench.connect()?;
        let mut ours = AtomicObject::create(context, &host)?;
        let mut theirs = Lmdb::create(&context.directory.join("lmdb"))?;
        let blocks = durable::compare(context, &mut ours, &mut theirs)?;
        Ok(blocks.whole.measured(blocks.whole.ratio_of_totals(), blocks.detail("LMDB (heed)")))
    }
}

/// An environment with one value for each page number, and LMDB's default flags: commits are durable.
struct Lmdb {
    env: Env,
    values: Values,
}

impl Lmdb {
    fn create(directory: &Path) -> Result<Lmdb> {
        std::fs::create_dir(directory)?;
        // SAFETY: the folder is this row's alone: nobody else maps or changes its files.
        let env =
            unsafe { EnvOpenOptions::new().map_size(MAP_BYTES).open(directory) }.doing("opening LMDB")?;
        let made = env.create_databases_and_commit(env.write_txn()?, |opener, transaction| -> Result<_> {
            let options = opener.database_options().types::<U32<NativeEndian>, Bytes>();
            let options = options.key_comparator::<IntegerComparator>();
            Ok(CommitOrAbort::<_, ()>::Commit(options.create(transaction)?))
        })?;
        let values = made.unwrap_commit();
        let this = Lmdb { env, values };
        this.fill()?;
        Ok(this)
    }

    fn fill(&self) -> Result<()> {
        const IN_ONE: u32 = 1 << 15;
        let content = vec![7u8; VALUE];
        for first in (0..PAGES as u32).step_by(IN_ONE as usize) {
            let mut transaction = self.env.write_txn()?;
            for key in first..first + IN_ONE {
                self.values.put_with_flags(&mut transaction, PutFlags::APPEND, &key, &content)?;
            }
            transaction.commit()?;
        }
        Ok(())
    }
}

impl Side for Lmdb {
    fn round(&mut self, keys: &[u32], content: &[u8]) -> Result<[f64; 2]> {
        let start = Instant::now();
        let mut transaction = self.env.write_txn()?;
        for key in keys {
            self.values.put(&mut transaction, key, &content[..VALUE])?;
        }
        let written = start.elapsed();
        transaction.commit()?;
        Ok([written.as_secs_f64(), (start.elapsed() - written).as_secs_f64()])
    }

    fn settle(&mut self) -> Result<()> {
        Ok(()) // a commit puts nothing off
    }
}
