//! What is known of a cluster from before: everything that must survive the operator, and lives in the status. Pure.
//! What cannot be read from a status counts as not known.

mod restore;
mod rollout;

use std::collections::BTreeMap;

use etcd_operator_api::EtcdClusterStatus;
use etcd_operator_api::cluster::MemberStatus;
use etcd_operator_etcd_types::id::{ClusterId, MemberId, RaftIndex};

use crate::observed_state::{Claim, Ordinal, Pod};
use crate::pending_operation::PendingOperation;

pub use restore::{Phase, Restore};
pub use rollout::{ImageFailure, RestartedMember, Rollout, VersionPath};

/// What the operator knows from earlier reconciles. The status keeps it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistedState {
    /// etcd's ID of the cluster: there since the first linearizable read, and for good.
    pub cluster: Option<ClusterId>,
    /// Which life of the data runs or is to run; 0 before anything was begun.
    pub incarnation: i64,
    /// The highest incarnation ever given out.
    pub last_incarnation: i64,
    /// The step that was written down and is not known to be finished.
    pub pending: Option<PendingOperation>,
    /// The kind of a step that is written down and that this version does not understand: nothing is done beside it.
    pub unknown_step: Option<String>,
    /// The revision to which restores have raised the data at most.
    pub restored_revision: i64,
    /// The restore that is under way, or the last one.
    pub restore: Option<Restore>,
    /// The UIDs of those that were committed before it, the newest at the end.
    pub earlier_restores: Vec<String>,
    /// The generation of the spec that was last looked at.
    pub generation: i64,
    /// The member that was last replaced because a person asked for it.
    pub replaced: Option<MemberId>,
    /// The members as they were last seen.
    pub members: BTreeMap<Ordinal, MemberRecord>,
    /// The change of the spec that is rolled out, or was last.
    pub rollout: Option<Rollout>,
    /// Spec hashes of the pod templates with which a voter was seen healthy, oldest first.
    pub served_spec_hashes: Vec<String>,
}

/// A member as it was last seen in the membership, with the volume that it ran on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// Its ID.
    pub id: MemberId,
    /// Whether it voted.
    pub is_voter: bool,
    /// The UID of the claim it ran on.
    pub claim: Option<String>,
    /// The volume it ran on.
    pub volume: Option<String>,
    /// How far its data had come in which pod.
    pub last_index: Option<LastKnownIndex>,
}

/// How far the data of a member had come, and in which pod. A later pod that comes with less has a volume that was
/// rolled back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastKnownIndex {
    /// The UID of the pod in which it was seen.
    pub pod: String,
    /// What was agreed on up to here lay on its volume.
    pub index: RaftIndex,
}

/// The role of a voter, as the status has it.
pub const VOTER: &str = "voter";
/// The role of a learner, as the status has it.
pub const LEARNER: &str = "learner";
/// How many restores are remembered at most.
const MAX_EARLIER_RESTORES: usize = 32;
/// How many spec hashes are kept at most: more than members can run at once.
const MAX_SERVED_SPEC_HASHES: usize = 16;

impl PersistedState {
    /// Reads it from a status. A member that cannot be parsed is left out. A step or restore that this version does not
    /// know becomes `unknown_step`, beside which nothing is done.
    pub fn read(status: Option<&EtcdClusterStatus>, ordinal: impl Fn(&str) -> Option<Ordinal>) -> Self {
        let Some(status) = status else {
            return Self::default();
        };
        let members = status.member_status.iter().flatten();
        let incarnation = status.incarnation.unwrap_or_default().max(0);
        let step = status.plan.as_ref().and_then(|plan| plan.step.as_ref());
        let pending = step.and_then(|step| PendingOperation::read(step, &ordinal));
        let unknown_step = step.filter(|_| pending.is_none()).map(|step| step.kind.clone());
        let restore = status.restore.as_ref().and_then(Restore::read);
        let unknown_restore = status.restore.as_ref().filter(|_| restore.is_none());
        let unknown_phase = unknown_restore.map(|progress| format!("restore: {}", progress.phase));
        Self {
            cluster: status.cluster_id.as_deref().and_then(|id| id.parse().ok()),
            incarnation,
            last_incarnation: status.last_incarnation.unwrap_or_default().max(incarnation),
            unknown_step: unknown_step.or(unknown_phase),
            pending,
            restored_revision: status.restored_revision.unwrap_or_default(),
            restore,
            earlier_restores: status.earlier_restores.clone().unwrap_or_default(),
            generation: status.observed_generation.unwrap_or_default(),
            replaced: status.replaced.as_deref().and_then(|id| id.parse().ok()),
            members: members
                .filter_map(|member| Some((ordinal(&member.name)?, MemberRecord::read(member)?)))
                .collect(),
            rollout: status
                .rollout
                .as_ref()
                .and_then(|rollout| Rollout::read(rollout, &ordinal)),
            served_spec_hashes: status.served_spec_hashes.clone().unwrap_or_default(),
        }
    }

    /// Takes over the voters that the StatefulSet records, if the status has been lost, or what it says of the members.
    /// Those of another cluster are not taken over.
    pub fn recover_members(
        &mut self,
        cluster: ClusterId,
        noted: impl Iterator<Item = (Ordinal, MemberRecord)>,
    ) {
        let is_lost = self.cluster.is_none() && self.pending.is_none();
        if self.members.is_empty() && (is_lost || self.cluster == Some(cluster)) {
            self.members.extend(noted);
        }
    }

