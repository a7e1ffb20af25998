//! One key as a sequential object.

use std::collections::HashMap;

use crate::history::{Call, Operation, Outcome};

/// The model of one key.
#[derive(Clone, Debug)]
pub(super) struct KeyModel;

/// A key between two operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyState {
    content: Option<Content>,
    /// The highest version known to have been given.
    version_floor: u64,
}

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Content {
    value: u64,
    /// Not known for a write of unknown outcome whose value nobody saw.
    version: Option<u64>,
}

/// An operation as the model takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    call: Call,
    outcome: Outcome,
}

/// The operations that say something about the key's state. Unknown outcomes that somebody saw become
/// known ones; they may still take effect at any time after their call.
pub(super) fn operations(
    operations: &[&Operation],
    version_of: &HashMap<u64, u64>,
) -> Vec<porcupine_rs::Operation<KeyModel>> {
    let mut steps = Vec::with_capacity(operations.len());
    for operation in operations {
        let mut outcome = operation.outcome;
        let mut return_time = operation.returned;
        match (operation.call, outcome) {
            (_, Outcome::NotApplied) | (Call::Get, Outcome::Unknown) => continue,
            (call, Outcome::Unknown) => {
                return_time = i64::MAX;
                let version = call.value().and_then(|value| version_of.get(&value));
                outcome = version.map_or(outcome, |version| Outcome::Written(*version));
            }
            _ => {}
        }
        steps.push(porcupine_rs::Operation {
            client_id: Some(operation.client),
            call_time: operation.called,
            return_time,
            op: Step { call: operation.call, outcome },
            metadata: None,
        });
    }
    steps
}

/// Reads at the same time that saw the same become one, at a time within all of them. Many of them in
/// every order are what a search gets lost in.
pub(super) fn merge_reads(
    steps: &[porcupine_rs::Operation<KeyModel>],
) -> Vec<porcupine_rs::Operation<KeyModel>> {
    let mut sorted = steps.to_vec();
    sorted.sort_by_key(|step| step.call_time);
    let mut merged: Vec<porcupine_rs::Operation<KeyModel>> = Vec::with_capacity(steps.len());
    let mut open: HashMap<Outcome, usize> = HashMap::new();
    for step in sorted {
        if step.op.call == Call::Get {
            let earlier = open.get(&step.op.outcome).map(|index| &mut merged[*index]);
            if let Some(earlier) = earlier
                && step.call_time < earlier.return_time
            {
                earlier.call_time = step.call_time;
                earlier.return_time = earlier.return_time.min(step.return_time);
                continue;
            }
            open.insert(step.op.outcome, merged.len());
        }
        merged.push(step);
    }
    merged
}

impl KeyState {
    fn written(self, value: u64, version: Option<u64>) -> Self {
        let content = Some(Content { value, version });
        Self { content, version_floor: version.unwrap_or(0).max(self.version_floor) }
    }

    fn deleted(self) -> Self {
        Self { content: None, ..self }
    }

    /// Whether the key can have this version now; if its version is not known, it is known then.
    fn at_version(self, version: u64) -> Option<Self> {
        let content = self.content?;
        match content.version {
            Some(known) => (known == version).then_some(self),
            None => {
                (version > self.version_floor).then(|| self.written(content.value, Some(version)))
            }
        }
    }

    /// A version that nobody saw is none that a client could name.
    fn has_version(self, version: u64) -> bool {
        self.content.is_some_and(|content| content.version == Some(version))
    }

    fn meets_condition(self, call: Call) -> bool {
        match call {
            Call::Get | Call::Put(_) | Call::Delete => true,
            Call::Create(_) => self.content.is_none(),
            Call::Swap { version, value: _ } | Call::DeleteIf(version) => self.has_version(version),
        }
    }

    fn next(self, step: Step) -> Option<Self> {
        let Step { call, outcome } = step;
        match outcome {
            Outcome::Found { value, version } => {
                let state = self.at_version(version)?;
                state.content.is_some_and(|content| content.value == value).then_some(state)
            }
            Outcome::Absent => self.content.is_none().then_some(self),
            Outcome::Written(version) => {
                let is_legal = self.meets_condition(call) && version > self.version_floor;
                is_legal.then(|| call.value().map(|value| self.written(value, Some(version))))?
            }
            // Deleting what is not there succeeds, unless a version was asked for.
            Outcome::Deleted => self.meets_condition(call).then(|| self.deleted()),
            Outcome::Refused(Some(version)) => {
                let state = self.at_version(version)?;
                (!state.meets_condition(call)).then_some(state)
            }
            Outcome::Refused(None) => {
                let is_legal = self.content.is_none() && !self.meets_condition(call);
                is_legal.then_some(self)
            }
            Outcome::Unknown if !self.meets_condition(call) => Some(self),
            Outcome::Unknown => Some(match call.value() {
                Some(value) => self.written(value, None),
                None => self.deleted(),
            }),
            Outcome::NotApplied => Some(self),
        }
    }
}

impl porcupine_rs::Model for KeyModel {
    type State = KeyState;
    type Op = Step;
    type Metadata = ();

    fn init() -> KeyState {
        KeyState { content: None, version_floor: 0 }
    }

    fn step(state: &KeyState, step: &Step) -> (bool, KeyState) {
        match state.next(*step) {
            Some(next) => (true, next),
            None => (false, *state),
        }
    }
}
