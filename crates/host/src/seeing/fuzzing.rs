//! For the fuzz targets: what anybody asks who reaches the address of `--metrics`.

use super::endpoint::{answer, understand};

/// Any bytes as a question, as it comes: in parts.
pub fn questions(bytes: &[u8]) {
    for end in [bytes.len() / 2, bytes.len()] {
        if let Some(asked) = understand(&bytes[..end]) {
            let said = answer(&asked, || Some("x 1\n".into()));
            assert!(said.starts_with(b"HTTP/1.1 ") && said.len() < 1024);
        }
    }
}

/// Samples of those.
pub fn sample_questions() -> Vec<Vec<u8>> {
    let asked = [
        "GET /metrics HTTP/1.1\r\nHost: a:9100\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n",
        "HEAD /metrics?x=1 HTTP/1.1\r\nUser-Agent: p\r\n\r\n",
        "POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\nx",
    ];
    asked.map(|text| text.as_bytes().to_vec()).into()
}
