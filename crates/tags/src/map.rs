//! Which pages of an object have which tag, and in which machine's format the object is stored. A small value: it is part of
//! what is known of the object wherever it is used.

use crate::machine::Machine;
use crate::tag::{Tag, Type};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Tags are of whole pages of so many bytes.
pub const PAGE_BYTES: usize = 4096;
/// Runs of pages of one object that have tags, at most.
pub const MOST_RUNS: usize = 1024;
/// Different tags of one object, at most.
pub const MOST_TAGS: usize = 64;
/// Bytes of the texts of all of these, at most.
pub const MOST_TEXT_BYTES: usize = 16 << 10;

/// The tags of an object. Pages that it does not speak of are bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Told", into = "Told")]
pub struct Types(Option<Arc<Map>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Map {
    /// In which format it is stored, and kept by replicas.
    format: Machine,
    /// How often it was changed.
    version: u32,
    /// Each once.
    tags: Vec<Tag>,
    /// In order; none touches another that it could be one with.
    runs: Vec<Run>,
}

/// Pages of one tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u64,
    count: u64,
    tag: u16,
    /// The page with which the first element begins: another than `first` where the pages before got another tag. 0 where a
    /// page holds whole elements.
    origin: u64,
}

/// Pages that have a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged<'t> {
    /// The first.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// What is in them.
    pub tag: &'t Tag,
    /// How many bytes of an element lie before the first page.
    pub begun: usize,
}

/// Why pages do not get a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No page, or more than there can be.
    Range,
    /// A page would end within a number of such a record.
    Record {
        /// Bytes of one.
        bytes: usize,
    },
    /// The object has more runs, tags or texts of tags than it may.
    TooMany,
    /// The stored bytes are those of another machine: which they are depends on the tags that they have.
    Stored {
        /// The machine in whose format they are stored.
        format: Machine,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Range => {
                f.write_str("a tag is of one page at least, and of pages that an object can have")
            }
            Refusal::Record { bytes } => write!(
                f,
                "a record of {bytes} bytes does not fit pages: make its size a divisor of {PAGE_BYTES}, or let each number in \
                 it lie at a multiple of its own size, and the record's size be one too"
            ),
            Refusal::TooMany => write!(
                f,
                "an object has {MOST_RUNS} runs of pages with tags, {MOST_TAGS} different tags, and {MOST_TEXT_BYTES} bytes \
                 of their texts at most: put data of one type into one run"
            ),
            Refusal::Stored { format } => write!(
                f,
                "what is stored is in the format of a {format} machine, and which bytes these are depends on the tags: change \
                 them where the home is such a machine"
            ),
        }
    }
}

