//! The replicated log: what members agree on, entry by entry. Knows no member and no network.

use std::sync::Arc;

use etcd_operator_etcd::id::{MemberId, Revision};
use etcd_operator_etcd::membership::Member;
use etcd_operator_etcd::status::Alarm;
use etcd_operator_etcd::url::{ClientUrl, PeerUrl};
use etcd_operator_etcd::version::Version;

use super::snapshot::Snapshot;

/// What tells two entries at one place apart: no two proposals have the same.
pub(crate) type EntryId = u64;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: EntryId,
    pub(crate) term: u64,
    pub(crate) change: Change,
}

/// What an entry does once it is agreed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// What a new leader begins with.
    Nothing,
    Put {
        key: Arc<str>,
        value: Arc<str>,
    },
    Compact(Revision),
    /// What a restored member begins with, and by how much its revisions are raised.
    Restored(Snapshot, u64),
    Add(Box<Member>),
    Promote(MemberId),
    Remove(MemberId),
    Update(MemberId, Vec<PeerUrl>),
    /// A member says its name, where its clients find it, and what it runs.
    Attributes {
        member: MemberId,
        name: String,
        clients: Vec<ClientUrl>,
        version: Version,
    },
    /// The version all members are at least of.
    ClusterVersion(Version),
    /// The version that members are downgraded to; none ends that.
    Downgrade(Option<Version>),
    Alarm {
        alarm: Alarm,
        stands: bool,
    },
    /// A list of alarms, which changes nothing.
    ListAlarms,
}

impl Change {
    /// Whether it changes who the members are: only one such may be under way.
    pub(crate) fn is_of_members(&self) -> bool {
        matches!(
            self,
            Self::Add(_) | Self::Promote(_) | Self::Remove(_) | Self::Update(..)
        )
    }
}

/// Entries in order. The first has the index 1.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Vec<Arc<Entry>>);

fn place(index: u64) -> usize {
    usize::try_from(index).expect("a log fits into memory")
}

impl Log {
    /// The index of the last entry; 0 without any.
    pub(crate) fn last(&self) -> u64 {
        u64::try_from(self.0.len()).expect("a log fits into 64 bits")
    }

    pub(crate) fn get(&self, index: u64) -> Option<&Arc<Entry>> {
        self.0.get(place(index.checked_sub(1)?))
    }

    /// The term of an entry; 0 before the first, none behind the last.
    pub(crate) fn term_at(&self, index: u64) -> Option<u64> {
        if index == 0 {
            return Some(0);
        }
        self.get(index).map(|entry| entry.term)
    }

    pub(crate) fn last_term(&self) -> u64 {
        self.term_at(self.last()).unwrap_or(0)
    }

    pub(crate) fn push(&mut self, entry: Arc<Entry>) {
        self.0.push(entry);
    }

    /// The entries after one index, up to another.
    pub(crate) fn after(&self, index: u64, upto: u64) -> &[Arc<Entry>] {
        let end = place(upto.min(self.last()));
        &self.0[place(index).min(end)..end]
    }

    /// Forgets everything behind an index.
    pub(crate) fn cut(&mut self, index: u64) {
        self.0.truncate(place(index));
    }

    /// The last index up to which the two agree. As in raft terms decide, not what the entries say.
    pub(crate) fn common(&self, other: &Self) -> u64 {
        let mut index = self.last().min(other.last());
        while self.term_at(index) != other.term_at(index) {
            index -= 1;
        }
        index
    }

    /// Whether it is at least as far as another: what a vote depends on.
    pub(crate) fn is_up_to(&self, other: &Self) -> bool {
        (self.last_term(), self.last()) >= (other.last_term(), other.last())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(terms: &[u64]) -> Log {
        let entry = |&term| {
            Arc::new(Entry {
                id: term,
                term,
                change: Change::Nothing,
            })
        };
        Log(terms.iter().map(entry).collect())
    }

    #[test]
    fn logs_agree_up_to_the_last_equal_term() {
        assert_eq!(log(&[1, 1, 2, 2]).common(&log(&[1, 1, 3])), 2);
        assert_eq!(log(&[1, 1]).common(&log(&[1, 1, 3])), 2);
        assert_eq!(log(&[1]).common(&log(&[])), 0);
    }

    #[test]
    fn the_later_term_is_further_and_then_the_longer_log() {
        assert!(log(&[1, 3]).is_up_to(&log(&[1, 2, 2])));
        assert!(log(&[1, 2, 2]).is_up_to(&log(&[1, 2])));
        assert!(!log(&[1, 2]).is_up_to(&log(&[1, 2, 2])));
        assert!(log(&[]).is_up_to(&log(&[])));
    }
}
