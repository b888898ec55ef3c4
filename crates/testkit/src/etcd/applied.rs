//! What the agreed part of a log amounts to: members, keys, alarms. The same entries give the same on every member.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use etcd_operator_etcd::id::{MemberId, Revision};
use etcd_operator_etcd::membership::{Member, Role};
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_etcd::status::Alarm;
use etcd_operator_etcd::version::Version;

use super::log::{Change, Entry, Log};

/// One written key: its place in the list is its revision.
pub(crate) type Written = (Arc<str>, Arc<str>);

/// What a member has applied.
#[derive(Clone, Debug, Default)]
pub(crate) struct Applied {
    pub(crate) index: u64,
    pub(crate) members: BTreeMap<MemberId, Member>,
    /// IDs that were members once and never will be again.
    pub(crate) removed: BTreeSet<MemberId>,
    /// What each member runs, as far as it said so.
    pub(crate) versions: BTreeMap<MemberId, Version>,
    pub(crate) cluster_version: Option<Version>,
    /// The cluster version that members are downgraded to.
    pub(crate) downgrade: Option<Version>,
    pub(crate) alarms: BTreeSet<Alarm>,
    pub(crate) writes: Vec<Written>,
    pub(crate) compacted: i64,
    /// By how much revisions were raised when the data were restored.
    pub(crate) raised: i64,
    /// Bytes of the database file, holes and all.
    pub(crate) bytes: u64,
}

/// Bytes of an empty database.
const EMPTY: u64 = 20_480;
/// Bytes that a key takes beside itself and its value.
const OVERHEAD: u64 = 100;

/// What one written key takes.
pub(crate) fn size_of((key, value): &Written) -> u64 {
    let length = |text: &str| u64::try_from(text.len()).unwrap_or(u64::MAX);
    length(key) + length(value) + OVERHEAD
}

impl Applied {
    /// What a log says up to an index.
    pub(crate) fn of(log: &Log, commit: u64) -> Self {
        let mut applied = Self {
            bytes: EMPTY,
            ..Self::default()
        };
        for entry in log.after(0, commit) {
            // What it came to was told to whoever asked when it was new.
            let _ = applied.apply(entry);
        }
        applied
    }

    /// Does what an entry says, or says why not.
    pub(crate) fn apply(&mut self, entry: &Entry) -> Result<(), Rejection> {
        self.index += 1;
        match &entry.change {
            Change::Nothing | Change::ListAlarms => Ok(()),
            Change::Put { key, value } => {
                let written = (Arc::clone(key), Arc::clone(value));
                self.bytes += size_of(&written);
                self.writes.push(written);
                Ok(())
            }
            Change::Compact(revision) => self.compact(*revision),
            Change::Restored(snapshot, raised) => {
                self.writes = snapshot.writes().to_vec();
                self.bytes = EMPTY + self.writes.iter().map(size_of).sum::<u64>();
                self.alarms.extend(snapshot.alarms());
                self.raised = snapshot.raised() + i64::try_from(*raised).unwrap_or(i64::MAX / 4);
                if *raised > 0 {
                    // Whoever watched from before is told, and not left to wait.
                    self.compacted = self.revision().0;
                }
                Ok(())
            }
            Change::Add(member) => self.add(member),
            Change::Promote(id) => {
                let member = self.member(*id)?;
                if member.role == Role::Voter {
                    return Err(Rejection::NotALearner);
                }
                member.role = Role::Voter;
                Ok(())
            }
            Change::Remove(id) => {
                self.member(*id)?;
                self.members.remove(id);
                self.versions.remove(id);
                self.removed.insert(*id);
                Ok(())
            }
            Change::Update(id, urls) => {
                let taken = |other: &Member| other.id != *id && urls.iter().any(|url| other.is_at(url));
                if self.members.values().any(taken) {
                    return Err(Rejection::PeerUrlExists);
                }
                self.member(*id)?.peer_urls.clone_from(urls);
                Ok(())
            }
            Change::Attributes {
                member,
                name,
                clients,
                version,
            } => {
                let known = self.member(*member)?;
                known.name = Some(name.clone());
                known.client_urls.clone_from(clients);
                self.versions.insert(*member, version.clone());
                Ok(())
            }
            Change::ClusterVersion(version) => {
                self.cluster_version = Some(version.clone());
                Ok(())
            }
            Change::Downgrade(target) => {
                self.downgrade.clone_from(target);
                Ok(())
            }
            Change::Alarm { alarm, stands: true } => {
                self.alarms.insert(*alarm);
                Ok(())
            }
            Change::Alarm { alarm, stands: false } => {
                self.alarms.remove(alarm);
                Ok(())
            }
        }
    }

    fn add(&mut self, member: &Member) -> Result<(), Rejection> {
        if self.members.contains_key(&member.id) || self.removed.contains(&member.id) {
            return Err(Rejection::MemberExists);
        }
        let taken = |other: &Member| member.peer_urls.iter().any(|url| other.is_at(url));
        if self.members.values().any(taken) {
            return Err(Rejection::PeerUrlExists);
        }
        if member.role == Role::Learner && self.learners() > 0 {
            return Err(Rejection::TooManyLearners);
        }
        self.members.insert(member.id, member.clone());
        Ok(())
    }

    fn compact(&mut self, revision: Revision) -> Result<(), Rejection> {
        if revision.0 <= self.compacted {
            return Err(Rejection::Compacted);
        }
        if revision.0 > self.revision().0 {
            return Err(Rejection::FutureRevision);
        }
        self.compacted = revision.0;
        Ok(())
    }

    fn member(&mut self, id: MemberId) -> Result<&mut Member, Rejection> {
        self.members.get_mut(&id).ok_or(Rejection::MemberNotFound)
    }

    /// The revision of the keys.
    pub(crate) fn revision(&self) -> Revision {
        Revision(i64::try_from(self.writes.len()).unwrap_or(i64::MAX / 2) + 1 + self.raised)
    }

    /// The newest value of a key.
    pub(crate) fn value(&self, key: &str) -> Option<&Arc<str>> {
        let mut newest = self.writes.iter().rev();
        newest.find(|(other, _)| &**other == key).map(|(_, value)| value)
    }

    /// Bytes that a defragmentation leaves: the newest value of each key, and what was not compacted.
    pub(crate) fn bytes_in_use(&self) -> u64 {
        let kept = usize::try_from((self.compacted - self.raised).max(1) - 1).unwrap_or(0);
        if kept == 0 {
            return EMPTY + self.writes.iter().map(size_of).sum::<u64>();
        }
        let newest: BTreeMap<&str, &Written> =
            self.writes.iter().map(|written| (&*written.0, written)).collect();
        let old = self.writes[..kept.min(self.writes.len())].iter();
        let is_newest = |written: &&Written| {
            newest
                .get(&*written.0)
                .is_some_and(|w| std::ptr::eq(*w, *written))
        };
        let recent = self.writes[kept.min(self.writes.len())..].iter();
        EMPTY + old.filter(is_newest).chain(recent).map(size_of).sum::<u64>()
    }

    pub(crate) fn voters(&self) -> impl Iterator<Item = &Member> {
        self.members.values().filter(|member| member.role == Role::Voter)
    }

    pub(crate) fn learners(&self) -> usize {
        self.members.len() - self.voters().count()
    }

    /// How many voters it takes to decide.
    pub(crate) fn quorum(&self) -> usize {
        self.voters().count() / 2 + 1
    }

    pub(crate) fn is_voter(&self, id: MemberId) -> bool {
        self.members
            .get(&id)
            .is_some_and(|member| member.role == Role::Voter)
    }
}
