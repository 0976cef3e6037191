//! How `top` looks.

use super::model::{COLUMNS, Cell, HotPage, Row, heat_map};
use crate::output::printable;
use crate::units::format_size;
use commonhold::{PageSize, Seen};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Row as TableRow, Table, TableState};

/// Colours of owners, one after the other.
const COLOURS: [Color; 6] =
    [Color::Green, Color::Yellow, Color::Cyan, Color::Magenta, Color::Blue, Color::Red];
/// From known and quiet to hottest.
const SHADES: [char; 5] = ['.', '░', '▒', '▓', '█'];

/// One picture.
pub struct Picture<'p> {
    /// The look that it shows.
    pub now: &'p Seen,
    /// The objects, sorted.
    pub rows: &'p [Row],
    /// Which is selected.
    pub selected: usize,
    /// Its hot pages.
    pub pages: &'p [HotPage],
    /// Its size in pages.
    pub object_pages: u64,
    /// Of this size.
    pub page_size: PageSize,
    /// Which column they are sorted by.
    pub column: usize,
    /// The other way round.
    pub turned: bool,
    /// It does not follow what happens.
    pub paused: bool,
    /// What went wrong at the last look; empty if nothing.
    pub trouble: &'p str,
}

/// A rate in few letters.
pub fn rate(column: usize, rate: f64) -> String {
    if COLUMNS[column].starts_with("BYTES") {
        return format_size(rate as u64);
    }
    if rate > 0.0 && rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

/// Draws it.
pub fn draw(frame: &mut Frame<'_>, picture: &Picture<'_>) {
    let parts = Layout::vertical([
        Constraint::Length(1),
        Constraint::Percentage(45),
        Constraint::Min(4),
        Constraint::Length(1),
    ]);
    let [head, objects, below, foot] = parts.areas(frame.area());
    let host = printable(&picture.now.called(picture.now.host), false);
    let title =
        format!("commonhold top: {host} (process {}), {} objects", picture.now.process, picture.rows.len());
    let state = if picture.paused { "  [stopped]" } else { "" };
    frame.render_widget(Paragraph::new(format!("{title}{state}")).style(Modifier::BOLD), head);
    draw_objects(frame, objects, picture);
    let [left, right] = Layout::horizontal([Constraint::Length(40), Constraint::Min(10)]).areas(below);
    draw_pages(frame, left, picture);
    draw_map(frame, right, picture);
    let keys = "arrows select  s sort  r turn round  space stop  q quit";
    let (text, style) = match picture.trouble {
        "" => (keys.to_owned(), Style::new().add_modifier(Modifier::DIM)),
        trouble => (printable(trouble, false), Style::new().fg(Color::Red)),
    };
    frame.render_widget(Paragraph::new(text).style(style), foot);
}

fn draw_objects(frame: &mut Frame<'_>, area: Rect, picture: &Picture<'_>) {
    let mark = |(at, name): (usize, &&str)| match (at == picture.column, picture.turned) {
        (false, _) => (*name).to_owned(),
        (true, false) => format!("{name}v"),
        (true, true) => format!("{name}^"),
    };
    let header = TableRow::new(COLUMNS.iter().enumerate().map(mark)).style(Modifier::UNDERLINED);
    let row = |row: &Row| {
        let rates = row.rates.iter().enumerate().map(|(at, value)| rate(at + 1, *value));
        TableRow::new(std::iter::once(printable(&row.name, false)).chain(rates))
    };
    let widths =
        (0..COLUMNS.len()).map(|at| if at == 0 { Constraint::Min(16) } else { Constraint::Length(11) });
    let table = Table::new(picture.rows.iter().map(row), widths)
        .header(header)
        .row_highlight_style(Modifier::REVERSED)
        .block(Block::new().borders(Borders::TOP));
    let mut state = TableState::new().with_selected((!picture.rows.is_empty()).then_some(picture.selected));
    frame.render_stateful_widget(table, area, &mut state);
}

fn owner_of(picture: &Picture<'_>, owner: Option<u32>) -> String {
    owner.map_or_else(|| "-".to_owned(), |owner| printable(&picture.now.called(owner), false))
}

/// An owner's colour: the same in every picture while the same hosts own pages.
fn colour(picture: &Picture<'_>, owner: Option<u32>) -> Color {
    let Some(owner) = owner else { return Color::DarkGray };
    let at = picture.now.hosts.iter().position(|(number, _)| *number == owner);
    COLOURS[at.unwrap_or(owner as usize) % COLOURS.len()]
}

fn draw_pages(frame: &mut Frame<'_>, area: Rect, picture: &Picture<'_>) {
    let row = |page: &HotPage| {
        let cells = [page.page.to_string(), rate(1, page.rate), owner_of(picture, page.owner)];
        TableRow::new(cells).style(Style::new().fg(colour(picture, page.owner)))
    };
    let widths = [Constraint::Length(10), Constraint::Length(9), Constraint::Min(10)];
    let table = Table::new(picture.pages.iter().map(row), widths)
        .header(TableRow::new(["PAGE", "HEAT/s", "OWNER"]).style(Modifier::UNDERLINED))
        .block(Block::new().borders(Borders::TOP).title("hot pages"));
    frame.render_widget(table, area);
}

fn draw_map(frame: &mut Frame<'_>, area: Rect, picture: &Picture<'_>) {
    let block = Block::new().borders(Borders::TOP | Borders::LEFT).title("pages by owner");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [map, legend] = Layout::vertical([Constraint::Min(1), Constraint::Length(1)]).areas(inner);
    let width = map.width.max(1) as usize;
    let cells = heat_map(picture.pages, picture.object_pages, picture.page_size, width * map.height as usize);
    let most = cells.iter().map(|cell| cell.rate).fold(0.0, f64::max);
    let line = |part: &[Cell]| {
        let glyph = |cell: &Cell| {
            Span::styled(shade(cell, most).to_string(), Style::new().fg(colour(picture, cell.owner)))
        };
        Line::from(part.iter().map(glyph).collect::<Vec<_>>())
    };
    frame.render_widget(Paragraph::new(cells.chunks(width).map(line).collect::<Vec<_>>()), map);
    let mut owners: Vec<Option<u32>> = picture.pages.iter().map(|page| page.owner).collect();
    owners.sort_unstable();
    owners.dedup();
    let name = |owner: Option<u32>| {
        let text =
            format!("█ {}  ", if owner.is_none() { "nobody".into() } else { owner_of(picture, owner) });
        Span::styled(text, Style::new().fg(colour(picture, owner)))
    };
    frame.render_widget(Line::from(owners.into_iter().map(name).collect::<Vec<_>>()), legend);
}

/// How hot a cell is against the hottest, on a scale of powers: between two pages there may be a thousandfold.
fn shade(cell: &Cell, most: f64) -> char {
    if !cell.known {
        return ' ';
    }
    if cell.rate <= 0.0 || most <= 0.0 {
        return SHADES[0];
    }
    let step = 4.0 + (cell.rate / most).log(4.0);
    SHADES[(step.floor().max(1.0) as usize).min(SHADES.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_grow_with_heat() {
        let cell = |rate| Cell { rate, known: true, ..Cell::default() };
        let shades: String =
            [0.0, 0.01, 7.0, 26.0, 100.0].map(|rate| shade(&cell(rate), 100.0)).iter().collect();
        assert_eq!(shades, ".░▒▓█");
        assert_eq!(shade(&Cell::default(), 1.0), ' ');
        assert_eq!(shade(&cell(0.0), 0.0), '.');
    }
}
