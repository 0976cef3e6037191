//! What `top` shows: two looks at a host and the rates between them.

use crate::commands::stats::label;
use commonhold::{MessageKind, ObjectCounts, PageSize, Seen};
use std::cmp::Ordering;
use std::collections::HashMap;

/// The columns, in order; the first is the name.
pub const COLUMNS: [&str; 10] =
    ["NAME", "FAULTS/s", "READ/s", "WRITE/s", "PROT/s", "REQ/s", "PAGE/s", "ACK/s", "HANDOVER/s", "BYTES/s"];

/// One object between two looks.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its number, by which it stays selected.
    pub id: u64,
    /// What it is called.
    pub name: String,
    /// One for each column after the name, a second.
    pub rates: [f64; COLUMNS.len() - 1],
}

/// A page that is hot now.
#[derive(Clone, Debug, PartialEq)]
pub struct HotPage {
    /// Which.
    pub page: u64,
    /// Faults and messages a second.
    pub rate: f64,
    /// Who owns it, if this host knows.
    pub owner: Option<u32>,
}

fn numbers(object: &ObjectCounts) -> [u64; COLUMNS.len() - 1] {
    let c = &object.counts;
    let remote = |kind| {
        let (sent, received, _) = object.of_kind(kind);
        sent + received
    };
    [
        c.faults(),
        c.read_faults,
        c.write_faults,
        c.protection_faults,
        remote(MessageKind::Request),
        remote(MessageKind::Page),
        remote(MessageKind::Acknowledgement),
        c.hand_overs,
        c.bytes_sent + c.bytes_received,
    ]
}

/// Seconds between two looks; none where they are not of one host process.
fn seconds(before: &Seen, now: &Seen) -> Option<f64> {
    let ns = now.at_ns.checked_sub(before.at_ns)?;
    (before.process == now.process && ns > 0).then_some(ns as f64 / 1e9)
}

/// The objects, with what happened a second.
pub fn rows(before: &Seen, now: &Seen) -> Vec<Row> {
    let seconds = seconds(before, now);
    let old: HashMap<u64, _> = before.objects.iter().map(|object| (object.id.0, numbers(object))).collect();
    let row = |object: &ObjectCounts| {
        let was = old.get(&object.id.0).copied().unwrap_or_default();
        let mut rates = [0.0; COLUMNS.len() - 1];
        for ((rate, now), was) in rates.iter_mut().zip(numbers(object)).zip(was) {
            *rate = seconds.map_or(0.0, |seconds| now.saturating_sub(was) as f64 / seconds);
        }
        Row { id: object.id.0, name: label(object), rates }
    };
    now.objects.iter().map(row).collect()
}

/// Sorts by a column: names from a to z, numbers the greatest first, unless it is turned round.
pub fn sort(rows: &mut [Row], column: usize, turned: bool) {
    rows.sort_by(|a, b| {
        let order = match column.checked_sub(1) {
            None => a.name.cmp(&b.name),
            Some(at) => b.rates[at].partial_cmp(&a.rates[at]).unwrap_or(Ordering::Equal),
        };
        let order = if turned { order.reverse() } else { order };
        order.then_with(|| a.name.cmp(&b.name))
    });
}

/// The pages of one object that something happened to between the looks, the hottest first; where nothing did, those that
/// were hot before.
pub fn hot_pages(before: &Seen, now: &Seen, id: u64) -> Vec<HotPage> {
    let of = |seen: &Seen| seen.objects.iter().find(|object| object.id.0 == id).cloned();
    let Some(object) = of(now) else { return Vec::new() };
    let old: HashMap<u64, u64> =
        of(before).map(|o| o.pages.iter().map(|p| (p.page, p.heat)).collect()).unwrap_or_default();
    let seconds = seconds(before, now);
    let hot = |page: &commonhold::PageCount| {
        let was = old.get(&page.page).copied().unwrap_or(page.excess);
        let rate = seconds.map_or(0.0, |seconds| page.heat.saturating_sub(was) as f64 / seconds);
        HotPage { page: page.page, rate, owner: page.owner }
    };
    let mut pages: Vec<HotPage> = object.pages.iter().map(hot).collect();
    pages.sort_by(|a, b| b.rate.partial_cmp(&a.rate).unwrap_or(Ordering::Equal));
    pages
}

