//! Every interleaving of a small cluster (the `stateright` model checker).

use crate::world::{Limits, Step, World};
use commonhold_coherence::Scheduler;
use stateright::{Checker, Model, Property};
use std::fmt::Debug;
use std::hash::Hash;

/// A cluster to be searched.
struct Search<N> {
    limits: Limits,
    nodes: Vec<N>,
    /// Without a hold, hosts can take a page from each other for ever before anybody gets to use it.
    faults: u32,
}

/// A property that must be found somewhere, or the search has found nothing out.
const ENDS: &str = "all programs end";

impl<N> Model for Search<N>
where
    N: Scheduler + Clone + Debug + PartialEq + Hash,
    N::Message: Clone + Debug + PartialEq + Hash,
{
    type State = World<N>;
    type Action = Step;

    fn init_states(&self) -> Vec<World<N>> {
        vec![World::new(&self.limits, self.nodes.clone())]
    }

    fn actions(&self, state: &World<N>, actions: &mut Vec<Step>) {
        if state.violation.is_none() {
            actions.extend(state.steps());
        }
    }

    fn next_state(&self, last: &World<N>, step: Step) -> Option<World<N>> {
        let mut next = last.clone();
        next.notes = Default::default();
        next.step(&step);
        Some(next)
    }

    fn within_boundary(&self, state: &World<N>) -> bool {
        state.faults <= self.faults
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "one writer or many readers; every access finds the newest version",
                |_, w: &World<N>| w.violation.is_none(),
            ),
            // Nothing more can happen of itself: then nobody may be waiting.
            Property::always("nobody waits for ever", |_, w: &World<N>| {
                w.is_done() || w.steps().iter().any(|step| !is_chance(step))
            }),
            Property::sometimes(ENDS, |_, w: &World<N>| w.is_done()),
        ]
    }
}

/// Whether something need never happen.
fn is_chance(step: &Step) -> bool {
    matches!(step, Step::Lose(_) | Step::Evict(..) | Step::Leave(_) | Step::Revert(_))
}

/// Searches a cluster, up to `faults` faults; gives the number of its states, or what is wrong and how it comes about.
pub fn search<N>(limits: Limits, nodes: Vec<N>, faults: u32) -> Result<usize, String>
where
    N: Scheduler + Clone + Debug + PartialEq + Hash + Send + Sync + 'static,
    N::Message: Clone + Debug + PartialEq + Hash + Send + Sync,
{
    let describe = format!("{limits:?}");
    let checker = Search { limits, nodes, faults }.checker().threads(2).spawn_bfs().join();
    if let Some((name, path)) = checker.discoveries().into_iter().find(|(name, _)| *name != ENDS) {
        let last = path.last_state();
        let (what, nodes) = (last.violation.clone(), last.nodes.clone());
        return Err(format!(
            "{name} ({what:?}), of {describe}: {:?} ends with {nodes:?}",
            path.into_actions()
        ));
    }
    if checker.discovery(ENDS).is_none() {
        return Err(format!("no program ends, of {describe}"));
    }
    Ok(checker.unique_state_count())
}
