//! Arguments of the commands for unmodified programs.

use super::Form;
use clap::Args;
use std::ffi::OsString;

/// `run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    commonhold run --system-v -- ./server --port 7000\n  \
    commonhold run --system-v --shared-keys -- ./worker --key 0x52e2c1\n  \
    commonhold run --posix -- ./worker\n  \
    commonhold run --share-page-tables -- postgres -D /srv/data -c shared_memory_type=sysv")]
pub struct Run {
    /// Make all System V segments of the program objects
    #[arg(long)]
    pub system_v: bool,
    /// Share those that have keys with the programs of all hosts of the cluster
    #[arg(long, requires = "system_v")]
    pub shared_keys: bool,
    /// Make what the program opens by shm_open objects of the same names
    #[arg(long)]
    pub posix: bool,
    /// Give System V segments and anonymous shared mappings of 64 MiB and more page tables that all processes share
    #[arg(long, required_unless_present_any = ["system_v", "posix"])]
    pub share_page_tables: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// `ipcs`.
#[derive(Debug, Args)]
pub struct Segments {
    /// How to answer
    #[command(flatten)]
    pub form: Form,
}

/// `ipcrm`.
#[derive(Debug, Args)]
pub struct RemoveSegments {
    /// Numbers of segments, as `commonhold ipcs` shows them
    #[arg(required_unless_present = "key", value_name = "SHMID")]
    pub numbers: Vec<i32>,
    /// The same by key, such as 0x52e2c1
    #[arg(long, value_name = "KEY", value_parser = parse_key)]
    pub key: Vec<i32>,
    /// How to answer
    #[command(flatten)]
    pub form: Form,
}

/// A key: a number of 32 bits, with 0x in base 16. Zero is nobody's.
fn parse_key(text: &str) -> Result<i32, String> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok().map(u32::cast_signed),
        None => text.parse::<i32>().ok().or_else(|| text.parse::<u32>().ok().map(u32::cast_signed)),
    };
    match number {
        Some(0) => Err("key 0 is IPC_PRIVATE, by which no segment is found: give its number".into()),
        Some(key) => Ok(key),
        None => Err(format!("{text} is no key: a key is a number of 32 bits, such as 0x52e2c1")),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_key;

    #[test]
    fn keys_are_written_as_ipcs_shows_them() {
        assert_eq!(parse_key("0x1234"), Ok(0x1234));
        assert_eq!(parse_key("0xffffffff"), Ok(-1));
        assert_eq!(parse_key("-1"), Ok(-1));
        for wrong in ["0", "0x0", "", "0x", "key", "0x1_0000_0000", "4294967296"] {
            assert!(parse_key(wrong).is_err(), "{wrong}");
        }
    }
}
