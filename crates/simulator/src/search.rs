//! Every interleaving of a small cluster (the `stateright` model checker), and whether each comes to an end.

use crate::world::Step;
use stateright::{Checker, Model, Property};
use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

/// A cluster of which every interleaving can be searched.
pub trait Searchable: Clone + Debug + PartialEq + Hash + Send + Sync + 'static {
    /// All that may happen next.
    fn steps(&self) -> Vec<Step>;
    /// Something happens.
    fn step(&mut self, step: &Step);
    /// Whether every program has come to its end, and nobody waits.
    fn is_done(&self) -> bool;
    /// What is wrong by now.
    fn violation(&self) -> Option<&str>;
    /// Faults taken so far.
    fn faults(&self) -> u32;
}

/// A cluster to be searched.
struct Search<W> {
    start: W,
    /// Without a hold, hosts can take a page from each other for ever before anybody gets to use it.
    faults: u32,
    /// What leads to what, by fingerprints.
    edges: Mutex<Vec<(u64, u64)>>,
}

/// A cluster with its fingerprint, which is taken once.
#[derive(Clone, Debug, PartialEq)]
struct State<W> {
    world: W,
    print: u64,
}

impl<W: Hash> State<W> {
    fn new(world: W) -> State<W> {
        let mut hasher = DefaultHasher::new();
        world.hash(&mut hasher);
        State { world, print: hasher.finish() }
    }
}

impl<W> Hash for State<W> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.print.hash(state);
    }
}

/// A property that must be found somewhere, or the search has found nothing out.
const ENDS: &str = "all programs end";

impl<W: Searchable> Model for Search<W> {
    type State = State<W>;
    type Action = Step;

    fn init_states(&self) -> Vec<State<W>> {
        vec![State::new(self.start.clone())]
    }

    fn actions(&self, state: &State<W>, actions: &mut Vec<Step>) {
        if state.world.violation().is_none() {
            actions.extend(state.world.steps());
        }
    }

    fn next_state(&self, last: &State<W>, step: Step) -> Option<State<W>> {
        let mut world = last.world.clone();
        world.step(&step);
        let next = State::new(world);
        self.edges.lock().expect("nobody panics with it").push((last.print, next.print));
        Some(next)
    }

    fn within_boundary(&self, state: &State<W>) -> bool {
        state.world.faults() <= self.faults
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "one writer or many readers; every access finds the newest version",
                |_, state: &State<W>| state.world.violation().is_none(),
            ),
            // Nothing more can happen of itself: then nobody may be waiting.
            Property::always("nobody waits for ever", |_, state: &State<W>| {
                state.world.is_done() || state.world.steps().iter().any(|step| !step.is_chance())
            }),
            Property::sometimes(ENDS, |_, state: &State<W>| state.world.is_done()),
        ]
    }
}

/// Searches a cluster, up to `faults` faults; gives the number of its states, or what is wrong and how it comes about.
///
/// Beside what holds in each state it is seen to that no state comes again. Every step is one of finitely many, so
/// whatever hosts say to each other, and in which order, it ends; and where it ends nobody waits. (Faults are counted in
/// the state: where their number has no bound, the search itself would not end if there could be any number of them.)
pub fn search<W: Searchable>(start: W, faults: u32) -> Result<usize, String> {
    let search = Search { start, faults, edges: Mutex::default() };
    let checker = search.checker().threads(2).spawn_bfs().join();
    if let Some((name, path)) = checker.discoveries().into_iter().find(|(name, _)| *name != ENDS) {
        let last = path.last_state().clone();
        return Err(format!("{name}: {:?} ends with {:?}", path.into_actions(), last.world));
    }
    if checker.discovery(ENDS).is_none() {
        return Err("no program ends".to_owned());
    }
    let edges = std::mem::take(&mut *checker.model().edges.lock().expect("nobody panics with it"));
    let again = who_comes_again(edges);
    if !again.is_empty() {
        return Err(format!("it need not end: {:?}", round_trip(checker.model(), &again)));
    }
    Ok(checker.unique_state_count())
}

/// States on circles, and between them: those that are left when all that nothing leads to are taken away, again and again.
fn who_comes_again(mut edges: Vec<(u64, u64)>) -> Vec<u64> {
    edges.sort_unstable();
    edges.dedup();
    let mut into: HashMap<u64, usize> = HashMap::new();
    for (from, to) in &edges {
        into.entry(*from).or_default();
        *into.entry(*to).or_default() += 1;
    }
    let mut free: Vec<u64> = into.iter().filter(|(_, count)| **count == 0).map(|(print, _)| *print).collect();
    while let Some(print) = free.pop() {
        into.remove(&print);
        let first = edges.partition_point(|(from, _)| *from < print);
        for (_, to) in edges[first..].iter().take_while(|(from, _)| *from == print) {
            let count = into.get_mut(to).expect("something leads there still");
            *count -= 1;
            if *count == 0 {
                free.push(*to);
            }
        }
    }
    into.into_keys().collect()
}

/// Steps from the beginning into a circle and round it: the first circle that is met on the way to one of `again`.
fn round_trip<W: Searchable>(search: &Search<W>, again: &[u64]) -> Vec<Step> {
    let start = State::new(search.start.clone());
    let (mut way, mut seen) =
        (vec![(start.print, search.start.clone(), search.start.steps())], HashMap::new());
    let mut steps: Vec<Step> = Vec::new();
    seen.insert(start.print, true);
    while let Some((print, world, left)) = way.last_mut() {
        let Some(step) = left.pop() else {
            seen.insert(*print, false);
            way.pop();
            steps.pop();
            continue;
        };
        let mut next = world.clone();
        next.step(&step);
        let next = State::new(next);
        match seen.get(&next.print) {
            Some(true) => {
                steps.push(step);
                return steps;
            }
            Some(false) => {}
            None if next.world.faults() > search.faults => {}
            None => {
                seen.insert(next.print, true);
                steps.push(step);
                let left = next.world.steps();
                way.push((next.print, next.world, left));
            }
        }
    }
    unreachable!("{} states come again", again.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found() {
        assert!(who_comes_again(vec![(1, 2), (2, 3), (1, 3), (3, 4)]).is_empty(), "two ways to one end");
        let mut again = who_comes_again(vec![(1, 2), (2, 3), (3, 2), (3, 4)]);
        again.sort_unstable();
        assert_eq!(again, [2, 3, 4], "round 2 and 3, and on");
        assert_eq!(who_comes_again(vec![(1, 1)]), [1]);
    }

    /// Two hosts that hand something to each other for ever, unless a third step ends it.
    #[derive(Clone, Debug, PartialEq, Hash)]
    struct Endless {
        at: usize,
        ended: bool,
    }

    impl Searchable for Endless {
        fn steps(&self) -> Vec<Step> {
            if self.ended { Vec::new() } else { vec![Step::Deliver(self.at, 1 - self.at), Step::Run(0)] }
        }

        fn step(&mut self, step: &Step) {
            match step {
                Step::Deliver(_, to) => self.at = *to,
                _ => self.ended = true,
            }
        }

        fn is_done(&self) -> bool {
            self.ended
        }

        fn violation(&self) -> Option<&str> {
            None
        }

        fn faults(&self) -> u32 {
            0
        }
    }

    #[test]
    fn what_can_end_and_need_not_is_wrong() {
        let wrong = search(Endless { at: 0, ended: false }, 9).expect_err("it need not end");
        assert!(wrong.contains("Deliver(0, 1)") && wrong.contains("Deliver(1, 0)"), "{wrong}");
    }
}