impl Types {
    /// Whether all of it is bytes.
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|map| map.runs.is_empty())
    }

    /// In which format what has a tag is stored. None: all of it is bytes.
    pub fn format(&self) -> Option<Machine> {
        self.0.as_ref().filter(|map| !map.runs.is_empty()).map(|map| map.format)
    }

    /// How often the tags were changed.
    pub fn version(&self) -> u32 {
        self.0.as_ref().map_or(0, |map| map.version)
    }

    /// Whether bytes of the object are others on the one machine than on the other.
    pub fn differ(&self, from: Machine, to: Machine) -> bool {
        let Some(map) = self.0.as_ref().filter(|_| from != to) else { return false };
        map.tags.iter().any(|tag| crate::Translation::between(tag, from, to).is_some())
    }

    /// What the stored bytes have to be translated from at a host of that machine. None: they are as the host has them.
    pub fn stored_for(&self, here: Machine) -> Option<Machine> {
        self.format().filter(|format| self.differ(*format, here))
    }

    /// All pages that have tags, in order.
    pub fn all(&self) -> impl Iterator<Item = Tagged<'_>> {
        let runs = self.0.iter().flat_map(|map| map.runs.iter().map(move |run| (map, run)));
        runs.map(|(map, run)| tagged(map, run, run.first, run.count))
    }

    /// Those of these pages that have tags, in order.
    pub fn within(&self, first: u64, count: u64) -> impl Iterator<Item = Tagged<'_>> {
        let end = first.saturating_add(count);
        let runs: &[Run] = self.0.as_ref().map_or(&[], |map| {
            let begin = map.runs.partition_point(|run| run.first + run.count <= first);
            &map.runs[begin..]
        });
        let map = self.0.as_ref();
        runs.iter().take_while(move |run| run.first < end).filter_map(move |run| {
            let low = run.first.max(first);
            map.map(|map| tagged(map, run, low, (run.first + run.count).min(end) - low))
        })
    }

    /// The tag of a text, as [`Tag::of_text`], or `#` and the hash of a tag that the object has, in hexadecimal.
    pub fn tag_of(&self, text: &str) -> Option<Tag> {
        let Some(hash) = text.strip_prefix('#') else { return Tag::of_text(text) };
        let hash = u64::from_str_radix(hash, 16).ok().filter(|_| hash.len() == 16)?;
        self.0.as_ref()?.tags.iter().find(|tag| tag.hash() == hash).cloned()
    }

    /// The same where these pages have that tag. `here`: the machine of the object's home, whose processes have written what is
    /// in the pages.
    pub fn tag(&self, first: u64, count: u64, tag: &Tag, here: Machine) -> Result<Types, Refusal> {
        let end =
            first.checked_add(count).filter(|end| count > 0 && *end <= 1 << 48).ok_or(Refusal::Range)?;
        if !tag.fits_pages() {
            return Err(Refusal::Record { bytes: tag.bytes() });
        }
        let old = self.0.as_deref();
        let format = self.format().unwrap_or(here);
        if self.stored_for(here).is_some() || crate::Translation::between(tag, format, here).is_some() {
            return Err(Refusal::Stored { format });
        }
        let mut made =
            Map { format, version: self.version().wrapping_add(1), tags: Vec::new(), runs: Vec::new() };
        let new = Tagged { first, count, tag, begun: 0 };
        let olds = |low: u64, high: u64| {
            let runs = old.map_or(&[][..], |map| &map.runs).iter().copied();
            runs.filter_map(move |run| {
                let (begin, stop) = (run.first.max(low), (run.first + run.count).min(high));
                (begin < stop).then(|| Run { first: begin, count: stop - begin, ..run })
            })
        };
        let tag_of = |run: &Run| &old.expect("a run is of a map").tags[usize::from(run.tag)];
        for run in olds(0, first) {
            made.push(run.first, run.count, run.origin, tag_of(&run));
        }
        if *new.tag != Tag::Of(Type::Bytes) {
            let origin = if tag.divides_page() { 0 } else { first };
            made.push(first, count, origin, new.tag);
        }
        for run in olds(end, u64::MAX) {
            made.push(run.first, run.count, run.origin, tag_of(&run));
        }
        made.checked().ok_or(Refusal::TooMany)
    }

    /// The tags of a part of the object, as those of an object of its own, which is stored in the format of `here`.
    pub fn part(&self, first: u64, count: u64, here: Machine) -> Types {
        let Some(old) = self.0.as_ref() else { return Types::default() };
        let mut made = Map { format: here, version: old.version, tags: Vec::new(), runs: Vec::new() };
        for run in &old.runs {
            let low = run.first.max(first);
            let high = (run.first + run.count).min(first.saturating_add(count));
            let tag = &old.tags[usize::from(run.tag)];
            // An element that begins before the part is cut: where none begins with its first page nobody can say how.
            if low < high && (tag.divides_page() || run.origin >= first) {
                made.push(low - first, high - low, run.origin.saturating_sub(first), tag);
            }
        }
        made.checked().unwrap_or_default()
    }
}

/// A line for each run of pages: its first byte, how many bytes, and the tag.
impl fmt::Display for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = PAGE_BYTES as u64;
        self.all().try_for_each(|run| writeln!(f, "{} {} {}", run.first * bytes, run.count * bytes, run.tag))
    }
}

fn tagged<'t>(map: &'t Map, run: &Run, first: u64, count: u64) -> Tagged<'t> {
    let tag = &map.tags[usize::from(run.tag)];
    let begun = match tag.divides_page() {
        true => 0,
        false => (u128::from(first - run.origin) * PAGE_BYTES as u128 % tag.bytes() as u128) as usize,
    };
    Tagged { first, count, tag, begun }
}

impl Map {
    /// Pages behind all that it has get a tag.
    fn push(&mut self, first: u64, count: u64, origin: u64, tag: &Tag) {
        let at = self.tags.iter().position(|known| known == tag).unwrap_or_else(|| {
            self.tags.push(tag.clone());
            self.tags.len() - 1
        });
        let at = u16::try_from(at).unwrap_or(u16::MAX);
        if let Some(last) = self.runs.last_mut()
            && (last.tag, last.origin, last.first + last.count) == (at, origin, first)
        {
            last.count += count;
            return;
        }
        self.runs.push(Run { first, count, tag: at, origin });
    }

    fn checked(self) -> Option<Types> {
        let text: usize = self.tags.iter().map(|tag| tag.to_string().len()).sum();
        let fits = self.runs.len() <= MOST_RUNS && self.tags.len() <= MOST_TAGS && text <= MOST_TEXT_BYTES;
        fits.then(|| Types(Some(Arc::new(self))))
    }
}

