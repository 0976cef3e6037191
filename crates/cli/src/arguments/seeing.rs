//! Arguments of `stats`, `trace` and `top`.

use super::Form;
use clap::Args;
use std::time::Duration;

/// `stats`.
#[derive(Debug, Args)]
#[command(
    after_help = "All numbers are this host's alone, since its process began to use the object. Messages: SENT to \
                        and RECEIVED from other hosts; LOCAL ones a home says to itself."
)]
pub struct Stats {
    /// Names of objects; all that were in use unless given
    pub names: Vec<String>,
    /// Tell so many of the hottest pages of each object; at most 1024, and 32 where no name is given
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1024))]
    pub pages: u32,
    /// How to answer.
    #[command(flatten)]
    pub form: Form,
}

/// `trace`.
#[derive(Debug, Args)]
#[command(
    after_help = "It begins when the command does, and ends a few seconds after it. Lines that came faster than \
                        they were fetched are lost, and how many is said."
)]
pub struct Trace {
    /// Name of the object
    pub name: String,
    /// End after so many lines
    #[arg(short = 'n', long, value_name = "N")]
    pub lines: Option<u64>,
    /// A JSON document for each line, for programs
    #[arg(long)]
    pub json: bool,
}

/// `top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Keys: arrows select an object, s sorts by the next column, r the other way round, space stops and \
                        goes on, q ends."
)]
pub struct Top {
    /// Time between two looks, such as 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Print plain text, for scripts
    #[arg(long)]
    pub batch: bool,
    /// With --batch: how often
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, requires = "batch")]
    pub number: u32,
    /// With --batch: a JSON document for each look, for programs
    #[arg(long, requires = "batch")]
    pub json: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if time < Duration::from_millis(50) || time > Duration::from_secs(3600) {
        return Err("choose between 50ms and 1h".to_owned());
    }
    Ok(time)
}
