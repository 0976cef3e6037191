//! Deciding what the log is from what the two files hold, or that it must be refused. No I/O.

use crate::error::{Damage, Error, FileId, Result};
use crate::format::DATA_START;
use crate::recover::TornTail;
use crate::scan::{FileScan, Record};
use commonhold_points as points;

/// One file: what its header says and what was found in it.
#[derive(Debug, Clone)]
pub(crate) struct Side {
    pub base: u64,
    pub live: u64,
    pub scan: FileScan,
}

/// The log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Where the log ends in the low file; before a record that the high file replaces.
    pub low_end: u64,
    pub next_sequence: u64,
    pub first_sequence: Option<u64>,
    pub pages: u64,
    /// The last record, and the file it is in.
    pub tail: Option<(FileId, Record)>,
    pub torn: Option<TornTail>,
}

/// Applies the three rules at the end of the essay in `format.rs`.
pub(crate) fn judge(low: &Side, high: &Side) -> Result<Verdict> {
    let replaced = replaced_record(&low.scan, &high.scan)?;
    let replaced = replaced.filter(|_| !points::mutant("journal.replaced_record_counts"));
    check_demands(low, high)?;
    let tail = match (high.scan.last, low.scan.last) {
        (Some(record), _) => Some((high.scan.file, record)),
        (None, Some(record)) => Some((low.scan.file, record)),
        (None, None) => None,
    };
    let next_sequence = match tail {
        Some((_, record)) => record.sequence + 1,
        None => low.base.max(high.base),
    };
    check_beyond(&low.scan, &high.scan, next_sequence)?;
    Ok(Verdict {
        low_end: replaced.map_or(low.scan.end, |record| record.start),
        next_sequence,
        first_sequence: low.scan.first.map(|record| record.sequence),
        pages: low.scan.pages + high.scan.pages - replaced.map_or(0, |record| record.pages),
        tail,
        torn: torn_tail(&low.scan, &high.scan, next_sequence),
    })
}

/// Rule 1: low reaches the record before high's first. Gives low's record that high's first replaces.
fn replaced_record(low: &FileScan, high: &FileScan) -> Result<Option<Record>> {
    let Some(first) = high.first.map(|record| record.sequence) else {
        return Ok(None);
    };
    let (Some(low_first), Some(low_last)) = (low.first, low.last) else {
        return Err(missing(low, 1.max(first - 1), first - 1));
    };
    if low_last.sequence + 1 < first {
        return Err(missing(low, low_last.sequence + 1, first - 1));
    }
    if low_first.sequence >= first || low_last.sequence > first {
        return Err(wrong_first(high, low_last.sequence + 1, first));
    }
    Ok((low_last.sequence == first).then_some(low_last))
}

/// Rule 2: the files hold what the headers demand.
fn check_demands(low: &Side, high: &Side) -> Result<()> {
    for side in [low, high] {
        if let Some(first) = side.scan.first
            && first.sequence < side.base
        {
            return Err(wrong_first(&side.scan, side.base, first.sequence));
        }
    }
    let (Some(first), Some(last)) = (low.scan.first, low.scan.last) else {
        if high.live == high.base {
            return Ok(());
        }
        return Err(missing(&low.scan, high.live, high.base - 1));
    };
    if last.sequence + 1 < high.base {
        return Err(missing(&low.scan, last.sequence + 1, high.base - 1));
    }
    let first_is_right =
        if high.live < high.base { first.sequence == high.live } else { first.sequence <= high.base };
    if first_is_right { Ok(()) } else { Err(wrong_first(&low.scan, high.live, first.sequence)) }
}

/// Rule 3: a part with sequence s exists only if s-1 was acknowledged.
fn check_beyond(low: &FileScan, high: &FileScan, next: u64) -> Result<()> {
    let betrays = |scan: &FileScan| scan.beyond.filter(|&beyond| beyond > next);
    let Some(beyond) = betrays(low).max(betrays(high)) else {
        return Ok(());
    };
    let low_is_to_blame =
        betrays(low).is_some() || (high.last.is_none() && is_damage(low.damage) && !is_damage(high.damage));
    let blamed = if low_is_to_blame { low } else { high };
    Err(missing(blamed, next, beyond - 1))
}

