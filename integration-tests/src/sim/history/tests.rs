//! The checker against small histories by hand, and against a checker that searches.

use kvcore::Version;
use porcupine_rs::Model;
use proptest::prelude::*;

use super::*;

fn put(version: u64, invoked: u64, returned: u64) -> Operation {
    Operation { invoked, returned, did: Did::Put(Version(version), Expected::Anything) }
}

fn delete(version: u64, invoked: u64, returned: u64) -> Operation {
    Operation { invoked, returned, did: Did::Delete(Version(version), Expected::Anything) }
}

fn read(version: Option<u64>, invoked: u64, returned: u64) -> Operation {
    Operation { invoked, returned, did: Did::Read(version.map(Version)) }
}

#[test]
fn a_read_that_goes_back_in_time_is_found() {
    let history = [put(1, 0, 10), put(2, 20, 30), read(Some(2), 40, 50), read(Some(1), 60, 70)];
    assert!(check(&history).is_err());
    assert!(check(&history[..3]).is_ok());
}

#[test]
fn a_read_during_a_write_may_see_it_or_not() {
    assert!(check(&[put(1, 0, 10), put(2, 20, 90), read(Some(1), 30, 40)]).is_ok());
    assert!(check(&[put(1, 0, 10), put(2, 20, 90), read(Some(2), 30, 40)]).is_ok());
    let back = [put(1, 0, 10), put(2, 20, 90), read(Some(2), 30, 40), read(Some(1), 50, 60)];
    assert!(check(&back).is_err());
}

#[test]
fn a_lost_write_is_found() {
    assert!(check(&[put(1, 0, 10), read(None, 20, 30)]).is_err());
}

#[test]
fn an_unknown_write_may_take_effect_late() {
    let history = [put(1, 0, 10), put(2, 12, NEVER), read(Some(1), 20, 30), read(Some(2), 90, 95)];
    assert!(check(&history).is_ok());
}

#[test]
fn absence_needs_a_deletion() {
    assert!(check(&[put(1, 0, 10), delete(2, 20, 30), read(None, 40, 50)]).is_ok());
    assert!(check(&[put(1, 0, 10), read(None, 12, 18), delete(2, 20, 30)]).is_err());
    // Two absences around a value: the second needs the second deletion.
    let history = [delete(1, 0, 5), put(2, 10, 20), read(Some(2), 30, 40), read(None, 50, 60)];
    assert!(check(&history).is_err());
}

#[test]
fn absent_reads_keep_their_own_order() {
    // The first absence can only be the second deletion, so the later read may not see version 2.
    let history = [
        delete(1, 0, 5),
        put(2, 10, 20),
        delete(3, 30, NEVER),
        read(None, 40, 50),
        read(Some(2), 60, 70),
    ];
    assert!(check(&history).is_err());
}

#[test]
fn a_condition_that_held_shows_its_predecessor() {
    let conditional =
        |expected| Operation { invoked: 20, returned: 30, did: Did::Put(Version(3), expected) };
    let after = |expected| check(&[put(1, 0, 10), conditional(expected)]);
    assert!(after(Expected::Version(Version(1))).is_ok());
    assert!(after(Expected::Present).is_ok());
    assert!(after(Expected::Absent).is_err());
    let between = [put(1, 0, 10), put(2, 0, 10), conditional(Expected::Version(Version(1)))];
    assert!(check(&between).is_err());
}

/// A register that counts its writes, for the checker that searches: versions of one key here grow
/// by one with each write, as they do in a partition with a single key.
#[derive(Clone, Debug)]
struct Register;

impl Model for Register {
    type State = (u64, bool);
    type Op = Did;
    type Metadata = ();

    fn init() -> Self::State {
        (0, true)
    }

    fn step(state: &Self::State, op: &Did) -> (bool, Self::State) {
        let (at, absent) = *state;
        let holds = |expected: Expected| match expected {
            Expected::Anything => true,
            Expected::Absent => absent,
            Expected::Present => !absent,
            Expected::Version(version) => !absent && version.get() == at,
        };
        match *op {
            Did::Put(version, expected) => {
                (version.get() > at && holds(expected), (version.get(), false))
            }
            Did::Delete(version, expected) => {
                (version.get() > at && holds(expected), (version.get(), true))
            }
            Did::Read(Some(version)) => (!absent && version.get() == at, *state),
            Did::Read(None) => (absent, *state),
        }
    }
}

/// Whether a checker that searches finds a linearization.
fn search(history: &[Operation]) -> bool {
    let time = |at: Instant| i64::try_from(at).unwrap_or(i64::MAX);
    let operations: Vec<porcupine_rs::Operation<Register>> = history
        .iter()
        .map(|operation| porcupine_rs::Operation {
            client_id: None,
            call_time: time(operation.invoked),
            return_time: time(operation.returned),
            op: operation.did,
            metadata: None,
        })
        .collect();
    porcupine_rs::check_operations(&operations)
}

/// Histories of few operations, legal or not, with distinct times and distinct versions.
fn histories() -> impl Strategy<Value = Vec<Operation>> {
    let operation = (0_u8..5, 0_u64..40, 1_u64..12, 0_u64..5, 0_u8..6);
    proptest::collection::vec(operation, 1..9).prop_map(|drawn| {
        let mut next_version = 1;
        let mut history = Vec::new();
        for (place, (kind, start, length, seen, condition)) in drawn.into_iter().enumerate() {
            // Distinct times, so that both checkers agree on what "before" means.
            let invoked = start * 100 + place as u64;
            let returned = (start + length) * 100 + 50 + place as u64;
            let expected = match condition {
                0 => Expected::Absent,
                1 => Expected::Present,
                2 => Expected::Version(Version(seen)),
                _ => Expected::Anything,
            };
            let did = match kind {
                0 | 1 => Did::Put(Version(next_version), expected),
                2 => Did::Delete(Version(next_version), expected),
                _ => Did::Read((seen > 0).then_some(Version(seen))),
            };
            next_version += u64::from(kind < 3);
            history.push(Operation { invoked, returned, did });
        }
        history
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn it_agrees_with_a_checker_that_searches(history in histories()) {
        prop_assert_eq!(check(&history).is_ok(), search(&history), "{:?}", history);
    }
}
