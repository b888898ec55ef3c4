//! What etcd itself refuses before a change of members, each rule as the member that is asked sees things. The rules of
//! every version are on by default.

use std::time::Duration;

use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::{Member, Role};
use etcd_operator_etcd::policy::connected_to_add;
use etcd_operator_etcd::rejection::Rejection;

use super::process::{ProcessId, Running};
use super::world::World;

/// How long a member must have been connected to count.
const HEALTH: Duration = Duration::from_secs(5);
/// A learner is in sync when it has so many of ten parts of the leader's log.
const READY: (u64, u64) = (9, 10);

fn started<'a>(voters: impl Iterator<Item = &'a Member>) -> usize {
    voters.filter(|member| member.has_started()).count()
}

impl World {
    /// How many voters have been connected to this member for long enough, itself included.
    fn connected(&self, running: &Running) -> usize {
        let is_connected = |id: MemberId| {
            let since = running.active.get(&id);
            id == running.id || since.is_some_and(|since| *since + HEALTH <= self.now)
        };
        running
            .applied
            .voters()
            .filter(|member| is_connected(member.id))
            .count()
    }

    /// Whether a member may be added.
    pub(crate) fn may_add(&self, process: ProcessId, role: Role) -> Result<(), Rejection> {
        let Some(running) = self.running(process) else {
            return Err(Rejection::Stopped);
        };
        let voters = running.applied.voters().count();
        if role == Role::Voter {
            let started = started(running.applied.voters());
            let is_alone = started == 1 && voters == 1;
            if !is_alone && started < voters.div_ceil(2) + 1 {
                return Err(Rejection::NotEnoughStarted);
            }
        }
        let version = &self.processes[&process].start.version;
        if self.connected(running) < connected_to_add(version, voters) {
            return Err(Rejection::Unhealthy);
        }
        Ok(())
    }

    /// Whether a member may be removed.
    pub(crate) fn may_remove(&self, process: ProcessId, id: MemberId) -> Result<(), Rejection> {
        let Some(running) = self.running(process) else {
            return Err(Rejection::Stopped);
        };
        let known = running.applied.members.get(&id);
        if known.is_some_and(|member| member.role == Role::Learner) {
            return Ok(());
        }
        let rest = || running.applied.voters().filter(|member| member.id != id);
        if started(rest()) < rest().count() / 2 + 1 {
            return Err(Rejection::NotEnoughStarted);
        }
        let is_down = id != running.id && !running.active.contains_key(&id);
        let voters = running.applied.voters().count();
        if !is_down && self.connected(running).saturating_sub(1) < 1 + (voters - 1) / 2 {
            return Err(Rejection::Unhealthy);
        }
        Ok(())
    }

    /// Whether a leader may give a learner its vote.
    pub(crate) fn may_promote(&self, leader: ProcessId, id: MemberId) -> Result<(), Rejection> {
        let (Some(running), Some(wal)) = (self.running(leader), self.wal(leader)) else {
            return Err(Rejection::Stopped);
        };
        let Some(lead) = running.lead() else {
            return Err(Rejection::NotLeader);
        };
        let matched = lead.matched.get(&id).copied().unwrap_or(0);
        let (parts, of) = READY;
        if running.applied.members.contains_key(&id) && matched * of < wal.log.last() * parts {
            return Err(Rejection::LearnerNotReady);
        }
        let voters = running.applied.voters().count() + 1;
        if started(running.applied.voters()) + 1 < voters / 2 + 1 {
            return Err(Rejection::NotEnoughStarted);
        }
        Ok(())
    }
}
