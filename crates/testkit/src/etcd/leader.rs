//! How a leader brings its log to the others, and what is agreed by that. As in raft: a majority of voters decides, and
//! a leader remembers what each member once acknowledged, whatever became of its disk.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::rejection::Rejection;
use tokio::sync::oneshot;

use super::log::{Change, Entry, EntryId};
use super::process::{Lead, ProcessId, Stance};
use super::world::{Event, World};

/// How long a removed member runs on.
const FAREWELL: Duration = Duration::from_millis(300);

impl World {
    /// Makes a member the leader of a term that a quorum has granted it.
    pub(crate) fn lead(&mut self, process: ProcessId, term: u64) {
        let Some(running) = self.running_mut(process) else {
            return;
        };
        running.timer = None;
        running.stance = Stance::Leader(Lead {
            term,
            matched: BTreeMap::new(),
            told: BTreeMap::new(),
            flying: BTreeMap::new(),
            is_monitoring: false,
        });
        self.note(process, format_args!("leads term {term}"));
        self.changed();
        let id = self.fresh();
        self.append(process, id, Change::Nothing);
        self.refresh();
    }

    /// Asks for a change at any member; the sender hears what came of it once that member has applied it. Without a
    /// leader it is dropped, as etcd drops it, and nobody hears anything.
    pub(crate) fn propose(&mut self, process: ProcessId, id: EntryId, change: Change) {
        let Some(running) = self.running_mut(process) else {
            return;
        };
        if running.lead().is_some() {
            self.append(process, id, change);
        } else if let Some(leader) = self.leader_of(process) {
            let hop = self.hop_between(process, leader);
            let forward = Event::Forward {
                from: process,
                id,
                change,
            };
            self.after(hop, forward);
        }
    }

    /// [`World::propose`], with somebody who waits for the outcome.
    pub(crate) fn propose_for(
        &mut self,
        process: ProcessId,
        change: Change,
        waiter: oneshot::Sender<Result<(), Rejection>>,
    ) {
        let id = self.fresh();
        if let Some(running) = self.running_mut(process) {
            running.waiters.insert(id, waiter);
        }
        self.propose(process, id, change);
    }

    pub(crate) fn forward_arrives(&mut self, from: ProcessId, id: EntryId, change: Change) {
        if let Some(leader) = self.leader_of(from) {
            self.append(leader, id, change);
        }
    }

    fn hop_between(&mut self, one: ProcessId, other: ProcessId) -> Duration {
        let (one, other) = (self.labels(one).to_vec(), self.labels(other).to_vec());
        self.hop(&one, &other)
    }

    fn append(&mut self, process: ProcessId, id: EntryId, change: Change) {
        if !self.can_write(process) {
            return;
        }
        let Some(running) = self.running(process) else {
            return;
        };
        let Some(lead) = running.lead() else { return };
        let (term, own, applied) = (lead.term, running.id, running.applied.index);
        let Some(wal) = self.wal_mut(process) else { return };
        let pending = wal.log.after(applied, wal.log.last());
        if change.is_of_members() && pending.iter().any(|entry| entry.change.is_of_members()) {
            // One change of members at a time: a second one is dropped, and whoever asked waits in vain.
            return;
        }
        wal.log.push(Arc::new(Entry { id, term, change }));
        let last = wal.log.last();
        if let Some(lead) = self.running_mut(process).and_then(|running| running.lead_mut()) {
            lead.matched.insert(own, last);
        }
        self.agree(process);
        self.send(process);
    }

    /// Sends to every member that lacks something and has no message under way.
    pub(crate) fn send(&mut self, process: ProcessId) {
        let Some(running) = self.awake(process) else {
            return;
        };
        let Some(lead) = running.lead() else { return };
        let Some(wal) = self.wal(process) else { return };
        let (last, commit, term, own) = (wal.log.last(), wal.commit, lead.term, running.id);
        let lacking: Vec<MemberId> = running
            .applied
            .members
            .keys()
            .copied()
            .filter(|id| *id != own && !lead.flying.contains_key(id))
            .filter(|id| {
                let matched = lead.matched.get(id).copied().unwrap_or(0);
                let told = lead.told.get(id).copied();
                matched < last || told.is_none_or(|told| told < commit)
            })
            .collect();
        for to in lacking {
            let Some(peer) = self.peer(process, to) else {
                continue;
            };
            let hop = self.hop_between(process, peer);
            if let Some(lead) = self.running_mut(process).and_then(|running| running.lead_mut()) {
                lead.flying.insert(to, last);
            }
            let append = Event::Append {
                from: process,
                term,
                to,
                upto: last,
            };
            self.after(hop, append);
        }
    }

