//! What follows when the network, a process or the members change: who is connected to whom and since when, who waits
//! for a leader, who hears that it was removed, who has to be told what it missed.

use std::time::Duration;

use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::policy::Feature;
use etcd_operator_etcd::url::PeerUrl;

use super::log::Change;
use super::process::{Process, ProcessId};
use super::world::{Event, World};

/// How long a connection that broke silently is taken for sound.
const SILENCE: Duration = Duration::from_secs(5);
/// How soon a member hears from another that it was removed.
const GOSSIP: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(900));
/// How soon a member tells the others its name, and how often it tries.
const GREETING: Duration = Duration::from_millis(5);
const GREETING_AGAIN: Duration = Duration::from_millis(500);

impl World {
    /// Whether messages from one process arrive at another.
    pub(crate) fn carries(&self, from: ProcessId, to: ProcessId) -> bool {
        self.network.carries(self.labels(from), self.labels(to))
    }

    /// Whether two processes can talk: both are awake, and messages arrive both ways.
    pub(crate) fn connects(&self, one: ProcessId, other: ProcessId) -> bool {
        self.awake(one).is_some() && self.awake(other).is_some() && {
            self.network.connects(self.labels(one), self.labels(other))
        }
    }

    /// The process to which a member's messages for another go: the one under its address, or one that calls itself by
    /// its ID and dials. There are several only if a disk was copied, and then the latest has taken the stream over.
    pub(crate) fn peer(&self, process: ProcessId, member: MemberId) -> Option<ProcessId> {
        let own = self.running(process)?;
        let known = own.applied.members.get(&member)?;
        let found = self.processes.iter().rev().find(|(id, other)| {
            **id != process
                && other.awake().is_some_and(|running| {
                    running.cluster == own.cluster
                        && running.id == member
                        && (self.is_at(**id, known.peer_urls.iter().map(PeerUrl::host))
                            || self.dials(other, own.id, process))
                })
        });
        found.map(|(id, _)| *id)
    }

