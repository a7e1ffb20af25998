//! The one source of chance: a seeded generator that gives the same numbers on every machine.

use std::ops::Range;

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// Dice that always fall the same way for one seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed ^ 0x5bf0_3635_dcd5_9e3b }
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number within a range; its start if the range is empty.
    pub fn within(&mut self, range: &Range<u64>) -> u64 {
        let width = range.end.saturating_sub(range.start).max(1);
        range.start + self.draw() % width
    }

    /// A place in a list of this length, which is not zero.
    pub fn index(&mut self, length: usize) -> usize {
        let length = u64::try_from(length).expect("lists fit memory");
        usize::try_from(self.draw() % length).expect("smaller than a length")
    }

    /// One of a list, unless it is empty.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        if list.is_empty() { None } else { Some(&list[self.index(list.len())]) }
    }

    /// True `per_mille` times out of a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.draw() % 1000 < per_mille
    }
}
