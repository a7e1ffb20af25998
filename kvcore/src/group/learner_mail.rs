//! Entries for learners, sent a few times a second instead of one by one.
//!
//! A learner counts in no quorum and nobody waits for its acknowledgement. What reaches it in one
//! frame it writes in one batch and makes durable with one sync, and it acknowledges that once: a
//! copy that follows costs the nodes of both sides a fraction of what a voter costs them.

use std::collections::BTreeMap;

use placement::NodeId;
use raft::eraftpb::Message;

use crate::event::Effect;
use crate::ids::GroupId;
use crate::message::PeerMessage;

/// Bytes of entries held for one node; more leave at once.
const BYTES_MAX: usize = 256 << 10;
/// Entries of one group held for one node; more leave at once, so that a learner that keeps up is
/// never far behind.
const ENTRIES_MAX: usize = 64;

/// What is held for each node.
#[derive(Debug, Default)]
pub(crate) struct LearnerMail {
    held: BTreeMap<NodeId, Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    appends: BTreeMap<GroupId, Message>,
}

impl LearnerMail {
    /// Holds an append until the next tick, or sends what is held if it became much.
    pub fn hold<R>(
        &mut self,
        to: NodeId,
        group: GroupId,
        append: Message,
        effects: &mut Vec<Effect<R>>,
    ) {
        let held = self.held.entry(to).or_default();
        held.bytes += bytes_of(&append);
        let entries = match held.appends.remove(&group) {
            None => {
                let entries = append.entries.len();
                held.appends.insert(group, append);
                entries
            }
            Some(earlier) => {
                let joined = join(earlier, append);
                let entries = joined.last().map_or(0, |last| last.entries.len());
                let mut joined = joined.into_iter().rev();
                held.appends.extend(joined.next().map(|last| (group, last)));
                effects.extend(joined.map(|message| sent(to, group, message)));
                entries
            }
        };
        if held.bytes >= BYTES_MAX || entries >= ENTRIES_MAX {
            self.release(to, effects);
        }
    }

    /// Sends what is held for a node.
    pub fn release<R>(&mut self, to: NodeId, effects: &mut Vec<Effect<R>>) {
        let Some(held) = self.held.remove(&to) else { return };
        let appends = held.appends.into_iter();
        effects.extend(appends.map(|(group, message)| sent(to, group, message)));
    }

    /// Sends what is held for a node's replica of one group.
    pub fn release_group<R>(&mut self, to: NodeId, group: GroupId, effects: &mut Vec<Effect<R>>) {
        let Some(held) = self.held.get_mut(&to) else { return };
        let Some(append) = held.appends.remove(&group) else { return };
        held.bytes = held.bytes.saturating_sub(bytes_of(&append));
        effects.push(sent(to, group, append));
    }

    /// Sends everything that is held.
    pub fn release_all<R>(&mut self, effects: &mut Vec<Effect<R>>) {
        for to in self.held.keys().copied().collect::<Vec<_>>() {
            self.release(to, effects);
        }
    }

    /// Forgets everything that is held: its receivers find out and ask again.
    pub fn clear(&mut self) {
        self.held.clear();
    }
}

fn sent<R>(to: NodeId, group: GroupId, message: Message) -> Effect<R> {
    Effect::Send { to, message: PeerMessage::Raft { group, message } }
}

fn bytes_of(append: &Message) -> usize {
    append.entries.iter().map(|entry| entry.data.len()).sum()
}

/// One append with the entries of two if the second goes on where the first ends, as raft-rs joins
/// appends itself; otherwise both.
fn join(mut earlier: Message, mut later: Message) -> Vec<Message> {
    let end = earlier.index + earlier.entries.len() as u64;
    let goes_on = earlier.term == later.term
        && earlier.to == later.to
        && later.index == end
        && earlier.entries.last().is_some_and(|last| last.term == later.log_term);
    if !goes_on {
        return vec![earlier, later];
    }
    earlier.entries.extend(later.take_entries());
    earlier.commit = earlier.commit.max(later.commit);
    vec![earlier]
}

#[cfg(test)]
mod tests {
    use raft::eraftpb::{Entry, MessageType};

    use super::*;

    const NODE: NodeId = NodeId::from_u128(7);
    const GROUP: GroupId = GroupId::CLUSTER;

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
        mail.hold(NODE, GROUP, append(10, 2, 5), &mut effects);
        mail.hold(NODE, GROUP, append(12, 1, 5), &mut effects);
        assert!(effects.is_empty());
        // After a rejection it begins again further back.
        mail.hold(NODE, GROUP, append(9, 1, 5), &mut effects);
        assert_eq!(ranges(&effects), [(10, 3)]);
        mail.release_all(&mut effects);
        assert_eq!(ranges(&effects), [(10, 3), (9, 1)]);
        mail.release_all(&mut effects);
        assert_eq!(effects.len(), 2);
    }

    #[test]
    fn appends_of_two_terms_are_not_joined() {
        let (mut mail, mut effects) = (LearnerMail::default(), Vec::new());
        mail.hold(NODE, GROUP, append(10, 2, 5), &mut effects);
        mail.hold(NODE, GROUP, append(12, 1, 6), &mut effects);
        mail.release(NODE, &mut effects);
        assert_eq!(ranges(&effects), [(10, 2), (12, 1)]);
    }

    #[test]
    fn many_entries_or_bytes_leave_at_once() {
        let (mut mail, mut effects) = (LearnerMail::default(), Vec::new());
        let most = ENTRIES_MAX as u64;
        mail.hold(NODE, GROUP, append(0, most - 1, 5), &mut effects);
        assert!(effects.is_empty());
        mail.hold(NODE, GROUP, append(most - 1, 1, 5), &mut effects);
        assert_eq!(ranges(&effects), [(0, ENTRIES_MAX)]);

        effects.clear();
        let groups = (0..).map(placement::PartitionId::new).map(GroupId::of_partition);
        for group in groups.take(BYTES_MAX / 100 / 50 + 1) {
            mail.hold(NODE, group, append(0, 50, 5), &mut effects);
        }
        assert!(!effects.is_empty());
    }
}
