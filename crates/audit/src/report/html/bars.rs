//! Bars, as inline SVG that stretches with its column: the text beside them stays text, at its own size.

use maud::{Markup, html};

/// Height of a bar in its own units; the width is 100 of them.
const HEIGHT: u8 = 8;

/// What a bar shows: its colour.
#[derive(Clone, Copy, Debug)]
pub enum Bar {
    /// Memory without sharing.
    Without,
    /// Memory with sharing.
    With,
    /// What could be saved.
    Saving,
    /// What ends with somebody.
    Unique,
}

impl Bar {
    fn class(self) -> &'static str {
        match self {
            Bar::Without => "c",
            Bar::With => "b",
            Bar::Saving => "e",
            Bar::Unique => "a",
        }
    }
}

/// Hundredths of the width, to a tenth.
fn part(value: f64, most: f64) -> String {
    let part = if most > 0.0 { (value / most * 100.0).clamp(0.0, 100.0) } else { 0.0 };
    // A sum of nothing is -0.0.
    format!("{:.1}", part + 0.0)
}

/// One bar. The number itself stands beside it, so it is not read out.
pub fn bar(what: Bar, bytes: u64, most: u64) -> Markup {
    html! {
        svg.bar viewBox={ "0 0 100 " (HEIGHT) } preserveAspectRatio="none" aria-hidden="true" {
            rect.track width="100" height=(HEIGHT) {}
            rect.(what.class()) width=(part(bytes as f64, most as f64)) height=(HEIGHT) {}
        }
    }
}

/// Parts of a whole beside each other.
pub fn stack(parts: &[(&str, u64, &str)]) -> Markup {
    let whole: f64 = parts.iter().map(|(_, bytes, _)| *bytes as f64).sum();
    let before = |place: usize| parts[..place].iter().map(|(_, bytes, _)| *bytes as f64).sum::<f64>();
    html! {
        svg.bar.tall viewBox={ "0 0 100 " (HEIGHT) } preserveAspectRatio="none" aria-hidden="true" {
            rect.track width="100" height=(HEIGHT) {}
            @for (place, (_, bytes, class)) in parts.iter().enumerate() {
                rect.(class) x=(part(before(place), whole)) width=(part(*bytes as f64, whole)) height=(HEIGHT) {}
            }
        }
    }
}

/// A mean and its interval, on a line from the least to the greatest sample.
pub fn interval(mean: f64, interval: Option<(f64, f64)>, min: f64, max: f64) -> Markup {
    // The interval may reach beyond the samples.
    let (low, high) = interval.unwrap_or((mean, mean));
    let (start, end) = (min.min(low), max.max(high));
    let at = |value: f64| part(value - start, end - start);
    let width = |from: f64, to: f64| part(to - from, end - start);
    html! {
        svg.bar viewBox={ "0 0 100 " (HEIGHT) } preserveAspectRatio="none" aria-hidden="true" {
            rect.track x=(at(min)) y="3.5" width=(width(min, max)) height="1" {}
            rect.b x=(at(low)) y="1.5" width=(width(low, high)) height="5" {}
            @if end > start { rect.mark x=(at(mean)) width="0.8" height=(HEIGHT) {} }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_within_the_width_whatever_the_numbers() {
        assert_eq!(part(1.0, 3.0), "33.3");
        for (value, most) in
            [(2.0, 1.0), (f64::MAX, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (1.0, f64::NAN), (0.0, 0.0)]
        {
            let number: f64 = part(value, most).parse().unwrap_or(0.0);
            assert!((0.0..=100.0).contains(&number) || number.is_nan(), "{value} of {most}: {number}");
        }
    }

    #[test]
    fn a_stack_has_its_parts_beside_each_other() {
        let text = stack(&[("one", 1, "a"), ("two", 3, "b")]).into_string();
        assert!(
            text.contains(r#"x="0.0" width="25.0""#) && text.contains(r#"x="25.0" width="75.0""#),
            "{text}"
        );
    }
}
