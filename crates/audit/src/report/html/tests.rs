//! The page: what is in it, what must not be, and whether a browser reads it as it is meant.

use super::page;
use crate::report::{Report, made};

/// Elements that have no end.
const VOID: [&str; 2] = ["meta", "br"];

/// Names of all elements, after a check that each ends where it should.
fn elements(page: &str) -> Vec<String> {
    let mut open: Vec<String> = Vec::new();
    let mut all = Vec::new();
    for part in page.split('<').skip(1) {
        let name: String =
            part.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
        if part.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(name.as_str()), "{part}");
        } else if !part.starts_with('!') {
            all.push(name.clone());
            if !VOID.contains(&name.as_str()) {
                open.push(name);
            }
        }
    }
    assert!(open.is_empty(), "{open:?} has no end");
    all
}

#[test]
fn pages_are_well_formed_and_need_nothing_else() {
    for report in [made::machine(), made::sampled(), made::hostile(), Report::default()] {
        let page = page(&report);
        let elements = elements(&page);
        for forbidden in ["script", "link", "img", "iframe", "object", "embed", "form", "base", "a"] {
            assert!(!elements.iter().any(|name| name == forbidden), "{forbidden}");
        }
        for forbidden in ["http:", "https:", "url(", "@import", " on", "javascript:"] {
            let inside = page.split('<').map(|part| part.split('>').next().unwrap_or(""));
            assert!(!inside.clone().any(|tag| tag.contains(forbidden)), "{forbidden} in a tag");
        }
        let style =
            page.split("<style>").nth(1).and_then(|rest| rest.split("</style>").next()).expect("a style");
        assert!(!style.contains("url(") && !style.contains("@import"));
    }
}

#[test]
fn what_comes_from_outside_is_text() {
    let page = page(&made::hostile());
    assert!(!page.contains("<script"), "a path became markup");
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(!page.contains(['\x1b', '\u{202e}']));
}

#[test]
fn every_chart_stands_beside_its_numbers() {
    let page = page(&made::sampled());
    for number in ["54.1", "0.264", "2.80", "5120.3", "0.259 – 0.283", "900.0", "0.71"] {
        assert!(page.contains(number), "{number}");
    }
    let charts = page.matches("<svg").count();
    assert_eq!(page.matches("aria-hidden=\"true\"").count(), charts, "charts are not read out, numbers are");
    assert!(charts > 15);
}

#[test]
fn long_lists_are_cut_and_said() {
    let mut report = made::machine();
    report.unique = (0..10_000).map(|_| report.unique[0].clone()).collect();
    let page = page(&report);
    assert!(page.contains("… and 9900 more"));
    assert!(page.len() < 200_000, "{}", page.len());
}
