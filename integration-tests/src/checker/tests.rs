//! Histories that are right and histories that are wrong, each in a few lines.

use super::*;

/// A history of one key in the making: every line is called and answered after the one before, unless
/// times are given.
#[derive(Default)]
struct Story {
    operations: Vec<Operation>,
    now: i64,
}

impl Story {
    fn then(mut self, call: Call, outcome: Outcome) -> Self {
        let called = self.now + 10;
        self.now += 20;
        self.push(call, outcome, called, called + 10)
    }

    fn during(self, called: i64, returned: i64, call: Call, outcome: Outcome) -> Self {
        self.push(call, outcome, called, returned)
    }

    fn push(mut self, call: Call, outcome: Outcome, called: i64, returned: i64) -> Self {
        let client = u32::try_from(self.operations.len()).expect("a short story");
        let key = "k".to_owned();
        self.operations.push(Operation { client, node: 0, key, call, outcome, called, returned });
        self
    }

    fn check(&self) -> anyhow::Result<Verdict> {
        let mut verdict = Verdict::default();
        check_key(&self.operations.iter().collect::<Vec<_>>(), &mut verdict)?;
        Ok(verdict)
    }

    fn must_be_taken(self) {
        if let Err(error) = self.check() {
            panic!("refused although it is right: {error:#}\n{:#?}", self.operations);
        }
    }

    fn must_be_refused(self, because: &str) {
        match self.check() {
            Ok(verdict) => panic!("taken although it is wrong ({because}): {verdict:?}"),
            Err(error) => assert!(
                error.to_string().contains(because),
                "it was to be refused because of {because:?}, not because of: {error:#}"
            ),
        }
    }
}

const NO_ORDER: &str = "no order";

fn found(value: u64, version: u64) -> Outcome {
    Outcome::Found { value, version }
}

fn swap(version: u64, value: u64) -> Call {
    Call::Swap { version, value }
}

#[test]
fn a_plain_life_of_a_key_is_right() {
    Story::default()
        .then(Call::Get, Outcome::Absent)
        .then(Call::Put(1), Outcome::Written(5))
        .then(Call::Get, found(1, 5))
        .then(Call::Create(2), Outcome::Refused(Some(5)))
        .then(swap(5, 3), Outcome::Written(8))
        .then(swap(5, 4), Outcome::Refused(Some(8)))
        .then(Call::DeleteIf(5), Outcome::Refused(Some(8)))
        .then(Call::DeleteIf(8), Outcome::Deleted)
        .then(Call::Get, Outcome::Absent)
        .then(swap(8, 5), Outcome::Refused(None))
        .then(Call::DeleteIf(8), Outcome::Refused(None))
        .then(Call::Delete, Outcome::Deleted)
        .then(Call::Create(6), Outcome::Written(9))
        .must_be_taken();
}

#[test]
fn a_read_that_goes_back_in_time_is_wrong() {
    Story::default()
        .then(Call::Put(1), Outcome::Written(1))
        .then(Call::Put(2), Outcome::Written(2))
        .then(Call::Get, found(1, 1))
        .must_be_refused("after version 2 was known");
}

#[test]
fn a_read_at_the_same_time_as_a_write_may_see_either() {
    for seen in [found(1, 1), found(2, 2)] {
        Story::default()
            .during(0, 10, Call::Put(1), Outcome::Written(1))
            .during(20, 60, Call::Put(2), Outcome::Written(2))
            .during(30, 40, Call::Get, seen)
            .must_be_taken();
    }
}

#[test]
fn two_reads_during_one_write_may_not_disagree_on_the_order() {
    Story::default()
        .during(0, 10, Call::Put(1), Outcome::Written(1))
        .during(20, 90, Call::Put(2), Outcome::Written(2))
        .during(30, 40, Call::Get, found(2, 2))
        .during(50, 60, Call::Get, found(1, 1))
        .must_be_refused("after version 2 was known");
}

#[test]
fn an_acknowledged_write_that_is_gone_is_wrong() {
    Story::default()
        .then(Call::Put(1), Outcome::Written(1))
        .then(Call::Get, Outcome::Absent)
        .must_be_refused(NO_ORDER);
}

