//! What to do about it: every saving that a known remedy gives, the largest first.
//!
//! A remedy stands here only if it gives memory back: one inode, one mount or one layer instead of copies; a restart
//! where a newer version is in memory already; huge pages instead of tables. What copies by reference on disk (reflinks)
//! has a page cache for each copy and is never advised.

mod alike;
mod copies;
mod equal;
mod relocation;
mod restart;
mod tables;
mod word;

use crate::figures::equal::Group;
use crate::report::Advice;
use crate::snapshot::Snapshot;

/// Its saving was counted from page numbers.
const MEASURED: &str = "measured";
/// Its saving follows from shares, or from what programs will do once more.
const ESTIMATED: &str = "estimated";
/// Its saving is this only if every copy is needless, which cannot be seen from outside.
const AT_MOST: &str = "at most";

/// All advice; what is known first, by saving, then what can only be bounded.
pub fn advise(snapshot: &Snapshot, groups: &[Group]) -> Vec<Advice> {
    let mut advice = equal::advise(snapshot, groups);
    advice.extend(restart::advise(snapshot));
    advice.extend(tables::advise(snapshot));
    advice.extend(relocation::advise(snapshot));
    advice.extend(copies::advise(snapshot));
    advice.retain(|one| one.saving_bytes > 0);
    advice.sort_by(|one, other| {
        let bounded = |advice: &Advice| advice.certainty == AT_MOST;
        (bounded(one), other.saving_bytes, &one.what).cmp(&(bounded(other), one.saving_bytes, &other.what))
    });
    advice
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::made::{Map, World};
    use crate::figures::{equal, report};

    #[test]
    fn the_largest_saving_is_first_and_what_is_only_bounded_last() {
        let mut world = World::default();
        let library = world.file("/a/x.so", 8);
        let copy = world.copy("/b/x.so", library);
        let table = world.file("/srv/table.npy", 500);
        world.file_mut(table).elf = None;
        for file in [library, copy] {
            let process = world.process("p");
            world.map(process, Map::text(file, 0, 8));
            world.map(process, Map::data(table, 0, 500).copied(0..400));
        }
        let snapshot = world.frames(true).snapshot();
        let advice = advise(&snapshot, &equal::groups(&snapshot));
        let certainties: Vec<&str> = advice.iter().map(|one| one.certainty.as_str()).collect();
        assert_eq!(certainties, [MEASURED, AT_MOST]);
        assert!(advice[1].saving_bytes > advice[0].saving_bytes);
    }

    #[test]
    fn nothing_to_save_is_no_advice() {
        let mut world = World::default();
        let library = world.file("/a/x.so", 8);
        for _ in 0..3 {
            let process = world.process("p");
            world.map(process, Map::text(library, 0, 8));
        }
        let snapshot = world.frames(true).snapshot();
        assert!(report(&snapshot, "machine").advice.is_empty());
    }
}