    fn is_at<'a>(&self, process: ProcessId, mut hosts: impl Iterator<Item = &'a str>) -> bool {
        hosts.any(|host| self.hosts.get(host) == Some(&process))
    }

    /// Whether a process dials another as this member.
    fn dials(&self, from: &Process, member: MemberId, to: ProcessId) -> bool {
        from.member.as_ref().is_some_and(|running| {
            let known = running.applied.members.get(&member);
            known.is_some_and(|known| self.is_at(to, known.peer_urls.iter().map(PeerUrl::host)))
        })
    }

    /// Something changed: sets right all that follows from it.
    pub(crate) fn refresh(&mut self) {
        self.reshaped();
        for process in self.ids().iter().copied() {
            self.renew_connections(process);
            self.hear_of_removal(process);
        }
        self.set_timers();
        for process in self.ids().iter().copied() {
            self.want_publish(process);
            self.resend(process);
        }
        self.judge_health();
    }

    fn renew_connections(&mut self, process: ProcessId) {
        let Some(running) = self.running(process) else {
            return;
        };
        let own = running.id;
        let others: Vec<MemberId> = running
            .applied
            .members
            .keys()
            .copied()
            .filter(|id| *id != own)
            .collect();
        let mut connected = Vec::new();
        let mut silent = Vec::new();
        for id in others {
            match self.peer(process, id) {
                Some(peer) if self.connects(process, peer) => connected.push(id),
                Some(_) => silent.push(id),
                // A process that was stopped keeps its connections for a while; one that ended does not.
                None if self.is_stopped(process, id) => silent.push(id),
                None => {}
            }
        }
        let now = self.now;
        let Some(running) = self.running_mut(process) else {
            return;
        };
        running
            .active
            .retain(|id, _| connected.contains(id) || silent.contains(id));
        running.breaking.retain(|id, _| silent.contains(id));
        for id in connected {
            running.active.entry(id).or_insert(now);
        }
        let mut is_new = false;
        for id in silent {
            if running.active.contains_key(&id) && !running.breaking.contains_key(&id) {
                running.breaking.insert(id, now + SILENCE);
                is_new = true;
            }
        }
        if is_new {
            self.after(SILENCE, Event::Notice(process));
        }
    }

    fn is_stopped(&self, process: ProcessId, member: MemberId) -> bool {
        let Some(own) = self.running(process) else {
            return false;
        };
        self.processes.values().any(|other| {
            other.is_stopped
                && other
                    .member
                    .as_ref()
                    .is_some_and(|running| running.cluster == own.cluster && running.id == member)
        })
    }

    pub(crate) fn notice(&mut self, process: ProcessId) {
        let now = self.now;
        let Some(running) = self.running_mut(process) else {
            return;
        };
        let broken: Vec<MemberId> = running
            .breaking
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(id, _)| *id)
            .collect();
        for id in broken {
            running.breaking.remove(&id);
            running.active.remove(&id);
        }
        self.changed();
    }

    fn hear_of_removal(&mut self, process: ProcessId) {
        let Some(running) = self.awake(process) else {
            return;
        };
        let is_told = self.processes.iter().any(|(id, other)| {
            *id != process
                && other.member.as_ref().is_some_and(|other| {
                    other.cluster == running.cluster && other.applied.removed.contains(&running.id)
                })
                && self.connects(process, *id)
        });
        if is_told {
            let (least, most) = GOSSIP;
            let soon = self.chance.between(least, most);
            self.after(soon, Event::Dismissed(process));
        }
    }

    pub(crate) fn dismiss(&mut self, process: ProcessId) {
        let Some(running) = self.awake(process) else {
            return;
        };
        let is_early = !running.is_published;
        if is_early && self.chance.one_in(2) {
            self.exit(process, 1, "listener failed: server is stopping");
        } else {
            self.exit(
                process,
                0,
                "the member has been permanently removed from the cluster",
            );
        }
    }

    /// A leader forgets messages that may be lost and sends again.
    fn resend(&mut self, process: ProcessId) {
        let Some(running) = self.running_mut(process) else {
            return;
        };
        let applied: Vec<MemberId> = running.applied.members.keys().copied().collect();
        let Some(lead) = running.lead_mut() else { return };
        lead.flying.clear();
        lead.matched.retain(|id, _| applied.contains(id));
        self.meet(process);
        self.send(process);
    }

    /// A leader speaks to members that do not follow it yet.
    fn meet(&mut self, process: ProcessId) {
        let Some(running) = self.running(process) else {
            return;
        };
        let (own, ids) = (running.id, running.applied.members.keys().copied());
        let strangers: Vec<MemberId> = ids
            .filter(|id| *id != own)
            .filter(|id| {
                let peer = self.peer(process, *id).and_then(|peer| self.running(peer));
                peer.is_some_and(|peer| peer.leader() != Some(own))
            })
            .collect();
        if let Some(lead) = self.running_mut(process).and_then(|running| running.lead_mut()) {
            for id in strangers {
                lead.told.remove(&id);
            }
        }
    }

    /// Lets a member that has a leader tell its name.
    pub(crate) fn want_publish(&mut self, process: ProcessId) {
        let Some(running) = self.awake(process) else {
            return;
        };
        if running.is_published || running.publishing.is_some() || running.leader().is_none() {
            return;
        }
        // Of no entry: those with which a log begins have none of their own.
        let nothing_yet = self.fresh();
        if let Some(running) = self.running_mut(process) {
            running.publishing = Some(nothing_yet);
        }
        self.after(GREETING, Event::Publish(process));
    }

    pub(crate) fn publish(&mut self, process: ProcessId) {
        let Some(Process {
            start, is_stopped, ..
        }) = self.processes.get(&process)
        else {
            return;
        };
        // Once it goes on, it still has to.
        if *is_stopped {
            self.after(GREETING_AGAIN, Event::Publish(process));
            return;
        }
        let (name, clients, version) = (
            start.name.clone(),
            vec![start.client_url.clone()],
            start.version.clone(),
        );
        let Some(running) = self.awake(process).filter(|running| !running.is_published) else {
            return;
        };
        let change = Change::Attributes {
            member: running.id,
            name,
            clients,
            version,
        };
        let id = self.fresh();
        if let Some(running) = self.running_mut(process) {
            running.publishing = Some(id);
        }
        self.propose(process, id, change);
        self.after(GREETING_AGAIN, Event::Publish(process));
    }

    /// Whether a process answers clients: only once the others have agreed to its name since it started, so that a
    /// survivor without a quorum that was restarted answers nobody.
    pub(crate) fn serves(&self, process: ProcessId) -> bool {
        self.awake(process).is_some_and(|running| running.is_published)
    }

    /// Whether the version of a process has a feature.
    pub(crate) fn has(&self, process: ProcessId, feature: Feature) -> bool {
        self.processes
            .get(&process)
            .is_some_and(|process| feature.is_in(&process.start.version))
    }
}
