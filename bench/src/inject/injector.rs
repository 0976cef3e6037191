//! Tells points what to do, while others work.

use crate::context::Random;
use commonhold_points::{Board, Effect, Point};
use rand::RngExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two that are told something.
const PAUSE: Duration = Duration::from_millis(2);
/// Points that are compared, of which the one that did the least is told something.
const COMPARED: usize = 6;
/// Between two kills: a host and its keeper are not to die at once, which loses what is promised to nobody.
const BETWEEN_KILLS: Duration = Duration::from_millis(500);
/// Longest delay, in microseconds.
const DELAY: u16 = 20_000;

/// What is done in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Errors and delays.
    Gentle,
    /// Also kills, one at a time.
    Deadly,
}

/// Chooses points and effects.
pub struct Injector {
    board: Arc<Board>,
    random: Random,
    points: Vec<Point>,
    /// The row of the last kill, which may not have come yet.
    kill: Option<usize>,
    /// No kill before.
    next_kill: Instant,
    only: Only,
}

/// What is chosen from, if not all: so a failure is had again with less around it.
#[derive(Default)]
struct Only {
    /// Parts of names of points, or their kinds; those after a `-` are left out.
    points: Vec<String>,
    /// Names of effects.
    effects: Vec<String>,
}

impl Only {
    fn from_environment() -> Only {
        let words = |variable| std::env::var(variable).unwrap_or_default();
        let list = |text: String| text.split_terminator(',').map(str::to_owned).collect();
        Only {
            points: list(words("COMMONHOLD_INJECT_POINTS")),
            effects: list(words("COMMONHOLD_INJECT_EFFECTS")),
        }
    }

    fn has_point(&self, point: &Point) -> bool {
        let kind = format!("{:?}", point.kind);
        let is = |word: &str| point.name.contains(word) || kind == word;
        let mut wanted = self.points.iter().filter(|word| !word.starts_with('-')).peekable();
        let is_wanted = wanted.peek().is_none() || wanted.any(|word| is(word));
        is_wanted && !self.points.iter().filter_map(|word| word.strip_prefix('-')).any(is)
    }

    fn has_effect(&self, effect: Effect) -> bool {
        let name = ["error", "delay", "kill-before", "kill-after"][effect.sort()];
        self.effects.is_empty() || self.effects.iter().any(|word| word == name)
    }
}

impl Injector {
    /// Uses that board.
    pub fn new(board: Arc<Board>, random: Random) -> Injector {
        Injector {
            board,
            random,
            points: Vec::new(),
            kill: None,
            next_kill: Instant::now(),
            only: Only::from_environment(),
        }
    }

    /// Injects for so long; then no point does anything.
    pub fn run(&mut self, lasting: Duration, sort: Sort) {
        let end = Instant::now() + lasting;
        let mut steps = 0;
        while Instant::now() < end {
            if steps % 16 == 0 {
                self.points = self.board.points();
                self.points.retain(|point| self.only.has_point(point));
            }
            steps += 1;
            self.step(sort);
            std::thread::sleep(PAUSE);
        }
        self.board.disarm();
        self.kill = None;
    }

    fn step(&mut self, sort: Sort) {
        if self.points.is_empty() {
            return;
        }
        if self.kill.is_some_and(|row| !self.board.is_armed(row)) {
            self.kill = None;
            self.next_kill = Instant::now() + BETWEEN_KILLS;
        }
        let may_kill = sort == Sort::Deadly && self.kill.is_none() && Instant::now() > self.next_kill;
        let effect = match self.random.random_range(0..100) {
            0..12 if may_kill => [Effect::KillBefore, Effect::KillAfter][self.random.random_range(0..2)],
            0..56 => Effect::Error(self.random.random_range(0..6)),
            _ => Effect::Delay(self.random.random_range(50..DELAY)),
        };
        let Some(row) = self.row_for(effect) else { return };
        if self.board.is_armed(row) || !self.only.has_effect(effect) {
            return;
        }
        let kills = matches!(effect, Effect::KillBefore | Effect::KillAfter);
        if kills {
            self.kill = Some(row);
        }
        let count = if kills { 1 } else { self.random.random_range(1..6) };
        self.board.arm(row, effect, count, self.random.random_range(0..4));
    }

    /// Half of the times any; else, of some, the one that did this the least.
    fn row_for(&mut self, effect: Effect) -> Option<usize> {
        let count = if self.random.random_bool(0.5) { 1 } else { COMPARED };
        let some: Vec<usize> = (0..count).map(|_| self.random.random_range(0..self.points.len())).collect();
        let done = |index: &usize| self.points[*index].injected[effect.sort()];
        some.into_iter().min_by_key(done).map(|index| self.points[index].row)
    }
}
