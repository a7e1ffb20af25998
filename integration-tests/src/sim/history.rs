//! Linearizability of one key's history, exactly and in O(n log n).
//!
//! A general checker searches; this one need not, since the answers carry versions and the versions
//! of a key strictly increase in the order in which its writes took effect (I3). So any legal order
//! of the writes is their order by version, and a read that saw version v must stand after the
//! write of v and before the next one. Call a write together with the reads that saw it a *slot*;
//! slot 0 is the absent key before its first write. What is left to check is real time: if `a`
//! returned before `b` was invoked, then `a` may not stand after `b`.
//!
//! *Why pairs suffice.* Take the relation "before in slot order, or before in real time". If it has
//! no cycle it extends to a total order, which is a linearization. Suppose no pair contradicts: no
//! real-time edge leads from a later slot to an earlier one, nor from a read to the write of its
//! own slot. Then along any cycle the slot never decreases, so the cycle lies within one slot; there
//! the write is before all reads, and the reads are ordered by real time alone, which is an order of
//! intervals and has no cycle. So the history is linearizable exactly if no pair contradicts, and
//! one sweep finds such a pair: in slot order, an operation contradicts if it returned before the
//! latest invocation seen so far.
//!
//! *Absence.* A read that found nothing carries no version: it may stand in any slot whose write was
//! a deletion, or in slot 0. Taking such reads by time of invocation and giving each the earliest
//! slot that real time allows is optimal, since an earlier choice never forbids a later one.
//!
//! *Unknown outcomes.* A write without an answer may take effect at any time after its invocation.
//! If it is known to have taken effect, by its value in a read or in the log, it is given its
//! version and never returns. If nobody ever saw an effect of it, leaving it out is legal.

use std::collections::BTreeMap;
use std::fmt;

use kvcore::Version;

/// Nanoseconds of any one clock.
pub type Instant = u64;

/// An operation that never returned.
pub const NEVER: Instant = Instant::MAX;

/// What had to hold of the key for a conditional write to take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Nothing.
    Anything,
    /// The key was absent.
    Absent,
    /// The key was present.
    Present,
    /// The key had this version.
    Version(Version),
}

/// One operation on the key, as far as its outcome is known.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// When it was invoked.
    pub invoked: Instant,
    /// When it returned; [`NEVER`] if it did not.
    pub returned: Instant,
    /// What it did.
    pub did: Did,
}

/// What an operation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// It stored a value.
    Put(Version, Expected),
    /// It made the key absent.
    Delete(Version, Expected),
    /// It saw this version, or that the key is absent. A refused condition is a read too.
    Read(Option<Version>),
}

/// Why a history is not linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction(pub String);

impl fmt::Display for Contradiction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

struct Slot {
    write: Option<Operation>,
    absent: bool,
}

/// Checks the history of one key that was absent before its first write.
///
/// # Errors
/// The first contradiction found.
pub fn check(history: &[Operation]) -> Result<(), Contradiction> {
    let slots = slots(history)?;
    let versions: Vec<Version> = slots.keys().copied().collect();
    let slots: Vec<Slot> = slots.into_values().collect();
    check_conditions(&versions, &slots)?;
    let place_of = |version: Version| versions.binary_search(&version).ok();

    // Every operation with its slot; within a slot the write comes first.
    let mut placed: Vec<(usize, bool, Operation)> = Vec::with_capacity(history.len());
    let mut absent_reads = Vec::new();
    for operation in history {
        match operation.did {
            Did::Put(version, _) | Did::Delete(version, _) => {
                let place = place_of(version).expect("every write has its slot");
                placed.push((place, false, *operation));
            }
            Did::Read(Some(version)) => {
                let place = place_of(version).filter(|place| !slots[*place].absent);
                let Some(place) = place else {
                    return Err(Contradiction(format!(
                        "a read saw version {version}, which nobody wrote: {operation:?}"
                    )));
                };
                placed.push((place, true, *operation));
            }
            Did::Read(None) => absent_reads.push(*operation),
        }
    }
    place_absent_reads(absent_reads, &slots, &mut placed)?;
    sweep(placed)
}