    pub(crate) fn append_arrives(&mut self, from: ProcessId, term: u64, to: MemberId, upto: u64) {
        let Some(leader) = self.awake(from) else { return };
        let Some(lead) = leader.lead().filter(|lead| lead.term == term) else {
            return;
        };
        let (matched, leader_id) = (lead.matched.get(&to).copied().unwrap_or(0), leader.id);
        self.landed(from, to);
        let Some(peer) = self.peer(from, to) else { return };
        if !self.carries(from, peer) {
            return;
        }
        let (Some(theirs), Some(own)) = (self.wal(from), self.wal(peer)) else {
            return;
        };
        if own.term > term {
            let newer = own.term;
            if self.carries(peer, from) {
                self.step_down(from, Some(newer));
            }
            return;
        }
        let (commit, last) = (theirs.commit, own.log.last());
        if matched.min(commit) > last {
            let why = format!(
                "panic: tocommit({}) is out of range [lastIndex({last})]",
                matched.min(commit)
            );
            self.exit(peer, 2, &why);
            return;
        }
        let common = theirs.log.common(&own.log);
        if common < own.commit.min(upto) {
            let why = format!(
                "conflict({}) with committed entry [committed({})]",
                common + 1,
                own.commit
            );
            self.exit(peer, 2, &why);
            return;
        }
        let entries = theirs.log.after(common, upto).to_vec();
        if !entries.is_empty() && !self.can_write(peer) {
            return;
        }
        self.follow(peer, leader_id, term);
        let Some(wal) = self.wal_mut(peer) else { return };
        if !entries.is_empty() {
            wal.log.cut(common);
            for entry in entries {
                wal.log.push(entry);
            }
        }
        wal.commit = wal.commit.max(commit.min(upto));
        self.apply(peer);
        self.told(from, to, commit.min(upto));
        if self.carries(peer, from) {
            let hop = self.hop_between(peer, from);
            let ack = Event::Ack {
                to: from,
                term,
                member: to,
                upto,
            };
            self.after(hop, ack);
        }
    }

    fn landed(&mut self, leader: ProcessId, member: MemberId) {
        if let Some(lead) = self.running_mut(leader).and_then(|running| running.lead_mut()) {
            lead.flying.remove(&member);
        }
    }

    fn told(&mut self, leader: ProcessId, member: MemberId, commit: u64) {
        if let Some(lead) = self.running_mut(leader).and_then(|running| running.lead_mut()) {
            lead.told.insert(member, commit);
        }
    }

    pub(crate) fn ack_arrives(&mut self, to: ProcessId, term: u64, member: MemberId, upto: u64) {
        let Some(running) = self.processes.get_mut(&to).filter(|process| !process.is_stopped) else {
            return;
        };
        let Some(running) = running.member.as_mut() else {
            return;
        };
        let cluster = running.cluster;
        let Some(lead) = running.lead_mut().filter(|lead| lead.term == term) else {
            return;
        };
        let matched = lead.matched.entry(member).or_default();
        *matched = (*matched).max(upto);
        let matched = *matched;
        self.agree(to);
        if let Some(commit) = self.wal(to).map(|wal| wal.commit) {
            self.acknowledged(cluster, member, matched.min(commit));
        }
        self.send(to);
    }

    /// Takes for agreed what a majority of voters has, if it ends with an entry of the leader's own term.
    fn agree(&mut self, process: ProcessId) {
        let Some(running) = self.running(process) else {
            return;
        };
        let Some(lead) = running.lead() else { return };
        let matched = |id: &MemberId| lead.matched.get(id).copied().unwrap_or(0);
        let mut voters: Vec<u64> = running
            .applied
            .voters()
            .map(|member| matched(&member.id))
            .collect();
        voters.sort_unstable_by(|a, b| b.cmp(a));
        let agreed = voters.get(running.applied.quorum() - 1).copied().unwrap_or(0);
        let (term, own, cluster) = (lead.term, running.id, running.cluster);
        let held: Vec<(MemberId, u64)> = lead.matched.iter().map(|(id, index)| (*id, *index)).collect();
        let Some(wal) = self.wal_mut(process) else { return };
        if agreed <= wal.commit || wal.log.term_at(agreed) != Some(term) {
            return;
        }
        wal.commit = agreed;
        for (member, index) in held {
            self.acknowledged(cluster, member, index.min(agreed));
        }
        self.acknowledged(cluster, own, agreed);
        self.apply(process);
        self.send(process);
    }

    /// Applies what is agreed, tells whoever waits for it, and does what follows from it.
    pub(crate) fn apply(&mut self, process: ProcessId) {
        let (mut is_of_members, mut is_of_versions) = (false, false);
        loop {
            let Some(running) = self.running(process) else {
                return;
            };
            let (index, cluster, own) = (running.applied.index + 1, running.cluster, running.id);
            let Some(wal) = self.wal(process).filter(|wal| wal.commit >= index) else {
                break;
            };
            let Some(entry) = wal.log.get(index).cloned() else {
                break;
            };
            self.witness(process, cluster, index, &entry);
            let Some(running) = self.running_mut(process) else {
                return;
            };
            let outcome = running.applied.apply(&entry);
            self.take_log_snapshot(process, index);
            let Some(running) = self.running_mut(process) else {
                return;
            };
            let is_published = running.publishing == Some(entry.id);
            running.is_published |= is_published;
            if let Some(waiter) = running.waiters.remove(&entry.id) {
                // Whoever asked may have given up.
                let _ = waiter.send(outcome.clone());
            }
            is_of_members |= entry.change.is_of_members();
            if outcome.is_ok() {
                if entry.change.is_of_members() && running.lead().is_some() {
                    self.note(process, format_args!("agreed: {:?}", entry.change));
                }
                if entry.change == Change::Remove(own) {
                    self.after(FAREWELL, Event::Dismissed(process));
                }
                match &entry.change {
                    Change::Nothing => self.compare_versions_in(process, entry.term),
                    Change::Attributes { .. } | Change::Remove(_) | Change::Downgrade(_) => {
                        self.watch_versions(process);
                    }
                    Change::ClusterVersion(_) => is_of_versions = true,
                    _ => {}
                }
            }
            if is_published || entry.change == Change::Nothing {
                self.reshaped();
            }
            self.changed();
        }
        if is_of_versions {
            self.check_applied(process);
            self.follow_cluster_version(process);
            // One that was told to raise it again may have been told while it was lowered.
            self.watch_versions(process);
        }
        if is_of_members {
            self.agree(process);
            self.refresh();
        }
    }
}
