//! What each call does at a member: reads behind a quorum, changes that wait for agreement, refusals in etcd's words.

use etcd_operator_etcd::error::Cause;
use etcd_operator_etcd::id::{MemberId, RaftIndex, RaftTerm, Revision};
use etcd_operator_etcd::membership::{Member, Role};
use etcd_operator_etcd::policy::Feature;
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_etcd::status::{Downgrade, Position, Status};
use tokio::sync::oneshot;

use super::Etcds;
use super::line::{gone, no};
use super::log::Change;
use super::process::{ProcessId, Running, Start};
use super::world::World;

/// What an empty database reports before it has any.
const NO_QUOTA: u64 = 2 << 30;

impl World {
    /// The index up to which a member must have applied to answer a read, if a leader with a quorum confirms it now.
    fn read_index(&self, process: ProcessId) -> Option<u64> {
        let leader = self.leader_of(process)?;
        let wal = self.wal(leader)?;
        let is_own_term = wal.log.term_at(wal.commit) == Some(wal.term);
        (is_own_term && self.has_quorum(leader)).then_some(wal.commit)
    }

    /// Whether a linearizable read would be answered now.
    pub(crate) fn can_read(&self, process: ProcessId) -> bool {
        self.read_index(process).is_some()
    }

    fn running_or_gone(&self, process: ProcessId) -> Result<&Running, Cause> {
        self.running(process).ok_or_else(gone)
    }

    /// Who a member is and where.
    pub(crate) fn position(&self, process: ProcessId) -> Result<Position, Cause> {
        let running = self.running_or_gone(process)?;
        Ok(Position {
            cluster: running.cluster,
            member: running.id,
            revision: running.applied.revision(),
            term: RaftTerm(self.wal(process).map_or(0, |wal| wal.term)),
        })
    }

    /// Learners serve next to nothing.
    pub(crate) fn is_no_learner(&self, process: ProcessId) -> Result<(), Cause> {
        let running = self.running_or_gone(process)?;
        let own = running.applied.members.get(&running.id);
        if own.is_some_and(|member| member.role == Role::Learner) {
            return Err(no(Rejection::NotForLearners));
        }
        Ok(())
    }

    /// What a member says of itself.
    pub(crate) fn status(&self, process: ProcessId) -> Result<Status, Cause> {
        let position = self.position(process)?;
        let running = self.running_or_gone(process)?;
        let start: &Start = &self.processes[&process].start;
        let has = |feature: Feature| feature.is_in(&start.version);
        let own = running.applied.members.get(&running.id);
        let mut errors: Vec<String> = Vec::new();
        if has(Feature::DetailedStatus) {
            if running.leader().is_none() {
                errors.push("etcdserver: no leader".to_owned());
            }
            errors.extend(running.applied.alarms.iter().map(|alarm| {
                let member = alarm.member.map_or(0, MemberId::get);
                format!("memberID:{member} alarm:{} ", word(alarm.kind))
            }));
        }
        let has_storage = has(Feature::StatusOfStorage);
        Ok(Status {
            position,
            version: start.version.clone(),
            leader: running.leader(),
            raft_index: RaftIndex(self.wal(process).map_or(0, |wal| wal.commit)),
            applied: has(Feature::DetailedStatus).then_some(RaftIndex(running.applied.index)),
            is_learner: own.is_some_and(|member| member.role == Role::Learner),
            db_size: running.applied.bytes,
            db_in_use: has(Feature::DetailedStatus).then(|| running.applied.bytes_in_use()),
            db_quota: has_storage.then(|| start.quota.unwrap_or(NO_QUOTA)),
            storage_version: has_storage.then(|| running.storage.to_string()),
            downgrade: has_storage.then(|| match running.applied.downgrade.clone() {
                target @ Some(_) => Downgrade::Enabled { target },
                None => Downgrade::Disabled,
            }),
            errors,
        })
    }

    /// Whether a member takes writes, and if it is too large, what is to be said about that first.
    pub(crate) fn room(&self, process: ProcessId) -> Result<Option<Change>, Cause> {
        use etcd_operator_etcd::status::{Alarm, AlarmKind};
        let running = self.running_or_gone(process)?;
        if running
            .applied
            .alarms
            .iter()
            .any(|alarm| alarm.kind == AlarmKind::NoSpace)
        {
            return Err(no(Rejection::NoSpace));
        }
        let quota = self.processes[&process].start.quota.unwrap_or(NO_QUOTA);
        let alarm = Alarm {
            member: Some(running.id),
            kind: AlarmKind::NoSpace,
        };
        Ok((running.applied.bytes > quota).then_some(Change::Alarm { alarm, stands: true }))
    }

    /// The members as a member has applied them.
    pub(crate) fn members(&self, process: ProcessId) -> Result<Vec<Member>, Cause> {
        let running = self.running_or_gone(process)?;
        Ok(running.applied.members.values().cloned().collect())
    }
}

fn word(kind: etcd_operator_etcd::status::AlarmKind) -> String {
    use etcd_operator_etcd::status::AlarmKind;
    match kind {
        AlarmKind::NoSpace => "NOSPACE".to_owned(),
        AlarmKind::Corrupt => "CORRUPT".to_owned(),
        AlarmKind::Other(number) => number.to_string(),
    }
}

impl Etcds {
    /// Waits until a leader with its quorum has answered and this member has caught up with it.
    pub(crate) async fn read(&self, process: ProcessId) -> Result<Position, Cause> {
        self.with(|world| world.is_no_learner(process))?;
        let index = self
            .until(|world| match world.running(process) {
                None => Some(Err(gone())),
                Some(_) => world.read_index(process).map(Ok),
            })
            .await?;
        self.until(|world| match world.running(process) {
            None => Some(Err(gone())),
            Some(running) if running.applied.index >= index => Some(world.position(process)),
            Some(_) => None,
        })
        .await
    }

    /// Waits until a change is agreed and applied by the member that was asked, or for ever.
    pub(crate) async fn agreed(&self, process: ProcessId, change: Change) -> Result<(), Cause> {
        let (sender, outcome) = oneshot::channel();
        self.with(|world| world.propose_for(process, change, sender));
        match outcome.await {
            Ok(outcome) => outcome.map_err(no),
            Err(_) => Err(gone()),
        }
    }

    /// Writes a key.
    pub(crate) async fn written(
        &self,
        process: ProcessId,
        key: &str,
        value: &str,
    ) -> Result<Position, Cause> {
        self.with(|world| world.is_no_learner(process))?;
        if let Some(alarm) = self.with(|world| world.room(process))? {
            self.agreed(process, alarm).await?;
            return Err(no(Rejection::NoSpace));
        }
        let put = Change::Put {
            key: key.into(),
            value: value.into(),
        };
        self.agreed(process, put).await?;
        self.with(|world| world.position(process))
    }

    /// Drops history.
    pub(crate) async fn compacted(&self, process: ProcessId, revision: Revision) -> Result<Position, Cause> {
        self.with(|world| world.is_no_learner(process))?;
        self.agreed(process, Change::Compact(revision)).await?;
        self.with(|world| world.position(process))
    }
}