fn slots(history: &[Operation]) -> Result<BTreeMap<Version, Slot>, Contradiction> {
    let mut slots = BTreeMap::new();
    slots.insert(Version(0), Slot { write: None, absent: true });
    for operation in history {
        let (version, absent) = match operation.did {
            Did::Put(version, _) => (version, false),
            Did::Delete(version, _) => (version, true),
            Did::Read(_) => continue,
        };
        if slots.insert(version, Slot { write: Some(*operation), absent }).is_some() {
            return Err(Contradiction(format!("two writes were given version {version}")));
        }
    }
    Ok(slots)
}

/// A conditional write that took effect shows what stood directly before it.
fn check_conditions(versions: &[Version], slots: &[Slot]) -> Result<(), Contradiction> {
    for (place, slot) in slots.iter().enumerate().skip(1) {
        let Some(write) = slot.write else { continue };
        let (Did::Put(_, expected) | Did::Delete(_, expected)) = write.did else { continue };
        let before = &slots[place - 1];
        let holds = match expected {
            Expected::Anything => true,
            Expected::Absent => before.absent,
            Expected::Present => !before.absent,
            Expected::Version(version) => !before.absent && versions[place - 1] == version,
        };
        if !holds {
            return Err(Contradiction(format!(
                "a condition held that was false: {write:?} came after version {}",
                versions[place - 1]
            )));
        }
    }
    Ok(())
}

/// Gives each read that found nothing the earliest slot that real time allows.
fn place_absent_reads(
    mut reads: Vec<Operation>,
    slots: &[Slot],
    placed: &mut Vec<(usize, bool, Operation)>,
) -> Result<(), Contradiction> {
    reads.sort_by_key(|read| read.invoked);
    let mut returned: Vec<(Instant, usize)> =
        placed.iter().map(|(place, _, operation)| (operation.returned, *place)).collect();
    returned.sort_unstable();
    let mut returned = returned.into_iter().peekable();
    // Reads placed here that have not returned before the present invocation yet.
    let mut open: BTreeMap<Instant, usize> = BTreeMap::new();
    let mut floor = 0;
    for read in reads {
        while let Some((_, place)) = returned.next_if(|(at, _)| *at < read.invoked) {
            floor = floor.max(place);
        }
        let later = open.split_off(&read.invoked);
        floor = open.into_values().fold(floor, usize::max);
        open = later;
        let Some(place) = (floor..slots.len()).find(|place| slots[*place].absent) else {
            return Err(Contradiction(format!("a read found nothing where a value was: {read:?}")));
        };
        let latest = open.entry(read.returned).or_insert(place);
        *latest = (*latest).max(place);
        placed.push((place, true, read));
    }
    Ok(())
}

fn sweep(mut placed: Vec<(usize, bool, Operation)>) -> Result<(), Contradiction> {
    placed.sort_by_key(|(place, is_read, operation)| (*place, *is_read, operation.invoked));
    let mut latest: Option<Operation> = None;
    let mut start = 0;
    while start < placed.len() {
        // Reads of one slot are free among themselves: they are compared with what came before.
        let same =
            |it: &&(usize, bool, Operation)| (it.0, it.1) == (placed[start].0, placed[start].1);
        let end = start + placed[start..].iter().take_while(same).count();
        for (_, _, operation) in &placed[start..end] {
            if let Some(before) = latest
                && operation.returned < before.invoked
            {
                return Err(Contradiction(format!(
                    "{operation:?} had returned before {before:?} was invoked, but stands after it"
                )));
            }
        }
        for (_, _, operation) in &placed[start..end] {
            if latest.is_none_or(|before| before.invoked < operation.invoked) {
                latest = Some(*operation);
            }
        }
        start = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
