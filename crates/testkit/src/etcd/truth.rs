//! What is really so, for those who judge an operator's steps at the moment it takes them. An operator never sees this.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_operator_etcd::id::{ClusterId, MemberId};
use etcd_operator_etcd::membership::{Member, Role};
use etcd_operator_etcd::url::PeerUrl;
use etcd_operator_etcd::version::Version;

use super::disk::{DataDir, DiskId};
use super::process::{At, ProcessId};
use super::world::World;

/// Looks at each step of a judged caller when it arrives, before anything is refused or done.
pub type Judge = Box<dyn Fn(&Truth<'_>, &Step) + Send>;

/// A call that changes something about members.
#[derive(Clone, Debug)]
pub struct Step {
    /// Who calls.
    pub caller: String,
    /// The cluster that is asked.
    pub cluster: ClusterId,
    /// The member that is asked.
    pub asked: MemberId,
    /// What for.
    pub what: StepKind,
}

/// What a step asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// A member with a vote.
    AddVoter(Vec<PeerUrl>),
    /// A member without a vote.
    AddLearner(Vec<PeerUrl>),
    /// A vote for a learner.
    Promote(MemberId),
    /// A member less.
    Remove(MemberId),
    /// The same, and etcd has said no: it stays.
    RemoveRefused(MemberId),
    /// Other addresses.
    Update(MemberId, Vec<PeerUrl>),
    /// Another leader.
    MoveLeader(MemberId),
    /// A member that serves nothing for a while.
    Defragment,
    /// A downgrade to a version.
    EnableDowngrade(Version),
    /// No downgrade any more.
    CancelDowngrade,
}

/// One voter as it really is.
#[derive(Clone, Debug)]
pub struct Voter<'a> {
    /// Which.
    pub member: &'a Member,
    /// For how long it has not done its part; none if it does.
    pub ill_for: Option<Duration>,
}

/// The model as it really is.
pub struct Truth<'a>(pub(crate) &'a World);

impl std::fmt::Debug for Truth<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Truth")
    }
}

impl<'a> Truth<'a> {
    /// The time.
    pub fn now(&self) -> At {
        self.0.now
    }

    /// Every cluster that ever was.
    pub fn clusters(&self) -> Vec<ClusterId> {
        self.0.chronicles.keys().copied().collect()
    }

    /// Who the members of a cluster are.
    pub fn members(&self, cluster: ClusterId) -> BTreeMap<MemberId, Member> {
        let chronicle = self.0.chronicles.get(&cluster);
        chronicle
            .map(|chronicle| chronicle.applied.members.clone())
            .unwrap_or_default()
    }

    /// The voters of a cluster, and how they are.
    pub fn voters(&self, cluster: ClusterId) -> Vec<Voter<'a>> {
        let Some(chronicle) = self.0.chronicles.get(&cluster) else {
            return Vec::new();
        };
        let voters = chronicle.applied.voters().map(|member| Voter {
            member,
            ill_for: chronicle
                .ill
                .get(&member.id)
                .map(|since| self.0.now.saturating_sub(*since)),
        });
        voters.collect()
    }

    /// The clusters with a member at this host.
    pub fn clusters_at(&self, host: &str) -> Vec<(ClusterId, Member)> {
        let found = self.0.chronicles.iter().flat_map(|(id, chronicle)| {
            let members = chronicle.applied.members.values();
            members.map(move |member| (*id, member.clone()))
        });
        found
            .filter(|(_, member)| member.peer_urls.iter().any(|url| url.host() == host))
            .collect()
    }

    /// Whether a majority of a cluster ever agreed on anything.
    pub fn has_decided(&self, cluster: ClusterId) -> bool {
        let chronicle = self.0.chronicles.get(&cluster);
        chronicle.is_some_and(super::chronicle::Chronicle::has_decided)
    }

    /// For how long a member, learner or voter, has not done its part; none if it does.
    pub fn ill_for(&self, cluster: ClusterId, member: MemberId) -> Option<Duration> {
        let since = self.0.chronicles.get(&cluster)?.ill.get(&member)?;
        Some(self.0.now.saturating_sub(*since))
    }

    /// Since when a member has been up that does its part.
    pub fn up_since(&self, cluster: ClusterId, member: MemberId) -> Option<At> {
        let process = self.0.sound(cluster, member)?;
        self.0.running(process).map(|running| running.since)
    }

    /// Whether a member is known to have all that was agreed on.
    pub fn has_all(&self, cluster: ClusterId, member: MemberId) -> bool {
        let chronicle = self.0.chronicles.get(&cluster);
        chronicle.is_some_and(|chronicle| chronicle.has_all(member))
    }

    /// Whether a member ever acknowledged anything.
    pub fn has_run(&self, cluster: ClusterId, member: MemberId) -> bool {
        let chronicle = self.0.chronicles.get(&cluster);
        chronicle.is_some_and(|chronicle| chronicle.has_run(member))
    }

    /// Whose data lies on a disk.
    pub fn owner(&self, disk: DiskId) -> Option<(ClusterId, MemberId)> {
        let data: &DataDir = self.0.disks.get(&disk)?.content.data.as_ref()?;
        data.head().map(|head| (head.cluster, head.member))
    }

    /// Whether somebody writes to a disk.
    pub fn is_in_use(&self, disk: DiskId) -> bool {
        self.0
            .processes
            .values()
            .any(|process| process.start.disk == disk)
    }

    /// Whether a member of this ID votes.
    pub fn is_voter(&self, cluster: ClusterId, member: MemberId) -> bool {
        self.members(cluster)
            .get(&member)
            .is_some_and(|member| member.role == Role::Voter)
    }
}

impl World {
    /// The process of a member that is up and remembers everything.
    fn sound(&self, cluster: ClusterId, member: MemberId) -> Option<ProcessId> {
        let mut found = self.processes.iter().filter(|(_, process)| {
            let running = process.awake();
            running.is_some_and(|running| running.cluster == cluster && running.id == member)
        });
        let (process, _) = found.next()?;
        self.forgotten(*process).is_none().then_some(*process)
    }

    /// Notes which members do their part: up, with all they acknowledged, and connected to a majority.
    pub(crate) fn judge_health(&mut self) {
        let now = self.now;
        let clusters: Vec<ClusterId> = self.chronicles.keys().copied().collect();
        for cluster in clusters {
            let chronicle = &self.chronicles[&cluster];
            let voters = chronicle.applied.voters().count();
            let members: Vec<MemberId> = chronicle.applied.members.keys().copied().collect();
            let sound: Vec<(MemberId, ProcessId)> = members
                .iter()
                .filter_map(|id| Some((*id, self.sound(cluster, *id)?)))
                .collect();
            let is_well = |process: ProcessId| {
                let reached = sound.iter().filter(|(id, other)| {
                    chronicle.applied.is_voter(*id) && (*other == process || self.connects(process, *other))
                });
                reached.count() > voters / 2
            };
            let well: Vec<MemberId> = sound
                .iter()
                .filter(|(_, process)| is_well(*process))
                .map(|(id, _)| *id)
                .collect();
            if let Some(chronicle) = self.chronicles.get_mut(&cluster) {
                chronicle
                    .ill
                    .retain(|id, _| members.contains(id) && !well.contains(id));
                for id in members.iter().filter(|id| !well.contains(id)) {
                    chronicle.ill.entry(*id).or_insert(now);
                }
            }
        }
    }

    /// Shows a step to the judges.
    pub(crate) fn judge(&mut self, step: &Step) {
        let judges = std::mem::take(&mut self.judges);
        for judge in &judges {
            judge(&Truth(self), step);
        }
        self.judges = judges;
    }
}
