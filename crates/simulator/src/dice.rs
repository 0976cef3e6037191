//! Where all chance comes from: one seed gives one run, on any machine.

/// xorshift64*: its quality does not matter, that it is the same everywhere does.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The dice of a seed; any number will do.
    pub fn new(seed: u64) -> Dice {
        Dice((seed.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `sides`, which is not 0.
    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides
    }

    /// True once in `sides` times.
    pub fn one_in(&mut self, sides: usize) -> bool {
        self.roll(sides) == 0
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, (low, high): (u64, u64)) -> u64 {
        low + self.roll((high - low + 1) as usize) as u64
    }
}
