//! What `stat` warns of: pages that could not be had, for as long as they cannot.

use super::{Cache, Inner};
use commonhold_object::PageRange;

/// Troubles that are remembered: who has more is told of the latest.
const MOST: usize = 16;

/// Pages that could not be had; none: any page, because its home is away.
#[derive(Debug, Default)]
pub(super) struct Troubles(Vec<(Option<PageRange>, String)>);

impl Troubles {
    /// These pages could not be had, for that reason.
    pub fn note(&mut self, pages: PageRange, why: &str) {
        let pages = Some(pages).filter(|pages| pages.end() < u32::MAX.into());
        self.0.retain(|(other, _)| *other != pages);
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push((pages, why.to_owned()));
    }

    /// The last one, for people; empty if there is none.
    pub fn warning(&self) -> String {
        self.0.last().map(|(_, why)| why.clone()).unwrap_or_default()
    }

    /// These pages are there.
    fn are_over(&mut self, pages: PageRange, is_there: impl Fn(u32) -> bool) {
        let is_over = |trouble: &PageRange| {
            let both = trouble.intersect(pages);
            (both.first..both.end()).any(|page| is_there(page as u32))
        };
        self.0.retain(|(trouble, _)| !trouble.as_ref().is_some_and(is_over));
    }
}

impl Inner {
    /// Pages were brought in, or stayed.
    pub(super) fn note_there(&mut self, pages: PageRange) {
        if !self.troubles.0.is_empty() {
            let resident = &self.resident;
            self.troubles.are_over(pages, |page| resident.contains(page));
        }
    }
}

impl Cache {
    /// Whoever could not be asked for pages can be (again).
    pub fn is_well_again(&self) {
        self.lock().troubles = Troubles::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_over_when_its_pages_are_there() {
        let (mut troubles, run) = (Troubles::default(), PageRange::new);
        troubles.note(run(0, u32::MAX.into()), "away");
        troubles.note(run(5, 3), "unreadable");
        troubles.note(run(9, 1), "late");
        assert_eq!(troubles.warning(), "late");
        troubles.are_over(run(8, 4), |_| true);
        assert_eq!(troubles.warning(), "unreadable");
        troubles.are_over(run(0, 6), |page| page != 5);
        assert_eq!(troubles.warning(), "unreadable", "that page is not there yet");
        troubles.are_over(run(0, 8), |page| page == 6);
        assert_eq!(troubles.warning(), "away", "a page that is there does not say that its home is back");
    }

    #[test]
    fn few_troubles_are_remembered_and_each_once() {
        let mut troubles = Troubles::default();
        for round in 0..3 {
            (0..40).for_each(|page| troubles.note(PageRange::new(page, 1), &format!("{round} {page}")));
        }
        assert_eq!((troubles.0.len(), troubles.warning().as_str()), (MOST, "2 39"));
    }
}
