//! The verdict on what clients saw: is every key linearizable, and was every refusal true.

use bytes::Bytes;
use kvcore::Version;
use kvcore::store::{Condition, WriteOutcome};

use super::clients::{Answer, Request, Wish};
use super::history::{self, Did, Expected, NEVER, Operation};
use super::oracle::Effected;
use super::report::Violation;
use super::world::World;

impl World {
    /// I2: per key, reads and writes are linearizable. Looked at once, at the end.
    ///
    /// # Errors
    /// The first contradiction, or a value that was refused and yet stored.
    pub fn i2_every_key_is_linearizable(&self) -> Result<(), Violation> {
        for request in &self.requests {
            not_applied_is_true(self, request)?;
        }
        for (number, key) in self.keys.iter().enumerate() {
            let history = self.history_of(number)?;
            history::check(&history).map_err(|contradiction| {
                let key = String::from_utf8_lossy(&key.bytes);
                Violation::new("I2", format!("{key}: {contradiction}"))
            })?;
        }
        Ok(())
    }

    /// The history of a key: what clients saw, and which unknown writes took effect.
    ///
    /// # Errors
    /// A read that saw another value than was stored under its version.
    pub fn history_of(&self, key: usize) -> Result<Vec<Operation>, Violation> {
        let effected = self.oracle.effected(&self.keys[key].bytes);
        let mut history = Vec::new();
        let mut deletions: Vec<Version> = Vec::new();
        for request in self.requests.iter().filter(|request| request.key == key) {
            let did = match (request.wish, &request.answer) {
                (Wish::Put(condition), Some(Answer::Written(WriteOutcome::Put(version)))) => {
                    Did::Put(*version, expected(condition))
                }
                (
                    Wish::Delete(condition),
                    Some(Answer::Written(WriteOutcome::Deleted(version))),
                ) => {
                    deletions.push(*version);
                    Did::Delete(*version, expected(condition))
                }
                (_, Some(Answer::Written(WriteOutcome::ConditionFailed(version)))) => {
                    Did::Read(*version)
                }
                (Wish::Put(condition), Some(Answer::Unknown)) => {
                    match self.oracle.version_of(&request.value) {
                        Some(version) => Did::Put(version, expected(condition)),
                        None => continue,
                    }
                }
                (Wish::Read, Some(Answer::Saw(read))) => {
                    if let Some((version, value)) = read {
                        a_version_names_one_value(effected, *version, value)?;
                    }
                    Did::Read(read.as_ref().map(|(version, _)| *version))
                }
                _ => continue,
            };
            history.push(Operation { invoked: request.invoked, returned: request.returned, did });
        }
        for effect in effected.iter().filter(|effect| effect.value.is_none()) {
            if !deletions.contains(&effect.version) {
                // Nobody heard of this deletion; whose it was cannot be told.
                let did = Did::Delete(effect.version, Expected::Anything);
                history.push(Operation { invoked: 0, returned: NEVER, did });
            }
        }
        Ok(history)
    }
}

fn expected(condition: Condition) -> Expected {
    match condition {
        Condition::Always => Expected::Anything,
        Condition::Absent => Expected::Absent,
        Condition::Present => Expected::Present,
        Condition::Version(version) => Expected::Version(version),
    }
}

/// What was refused as not applied never takes effect.
fn not_applied_is_true(world: &World, request: &Request) -> Result<(), Violation> {
    for value in &request.refused {
        if let Some(version) = world.oracle.version_of(value) {
            let seen = format!("refused as not applied, yet stored as {version}: {request:?}");
            return Err(Violation::new("not_applied", seen));
        }
    }
    Ok(())
}

fn a_version_names_one_value(
    effected: &[Effected],
    version: Version,
    value: &Bytes,
) -> Result<(), Violation> {
    let found = effected.iter().find(|effect| effect.version == version);
    if found.is_some_and(|effect| effect.value.as_ref() == Some(value)) {
        return Ok(());
    }
    Err(Violation::new("I2", format!("a read saw {value:?} as {version}, which is {found:?}")))
}
