//! Entries for learners, sent a few times a second or less instead of one by one.
//!
//! A learner counts in no quorum and nobody waits for its acknowledgement. What reaches it in one
//! frame it writes in one batch and makes durable with one sync, and it acknowledges that once: a
//! copy that follows costs the nodes of both sides a fraction of what a voter costs them.

use std::collections::BTreeMap;
use std::time::Duration;

use placement::NodeId;
use raft::eraftpb::Message;

use crate::event::Effect;
use crate::ids::{GroupId, LogIndex, Term};
use crate::message::PeerMessage;
use crate::time::Time;

/// Bytes of entries held for one node; with more of them all leave at once.
const BYTES_MAX: usize = 1 << 20;
/// Entries of one group held for one node; more leave at once, so that a learner that keeps up is
/// never far behind.
const ENTRIES_MAX: usize = 64;
/// How long entries wait for others of their group while no move waits for the learner.
pub(crate) const LEISURE: Duration = Duration::from_secs(1);

/// What is held for each node.
#[derive(Debug, Default)]
pub(crate) struct LearnerMail {
    held: BTreeMap<NodeId, Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    appends: BTreeMap<GroupId, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    append: Message,
    due: Time,
}

impl LearnerMail {
    /// Holds an append until the first tick at or after `due`, or until what is held became much.
    pub fn hold<R>(
        &mut self,
        to: NodeId,
        group: GroupId,
        append: Message,
        due: Time,
        effects: &mut Vec<Effect<R>>,
    ) {
        let held = self.held.entry(to).or_default();
        held.bytes += bytes_of(&append);
        let (first, next, due) = match held.appends.remove(&group) {
            None => (None, append, due),
            Some(earlier) => {
                let due = due.min(earlier.due);
                let (first, next) = join(earlier.append, append);
                (first, next, due)
            }
        };
        if let Some(first) = first {
            held.bytes -= bytes_of(&first);
            effects.push(sent(to, group, first));
        }
        let entries = next.entries.len();
        held.appends.insert(group, Waiting { append: next, due });
        if held.bytes >= BYTES_MAX {
            self.release(to, effects);
        } else if entries >= ENTRIES_MAX {
            self.release_group(to, group, effects);
        }
    }

    /// Sends what is held for a node's replica of one group.
    pub fn release_group<R>(&mut self, to: NodeId, group: GroupId, effects: &mut Vec<Effect<R>>) {
        let Some(held) = self.held.get_mut(&to) else { return };
        let Some(Waiting { append, due: _ }) = held.appends.remove(&group) else { return };
        held.bytes -= bytes_of(&append);
        effects.push(sent(to, group, append));
    }

    /// Lets what is held say how far its entries are committed by now, so that its receivers apply
    /// them in the turn that appends them. `committed` is what a group's leader of a term knows.
    pub fn note_commits(&mut self, committed: impl Fn(GroupId, Term) -> Option<LogIndex>) {
        for held in self.held.values_mut() {
            for (group, Waiting { append, due: _ }) in &mut held.appends {
                if let Some(index) = committed(*group, Term(append.term)) {
                    append.commit = append.commit.max(index.get());
                }
            }
        }
    }

    /// Sends what is due.
    pub fn release_due<R>(&mut self, now: Time, effects: &mut Vec<Effect<R>>) {
        for (to, held) in &mut self.held {
            let due = held.appends.extract_if(.., |_, waiting| waiting.due <= now);
            for (group, Waiting { append, due: _ }) in due {
                held.bytes -= bytes_of(&append);
                effects.push(sent(*to, group, append));
            }
        }
        self.held.retain(|_, held| !held.appends.is_empty());
    }

    /// Forgets everything that is held: its receivers find out and ask again.
    pub fn clear(&mut self) {
        self.held.clear();
    }

    fn release<R>(&mut self, to: NodeId, effects: &mut Vec<Effect<R>>) {
        let Some(held) = self.held.remove(&to) else { return };
        let appends = held.appends.into_iter();
        effects.extend(appends.map(|(group, waiting)| sent(to, group, waiting.append)));
    }
}

fn sent<R>(to: NodeId, group: GroupId, message: Message) -> Effect<R> {
    Effect::Send { to, message: PeerMessage::Raft { group, message } }
}

fn bytes_of(append: &Message) -> usize {
    append.entries.iter().map(|entry| entry.data.len()).sum()
}

