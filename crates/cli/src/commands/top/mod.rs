//! `top`: what happens to the objects of a host, now.

pub mod draw;
pub mod model;
mod terminal;

use crate::arguments::seeing::Top;
use crate::failure::{Done, error};
use crate::output::{columns, say, say_json};
use commonhold::{ErrorKind, Host, ObjectCounts, PageSize, Result, Seen};
use model::{COLUMNS, HotPage, Row};
use std::io::IsTerminal;

/// Pages of each object in a look at all, and of the one that is selected.
const PAGES: u32 = 32;
const PAGES_OF_SELECTED: u32 = 1024;

/// Shows it until the user has enough, or prints it a few times.
pub fn top(host: &Host, arguments: &Top) -> Done {
    if arguments.batch {
        return batch(host, arguments);
    }
    if !std::io::stdout().is_terminal() {
        return Err(error(
            ErrorKind::Invalid,
            "top draws on a terminal, and standard output is none: add --batch for plain text",
        ));
    }
    terminal::run(host, arguments.interval)
}

fn batch(host: &Host, arguments: &Top) -> Done {
    let mut before = host.all_counts(PAGES)?;
    for number in 0..arguments.number {
        std::thread::sleep(arguments.interval);
        let now = host.all_counts(PAGES)?;
        if arguments.json {
            say_json(&documents(&before, &now))?;
        } else {
            let separator = if number > 0 { "\n" } else { "" };
            say(format!("{separator}{}", page_of_text(&before, &now)))?;
        }
        before = now;
    }
    Ok(())
}

/// A look in plain text: the objects, the one with most faults first, and the hottest page of each.
fn page_of_text(before: &Seen, now: &Seen) -> String {
    let mut rows = model::rows(before, now);
    if rows.is_empty() {
        return "no object is in use".to_owned();
    }
    model::sort(&mut rows, 1, false);
    let words = |row: &Row| {
        let rates = row.rates.iter().enumerate().map(|(at, value)| draw::rate(at + 1, *value));
        let hottest = model::hot_pages(before, now, row.id).into_iter().next();
        let (page, owner) = hottest.map_or(("-".into(), "-".into()), |page| {
            (page.page.to_string(), page.owner.map_or_else(|| "-".into(), |owner| now.called(owner)))
        });
        [vec![row.name.clone()], rates.collect(), vec![page, owner]].concat()
    };
    let header: Vec<&str> = COLUMNS.into_iter().chain(["HOTTEST", "OWNER"]).collect();
    let right: Vec<usize> = (1..=COLUMNS.len()).collect();
    columns(Some(&header), rows.iter().map(words).collect(), &right)
}

/// The same for programs.
fn documents(before: &Seen, now: &Seen) -> Vec<serde_json::Value> {
    let document = |row: Row| {
        let hottest = model::hot_pages(before, now, row.id).into_iter().next();
        let [faults, read, write, protection, requests, pages, acknowledgements, hand_overs, bytes] =
            row.rates;
        serde_json::json!({
            "name": row.name, "id": row.id, "faults_per_s": faults, "read_faults_per_s": read,
            "write_faults_per_s": write, "protection_faults_per_s": protection, "requests_per_s": requests,
            "pages_per_s": pages, "acknowledgements_per_s": acknowledgements, "hand_overs_per_s": hand_overs,
            "bytes_per_s": bytes, "hottest_page": hottest.as_ref().map(|page| page.page),
            "hottest_owner": hottest.and_then(|page| page.owner).map(|owner| now.called(owner)),
        })
    };
    model::rows(before, now).into_iter().map(document).collect()
}

/// What is shown, and what the user chose.
pub struct View {
    before: Seen,
    now: Seen,
    rows: Vec<Row>,
    pages: Vec<HotPage>,
    selected: Option<u64>,
    /// The user chose it; else it is whichever is the first.
    is_chosen: bool,
    column: usize,
    turned: bool,
    paused: bool,
    trouble: String,
}

impl View {
    /// The first look at a host.
    pub fn new(host: &Host) -> Result<View> {
        let first = host.all_counts(PAGES)?;
        let mut view = View {
            before: first.clone(),
            now: first,
            rows: Vec::new(),
            pages: Vec::new(),
            selected: None,
            is_chosen: false,
            column: 1,
            turned: false,
            paused: false,
            trouble: String::new(),
        };
        view.arrange();
        Ok(view)
    }

    /// Looks again; what goes wrong is shown, and tried again next time.
    pub fn look(&mut self, host: &Host) {
        if self.paused {
            return;
        }
        match self.fetch(host) {
            Ok(seen) => {
                self.before = std::mem::replace(&mut self.now, seen);
                self.trouble.clear();
            }
            Err(error) => self.trouble = error.message,
        }
        self.arrange();
    }

    fn fetch(&self, host: &Host) -> Result<Seen> {
        let mut seen = host.all_counts(PAGES)?;
        let selected = seen.objects.iter_mut().find(|object| Some(object.id.0) == self.selected);
        if let Some(object) = selected
            && let Some(name) = &object.name
        {
            // It may be gone by now: then the few pages will do.
            if let Ok(mut one) = host.counts(name.as_str(), PAGES_OF_SELECTED) {
                let more = one.objects.pop().filter(|found| found.id == object.id);
                object.pages = more.map_or_else(Vec::new, |found| found.pages);
                seen.hosts.append(&mut one.hosts);
            }
        }
        seen.hosts.sort();
        seen.hosts.dedup();
        Ok(seen)
    }

    fn arrange(&mut self) {
        self.rows = model::rows(&self.before, &self.now);
        model::sort(&mut self.rows, self.column, self.turned);
        if !self.is_chosen || !self.rows.iter().any(|row| Some(row.id) == self.selected) {
            self.selected = self.rows.first().map(|row| row.id);
        }
        self.pages = self.selected.map_or_else(Vec::new, |id| model::hot_pages(&self.before, &self.now, id));
    }

    /// A key was pressed.
    pub fn choose(&mut self, choice: Choice) {
        match choice {
            Choice::Up | Choice::Down => {
                let at = self.at();
                let next = if choice == Choice::Up { at.saturating_sub(1) } else { at + 1 };
                self.is_chosen = true;
                self.selected = self.rows.get(next).or(self.rows.get(at)).map(|row| row.id);
            }
            Choice::Sort => self.column = (self.column + 1) % COLUMNS.len(),
            Choice::Turn => self.turned = !self.turned,
            Choice::Pause => self.paused = !self.paused,
        }
        self.arrange();
    }

    fn at(&self) -> usize {
        self.rows.iter().position(|row| Some(row.id) == self.selected).unwrap_or(0)
    }

    /// The picture of it.
    pub fn picture(&self) -> draw::Picture<'_> {
        let is_selected = |object: &&ObjectCounts| Some(object.id.0) == self.selected;
        let selected = self.now.objects.iter().find(is_selected);
        let page_size = selected.map_or(PageSize::SMALLEST, |object| object.page_size);
        let size = selected.map_or(0, |object| object.size_bytes);
        draw::Picture {
            now: &self.now,
            rows: &self.rows,
            selected: self.at(),
            pages: &self.pages,
            object_pages: size.div_ceil(page_size.bytes()),
            page_size,
            column: self.column,
            turned: self.turned,
            paused: self.paused,
            trouble: &self.trouble,
        }
    }
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The object above.
    Up,
    /// The object below.
    Down,
    /// Sort by the next column.
    Sort,
    /// The other way round.
    Turn,
    /// Stop, or go on.
    Pause,
}
