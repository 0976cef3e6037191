//! `commonhold-pager-store`: serves objects whose pages lie in a local directory or in S3.

use clap::Parser;
use commonhold_pagers::{ChunkStore, serving};
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// A pager that keeps pages as chunks of 1 MiB in a directory or in S3: one for any number of objects.
///
/// Only one process may serve a place at a time. Access to S3 is taken from the environment: AWS_ACCESS_KEY_ID,
/// AWS_SECRET_ACCESS_KEY, AWS_REGION.
#[derive(Parser)]
#[command(
    version,
    after_help = "Example:
  commonhold-pager-store /srv/pages --name /pagers/store &
  commonhold create /lab/data --size 1GiB --sync atomic --pager /pagers/store
  commonhold cp data.bin /lab/data"
)]
struct Arguments {
    /// A directory that exists, or s3://BUCKET/PREFIX
    place: String,
    /// Name of the pager, as in `commonhold create --pager NAME`
    #[arg(long)]
    name: String,
    /// Another S3 than Amazon's, such as http://127.0.0.1:5000
    #[arg(long)]
    endpoint: Option<String>,
    /// Longest wait for one request to S3, seconds; keep it below the objects' --pager-deadline
    #[arg(long, default_value_t = 10)]
    timeout_s: u64,
    /// State directory of the host, unless it is the one that any program finds
    #[arg(long)]
    host: Option<PathBuf>,
}

type Failure = Box<dyn std::error::Error>;

fn open(arguments: &Arguments) -> Result<(Box<dyn ObjectStore>, Path), Failure> {
    let Some(place) = arguments.place.strip_prefix("s3://") else {
        let local = LocalFileSystem::new_with_prefix(&arguments.place)
            .map_err(|error| format!("{}: {error}: name a directory that exists", arguments.place))?;
        return Ok((Box::new(local.with_fsync(true)), Path::default()));
    };
    let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
    let timeout = Duration::from_secs(arguments.timeout_s);
    let retry = RetryConfig { max_retries: 3, retry_timeout: timeout, ..Default::default() };
    let client = ClientOptions::new().with_timeout(timeout).with_connect_timeout(timeout);
    let plain = arguments.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_client_options(client.with_allow_http(plain))
        .with_retry(retry);
    if let Some(endpoint) = &arguments.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    Ok((Box::new(builder.build()?), Path::parse(prefix)?))
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (store, prefix) = open(arguments)?;
    Ok(serving::serve(arguments.host.as_deref(), &arguments.name, ChunkStore::new(store, prefix)?)?)
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("commonhold-pager-store: {error}");
            ExitCode::FAILURE
        }
    }
}
