//! What clients were promised and what an operator did, side by side: acknowledged writes, and every step of the operator
//! judged at the moment it is taken against what is really so. It sees everything and changes nothing.
//!
//! A step is judged by how things have been for a while: nobody can see what has just broken. What breaks a promise is
//! kept with the promise's number, as the contract of the operator has them.

mod clients;
mod permits;
mod restores;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_operator_etcd::id::{ClusterId, MemberId};

pub use self::clients::Writers;
pub use self::steps::Request;

use self::restores::Restored;

use crate::etcd::{At, Etcds, FindingKind};
use crate::machine::Machine;
use crate::timeline::Timeline;

/// For how long a fault may have gone unnoticed without blame.
pub const BLINDNESS: Duration = Duration::from_secs(10);

/// By then a member that was told to end has ended.
pub(crate) const ENDING: Duration = Duration::from_secs(5);

/// A promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// Every acknowledged write stays.
    S1,
    /// Never fewer healthy voters than a quorum by a step.
    S2,
    /// No lost, foreign or other disk runs without a permit for that very process.
    S3,
    /// Data is deleted only when its member has left and its pod is gone.
    S4,
    /// One disruptive step at a time.
    OneAtATime,
    /// Clients are never led to a member that does not serve them.
    Clients,
    /// Members whose volume survives start without the operator.
    S5,
    /// A restore serves the snapshot and nothing else, and clients never see two lives of the data at once.
    S7,
    /// Nothing is for ever: once nothing goes wrong any more, all becomes as asked for.
    S9,
    /// An operator never panics.
    NoPanic,
}

/// A promise that was broken, when, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: At,
    /// Which.
    pub promise: Promise,
    /// In words.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} at {:.3}: {}",
            self.promise,
            self.at.as_secs_f64(),
            self.what
        )
    }
}

/// A write that a client was told is done.
#[derive(Clone, Debug)]
pub(crate) struct Acked {
    pub(crate) cluster: ClusterId,
    pub(crate) key: String,
    pub(crate) value: String,
}

/// A voter that the operator took away for a while.
#[derive(Clone, Debug)]
pub(crate) struct Disrupted {
    pub(crate) at: At,
    pub(crate) how: String,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) acked: BTreeMap<String, Vec<Acked>>,
    /// The newest revision acknowledged by each cluster.
    pub(crate) revisions: BTreeMap<ClusterId, i64>,
    /// Voters that the operator took away and that have not come back.
    pub(crate) disrupted: BTreeMap<(ClusterId, MemberId), Disrupted>,
    /// Permits by namespace, pod's name, incarnation and mode: the processes they were for.
    pub(crate) permits: BTreeMap<(String, String, i64, String), BTreeSet<String>>,
    /// What clusters serve that were restored, by namespace and name.
    pub(crate) restored: BTreeMap<String, Restored>,
    /// Clusters in whose place a restore was put for good, or that a person gave up.
    pub(crate) past: BTreeSet<ClusterId>,
    /// Clusters that began with a restore, and the UID of that.
    pub(crate) made_by: BTreeMap<ClusterId, String>,
    violations: Vec<Violation>,
    /// Faults that no operator can survive without loss were injected.
    is_forgiving: bool,
    pub(crate) asked: u64,
    pub(crate) failed: u64,
}

/// The ledger. Clones share it.
#[derive(Clone)]
pub struct Ledger(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) etcds: Etcds,
    pub(crate) machine: Machine,
    pub(crate) timeline: Timeline,
    pub(crate) state: Mutex<State>,
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ledger")
    }
}

impl Ledger {
    /// An empty ledger that judges every step of judged callers from now on.
    pub fn new(etcds: &Etcds, machine: &Machine) -> Self {
        let ledger = Self(Arc::new(Inner {
            etcds: etcds.clone(),
            machine: machine.clone(),
            timeline: etcds.timeline(),
            state: Mutex::default(),
        }));
        let weak = Arc::downgrade(&ledger.0);
        etcds.judge(Box::new(move |truth, step| {
            if let Some(inner) = weak.upgrade() {
                Self(inner).judge_call(truth, step);
            }
        }));
        ledger
    }

    pub(crate) fn with<T>(&self, run: impl FnOnce(&mut State) -> T) -> T {
        run(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes a broken promise.
    pub(crate) fn blame(&self, at: At, promise: Promise, what: String) {
        self.0
            .timeline
            .note("BROKEN", format_args!("{promise:?}: {what}"));
        self.with(|state| state.violations.push(Violation { at, promise, what }));
    }

    /// Notes a broken promise that somebody else has seen.
    pub fn accuse(&self, promise: Promise, what: String) {
        self.blame(self.0.etcds.now(), promise, what);
    }

    /// From now on lost writes and members without memory are not held against anybody: what was done to the disks
    /// cannot be seen at a start, or leaves no quorum of them.
    pub fn forgive_losses(&self) {
        self.with(|state| state.is_forgiving = true);
    }

    /// A person gives up all that was agreed on so far: no cluster that there was has voters any more, and what it lost is
    /// not held against anybody.
    pub fn give_up_clusters(&self) {
        self.0
            .etcds
            .truth(|truth| self.with(|state| state.past.extend(truth.clusters())));
        self.forgive_losses();
    }

    /// Every promise that was broken so far, in the order of time.
    pub fn violations(&self) -> Vec<Violation> {
        let findings = self.0.etcds.findings().into_iter().filter_map(|finding| {
            let promise = match finding.kind {
                FindingKind::Forked => Promise::S1,
                FindingKind::Amnesia => Promise::S3,
                FindingKind::Reverted => return None,
            };
            Some(Violation {
                at: finding.at,
                promise,
                what: finding.what,
            })
        });
        self.with(|state| {
            let is_forgiven = |violation: &Violation| {
                state.is_forgiving && matches!(violation.promise, Promise::S1 | Promise::S3)
            };
            let mut all: Vec<Violation> = state.violations.iter().cloned().chain(findings).collect();
            all.retain(|violation| !is_forgiven(violation));
            all.sort_by_key(|violation| violation.at);
            all
        })
    }

    /// How many writes were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.with(|state| state.acked.values().map(Vec::len).sum())
    }

    /// How many writes were asked for, and how many of them failed or were never answered.
    pub fn asked(&self) -> (u64, u64) {
        self.with(|state| (state.asked, state.failed))
    }
}
