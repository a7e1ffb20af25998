//! Rates as ratios over made-up times, and budgets that change under those who wait for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::limits::{CopyLimits, Slots};
use super::throttle::{Bucket, Direction, Throttle, Verdict};

const CHUNK: u64 = 1 << 20;
const STEP: Duration = Duration::from_millis(1);

/// Bytes that move in so much time, with a rate for each moment.
fn moved(mut bucket: Bucket, start: Instant, steps: u32, rate: impl Fn(u32) -> u64) -> u64 {
    let mut moved = 0;
    for step in 0..steps {
        while bucket.ask(start + STEP * step, rate(step), CHUNK) == Verdict::Go {
            moved += CHUNK;
        }
    }
    moved
}

#[test]
fn twice_the_rate_moves_twice_the_bytes() {
    let start = Instant::now();
    let at = |rate: u64| moved(Bucket::new(start, rate), start, 10_000, |_| rate);
    let (slow, fast) = (at(10 << 20), at(20 << 20));
    // Over ten seconds, but for the one chunk that a burst is.
    assert!((100 * CHUNK..=101 * CHUNK).contains(&slow), "{slow}");
    assert!((200 * CHUNK..=201 * CHUNK).contains(&fast), "{fast}");
}

#[test]
fn a_rate_of_less_than_a_chunk_a_second_is_kept_too() {
    let start = Instant::now();
    let rate = CHUNK / 4;
    let slow = moved(Bucket::new(start, rate), start, 60_000, |_| rate);
    assert!((15 * CHUNK..=16 * CHUNK).contains(&slow), "{slow}");
}

#[test]
fn nothing_moves_while_paused_and_no_burst_follows() {
    let start = Instant::now();
    let rate = 10 << 20;
    // Two seconds, then eight paused, then two again.
    let paused = |step| if (2000..10_000).contains(&step) { 0 } else { rate };
    let with_a_pause = moved(Bucket::new(start, rate), start, 12_000, paused);
    let without = moved(Bucket::new(start, rate), start, 4000, |_| rate);
    assert!(with_a_pause.abs_diff(without) <= CHUNK, "{with_a_pause} and {without}");
    let mut bucket = Bucket::new(start, 0);
    assert_eq!(bucket.ask(start + Duration::from_secs(3600), 0, CHUNK), Verdict::Paused);
}

#[test]
fn what_was_charged_beyond_is_paid_back_and_what_was_refunded_is_not() {
    let start = Instant::now();
    let mut bucket = Bucket::new(start, CHUNK);
    assert_eq!(bucket.ask(start, CHUNK, CHUNK), Verdict::Go);
    bucket.charge(CHUNK);
    assert_eq!(bucket.ask(start, CHUNK, 0), Verdict::Wait(Duration::from_secs(2)));
    bucket.refund(CHUNK);
    assert_eq!(bucket.ask(start, CHUNK, 0), Verdict::Wait(Duration::from_secs(1)));
    assert_eq!(bucket.ask(start, 2 * CHUNK, 0), Verdict::Wait(Duration::from_millis(500)));
}

fn limits(bytes_per_second: u64, copies_at_a_time: u32) -> CopyLimits {
    CopyLimits { bytes_per_second, copies_at_a_time }
}

/// Lets other tasks of this thread run until they all wait.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn whoever_waits_while_paused_goes_on_at_once_when_resumed() {
    let (sender, receiver) = watch::channel(limits(0, 1));
    let throttle = Arc::new(Throttle::new(Direction::In, receiver));
    let waiting = tokio::spawn({
        let throttle = Arc::clone(&throttle);
        async move { throttle.acquire(CHUNK).await }
    });
    settle().await;
    assert!(!waiting.is_finished());
    sender.send_replace(limits(CHUNK, 1));
    waiting.await.unwrap();

    // A rate at which the next chunk would take years gives way to one at which it does not.
    sender.send_replace(limits(1, 1));
    throttle.charge(CHUNK << 10);
    let waiting = tokio::spawn({
        let throttle = Arc::clone(&throttle);
        async move { throttle.acquire(CHUNK).await }
    });
    settle().await;
    assert!(!waiting.is_finished());
    sender.send_replace(limits(u64::MAX, 1));
    waiting.await.unwrap();
}

#[tokio::test]
async fn as_many_copies_run_at_a_time_as_the_limits_say_now() {
    let (sender, receiver) = watch::channel(limits(1, 1));
    let slots = Slots::new(receiver);
    let first = slots.take().await;
    let next = |slots: &Slots| {
        let slots = slots.clone();
        tokio::spawn(async move { slots.take().await })
    };
    let second = next(&slots);
    settle().await;
    assert!(!second.is_finished());
    sender.send_replace(limits(1, 2));
    let second = second.await.unwrap();

    sender.send_replace(limits(1, 1));
    let third = next(&slots);
    drop(first);
    settle().await;
    assert!(!third.is_finished(), "one still runs");
    drop(second);
    let third = third.await.unwrap();
    let fourth = next(&slots);
    settle().await;
    assert!(!fourth.is_finished());
    drop(third);
    drop(fourth.await.unwrap());
}
