//! The report as a JSON document: written, and read back with a reason where it cannot be.

use super::{FORMAT, Report};
use serde::Deserialize;

/// Why a document is no report that this program can read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No JSON, or cut short.
    #[error("it is no JSON document ({0}): make it with `commonhold audit --json`")]
    Damaged(serde_json::Error),
    /// JSON of something else.
    #[error("it is no audit report ({0}): make it with `commonhold audit --json`")]
    Foreign(serde_json::Error),
    /// Of a later program.
    #[error(
        "it has format {found} and this program reads format {FORMAT}: use the commonhold that made it, or a later one"
    )]
    Newer {
        /// Its format.
        found: u32,
    },
    /// Of an earlier program.
    #[error(
        "it has format {found} and this program reads format {FORMAT}: use the commonhold that made it, or audit anew"
    )]
    Older {
        /// Its format.
        found: u32,
    },
}

/// What every format has.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

impl Report {
    /// Reads a report that `--json` wrote.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn from_json(text: &[u8]) -> Result<Self, ReadError> {
        // Two steps, so that a document that is whole JSON but of another format or kind is not called damaged.
        let value: serde_json::Value = serde_json::from_slice(text).map_err(ReadError::Damaged)?;
        let head = Head::deserialize(&value).map_err(ReadError::Foreign)?;
        match head.format {
            found if found > FORMAT => Err(ReadError::Newer { found }),
            found if found < FORMAT => Err(ReadError::Older { found }),
            _ => serde_json::from_value(value).map_err(ReadError::Foreign),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::made;
    use super::*;

    fn text(report: &Report) -> String {
        serde_json::to_string(report).expect("a report is JSON")
    }

    #[test]
    fn a_report_comes_back_as_it_was() {
        for report in [made::machine(), made::after(), made::sampled(), made::hostile(), Report::default()] {
            let report = Report { format: FORMAT, ..report };
            assert_eq!(Report::from_json(text(&report).as_bytes()).expect("it is read"), report);
        }
    }

    #[test]
    fn what_is_no_report_of_this_format_is_refused_with_the_reason() {
        let whole = text(&made::machine());
        let says = |document: &str| Report::from_json(document.as_bytes()).expect_err("refused").to_string();
        assert!(says(&whole[..whole.len() / 2]).contains("no JSON"));
        assert!(says("").contains("no JSON"));
        assert!(
            says(&"[".repeat(100_000)).contains("no JSON"),
            "deep nesting is no way to the end of the stack"
        );
        assert!(says("{}").contains("no audit report"));
        assert!(says("[1, 2]").contains("no audit report"));
        assert!(says(r#"{"format": 1}"#).contains("missing field"));
        assert!(says(r#"{"format": -1}"#).contains("no audit report"));
        assert!(says(r#"{"format": 2, "all": "new"}"#).contains("a later one"));
        assert!(says(r#"{"format": 0}"#).contains("audit anew"));
    }
}
