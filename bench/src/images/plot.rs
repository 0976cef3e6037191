//! Plots of letters, which are seen wherever Markdown is.

/// One curve: the letter of its points, and their heights from left to right.
pub struct Curve {
    /// The letter.
    pub letter: char,
    /// What it is.
    pub name: String,
    /// Heights.
    pub heights: Vec<f64>,
}

const ROWS: usize = 18;
/// Columns from point to point.
const STEP: usize = 3;

/// The curves over points that are named below, heights from 0 on. Where two meet the later one is seen.
pub fn plot(curves: &[Curve], below: &[String], unit: &str) -> String {
    let most =
        curves.iter().flat_map(|curve| &curve.heights).copied().fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let width = below.len() * STEP;
    let mut grid = vec![vec![' '; width]; ROWS];
    for curve in curves {
        for (index, height) in curve.heights.iter().enumerate() {
            let row = ((height / most) * (ROWS - 1) as f64).round() as usize;
            grid[ROWS - 1 - row.min(ROWS - 1)][index * STEP + 1] = curve.letter;
        }
    }
    let mut text = String::from("\n```text\n");
    for (index, line) in grid.iter().enumerate() {
        let height = most * (ROWS - 1 - index) as f64 / (ROWS - 1) as f64;
        let line: String = line.iter().collect();
        text.push_str(&format!("{height:>9.4} |{}\n", line.trim_end()));
    }
    text.push_str(&format!("{:>9} +{}\n", unit, "-".repeat(width)));
    let first = below.first().map_or("", String::as_str);
    let last = below.last().map_or("", String::as_str);
    let gap = width.saturating_sub(first.len() + last.len());
    text.push_str(&format!("{:>11}{first}{}{last}\n", "", " ".repeat(gap)));
    for curve in curves {
        text.push_str(&format!("{:>11}{} {}\n", "", curve.letter, curve.name));
    }
    text.push_str("```\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_point_is_in_the_first_line() {
        let curves = [
            Curve { letter: 'a', name: "one".into(), heights: vec![1.0, 4.0] },
            Curve { letter: 'b', name: "two".into(), heights: vec![0.0, 2.0] },
        ];
        let text = plot(&curves, &["50".into(), "100".into()], "ms");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].ends_with("4.0000 |    a"), "{text}");
        assert!(lines[2 + ROWS - 1].contains("| b"), "{text}");
    }
}
