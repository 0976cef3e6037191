//! Differences of made reports.

use super::*;
use crate::report::made;
use crate::snapshot::Unseen;

/// The text in the folder of golden texts; `COMMONHOLD_ACCEPT=1` writes what came instead, to be looked at.
fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/golden").join(name);
    if std::env::var_os("COMMONHOLD_ACCEPT").is_some() {
        std::fs::write(&path, format!("{text}\n")).expect("the golden text is written");
    }
    let expected = std::fs::read_to_string(&path).expect("there is a golden text");
    assert_eq!(format!("{text}\n"), expected, "{name}");
}

fn list<'a>(difference: &'a Difference, name: &str) -> &'a ListChange {
    difference.lists.iter().find(|list| list.list == name).expect("the list")
}

#[test]
fn advice_that_was_followed() {
    let difference = diff(&made::machine(), &made::after());
    assert_eq!(difference.cautions, [""; 0]);
    golden("diff.txt", &table(&difference, false));
    golden("diff_all.txt", &table(&difference, true));
}

#[test]
fn a_report_does_not_differ_from_itself() {
    let difference = diff(&made::sampled(), &made::sampled());
    assert_eq!((difference.figures.len(), difference.savings_got_bytes), (0, 0));
    assert!(difference.lists.iter().all(|list| list.came.is_empty() && list.went.is_empty()));
    assert!(table(&difference, false).contains("FIGURES: none changed"));
}

#[test]
fn what_came_went_and_changed_is_matched_by_identity() {
    let mut after = made::after();
    // Another order, and the copy in most use is another.
    after.relocation.libraries.reverse();
    after.equal_files.reverse();
    after.equal_files.iter_mut().for_each(|group| group.paths.reverse());
    let difference = diff(&made::machine(), &after);
    let equal = list(&difference, "equal_files");
    assert_eq!((equal.came.len(), equal.went.len(), equal.unchanged), (0, 1, 2));
    assert_eq!(equal.went[0].name, "/srv/env0/lib/libpython3.11.so.1.0");
    assert_eq!(equal.changed[0].after_bytes, made::tenths(30));
    assert_eq!(list(&difference, "relocation").unchanged, 3);
    assert_eq!(list(&difference, "deleted").came.len(), 1);
    let unique = list(&difference, "unique");
    assert_eq!((unique.came.len(), unique.went.len()), (0, 0), "a restart gives new pids, no new things");
    let relocation = made::machine().relocation.libraries[3].saving_bytes;
    assert_eq!(
        difference.savings_got_bytes,
        made::tenths(450) + made::tenths(91) - made::tenths(30) + relocation
    );
}

#[test]
fn what_cannot_be_compared_well_is_said() {
    let before = made::sampled();
    let mut after = made::after();
    after.machine = "beta, Linux 6.12.5".to_owned();
    after.scope = "container 3f2a".to_owned();
    after.version = "0.2.0".to_owned();
    after.taken_at = before.taken_at - 1;
    after.unseen.push(Unseen { what: "frames".to_owned(), why: "permission denied: run as root".to_owned() });
    let text = diff(&before, &after).cautions.join("\n");
    for says in [
        "alpha and beta",
        "machine and container 3f2a",
        "0.1.0 and 0.2.0",
        "right order",
        "one look",
        "frames",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    after.machine = "alpha, Linux 7.0".to_owned();
    assert!(diff(&before, &after).cautions[0].contains("another kernel"));
}

#[test]
fn means_are_compared_and_their_intervals() {
    let before = made::sampled();
    let mut after = made::sampled();
    let figures = &mut after.samples.as_mut().expect("it is sampled").figures;
    figures[0].mean += 0.01;
    figures[0].low = Some(0.270);
    figures[0].high = Some(0.300);
    figures[2].mean -= made::tenths(20_000) as f64;
    figures[2].low = Some(figures[2].mean - 1.0);
    figures[2].high = Some(figures[2].mean + 1.0);
    figures[3].mean = 0.9;
    let difference = diff(&before, &after);
    let apart: Vec<_> =
        difference.figures.iter().map(|change| (change.name.as_str(), change.intervals_apart)).collect();
    assert_eq!(
        apart,
        [
            ("programs.extent", Some(false)),
            ("all_text.extent", None),
            ("memory.proportional_bytes", Some(true))
        ]
    );
    golden("diff_means.txt", &table(&difference, false));
}

#[test]
fn noise_is_counted_but_not_shown() {
    let mut after = made::machine();
    after.memory.proportional_bytes += 4096;
    after.deleted[0].resident_bytes += 4096;
    let difference = diff(&made::machine(), &after);
    let text = table(&difference, false);
    assert!(text.contains("FIGURES: none changed") && text.contains("1 changed"), "{text}");
    assert!(text.contains("… and 1 more (--all)") && !text.contains("libssl"), "{text}");
    assert!(table(&difference, true).contains("libssl"));
}

#[test]
fn the_document_comes_back_as_it_was() {
    let difference = diff(&made::machine(), &made::hostile());
    let text = serde_json::to_string(&difference).expect("it is JSON");
    assert_eq!(serde_json::from_str::<Difference>(&text).expect("it is read"), difference);
}

#[test]
fn names_from_outside_stay_text() {
    for difference in [diff(&made::machine(), &made::hostile()), diff(&made::hostile(), &made::machine())] {
        let text = table(&difference, true);
        assert!(!text.contains(['\x1b', '\u{202e}', '\r']), "{text}");
    }
}
