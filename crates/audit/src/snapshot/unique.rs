//! What ends with a control group, a container, or all that was asked for: frames whose every mapping is inside.
//!
//! A page that one process alone maps is counted by smaps already (Private_*). Of the others the mappings inside a group
//! are counted and compared with the kernel's own count (`/proc/kpagecount`). Groups come one after another, so that
//! only what they share with others is kept after each.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Frames that are kept before equal ones are put together.
const LOOSE: usize = 1 << 20;
/// Counts that one read asks for, and the gap that is read over rather than asked for anew: the kernel looks at each
/// frame with care, which costs a tenth of a call.
const RUN: usize = 512;
const GAP: u64 = 8;

/// A frame, how often it is mapped inside, and how often at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    frame: u64,
    inside: u32,
    all: u32,
}

/// What is known of one group so far.
#[derive(Debug, Default)]
struct Group {
    unique: u64,
    frames: Vec<Counted>,
    /// A process of it could not be read: its mappings are missing.
    incomplete: bool,
}

impl Group {
    /// Puts equal frames together, and takes out those whose every mapping is inside: their number.
    fn settle(&mut self) -> u64 {
        self.join();
        let before = self.frames.len();
        self.frames.retain(|counted| counted.all == 0 || counted.inside < counted.all);
        (before - self.frames.len()) as u64
    }

    fn join(&mut self) {
        self.frames.sort_unstable_by_key(|counted| counted.frame);
        self.frames.dedup_by(|next, kept| {
            let same = next.frame == kept.frame;
            if same {
                kept.inside += next.inside;
                kept.all = kept.all.max(next.all);
            }
            same
        });
    }

    fn take(&mut self, frames: &[Counted]) {
        self.frames.extend_from_slice(frames);
        if self.frames.len() > LOOSE && self.frames.len() > self.frames.capacity() / 2 {
            self.join();
        }
    }
}

/// Counts groups one after another.
pub struct Counter {
    counts: File,
    page: u64,
    current: Group,
    name: (String, Option<String>),
    containers: BTreeMap<String, Group>,
    groups: BTreeMap<String, Group>,
    scope: Group,
}

impl Counter {
    /// None: the kernel does not tell this reader how often frames are mapped.
    pub fn new(proc_root: &Path, page: u64) -> Option<Self> {
        let counts = File::open(proc_root.join("kpagecount")).ok()?;
        Some(Self {
            counts,
            page,
            current: Group::default(),
            name: Default::default(),
            containers: BTreeMap::new(),
            groups: BTreeMap::new(),
            scope: Group::default(),
        })
    }

    /// From now on processes of this control group and container come; all of one come together.
    pub fn begin(&mut self, cgroup: &str, container: Option<&str>) -> io::Result<()> {
        if self.name.0 == cgroup && self.name.1.as_deref() == container {
            return Ok(());
        }
        self.end()?;
        self.name = (cgroup.to_owned(), container.map(str::to_owned));
        Ok(())
    }

    /// A process of the group: what smaps calls private, and its frames that are mapped more than once.
    pub fn add(&mut self, private: u64, shared: &[u64]) {
        self.current.unique += private;
        let counted = shared.iter().map(|frame| Counted { frame: *frame, inside: 1, all: 0 });
        self.current.frames.extend(counted);
        if self.current.frames.len() > LOOSE {
            self.current.join();
        }
    }

    /// A process of the group could not be read.
    pub fn miss(&mut self) {
        self.current.incomplete = true;
    }

    /// A process that belongs to no group here could not be read.
    pub fn miss_in_scope(&mut self) {
        self.scope.incomplete = true;
    }

    /// The group is over: what it shares with others goes on to its container and to the whole.
    fn end(&mut self) -> io::Result<()> {
        let mut group = std::mem::take(&mut self.current);
        group.join();
        self.ask(&mut group.frames)?;
        group.unique += group.settle() * self.page;
        let (cgroup, container) = std::mem::take(&mut self.name);
        let over = container.map(|name| self.containers.entry(name).or_default());
        for whole in over.into_iter().chain([&mut self.scope]) {
            whole.unique += group.unique;
            whole.incomplete |= group.incomplete;
            whole.take(&group.frames);
        }
        // A control group whose processes are in several containers (a mount namespace of its own) comes more than once.
        let known = self.groups.entry(cgroup).or_default();
        known.unique += group.unique;
        known.incomplete |= group.incomplete;
        known.take(&group.frames);
        Ok(())
    }