    /// Takes over the restore that the StatefulSet records, if the status has been lost: it goes on from where it was,
    /// and one that is over is not repeated. Which permits were given for it is not known. So each counts as given, and
    /// a process gets a second one only if it shows that the first was not used.
    pub fn recover_restore(&mut self, noted: Option<Restore>, incarnation: i64, cluster: Option<ClusterId>) {
        let is_lost = self.incarnation == 0 && self.pending.is_none() && self.unknown_step.is_none();
        let Some(noted) = noted.filter(|_| is_lost && self.restore.is_none()) else {
            return;
        };
        self.last_incarnation = self.last_incarnation.max(incarnation).max(noted.incarnation);
        if noted.is_active() {
            self.incarnation = incarnation;
            self.cluster = cluster;
        }
        self.restore = Some(noted);
    }

    /// Makes this the restore of the cluster. The one before stays among the earlier ones if it was committed.
    pub fn begin_restore(&mut self, next: Restore) {
        let last = self.restore.replace(next);
        let last = last.filter(|last| last.committed);
        self.earlier_restores.extend(last.map(|last| last.uid));
        let too_many = self.earlier_restores.len().saturating_sub(MAX_EARLIER_RESTORES);
        self.earlier_restores.drain(..too_many);
    }

    /// Whether the restore of this UID is the last one, however far it came, or was committed before it.
    pub fn has_restored(&self, uid: &str) -> bool {
        let is_last = self.restore.as_ref().is_some_and(|last| last.uid == uid);
        is_last || self.earlier_restores.iter().any(|earlier| earlier == uid)
    }

    /// Records that a voter was healthy with the pod template of this spec hash.
    pub fn record_served_spec(&mut self, spec_hash: &str) {
        if self.has_served_spec(spec_hash) {
            return;
        }
        self.served_spec_hashes.push(spec_hash.to_owned());
        let too_many = self
            .served_spec_hashes
            .len()
            .saturating_sub(MAX_SERVED_SPEC_HASHES);
        self.served_spec_hashes.drain(..too_many);
    }

    /// Whether a voter was ever seen healthy with the pod template of this spec hash.
    pub fn has_served_spec(&self, spec_hash: &str) -> bool {
        self.served_spec_hashes.iter().any(|served| served == spec_hash)
    }

    /// Whether it differs from before in more than how far the members of a restore are, which changes with every byte.
    pub fn differs_in_more_than_progress(&self, before: &Self) -> bool {
        let without = |persisted: &Self| Self {
            restore: persisted.restore.as_ref().map(Restore::without_progress),
            ..persisted.clone()
        };
        self != before && without(self) != without(before)
    }

    /// Whether the cluster has formed: a linearizable read has returned its cluster ID.
    pub fn has_formed(&self) -> bool {
        self.cluster.is_some()
    }

    /// The highest ordinal of a recorded voter.
    pub fn highest_voter(&self) -> Option<Ordinal> {
        let voters = self.members.iter().filter(|(_, member)| member.is_voter);
        voters.map(|(ordinal, _)| *ordinal).max()
    }
}

impl MemberRecord {
    /// The record without the index, which changes all the time.
    #[must_use]
    pub fn without_last_index(&self) -> Self {
        Self {
            last_index: None,
            ..self.clone()
        }
    }

    /// Whether this claim is bound to the very volume that the member ran on. `false` if that is not known.
    pub fn is_same_volume(&self, claim: &Claim) -> bool {
        self.claim.as_ref() == Some(&claim.uid) && self.volume.is_some() && self.volume == claim.volume
    }

    /// Whether this claim is another one, or bound to another volume, than the member ran on. `false` if that is not
    /// known.
    pub fn is_other_volume(&self, claim: &Claim) -> bool {
        let differ = |one: &Option<String>, other: &Option<String>| {
            one.as_ref()
                .zip(other.as_ref())
                .is_some_and(|(one, other)| one != other)
        };
        differ(&self.claim, &Some(claim.uid.clone())) || differ(&self.volume, &claim.volume)
    }

    /// Whether the volume of this pod came with less than the member had in an earlier pod: it was rolled back, and the
    /// member lacks entries that it acknowledged.
    pub fn is_behind_record(&self, pod: &Pod) -> bool {
        let came_with = pod.volume_position.filter(|(member, _)| *member == self.id);
        self.last_index
            .as_ref()
            .zip(came_with)
            .is_some_and(|(last_index, (_, index))| last_index.pod != pod.uid && index < last_index.index)
    }

    fn read(member: &MemberStatus) -> Option<Self> {
        Some(Self {
            id: member.id.as_deref()?.parse().ok()?,
            is_voter: member.role.as_deref()? == VOTER,
            claim: member.claim_uid.clone(),
            volume: member.volume_name.clone(),
            last_index: LastKnownIndex::read(member),
        })
    }
}

impl LastKnownIndex {
    fn read(member: &MemberStatus) -> Option<Self> {
        Some(Self {
            pod: member.pod_uid.clone()?,
            index: RaftIndex(u64::try_from(member.raft_index?).ok()?),
        })
    }

    /// For a status.
    pub fn as_i64(&self) -> i64 {
        i64::try_from(self.index.0).unwrap_or(i64::MAX)
    }
}
