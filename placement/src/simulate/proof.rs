//! Key by key: do exactly the keys of the ring difference change their owners?

use super::change::Transition;
use super::{Sample, Tally};

/// Asks the plain ring rule for each key, in both rings, and compares with the difference. The rule
/// walks the tokens and knows neither partition tables nor differences, so an error in those shows.
#[derive(Debug, Clone)]
pub struct Proof<'a> {
    transition: &'a Transition,
    /// What the difference says of each partition.
    differs: Vec<bool>,
    /// Keys asked for.
    pub keys: u64,
    /// Keys whose owners or primary differ between the rings.
    pub moved: u64,
    /// Keys outside the difference that moved all the same. Must be zero.
    pub moved_outside: u64,
    /// Keys inside the difference that did not move. Must be zero.
    pub stayed_inside: u64,
}

impl<'a> Proof<'a> {
    /// Nothing asked yet.
    pub fn new(transition: &'a Transition) -> Self {
        let partitions = transition.before.partition_bits().count() as usize;
        let mut differs = vec![false; partitions];
        for change in &transition.diff.partitions {
            differs[change.partition.as_usize()] = true;
        }
        Self { transition, differs, keys: 0, moved: 0, moved_outside: 0, stayed_inside: 0 }
    }

    /// Whether every key bears the difference out.
    pub fn holds(&self) -> bool {
        self.moved_outside == 0 && self.stayed_inside == 0
    }
}

impl Tally for Proof<'_> {
    fn add(&mut self, sample: &Sample) {
        let mut before = self.transition.before.walk_owners(sample.hash);
        let mut after = self.transition.after.walk_owners(sample.hash);
        let primary_stays = before.first() == after.first();
        before.sort_unstable();
        after.sort_unstable();
        let moves = !primary_stays || before != after;
        let partition = self.transition.before.partition_bits().partition_of(sample.hash);
        let differs = self.differs[partition.as_usize()];
        self.keys += 1;
        self.moved += u64::from(moves);
        self.moved_outside += u64::from(moves && !differs);
        self.stayed_inside += u64::from(!moves && differs);
    }

    fn merge(&mut self, other: Self) {
        self.keys += other.keys;
        self.moved += other.moved;
        self.moved_outside += other.moved_outside;
        self.stayed_inside += other.stayed_inside;
    }
}