    /// How often these frames, in order, are mapped at all.
    fn ask(&self, frames: &mut [Counted]) -> io::Result<()> {
        let mut buffer = vec![0; RUN * 8];
        let mut rest = frames;
        while let Some(first) = rest.first().map(|counted| counted.frame) {
            let is_near = |pair: &[Counted]| pair[1].frame - pair[0].frame <= GAP;
            let near = 1 + rest.windows(2).take_while(|pair| is_near(pair)).count();
            let within = rest[..near].iter().take_while(|counted| counted.frame - first < RUN as u64).count();
            let (run, others) = rest.split_at_mut(within);
            rest = others;
            let entries = usize::try_from(run[within - 1].frame - first).unwrap_or(0) + 1;
            let got = self.counts.read_at(&mut buffer[..entries * 8], first * 8)? / 8;
            for counted in run {
                // Beyond the last frame of the machine nothing is counted.
                let place = usize::try_from(counted.frame - first).unwrap_or(usize::MAX);
                if place < got {
                    let entry = buffer[place * 8..place * 8 + 8].try_into().unwrap_or_default();
                    counted.all = u32::try_from(u64::from_ne_bytes(entry)).unwrap_or(u32::MAX);
                }
            }
        }
        Ok(())
    }

    /// Bytes that end with each group that was counted wholly.
    pub fn finish(mut self) -> io::Result<BTreeMap<String, u64>> {
        self.end()?;
        let page = self.page;
        let mut done = BTreeMap::new();
        let mut put = |name: String, mut group: Group| {
            if !group.incomplete {
                done.insert(name, group.unique + group.settle() * page);
            }
        };
        put("scope".into(), self.scope);
        self.containers.into_iter().for_each(|(name, group)| put(format!("container {name}"), group));
        let named = self.groups.into_iter().filter(|(name, _)| !name.is_empty());
        named.for_each(|(name, group)| put(format!("control group {name}"), group));
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kpagecount where frame N is mapped `counts[N]` times.
    fn counter(counts: &[u64]) -> Counter {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_ne_bytes()).collect();
        std::fs::write(folder.path().join("kpagecount"), bytes).expect("written");
        Counter::new(folder.path(), 4096).expect("readable")
    }

    #[test]
    fn frames_count_where_their_every_mapping_is_inside() {
        // Frame 1: twice in /a. 2: in /a and /b, both of container c. 3: in /a and somewhere unseen. 4: twice in /b.
        let mut counter = counter(&[0, 2, 2, 2, 2]);
        counter.begin("/a", Some("c")).expect("read");
        counter.add(100, &[1, 2, 3]);
        counter.add(10, &[1]);
        counter.begin("/b", Some("c")).expect("read");
        counter.add(1000, &[2, 4, 4]);
        let done = counter.finish().expect("read");
        assert_eq!(done["control group /a"], 110 + 4096);
        assert_eq!(done["control group /b"], 1000 + 4096);
        assert_eq!(done["container c"], 1110 + 3 * 4096);
        assert_eq!(done["scope"], 1110 + 3 * 4096);
    }

    #[test]
    fn a_group_with_a_process_that_could_not_be_read_has_no_figure() {
        let mut counter = counter(&[0, 1]);
        counter.begin("/a", None).expect("read");
        counter.add(1, &[]);
        counter.begin("/b", Some("c")).expect("read");
        counter.miss();
        let done = counter.finish().expect("read");
        assert_eq!(done.keys().collect::<Vec<_>>(), ["control group /a"]);
    }

    #[test]
    fn frames_far_apart_and_beyond_the_end_of_the_counts() {
        let mut counts = vec![0; 5000];
        (counts[3], counts[4999]) = (1, 1);
        let mut counter = counter(&counts);
        counter.begin("/a", None).expect("read");
        // The zero page and device memory have no count: they are nobody's.
        counter.add(0, &[3, 4999, 6, 1 << 40]);
        assert_eq!(counter.finish().expect("read")["scope"], 2 * 4096);
    }

    #[test]
    fn long_runs_are_asked_for_in_parts_and_every_frame_gets_its_own_count() {
        let counts: Vec<u64> = (0..3 * RUN as u64).map(|frame| 1 + frame % 2).collect();
        let mut counter = counter(&counts);
        counter.begin("/a", None).expect("read");
        let frames: Vec<u64> = (1..3 * RUN as u64).step_by(3).collect();
        counter.add(0, &frames);
        let once = frames.iter().filter(|frame| *frame % 2 == 0).count() as u64;
        assert_eq!(counter.finish().expect("read")["scope"], once * 4096);
    }

    #[test]
    fn one_control_group_in_two_containers_is_one() {
        let mut counter = counter(&[0, 2]);
        counter.begin("/a", Some("x")).expect("read");
        counter.add(1, &[1]);
        counter.begin("/a", Some("y")).expect("read");
        counter.add(2, &[1]);
        let done = counter.finish().expect("read");
        assert_eq!(done["control group /a"], 3 + 4096);
        assert_eq!((done["container x"], done["container y"]), (1, 2));
    }
}