/// A cell of the heat map: some pages of the object, by the hottest of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cell {
    /// Sum of the rates of its pages.
    pub rate: f64,
    /// Whether any of its pages is known at all.
    pub known: bool,
    /// Who owns the hottest.
    pub owner: Option<u32>,
    /// The rate of that one.
    pub hottest: f64,
}

/// The object's pages, of so many bytes each, in so many cells, in order.
pub fn heat_map(pages: &[HotPage], object_pages: u64, page_size: PageSize, cells: usize) -> Vec<Cell> {
    let cells = cells.min(usize::try_from(object_pages).unwrap_or(usize::MAX));
    let mut map = vec![Cell::default(); cells];
    for page in pages {
        let number = page.page / page_size.frames();
        if number >= object_pages {
            continue;
        }
        let at = (u128::from(number) * cells as u128 / u128::from(object_pages)) as usize;
        let cell = &mut map[at];
        if !cell.known || page.rate > cell.hottest {
            (cell.owner, cell.hottest) = (page.owner, page.rate);
        }
        cell.known = true;
        cell.rate += page.rate;
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use commonhold::{Counts, ObjectId, PageCount};

    fn seen(process: u32, at_ns: u64, reads: u64, heats: &[u64]) -> Seen {
        let page = |(page, heat): (usize, &u64)| PageCount {
            page: page as u64,
            heat: *heat,
            excess: 0,
            read_faults: 0,
            write_faults: 0,
            protection_faults: 0,
            messages: 0,
            by_kind: [0; 3],
            local: 0,
            forwards: 0,
            bytes: 0,
            hand_overs: 0,
            owner: Some(page as u32),
        };
        let object = ObjectCounts {
            id: ObjectId(4),
            name: None,
            size_bytes: 4096 * 100,
            page_size: PageSize::SMALLEST,
            shared: true,
            elsewhere: false,
            counts: Counts { read_faults: reads, ..Counts::default() },
            messages: vec![],
            pages: heats.iter().enumerate().map(page).collect(),
        };
        Seen { process, at_ns, objects: vec![object], ..Seen::default() }
    }

    #[test]
    fn rates_are_of_one_process_alone() {
        let before = seen(1, 1_000_000_000, 10, &[5, 1]);
        assert_eq!(rows(&before, &seen(1, 1_500_000_000, 110, &[]))[0].rates[..3], [200.0, 200.0, 0.0]);
        assert_eq!(rows(&before, &seen(2, 1_500_000_000, 110, &[]))[0].rates[0], 0.0);
        let hot = hot_pages(&before, &seen(1, 3_000_000_000, 0, &[6, 9, 2]), 4);
        let rates: Vec<_> = hot.iter().map(|page| (page.page, page.rate)).collect();
        assert_eq!(rates, [(1, 4.0), (2, 1.0), (0, 0.5)]);
    }

    #[test]
    fn a_heat_map_has_each_page_once() {
        let page = |page, rate, owner| HotPage { page, rate, owner: Some(owner) };
        let map =
            heat_map(&[page(0, 1.0, 7), page(1, 3.0, 8), page(99, 2.0, 9)], 100, PageSize::SMALLEST, 10);
        assert_eq!(map.len(), 10);
        assert_eq!((map[0].rate, map[0].owner, map[9].owner), (4.0, Some(8), Some(9)));
        assert!(!map[5].known);
        assert_eq!(heat_map(&[page(2, 1.0, 7)], 3, PageSize::SMALLEST, 1000).len(), 3);
        let map = heat_map(&[page(512, 1.0, 7)], 3, PageSize::LARGEST, 3);
        assert_eq!(
            map.iter().map(|cell| cell.known).collect::<Vec<_>>(),
            [false, true, false],
            "it is one cell"
        );
    }

    #[test]
    fn sorting_is_by_any_column_both_ways() {
        let row = |name: &str, rate| Row { id: 0, name: name.into(), rates: [rate; 9] };
        let mut rows = vec![row("b", 1.0), row("c", 3.0), row("a", 2.0)];
        let order = |rows: &[Row]| rows.iter().map(|row| row.name.clone()).collect::<String>();
        sort(&mut rows, 1, false);
        assert_eq!(order(&rows), "cab");
        sort(&mut rows, 1, true);
        assert_eq!(order(&rows), "bac");
        sort(&mut rows, 0, false);
        assert_eq!(order(&rows), "abc");
    }
}
