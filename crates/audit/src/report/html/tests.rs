//! The page: what is in it, what must not be, and whether a browser reads it as it is meant.

#[path = "../../left_out.rs"]
mod left_out;

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

/// A browser that is installed here.
fn browser() -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file| file.is_file())
}

/// What the browser makes of a page: its elements after parsing, scripts allowed.
fn rendered(browser: &std::path::Path, page: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.html");
    std::fs::write(&file, page).expect("the page is written");
    let output = std::process::Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--timeout=30000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("the browser runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).expect("a page is UTF-8")
}

#[test]
fn a_browser_reads_the_page_as_it_is_meant() {
    let Some(browser) = browser() else {
        left_out::left_out("neither chromium nor google-chrome is installed");
        return;
    };
    for report in [made::sampled(), made::hostile()] {
        let page = page(&report);
        let dom = rendered(&browser, &page);
        for element in ["<svg", "<rect", "<table", "<tr", "<section", "<li", "<pre", "<details", "<h2"] {
            assert_eq!(dom.matches(element).count(), page.matches(element).count(), "{element}");
        }
        assert!(!dom.contains("<script"), "a script got into the page");
        // The policy was read from the head, and nothing before it ended the head.
        let head = dom.split("</head>").next().expect("a head");
        assert!(head.contains("Content-Security-Policy") && head.contains("</style>"));
    }
}