#[test]
fn a_deleted_key_that_comes_back_is_wrong() {
    Story::default()
        .then(Call::Put(1), Outcome::Written(1))
        .then(Call::Delete, Outcome::Deleted)
        .then(Call::Get, found(1, 1))
        .must_be_refused(NO_ORDER);
}

#[test]
fn a_version_that_starts_again_after_a_deletion_is_wrong() {
    Story::default()
        .then(Call::Put(1), Outcome::Written(4))
        .then(Call::Delete, Outcome::Deleted)
        .then(Call::Put(2), Outcome::Written(3))
        .must_be_refused("after version 4 was known");
    Story::default()
        .then(Call::Put(1), Outcome::Written(4))
        .then(Call::Put(2), Outcome::Written(4))
        .must_be_refused("version 4 belongs to");
}

#[test]
fn two_winners_of_one_version_are_wrong() {
    Story::default()
        .during(0, 10, Call::Put(1), Outcome::Written(1))
        .during(20, 50, swap(1, 2), Outcome::Written(2))
        .during(20, 50, swap(1, 3), Outcome::Written(3))
        .must_be_refused(NO_ORDER);
    Story::default()
        .during(20, 50, Call::Create(2), Outcome::Written(2))
        .during(20, 50, Call::Create(3), Outcome::Written(3))
        .must_be_refused(NO_ORDER);
}

#[test]
fn a_condition_that_was_false_is_not_fulfilled() {
    Story::default()
        .then(Call::Put(1), Outcome::Written(1))
        .then(Call::Create(2), Outcome::Written(2))
        .must_be_refused(NO_ORDER);
    Story::default()
        .then(Call::Put(1), Outcome::Written(1))
        .then(swap(1, 2), Outcome::Refused(Some(1)))
        .must_be_refused(NO_ORDER);
    Story::default()
        .then(Call::Put(1), Outcome::Written(1))
        .then(swap(9, 2), Outcome::Refused(None))
        .must_be_refused(NO_ORDER);
}

#[test]
fn a_write_without_an_answer_may_happen_late_or_never() {
    let start = || {
        Story::default()
            .then(Call::Put(1), Outcome::Written(1))
            .then(Call::Put(2), Outcome::Unknown)
            .then(Call::Get, found(1, 1))
    };
    start().must_be_taken();
    start().then(Call::Get, found(2, 2)).must_be_taken();
    start().then(Call::Put(3), Outcome::Written(2)).then(Call::Get, found(2, 3)).must_be_taken();
    start().then(Call::Delete, Outcome::Deleted).then(Call::Get, found(2, 3)).must_be_taken();
}

#[test]
fn a_write_without_an_answer_happens_once() {
    Story::default()
        .then(Call::Put(2), Outcome::Unknown)
        .then(Call::Get, found(2, 1))
        .then(Call::Put(3), Outcome::Written(2))
        .then(Call::Get, found(2, 1))
        .must_be_refused("after version 2 was known");
    Story::default()
        .then(Call::Put(2), Outcome::Unknown)
        .then(Call::Get, found(2, 1))
        .then(Call::Put(3), Outcome::Written(2))
        .then(Call::Get, found(2, 3))
        .must_be_refused("2 has version 3 and version 1");
}

#[test]
fn conditions_without_an_answer_are_fulfilled_or_not() {
    let start = || Story::default().then(Call::Put(1), Outcome::Written(1));
    start().then(swap(1, 2), Outcome::Unknown).then(Call::Get, found(1, 1)).must_be_taken();
    start().then(swap(1, 2), Outcome::Unknown).then(Call::Get, found(2, 2)).must_be_taken();
    start()
        .then(Call::Create(2), Outcome::Unknown)
        .then(Call::Get, found(2, 2))
        .must_be_refused(NO_ORDER);
    start()
        .then(Call::DeleteIf(1), Outcome::Unknown)
        .then(Call::Get, Outcome::Absent)
        .must_be_taken();
    start()
        .then(Call::DeleteIf(7), Outcome::Unknown)
        .then(Call::Get, Outcome::Absent)
        .must_be_refused(NO_ORDER);
}

