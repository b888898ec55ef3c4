//! What was read of each cluster at the last look: too lively for a status, and of use only while it is fresh.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::cluster::StepIntent;
use etcd_operator_cluster_core::desired::DEFAULT_QUOTA;
use etcd_operator_cluster_core::observed_state::{ObservedCluster, Pod};
use etcd_operator_etcd::status::Status;
use etcd_operator_runtime::key::ObjectKey;
use jiff::Timestamp;

/// How old a reading may be; a cluster that nothing happens to is looked at far more often. What is older was read by a
/// process that leads no more.
const MAX_AGE: Duration = Duration::from_mins(5);

/// What one observation of a cluster records for its metrics.
#[derive(Clone, Debug)]
pub struct Sample<'a> {
    /// The UID of the `EtcdCluster`.
    pub uid: &'a str,
    /// The wall's clock.
    pub now: Timestamp,
    /// The step that is written down.
    pub step: Option<&'a StepIntent>,
    /// The members that answered, by name.
    pub answers: Vec<(String, &'a Status)>,
    /// The quota that the spec asks for.
    pub quota: Option<u64>,
    /// The members' pods.
    pub pods: PodCounts,
}

/// How many pods of members there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodCounts {
    /// All that are not being deleted.
    pub all: usize,
    /// Those that were made for another spec than the template that the StatefulSet has now.
    pub outdated: usize,
}

impl PodCounts {
    /// Counts the pods that are not being deleted.
    fn of(observed: &ObservedCluster) -> Self {
        let template = observed.set.as_ref().and_then(|set| set.spec_hash.as_ref());
        let pods = observed.members.values().filter_map(|member| member.pod.as_ref());
        let pods: Vec<_> = pods.filter(|pod| pod.deleting.is_none()).collect();
        let is_outdated = |pod: &&&Pod| pod.has_other_spec_hash(template);
        Self {
            all: pods.len(),
            outdated: pods.iter().filter(is_outdated).count(),
        }
    }
}

impl<'a> Sample<'a> {
    /// What was seen of a cluster.
    pub fn new(cluster: &'a EtcdCluster, observed: &'a ObservedCluster) -> Self {
        let plan = cluster.status.as_ref().and_then(|status| status.plan.as_ref());
        let members = observed.members.iter();
        Self {
            uid: &observed.uid,
            now: observed.now,
            step: plan.and_then(|plan| plan.step.as_ref()),
            answers: members
                .filter_map(|(ordinal, observed_member)| {
                    Some((ordinal.name(&observed.desired.name), observed_member.status()?))
                })
                .collect(),
            quota: observed.desired.options.quota,
            pods: PodCounts::of(observed),
        }
    }
}

/// What the metrics show of a cluster from its last observation; empty if there is no recent one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Of each member that answered.
    pub databases: Vec<Database>,
    /// Bytes that each may have.
    pub quota: Option<i64>,
    /// The kind of the step in progress, and when this process first observed it.
    pub step: Option<(String, Timestamp)>,
    /// The members' pods, if they were observed recently.
    pub pods: Option<PodCounts>,
}

/// Size and lag of one member's database, for the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// The member's name.
    pub member: String,
    /// Bytes of the file.
    pub size: i64,
    /// Bytes in use, where the member tells.
    pub in_use: Option<i64>,
    /// By how many entries of the log it is behind the one that is furthest.
    pub behind: i64,
}

/// The last sample of each cluster, in memory; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Readings(Arc<Mutex<BTreeMap<ObjectKey, StoredReading>>>);

#[derive(Clone, Debug)]
struct StoredReading {
    uid: String,
    at: Timestamp,
    databases: Vec<Database>,
    quota: i64,
    /// Since when this very step is known.
    step: Option<(StepIntent, Timestamp)>,
    pods: PodCounts,
}

impl Readings {
    /// Replaces the sample of a cluster. The start of a step is kept as long as the step stays the same.
    pub fn record(&self, key: &ObjectKey, sample: &Sample<'_>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all
            .get(key)
            .and_then(|stored_reading| stored_reading.step.as_ref());
        let step = sample.step.map(|step| match before {
            Some((same, since)) if same == step => (step.clone(), *since),
            _ => (step.clone(), sample.now),
        });
        let stored_reading = StoredReading {
            uid: sample.uid.to_owned(),
            at: sample.now,
            databases: databases(sample),
            quota: quota(sample),
            step,
            pods: sample.pods,
        };
        all.insert(key.clone(), stored_reading);
    }

    /// Drops what was read of a cluster that is gone.
    pub fn forget(&self, key: &ObjectKey) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(key);
    }

    /// The reading of a cluster. Empty if none was recorded, if it is of an earlier `EtcdCluster` of that name, or if
    /// it is more than five minutes old.
    pub fn get(&self, key: &ObjectKey, uid: Option<&str>, now: Timestamp) -> Reading {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stored_reading = all.get(key).filter(|stored_reading| {
            let age = now.duration_since(stored_reading.at);
            Some(&*stored_reading.uid) == uid && age.unsigned_abs() <= MAX_AGE
        });
        stored_reading.map_or_else(Reading::default, |stored_reading| Reading {
            databases: stored_reading.databases.clone(),
            quota: Some(stored_reading.quota),
            step: stored_reading
                .step
                .as_ref()
                .map(|(step, since)| (step.kind.clone(), *since)),
            pods: Some(stored_reading.pods),
        })
    }
}

/// The databases of the members that answered. Each is behind the one of them with the highest Raft index.
fn databases(sample: &Sample<'_>) -> Vec<Database> {
    let furthest = sample.answers.iter().map(|(_, status)| status.raft_index.0).max();
    let furthest = furthest.unwrap_or_default();
    sample
        .answers
        .iter()
        .map(|(member, status)| Database {
            member: member.clone(),
            size: figure(status.db_size),
            in_use: status.db_in_use.map(figure),
            behind: figure(furthest - status.raft_index.0),
        })
        .collect()
}

/// The lowest quota that a member reports, else what the spec says, else etcd's default.
fn quota(sample: &Sample<'_>) -> i64 {
    let said = sample.answers.iter().filter_map(|(_, status)| status.db_quota);
    figure(said.min().unwrap_or(sample.quota.unwrap_or(DEFAULT_QUOTA)))
}

fn figure(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
