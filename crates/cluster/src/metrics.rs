//! What the page of metrics tells about each cluster: from its status, and from what was read of its members at the last
//! look. Computed when the page is asked for, so that no series outlives its cluster.

mod readings;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::cluster::MemberStatus;
use etcd_operator_api::condition::Conditioned;
use etcd_operator_api::scope::{self, ScopeRule};
use etcd_operator_runtime::clock::SharedClock;
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::metrics::{Figure, Metrics, PerObject};
use etcd_operator_runtime::store::Store;
use kube::ResourceExt as _;

pub use readings::{Database, Reading, Readings, Sample};

/// The figures of all clusters of an installation.
#[derive(Clone)]
pub struct ClusterMetrics {
    clusters: Store<EtcdCluster>,
    readings: Readings,
    scope: ScopeRule,
    installation: String,
    clock: SharedClock,
}

impl fmt::Debug for ClusterMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Figures")
    }
}

/// A family: its name, what it says, and how it is found out.
type Family = (
    &'static str,
    &'static str,
    fn(&EtcdCluster, &Reading) -> Vec<Figure>,
);

/// All of them; docs/operations.md tells what to do about each.
pub const FAMILIES: [Family; 12] = [
    (
        "cluster_members_wanted",
        "Members that the spec of an EtcdCluster asks for",
        |cluster, _| vec![make_series(cluster, i64::from(cluster.spec.size)).into()],
    ),
    (
        "cluster_members",
        "Members of an EtcdCluster by role and health",
        members,
    ),
    (
        "cluster_has_leader",
        "1 while a member of an EtcdCluster is known to lead",
        |cluster, _| {
            let status = cluster.status.as_ref();
            let leads = status.is_some_and(|status| status.leader.is_some());
            vec![make_series(cluster, i64::from(leads)).into()]
        },
    ),
    (
        "cluster_condition",
        "1 for the present status of each condition of an EtcdCluster",
        conditions,
    ),
    (
        "cluster_plan_step",
        "1 for the step of an EtcdCluster that is under way, by its kind",
        |cluster, reading| {
            let step = reading.step.iter();
            step.map(|(kind, _)| make_series(cluster, 1).with("step", kind))
                .collect()
        },
    ),
    (
        "cluster_plan_step_age_seconds",
        "Time since this process first saw the step of an EtcdCluster that is under way; 0 without one",
        |cluster, reading| {
            let age = reading.step.as_ref().map_or(0, |(_, age)| *age);
            vec![make_series(cluster, age).into()]
        },
    ),
    (
        "cluster_blocked",
        "How many things stand in the way of the next step of an EtcdCluster",
        |cluster, _| {
            let plan = cluster.status.as_ref().and_then(|status| status.plan.as_ref());
            let blocked = plan.and_then(|plan| plan.blocked_by.as_ref());
            vec![make_series(cluster, blocked.map_or(0, |by| count(by.len()))).into()]
        },
    ),
    (
        "cluster_blocked_reason",
        "1 for each reason that blocks the next step of an EtcdCluster",
        blocked_reasons,
    ),
    (
        "cluster_database_quota_bytes",
        "Bytes that the database of each member of an EtcdCluster may have",
        |cluster, reading| {
            reading
                .quota
                .iter()
                .map(|quota| make_series(cluster, *quota).into())
                .collect()
        },
    ),
    (
        "member_database_bytes",
        "Bytes of a member's database file, at the last look",
        |cluster, reading| databases(cluster, reading, |database| Some(database.size)),
    ),
    (
        "member_database_in_use_bytes",
        "Bytes of a member's database in use; the rest is freed by a defragmentation",
        |cluster, reading| databases(cluster, reading, |database| database.in_use),
    ),
    (
        "member_raft_lag_entries",
        "Entries of the log by which a member is behind the one that is furthest, at the last look",
        |cluster, reading| databases(cluster, reading, |database| Some(database.behind)),
    ),
];

/// The family about clusters that nobody else on this page speaks of: its name, and what it says.
pub const CONTROLLED_ELSEWHERE: (&str, &str) = (
    "cluster_controlled_elsewhere",
    "1 for an EtcdCluster in scope that another installation of the operator looks after",
);

impl ClusterMetrics {
    /// Of the clusters in this store, those in scope that this installation looks after or leaves to another one.
    pub fn new(
        clusters: Store<EtcdCluster>,
        readings: Readings,
        scope: ScopeRule,
        installation: String,
        clock: SharedClock,
    ) -> Self {
        Self {
            clusters,
            readings,
            scope,
            installation,
            clock,
        }
    }