/// One append with the entries of two if the second goes on where the first ends, as raft-rs joins
/// appends itself; otherwise the first goes before it.
fn join(mut earlier: Message, mut later: Message) -> (Option<Message>, Message) {
    let end = earlier.index + earlier.entries.len() as u64;
    let goes_on = earlier.term == later.term
        && earlier.to == later.to
        && later.index == end
        && earlier.entries.last().is_some_and(|last| last.term == later.log_term);
    if !goes_on {
        return (Some(earlier), later);
    }
    earlier.entries.extend(later.take_entries());
    earlier.commit = earlier.commit.max(later.commit);
    (None, earlier)
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::{Entry, MessageType};

    use super::*;

    const NODE: NodeId = NodeId::from_u128(7);
    const GROUP: GroupId = GroupId::CLUSTER;
    const DUE: Time = Time::from_nanos(1_000);

    fn append(previous: u64, count: u64, term: u64) -> Message {
        let mut message =
            Message { to: 3, term, index: previous, log_term: 1, ..Message::default() };
        message.set_msg_type(MessageType::MsgAppend);
        message.commit = previous;
        let entries = (previous + 1..=previous + count).map(|index| Entry {
            index,
            term: 1,
            data: vec![0; 100].into(),
            ..Entry::default()
        });
        message.set_entries(entries.collect::<Vec<_>>().into());
        message
    }

    /// For each message that was sent, the index before its entries and their number.
    fn ranges(effects: &[Effect<()>]) -> Vec<(u64, usize)> {
        let range = |effect: &Effect<()>| match effect {
            Effect::Send { message: PeerMessage::Raft { message, .. }, to: NODE } => {
                (message.index, message.entries.len())
            }
            other => panic!("{other:?}"),
        };
        effects.iter().map(range).collect()
    }

    #[test]
    fn appends_that_go_on_leave_as_one_and_in_order() {
        let (mut mail, mut effects) = (LearnerMail::default(), Vec::new());
        mail.hold(NODE, GROUP, append(10, 2, 5), DUE, &mut effects);
        mail.hold(NODE, GROUP, append(12, 1, 5), DUE, &mut effects);
        assert!(effects.is_empty());
        // After a rejection it begins again further back.
        mail.hold(NODE, GROUP, append(9, 1, 5), DUE, &mut effects);
        assert_eq!(ranges(&effects), [(10, 3)]);
        mail.release_due(DUE, &mut effects);
        assert_eq!(ranges(&effects), [(10, 3), (9, 1)]);
        mail.release_due(DUE, &mut effects);
        assert_eq!(effects.len(), 2);
    }

    #[test]
    fn what_is_held_names_the_commit_index_of_its_own_term() {
        let (mut mail, mut effects) = (LearnerMail::default(), Vec::<Effect<()>>::new());
        mail.hold(NODE, GROUP, append(10, 2, 5), DUE, &mut effects);
        mail.note_commits(|_, term| (term == Term(6)).then_some(LogIndex(13)));
        mail.note_commits(|_, term| (term == Term(5)).then_some(LogIndex(12)));
        mail.note_commits(|_, _| Some(LogIndex(11)));
        mail.release_due(DUE, &mut effects);
        let [Effect::Send { message: PeerMessage::Raft { message, .. }, .. }] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!(message.commit, 12);
    }

    #[test]
    fn appends_of_two_terms_are_not_joined() {
        let (mut mail, mut effects) = (LearnerMail::default(), Vec::new());
        mail.hold(NODE, GROUP, append(10, 2, 5), DUE, &mut effects);
        mail.hold(NODE, GROUP, append(12, 1, 6), DUE, &mut effects);
        mail.release_due(DUE, &mut effects);
        assert_eq!(ranges(&effects), [(10, 2), (12, 1)]);
    }

    #[test]
    fn what_is_joined_leaves_when_the_first_of_it_is_due() {
        let (mut mail, mut effects) = (LearnerMail::default(), Vec::new());
        let later = DUE + LEISURE;
        let others = GroupId::of_partition(placement::PartitionId::new(1));
        mail.hold(NODE, GROUP, append(10, 2, 5), DUE, &mut effects);
        mail.hold(NODE, GROUP, append(12, 1, 5), later, &mut effects);
        mail.hold(NODE, others, append(7, 1, 5), later, &mut effects);
        mail.release_due(DUE, &mut effects);
        assert_eq!(ranges(&effects), [(10, 3)]);
        mail.release_due(later, &mut effects);
        assert_eq!(ranges(&effects), [(10, 3), (7, 1)]);
    }

    #[test]
    fn many_entries_or_bytes_leave_at_once() {
        let (mut mail, mut effects) = (LearnerMail::default(), Vec::new());
        let most = ENTRIES_MAX as u64;
        mail.hold(NODE, GROUP, append(0, most - 1, 5), DUE, &mut effects);
        assert!(effects.is_empty());
        mail.hold(NODE, GROUP, append(most - 1, 1, 5), DUE, &mut effects);
        assert_eq!(ranges(&effects), [(0, ENTRIES_MAX)]);

        effects.clear();
        let groups = (0..).map(placement::PartitionId::new).map(GroupId::of_partition);
        for group in groups.take(BYTES_MAX / 100 / 50 + 1) {
            mail.hold(NODE, group, append(0, 50, 5), DUE, &mut effects);
        }
        assert!(!effects.is_empty());
    }
}