fn torn_tail(low: &FileScan, high: &FileScan, next: u64) -> Option<TornTail> {
    let torn = |scan: &FileScan| scan.beyond == Some(next) || is_damage(scan.damage);
    let tail_is_low = high.last.is_none();
    let scan = [(high, true), (low, tail_is_low)].into_iter().find(|(scan, counts)| *counts && torn(scan))?.0;
    Some(TornTail { file: scan.file, offset: scan.stop, sequence: next, damage: scan.damage })
}

/// Whether this is more than the plain end of the records.
fn is_damage(damage: Damage) -> bool {
    !matches!(damage, Damage::Absent | Damage::Foreign { .. } | Damage::OutOfSequence { .. })
}

fn missing(scan: &FileScan, sequence: u64, last: u64) -> Error {
    Error::Corrupt {
        file: scan.file,
        offset: scan.stop,
        sequence,
        damage: match scan.damage {
            Damage::Absent => Damage::MissingRecords { last },
            damage => damage,
        },
    }
}

fn wrong_first(scan: &FileScan, sequence: u64, found: u64) -> Error {
    Error::Corrupt { file: scan.file, offset: DATA_START, sequence, damage: Damage::WrongFirst { found } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sequence: u64) -> Record {
        Record { sequence, start: 8192 * sequence, end: 8192 * (sequence + 1), pages: 1 }
    }

    fn side(file: FileId, (base, live): (u64, u64), records: Option<(u64, u64)>) -> Side {
        let last = records.map(|(_, last)| record(last));
        Side {
            base,
            live,
            scan: FileScan {
                file,
                first: records.map(|(first, _)| record(first)),
                last,
                pages: records.map_or(0, |(first, last)| last - first + 1),
                end: last.map_or(8192, |record| record.end),
                stop: last.map_or(8192, |record| record.end),
                damage: Damage::Absent,
                beyond: None,
                newer: None,
            },
        }
    }

    fn next(low: Side, high: Side) -> Option<u64> {
        judge(&low, &high).ok().map(|verdict| verdict.next_sequence)
    }

    #[test]
    fn records_run_across_both_files() {
        let low = |records| side(FileId::A, (1, 1), records);
        let high = |records| side(FileId::B, (1, 1), records);
        assert_eq!(next(low(None), high(None)), Some(1));
        assert_eq!(next(low(Some((1, 4))), high(None)), Some(5));
        assert_eq!(next(low(Some((1, 4))), high(Some((5, 6)))), Some(7));
        // Record 5 of low was a failed attempt.
        assert_eq!(next(low(Some((1, 5))), high(Some((5, 6)))), Some(7));
        for wrong in [None, Some((1, 3)), Some((1, 6)), Some((5, 5)), Some((2, 4))] {
            assert_eq!(next(low(wrong), high(Some((5, 6)))), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_header_tells_what_the_other_file_must_hold() {
        let low = |records| side(FileId::B, (3, 3), records);
        let high = || side(FileId::A, (9, 5), None);
        assert_eq!(next(low(Some((5, 8))), high()), Some(9));
        assert_eq!(next(low(Some((5, 12))), high()), Some(13));
        for wrong in [None, Some((5, 7)), Some((6, 9)), Some((4, 9))] {
            assert_eq!(next(low(wrong), high()), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_recovery_cut_short_between_the_two_resets() {
        let low = side(FileId::B, (3, 3), Some((5, 8)));
        assert_eq!(next(low, side(FileId::A, (9, 9), None)), Some(9));
    }

    #[test]
    fn a_later_part_betrays_a_missing_record() {
        let mut low = side(FileId::A, (1, 1), Some((1, 4)));
        low.scan.beyond = Some(5);
        let high = side(FileId::B, (1, 1), None);
        let verdict = judge(&low, &high).unwrap();
        assert_eq!(verdict.torn.map(|torn| torn.sequence), Some(5));
        low.scan.beyond = Some(6);
        assert!(matches!(
            judge(&low, &high),
            Err(Error::Corrupt { file: FileId::A, sequence: 5, offset, .. }) if offset == 8192 * 5
        ));
    }
}