    /// Puts them on the page.
    pub fn register(&self, metrics: &Metrics) {
        for (name, help, family) in FAMILIES {
            let figures = self.clone();
            metrics.register_computed(name, help, move || figures.each(family));
        }
        let (name, help) = CONTROLLED_ELSEWHERE;
        let figures = self.clone();
        metrics.register_computed(name, help, move || figures.elsewhere());
    }

    /// Nothing else is told of these, so that they would be missed by every alert.
    fn elsewhere(&self) -> Vec<Figure> {
        let is_left = |cluster: &&Arc<EtcdCluster>| {
            self.scope.serves(cluster.metadata.annotations.as_ref()).is_ok()
                && scope::elsewhere(cluster, &self.installation).is_some()
        };
        let clusters = self.clusters.list();
        let left = clusters.iter().filter(is_left);
        left.map(|cluster| make_series(cluster, 1).into()).collect()
    }

    fn each(&self, family: fn(&EtcdCluster, &Reading) -> Vec<Figure>) -> Vec<Figure> {
        let now = self.clock.now();
        let clusters = self.clusters.list();
        let ours = clusters.iter().filter(|cluster| {
            let status = cluster.status.as_ref();
            status.and_then(|status| status.controlled_by.as_ref()) == Some(&self.installation)
        });
        ours.flat_map(|cluster| {
            let key = ObjectKey::of(&**cluster);
            let reading = self.readings.get(&key, cluster.metadata.uid.as_deref(), now);
            family(cluster, &reading)
        })
        .collect()
    }
}

fn make_series(cluster: &EtcdCluster, value: i64) -> PerObject {
    PerObject {
        namespace: cluster.namespace().unwrap_or_default(),
        name: cluster.name_any(),
        value,
    }
}

/// Voters are told of always, so that an alert on them finds a series; others where there are any.
fn members(cluster: &EtcdCluster, _: &Reading) -> Vec<Figure> {
    let status = cluster.status.as_ref();
    let members = status
        .and_then(|status| status.member_status.as_deref())
        .unwrap_or_default();
    let role = |member: &MemberStatus| match member.role.as_deref() {
        Some("voter") => "voter",
        Some("learner") => "learner",
        _ => "none",
    };
    let mut figures = Vec::new();
    for wanted in ["voter", "learner", "none"] {
        for (health, is_healthy) in [("healthy", true), ("unhealthy", false)] {
            let those = members
                .iter()
                .filter(|member| role(member) == wanted && member.healthy == is_healthy);
            let count = count(those.count());
            if wanted == "voter" || count > 0 {
                figures.push(
                    make_series(cluster, count)
                        .with("role", wanted)
                        .with("health", health),
                );
            }
        }
    }
    figures
}

fn conditions(cluster: &EtcdCluster, _: &Reading) -> Vec<Figure> {
    let conditions = cluster.status.iter().flat_map(Conditioned::conditions);
    conditions
        .map(|condition| {
            make_series(cluster, 1)
                .with("type", &*condition.type_)
                .with("status", &*condition.status)
        })
        .collect()
}

/// The reason of blockers in a status that an older operator has written.
const UNKNOWN_REASON: &str = "Unknown";

fn blocked_reasons(cluster: &EtcdCluster, _: &Reading) -> Vec<Figure> {
    let status = cluster.status.as_ref();
    let Some(plan) = status.and_then(|status| status.plan.as_ref()) else {
        return Vec::new();
    };
    let reasons: BTreeSet<&str> = match (&plan.blockers, &plan.blocked_by) {
        (Some(blockers), _) => blockers.iter().map(|blocker| blocker.reason.as_str()).collect(),
        (None, Some(_)) => BTreeSet::from([UNKNOWN_REASON]),
        (None, None) => BTreeSet::new(),
    };
    let reasons = reasons.into_iter();
    reasons
        .map(|reason| make_series(cluster, 1).with("reason", reason))
        .collect()
}

fn databases(
    cluster: &EtcdCluster,
    reading: &Reading,
    figure: impl Fn(&Database) -> Option<i64>,
) -> Vec<Figure> {
    let databases = reading.databases.iter();
    databases
        .filter_map(|database| {
            Some(make_series(cluster, figure(database)?).with("member", &*database.member))
        })
        .collect()
}

fn count(these: usize) -> i64 {
    i64::try_from(these).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