#[test]
fn a_version_seen_only_in_a_refusal_can_belong_to_a_write_without_an_answer() {
    let start = || {
        Story::default()
            .then(Call::Put(1), Outcome::Written(1))
            .then(Call::Put(2), Outcome::Unknown)
            .then(swap(1, 3), Outcome::Refused(Some(2)))
    };
    start().must_be_taken();
    start().then(Call::Get, found(1, 1)).must_be_refused("after version 2 was known");
    start().then(Call::Create(4), Outcome::Refused(Some(3))).must_be_refused(NO_ORDER);
}

#[test]
fn what_was_said_not_to_be_written_must_not_be_seen() {
    Story::default()
        .then(Call::Put(2), Outcome::NotApplied)
        .then(Call::Get, found(2, 1))
        .must_be_refused("answered with NotApplied");
    Story::default()
        .then(Call::Put(1), Outcome::Written(1))
        .then(Call::Create(2), Outcome::Refused(Some(1)))
        .then(Call::Get, found(2, 2))
        .must_be_refused("answered with Refused");
    Story::default().then(Call::Get, found(7, 1)).must_be_refused("never written");
}

#[test]
fn more_operations_than_can_be_searched_are_refused() {
    let mut story = Story::default();
    for _ in 0..=OPERATIONS_PER_KEY_MAX {
        story = story.then(Call::Get, Outcome::Absent);
    }
    story.must_be_refused("cannot be searched");
}

#[test]
fn a_violation_is_written_down_with_a_picture() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let story =
        Story::default().then(Call::Put(1), Outcome::Written(1)).then(Call::Get, Outcome::Absent);
    check(&story.operations, directory.path()).expect_err("it is wrong");
    assert!(directory.path().join("violation-k.json").is_file());
    assert!(directory.path().join("violation-k.html").is_file());
    Ok(())
}

#[test]
fn long_histories_with_many_unknown_outcomes_are_searched_fast() -> anyhow::Result<()> {
    let mut story = Story::default();
    let mut version = 0;
    for round in 0..95_u64 {
        version += 1;
        story = story
            .then(Call::Put(round * 10), Outcome::Written(version))
            .then(Call::Put(round * 10 + 1), Outcome::Unknown)
            .then(Call::Get, found(round * 10, version));
        if round % 3 == 0 {
            version += 1;
            story = story.then(Call::Get, found(round * 10 + 1, version));
        }
    }
    story.operations.truncate(OPERATIONS_PER_KEY_MAX);
    let started = std::time::Instant::now();
    let verdict = story.check()?;
    assert!(verdict.unknown > 60 && verdict.unknown_seen > 20, "{verdict:?}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    Ok(())
}

/// As happens when many reads wait for a node that was stopped, among writes without an answer.
#[test]
fn many_equal_reads_at_the_same_time_are_searched_fast() {
    let mut story = Story::default()
        .during(0, 10, Call::Put(1), Outcome::Written(1))
        .during(20, 30, Call::Delete, Outcome::Deleted)
        .during(40, 50, Call::Create(2), Outcome::Unknown)
        .during(60, 70, Call::Put(3), Outcome::Unknown)
        .during(80, 90, Call::Delete, Outcome::Unknown)
        .during(100, 200, Call::Create(4), Outcome::Refused(Some(3)))
        .during(101, 201, Call::Put(5), Outcome::Written(6));
    for read in 0..24 {
        story = story.during(110 + read, 150 + read, Call::Get, Outcome::Absent);
    }
    let started = std::time::Instant::now();
    story.during(210, 220, Call::Get, found(5, 6)).must_be_taken();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn reads_are_not_merged_over_a_change_that_lies_between_them() {
    let start = || {
        Story::default()
            .during(0, 10, Call::Put(1), Outcome::Written(1))
            .during(20, 60, Call::Get, found(1, 1))
            .during(30, 40, Call::Put(2), Outcome::Written(2))
    };
    start().during(50, 70, Call::Get, found(2, 2)).must_be_taken();
    start().during(50, 70, Call::Get, found(1, 1)).must_be_refused("after version 2 was known");
    // Both saw the same and overlap, but what they saw was written again between.
    Story::default()
        .during(0, 100, Call::Get, Outcome::Absent)
        .during(10, 20, Call::Put(1), Outcome::Written(1))
        .during(30, 40, Call::Delete, Outcome::Deleted)
        .during(50, 110, Call::Get, Outcome::Absent)
        .must_be_taken();
}
