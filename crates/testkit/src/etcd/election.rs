//! Who leads: elections among voters that are connected, and leaders that find that they have no quorum. A vote is an
//! instant here, its rules are raft's: the term, one vote a term, and a log that is not behind.

use std::time::Duration;

use etcd_operator_etcd::id::MemberId;

use super::process::{ProcessId, Stance};
use super::world::{Event, World};

/// How long a member waits for a leader, and a leader for its followers.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(2));
/// The same for members that have just started, which do not wait as long.
const EAGERNESS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(900));
/// How long a member that was not elected waits if nothing changes.
const RETRY: Duration = Duration::from_secs(10);

impl World {
    /// Whether a member has a leader that it hears, or a leader has a quorum that hears it.
    fn is_settled(&self, process: ProcessId) -> bool {
        let Some(running) = self.running(process) else {
            return true;
        };
        match &running.stance {
            Stance::Leader(_) => self.has_quorum(process),
            Stance::Follower { .. } => self.heard_leader(process).is_some(),
        }
    }

    /// Whether a leader reaches a majority of voters.
    pub(crate) fn has_quorum(&self, process: ProcessId) -> bool {
        let Some(running) = self.awake(process) else {
            return false;
        };
        let term = self.wal(process).map_or(0, |wal| wal.term);
        let reached = running.applied.voters().filter(|member| {
            member.id == running.id
                || self.peer(process, member.id).is_some_and(|peer| {
                    self.connects(process, peer) && self.wal(peer).is_some_and(|wal| wal.term <= term)
                })
        });
        reached.count() >= running.applied.quorum()
    }

    /// The leader from which a follower hears.
    fn heard_leader(&self, process: ProcessId) -> Option<ProcessId> {
        let running = self.awake(process)?;
        let term = self.wal(process)?.term;
        self.processes.iter().find_map(|(id, other)| {
            let leader = other.awake()?;
            let lead = leader.lead()?;
            let hears = *id != process
                && leader.cluster == running.cluster
                && lead.term >= term
                && leader.applied.members.contains_key(&running.id)
                && self.peer(*id, running.id) == Some(process)
                && self.connects(*id, process);
            hears.then_some(*id)
        })
    }

    /// The leader as a member knows it, if it can reach it.
    pub(crate) fn leader_of(&self, process: ProcessId) -> Option<ProcessId> {
        let running = self.awake(process)?;
        if running.lead().is_some() {
            return Some(process);
        }
        let leader = self.peer(process, running.leader()?)?;
        let leads = self.awake(leader)?.lead().is_some();
        (leads && self.connects(process, leader)).then_some(leader)
    }

    /// Sets timers for all members that lack a leader or, leading, a quorum.
    pub(crate) fn set_timers(&mut self) {
        for process in self.ids().iter().copied() {
            let Some(running) = self.awake(process) else {
                continue;
            };
            let is_waiting = running.timer.is_some() && !running.is_parked;
            let is_new = running.leader().is_none() && self.now == running.since;
            let is_settled = self.is_settled(process);
            if is_settled != is_waiting {
                continue;
            }
            let stamp = self.fresh();
            let (least, most) = if is_new { EAGERNESS } else { PATIENCE };
            let wait = self.chance.between(least, most);
            if let Some(running) = self.running_mut(process) {
                running.timer = (!is_settled).then_some(stamp);
                running.is_parked = false;
            }
            if !is_settled {
                self.after(wait, Event::Timer(process, stamp));
            }
        }
    }

    pub(crate) fn timer_fires(&mut self, process: ProcessId, stamp: u64) {
        let Some(running) = self
            .running_mut(process)
            .filter(|running| running.timer == Some(stamp))
        else {
            return;
        };
        running.timer = None;
        running.is_parked = false;
        if self.awake(process).is_none() || self.is_settled(process) {
            return;
        }
        if self
            .running(process)
            .is_some_and(|running| running.lead().is_some())
        {
            self.step_down(process, None);
        } else {
            self.campaign(process);
        }
    }

    /// Ends a leader's term.
    pub(crate) fn step_down(&mut self, process: ProcessId, newer: Option<u64>) {
        if let Some(wal) = self.wal_mut(process)
            && let Some(term) = newer
            && wal.term < term
        {
            wal.term = term;
            wal.vote = None;
        }
        let Some(running) = self.running_mut(process) else {
            return;
        };
        running.stance = Stance::Follower { leader: None };
        running.timer = None;
        self.note(process, "steps down");
        self.changed();
        self.refresh();
    }

    /// Takes a member of the cluster for the leader of a term.
    pub(crate) fn follow(&mut self, process: ProcessId, leader: MemberId, term: u64) {
        if let Some(wal) = self.wal_mut(process)
            && wal.term < term
        {
            wal.term = term;
            wal.vote = None;
        }
        let Some(running) = self.running_mut(process) else {
            return;
        };
        running.timer = None;
        if running.leader() != Some(leader) {
            running.stance = Stance::Follower { leader: Some(leader) };
            self.reshaped();
            self.want_publish(process);
        }
    }

    fn campaign(&mut self, process: ProcessId) {
        let Some(running) = self.running_mut(process) else {
            return;
        };
        let is_news = running.leader().is_some();
        running.stance = Stance::Follower { leader: None };
        let own = running.id;
        if is_news {
            self.reshaped();
        }
        let Some(running) = self.running(process) else {
            return;
        };
        let Some(wal) = self.wal(process) else { return };
        if !running.applied.is_voter(own) {
            return;
        }
        let voters: Vec<ProcessId> = running
            .applied
            .voters()
            .filter_map(|member| match member.id {
                id if id == own => Some(process),
                id => self
                    .peer(process, id)
                    .filter(|peer| self.connects(process, *peer)),
            })
            .collect();
        let highest = voters
            .iter()
            .filter_map(|voter| self.wal(*voter))
            .map(|wal| wal.term)
            .max();
        let term = highest.unwrap_or(wal.term) + 1;
        let granting: Vec<ProcessId> = voters
            .into_iter()
            .filter(|voter| *voter == process || self.grants(*voter, process))
            .collect();
        if granting.len() < running.applied.quorum() {
            let stamp = self.fresh();
            if let Some(running) = self.running_mut(process) {
                running.timer = Some(stamp);
                running.is_parked = true;
            }
            self.after(RETRY, Event::Timer(process, stamp));
            return;
        }
        for voter in granting {
            if let Some(wal) = self.wal_mut(voter) {
                wal.term = term;
                wal.vote = Some(own);
            }
            if voter != process
                && let Some(running) = self.running_mut(voter)
            {
                running.stance = Stance::Follower { leader: None };
            }
        }
        self.lead(process, term);
    }

    /// Whether a voter would vote for a candidate: it has no leader itself, and the candidate's log is not behind.
    fn grants(&self, voter: ProcessId, candidate: ProcessId) -> bool {
        let (Some(own), Some(theirs)) = (self.wal(voter), self.wal(candidate)) else {
            return false;
        };
        let has_leader = match self.running(voter).map(|running| &running.stance) {
            Some(Stance::Leader(_)) => self.has_quorum(voter),
            _ => self.heard_leader(voter).is_some(),
        };
        !has_leader && theirs.log.is_up_to(&own.log)
    }
}
