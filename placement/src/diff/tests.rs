//! Differences of small rings.

use crate::tests::support::{Plan, equal_nodes};
use crate::{DiffError, RingDiff};

#[test]
fn a_ring_does_not_differ_from_itself() {
    let plan = Plan::balanced(6, 3);
    let ring = plan.ring(&equal_nodes(5, 3), None);
    let again = plan.ring(&equal_nodes(5, 3), Some(&ring));
    let diff = RingDiff::between(&ring, &again).unwrap();
    assert!(diff.is_empty());
    assert_eq!((diff.from.get(), diff.to.get()), (1, 2));
    assert_eq!((diff.copies_moved_min, diff.primaries_moved_min), (0, 0));
}

#[test]
fn totals_are_the_sums_of_what_the_partitions_say() {
    for plan in [Plan::balanced(8, 3), Plan::random(8, 3, 16)] {
        let before = plan.ring(&equal_nodes(7, 3), None);
        let after = plan.ring(&equal_nodes(9, 3), Some(&before));
        let diff = RingDiff::between(&before, &after).unwrap();
        let gained: usize = diff.partitions.iter().map(|change| change.gained.len()).sum();
        let lost: usize = diff.partitions.iter().map(|change| change.lost.len()).sum();
        let primaries = diff.partitions.iter().filter(|change| change.changes_primary()).count();
        assert_eq!((gained as u64, lost), (diff.copies_moved, gained), "as many owners as before");
        assert_eq!(primaries as u64, diff.primaries_moved);
        assert!(diff.copies_moved >= diff.copies_moved_min);
        assert!(diff.primaries_moved >= diff.primaries_moved_min);
        for change in &diff.partitions {
            assert!(change.gained.iter().all(|id| after.role(change.partition, *id).is_some()));
            assert!(change.lost.iter().all(|id| after.role(change.partition, *id).is_none()));
            assert_eq!(after.primary(change.partition), Some(change.primary_after));
            assert_eq!(before.primary(change.partition), Some(change.primary_before));
        }
    }
}

#[test]
fn rings_of_other_fineness_cannot_be_compared() {
    let coarse = Plan::balanced(3, 3).ring(&equal_nodes(3, 3), None);
    let fine = Plan::balanced(4, 3).ring(&equal_nodes(3, 3), None);
    let refused = RingDiff::between(&coarse, &fine).unwrap_err();
    assert_eq!(refused, DiffError::PartitionBitsDiffer { old: 3, new: 4 });
}
