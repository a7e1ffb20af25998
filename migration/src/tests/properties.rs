//! Random interleavings of facts, failures and steps keep the invariants; after healing, all ends.

use proptest::prelude::*;

use super::bench::Bench;
use crate::plan::Phase;

#[derive(Clone, Copy, Debug)]
enum Deed {
    Facts,
    Step,
    Write(u64),
    Verify,
    Publish,
    Cancel,
    Pause(bool),
    EndGrace,
    Install(u64),
    Lose(u64),
    Down(u64),
    Up(u64),
    Destroy(u64),
}

fn deed() -> impl Strategy<Value = Deed> {
    let replica = 1_u64..6;
    prop_oneof![
        6 => Just(Deed::Facts),
        6 => Just(Deed::Step),
        2 => (1_u64..400).prop_map(Deed::Write),
        3 => Just(Deed::Verify),
        2 => Just(Deed::Publish),
        1 => Just(Deed::Cancel),
        1 => any::<bool>().prop_map(Deed::Pause),
        1 => Just(Deed::EndGrace),
        4 => replica.clone().prop_map(Deed::Install),
        1 => replica.clone().prop_map(Deed::Lose),
        2 => replica.clone().prop_map(Deed::Down),
        3 => replica.clone().prop_map(Deed::Up),
        2 => replica.prop_map(Deed::Destroy),
    ]
}

fn commit(bench: &mut Bench, deed: Deed) {
    match deed {
        Deed::Facts => bench.facts(),
        Deed::Step => bench.step(),
        Deed::Write(entries) => bench.write(entries),
        Deed::Verify => drop(bench.verify()),
        Deed::Publish => drop(bench.publish()),
        Deed::Cancel => bench.cancel(),
        Deed::Pause(paused) => bench.plan.paused = paused,
        Deed::EndGrace => bench.plan.grace_ended = true,
        Deed::Install(number) => install(bench, number),
        Deed::Lose(number) => {
            if let Some(it) = bench.follower(number) {
                it.copying = true;
            }
        }
        Deed::Down(number) => set_up(bench, number, false),
        Deed::Up(number) => set_up(bench, number, true),
        Deed::Destroy(number) => bench.destroy(number),
    }
    bench.check();
}

fn install(bench: &mut Bench, number: u64) {
    let last = bench.actual.last;
    if let Some(it) = bench.follower(number).filter(|it| it.active) {
        (it.copying, it.matched) = (false, last);
    }
}

fn set_up(bench: &mut Bench, number: u64, up: bool) {
    let Some(it) = bench.follower(number) else { return };
    it.active = up;
    let node = it.member.node;
    if up {
        bench.down.remove(&node);
    } else {
        bench.down.insert(node);
    }
}

proptest! {
    #[test]
    fn whatever_happens_everything_ends_after_healing(
        deeds in prop::collection::vec(deed(), 0..80),
        both in any::<bool>(),
    ) {
        let moves: &[_] = match both {
            true => &[(Some(4), Some(3)), (Some(5), Some(1))],
            false => &[(Some(4), Some(1))],
        };
        let mut bench = Bench::new(&[1, 2, 3], moves);
        for deed in deeds {
            commit(&mut bench, deed);
        }
        bench.plan.paused = false;
        bench.down.clear();
        for _ in 0..60 {
            for number in 1..6 {
                set_up(&mut bench, number, true);
                install(&mut bench, number);
                bench.destroy(number);
            }
            bench.plan.grace_ended = true;
            for deed in [Deed::Facts, Deed::Step, Deed::Verify, Deed::Publish] {
                commit(&mut bench, deed);
            }
        }
        let over = bench.plan.moves.iter().all(crate::moves::Move::is_over);
        prop_assert!(over, "{}", bench.show());
        prop_assert!(!matches!(bench.plan.phase, Phase::Moving));
        prop_assert!(bench.show().ends_with("steady"), "{}", bench.show());
    }
}