/// The same as it is written down and told: a text of each tag, and of each run where it begins, how many pages it has, which
/// tag, and its origin.
#[derive(Clone, Serialize, Deserialize)]
struct Told {
    format: String,
    version: u32,
    tags: Vec<String>,
    runs: Vec<(u64, u64, u16, u64)>,
}

impl From<Types> for Told {
    fn from(types: Types) -> Told {
        let Some(map) = types.0 else {
            return Told { format: String::new(), version: 0, tags: Vec::new(), runs: Vec::new() };
        };
        Told {
            format: map.format.word().to_owned(),
            version: map.version,
            tags: map.tags.iter().map(Tag::to_string).collect(),
            runs: map.runs.iter().map(|run| (run.first, run.count, run.tag, run.origin)).collect(),
        }
    }
}

impl TryFrom<Told> for Types {
    type Error = String;

    fn try_from(told: Told) -> Result<Types, String> {
        let Told { format, version, tags, runs } = told;
        if format.is_empty() && tags.is_empty() && runs.is_empty() {
            return Ok(Types::default());
        }
        let unknown = || format!("{format:?} is no machine that is known here: {}", Machine::words());
        let format = Machine::of_word(&format).ok_or_else(unknown)?;
        if tags.len() > MOST_TAGS || runs.len() > MOST_RUNS {
            return Err(Refusal::TooMany.to_string());
        }
        let read = |text: &String| {
            let tag = Tag::of_text(text).filter(|tag| tag.fits_pages() && *tag != Tag::Of(Type::Bytes));
            tag.ok_or_else(|| format!("{text:?} is no tag of pages that is known here"))
        };
        let tags = tags.iter().map(read).collect::<Result<Vec<Tag>, String>>()?;
        let mut made = Map { format, version, tags: Vec::new(), runs: Vec::new() };
        let mut end = 0;
        for (first, count, tag, origin) in runs {
            let tag = tags.get(usize::from(tag)).ok_or("a run of pages has a tag that is not told")?;
            let whole = tag.divides_page();
            let stop = first.checked_add(count).filter(|stop| *stop <= 1 << 48 && count > 0 && first >= end);
            let good = if whole { origin == 0 } else { origin <= first };
            end =
                stop.filter(|_| good).ok_or("runs of pages with tags are in order, and none has no page")?;
            made.push(first, count, origin, tag);
        }
        made.checked().ok_or_else(|| Refusal::TooMany.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Machine = Machine::LITTLE;

    fn tag(text: &str) -> Tag {
        Tag::of_text(text).unwrap_or_else(|| panic!("{text}"))
    }

    fn shown(types: &Types) -> Vec<(u64, u64, String, usize)> {
        types.all().map(|run| (run.first, run.count, run.tag.to_string(), run.begun)).collect()
    }

    fn again(types: &Types) -> Types {
        postcard::from_bytes(&postcard::to_stdvec(types).unwrap()).unwrap()
    }

    #[test]
    fn the_last_tag_of_a_page_counts_and_neighbours_are_one() {
        let mut types = Types::default();
        assert!(types.is_empty() && types.format().is_none());
        for (first, count, text) in [(0, 10, "int32"), (20, 5, "int32"), (10, 10, "int32"), (3, 2, "float64")]
        {
            types = types.tag(first, count, &tag(text), HERE).unwrap();
        }
        let of = |first, count, text: &str| (first, count, text.to_owned(), 0);
        assert_eq!(shown(&types), [of(0, 3, "int32"), of(3, 2, "float64"), of(5, 20, "int32")]);
        assert_eq!((types.version(), types.format()), (4, Some(HERE)));
        assert_eq!(again(&types), types);
        let inside: Vec<_> = types.within(4, 2).map(|run| (run.first, run.count)).collect();
        assert_eq!(inside, [(4, 1), (5, 1)]);
        assert_eq!(types.within(25, 9).count(), 0);
        let bytes = types.tag(0, 30, &tag("bytes"), HERE).unwrap();
        assert!(bytes.is_empty() && bytes.version() == 5 && bytes.format().is_none());
    }

    #[test]
    fn records_go_on_over_the_ends_of_pages_also_where_some_are_taken_out() {
        let text = "{24: 0 int32, 8 float64*2}";
        let types = Types::default().tag(2, 8, &tag(text), HERE).unwrap();
        let types = types.tag(4, 1, &tag("int16"), HERE).unwrap();
        let begun = |page: usize| (page - 2) * 4096 % 24;
        let runs: Vec<_> =
            shown(&types).into_iter().map(|(first, count, _, begun)| (first, count, begun)).collect();
        assert_eq!(runs, [(2, 2, 0), (4, 1, 0), (5, 5, begun(5))]);
        assert_eq!(again(&types), types);
        assert_eq!(types.within(7, 1).next().unwrap().begun, begun(7));
        let part = types.part(2, 3, HERE);
        assert_eq!(shown(&part)[0], (0, 2, text.to_owned(), 0));
        assert_eq!(types.part(3, 9, HERE).all().count(), 1, "the int16 alone: the records begin before it");
        let hash = format!("#{:016x}", tag(text).hash());
        assert_eq!(types.tag_of(&hash), Some(tag(text)));
        assert_eq!(types.tag_of("#0000000000000000"), None);
        assert_eq!(types.tag_of("float64"), Some(tag("float64")));
    }

    #[test]
    fn what_fits_no_page_or_no_map_is_refused() {
        let types = Types::default();
        for bad in ["{24: 4 float64}", "{12: 0 float64}", "{7: 0 int32}"] {
            let bytes = tag(bad).bytes();
            assert_eq!(types.tag(0, 1, &tag(bad), HERE), Err(Refusal::Record { bytes }), "{bad}");
        }
        for good in ["{16: 3 int32}", "{12: 0 int32, 4 float32*2}", "{7: 0 int8}"] {
            types.tag(0, 1, &tag(good), HERE).unwrap();
        }
        for (first, count) in [(0, 0), (u64::MAX, 1), (1, u64::MAX), (1 << 48, 1)] {
            assert_eq!(types.tag(first, count, &tag("int8"), HERE), Err(Refusal::Range));
        }
        let mut full = types;
        for run in 0..MOST_RUNS as u64 {
            full = full.tag(run * 2, 1, &tag("int8"), HERE).unwrap();
        }
        assert_eq!(full.tag(1 << 20, 1, &tag("int8"), HERE), Err(Refusal::TooMany));
        assert!(full.tag(1, 1, &tag("int8"), HERE).is_ok(), "three become one");
        assert_eq!(again(&full), full);
    }

    #[test]
    fn tags_change_where_the_stored_bytes_are_the_home_s_own() {
        let types = Types::default().tag(0, 4, &tag("float32"), Machine::VAX).unwrap();
        assert_eq!(types.format(), Some(Machine::VAX));
        assert_eq!(types.stored_for(Machine::VAX), None);
        assert_eq!(types.stored_for(HERE), Some(Machine::VAX));
        let refused = Refusal::Stored { format: Machine::VAX };
        assert_eq!(types.tag(8, 1, &tag("int8"), HERE), Err(refused.clone()));
        // Integers of a VAX are as here, and floats not.
        let types = Types::default().tag(0, 4, &tag("int64"), Machine::VAX).unwrap();
        assert_eq!(types.stored_for(HERE), None);
        assert!(types.tag(8, 1, &tag("int16"), HERE).is_ok());
        assert_eq!(types.tag(8, 1, &tag("float64"), HERE), Err(refused));
    }

    #[test]
    fn nothing_else_than_a_map_is_read_as_one() {
        let told = |format: &str, tags: &[&str], runs: &[(u64, u64, u16, u64)]| {
            let tags = tags.iter().map(|text| (*text).to_owned()).collect();
            Types::try_from(Told { format: format.to_owned(), version: 1, tags, runs: runs.to_vec() })
        };
        told("big-ieee", &["int32", "{24: 0 int64}"], &[(0, 1, 0, 0), (5, 2, 1, 3)]).unwrap();
        for (format, tags, runs) in [
            ("pdp-11", &["int32"][..], &[(0, 1, 0, 0)][..]),
            ("", &["int32"], &[(0, 1, 0, 0)]),
            ("vax", &["int24"], &[(0, 1, 0, 0)]),
            ("vax", &["bytes"], &[(0, 1, 0, 0)]),
            ("vax", &["{24: 4 int64}"], &[(0, 1, 0, 0)]),
            ("vax", &["int32"], &[(0, 1, 1, 0)]),
            ("vax", &["int32"], &[(0, 0, 0, 0)]),
            ("vax", &["int32"], &[(5, 1, 0, 5)]),
            ("vax", &["int32"], &[(5, 1, 0, 0), (5, 1, 0, 0)]),
            ("vax", &["int32"], &[(5, u64::MAX, 0, 0)]),
            ("vax", &["{24: 0 int64}"], &[(5, 1, 0, 6)]),
        ] {
            assert!(told(format, tags, runs).is_err(), "{format} {tags:?} {runs:?}");
        }
    }
}
