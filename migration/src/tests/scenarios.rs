//! Scenarios as text: an event per line, and under it the stages and the group's next step.
//! `RINGKV_REWRITE=1` writes the files anew; what changed is for a person to read.

use std::path::{Path, PathBuf};

use super::bench::{Bench, member, node};
use crate::actual::{CopyTrouble, Verification};
use crate::ids::ReplicaId;

fn numbers(words: &[&str]) -> Vec<u64> {
    words.iter().filter_map(|word| word.parse().ok()).collect()
}

/// `group 1 2 3 moves +4-3 +5-2`
fn set_up(words: &[&str]) -> Bench {
    let (owners, moves) = words.split_at(words.iter().position(|word| *word == "moves").unwrap());
    let parse = |word: &&str| {
        let (gain, lose) = word.split_once('-').unwrap_or((word, ""));
        (gain.trim_start_matches('+').parse().ok(), lose.parse().ok())
    };
    Bench::new(&numbers(owners), &moves[1..].iter().map(parse).collect::<Vec<_>>())
}

/// Returns whether the event fitted.
fn carry_out(bench: &mut Bench, words: &[&str]) -> bool {
    let number = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    match words[0] {
        "facts" => bench.facts(),
        "step" => bench.step(),
        "write" => bench.write(number),
        "verify" => return bench.verify(),
        "publish" => return bench.publish(),
        "cancel" => bench.cancel(),
        "pause" => bench.plan.paused = true,
        "end-grace" => bench.plan.grace_ended = true,
        "destroyed" => bench.destroy(number),
        "lost-for-good" => bench.plan.moves.iter_mut().for_each(|it| it.lose_is_dead = true),
        "down" => {
            bench.down.insert(node(number));
            bench.follower(number).unwrap().active = false;
        }
        "up" => {
            bench.down.remove(&node(number));
            bench.follower(number).unwrap().active = true;
        }
        "installed" => {
            let last = bench.actual.last;
            let follower = bench.follower(number).unwrap();
            (follower.copying, follower.matched) = (false, last);
        }
        "falls-off" => {
            let follower = bench.follower(number).unwrap();
            follower.copying = true;
            follower.copy.failures += 1;
            follower.copy.trouble = Some(CopyTrouble::FellOff);
        }
        "disk-full" => {
            bench.follower(number).unwrap().copy.trouble = Some(CopyTrouble::DiskFull);
        }
        "differs" => {
            bench.write(1);
            let (index, range) = (bench.actual.last, "key hashes 00 to 3f".to_owned());
            let member = member(number);
            bench.actual.verification = Some(Verification::Differs { index, member, range });
        }
        "leads" => bench.actual.leader = ReplicaId(number),
        other => panic!("unknown event {other:?}"),
    }
    true
}

fn play(text: &str) -> String {
    let mut played = String::new();
    let mut bench: Option<Bench> = None;
    for line in text.lines().filter(|line| !line.starts_with("  ")) {
        played.push_str(line);
        played.push('\n');
        let words: Vec<&str> = line.split_whitespace().collect();
        let fitted = match words.first() {
            None | Some(&"#") => continue,
            Some(&"group") => {
                bench = Some(set_up(&words));
                true
            }
            Some(_) => carry_out(bench.as_mut().expect("a group comes first"), &words),
        };
        let bench = bench.as_ref().expect("it was set up");
        bench.check();
        let note = if fitted { "" } else { "(not now) " };
        played.push_str(&format!("  {note}{}\n", bench.show()));
    }
    played
}

pub fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

/// Holds a text to a file, or writes the file anew.
pub fn check(path: &Path, text: &str) {
    if std::env::var_os("RINGKV_REWRITE").is_some() {
        std::fs::write(path, text).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap();
    assert_eq!(text, expected, "{}", path.display());
}

#[test]
fn every_scenario_goes_as_written() {
    let mut count = 0;
    for entry in std::fs::read_dir(testdata()).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        if text.contains("\ngroup ") {
            check(&path, &play(&text));
            count += 1;
        }
    }
    assert!(count >= 9, "{count} scenarios were found");
}
