//! A process of etcd: what it is told at its start, what it is while it runs, how it ended. What it does is in the
//! modules beside this one.

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_operator_etcd::flags::First;
use etcd_operator_etcd::id::{ClusterId, MemberId};
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_etcd::url::{ClientUrl, PeerUrl};
use etcd_operator_etcd::version::Version;
use tokio::sync::oneshot;

use super::applied::Applied;
use super::disk::DiskId;
use super::log::EntryId;

/// Time since the model began.
pub type At = Duration;

/// One process, never mistaken for a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub(crate) u64);

/// What a process is told at its start.
#[derive(Clone, Debug)]
pub struct Start {
    /// By which names it is found: host names and addresses.
    pub hosts: Vec<String>,
    /// By what the network may cut it off: its pod, its node.
    pub labels: Vec<String>,
    /// Where its data lies.
    pub disk: DiskId,
    /// What is run.
    pub version: Version,
    /// Its name.
    pub name: String,
    /// Where members find it.
    pub peer_url: PeerUrl,
    /// Where clients find it.
    pub client_url: ClientUrl,
    /// What it needs for its first start; without it begins a cluster of its own.
    pub first: Option<First>,
    /// The largest database, in bytes.
    pub quota: Option<u64>,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Its exit code; 137 if it was killed.
    pub code: i32,
    /// Its last words.
    pub why: String,
    /// When.
    pub at: At,
}

/// A process that has not ended.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) start: Start,
    pub(crate) is_stopped: bool,
    /// It was told to end.
    pub(crate) is_ending: bool,
    /// None while it is still opening its files.
    pub(crate) member: Option<Running>,
}

/// A member at work. Its term, vote and log are on its disk.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) cluster: ClusterId,
    pub(crate) id: MemberId,
    pub(crate) since: At,
    pub(crate) applied: Applied,
    /// The version of its files as it reports it: a lower one is on its disk a moment later.
    pub(crate) storage: Version,
    pub(crate) stance: Stance,
    /// The other members it is connected to, and since when.
    pub(crate) active: BTreeMap<MemberId, At>,
    /// Connections that broke silently: it will notice.
    pub(crate) breaking: BTreeMap<MemberId, At>,
    /// What it waits for before it campaigns, or as a leader before it steps down.
    pub(crate) timer: Option<u64>,
    /// Its last campaign came to nothing, and since then nothing has changed.
    pub(crate) is_parked: bool,
    /// Whether the others have agreed to its name and address since it started, without which it serves no client.
    pub(crate) is_published: bool,
    pub(crate) publishing: Option<EntryId>,
    pub(crate) waiters: BTreeMap<EntryId, oneshot::Sender<Result<(), Rejection>>>,
}

/// What a member is to the others.
#[derive(Debug)]
pub(crate) enum Stance {
    Follower { leader: Option<MemberId> },
    Leader(Lead),
}

/// What a leader remembers.
#[derive(Debug)]
pub(crate) struct Lead {
    pub(crate) term: u64,
    /// Up to where each member has said that it has the log. Remembered whatever becomes of its disk.
    pub(crate) matched: BTreeMap<MemberId, u64>,
    /// Up to where each was told that the log is agreed.
    pub(crate) told: BTreeMap<MemberId, u64>,
    /// Members to whom a message is under way.
    pub(crate) flying: BTreeMap<MemberId, u64>,
    /// Whether it will compare the versions of the members.
    pub(crate) is_monitoring: bool,
}

impl Process {
    /// The member, if it is up and not stopped.
    pub(crate) fn awake(&self) -> Option<&Running> {
        self.member.as_ref().filter(|_| !self.is_stopped)
    }
}

impl Running {
    pub(crate) fn lead(&self) -> Option<&Lead> {
        match &self.stance {
            Stance::Leader(lead) => Some(lead),
            Stance::Follower { .. } => None,
        }
    }

    pub(crate) fn lead_mut(&mut self) -> Option<&mut Lead> {
        match &mut self.stance {
            Stance::Leader(lead) => Some(lead),
            Stance::Follower { .. } => None,
        }
    }

    /// Whom it takes for the leader.
    pub(crate) fn leader(&self) -> Option<MemberId> {
        match &self.stance {
            Stance::Leader(_) => Some(self.id),
            Stance::Follower { leader } => *leader,
        }
    }
}
