//! The metrics about each cluster: from its status, and from what was last read of its members. They are computed at each
//! scrape, so that no series outlives its cluster.

mod readings;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::cluster::MemberStatus;
use etcd_operator_api::condition::{self, ConditionType, Conditioned};
use etcd_operator_api::scope::{self, ScopeRule};
use etcd_operator_runtime::clock::SharedClock;
use etcd_operator_runtime::key::ObjectKey;
use etcd_operator_runtime::metrics::{Figure, Metrics};
use etcd_operator_runtime::store::Store;

pub use readings::{Database, PodCounts, Reading, Readings, Sample};

/// Computes the metrics of all clusters of an installation.
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
        f.write_str("ClusterMetrics")
    }
}

/// A metric: its name, its help text, and its series for one cluster.
type Family = (
    &'static str,
    &'static str,
    fn(&EtcdCluster, &Reading) -> Vec<Figure>,
);

/// All metrics about a cluster that this installation controls; docs/operations.md says what to do about each.
pub const FAMILIES: [Family; 13] = [
    (
        "cluster_info",
        "1 for each EtcdCluster, with its etcd version and etcd's ID of the cluster",
        info,
    ),
    (
        "cluster_members_desired",
        "Members that the spec of an EtcdCluster asks for",
        |cluster, _| vec![make_series(cluster, i64::from(cluster.spec.size))],
    ),
    (
        "cluster_members",
        "Members of an EtcdCluster by role and health",
        members,
    ),
    (
        "cluster_members_pending",
        "Desired members of an EtcdCluster that are not voters yet",
        |cluster, _| {
            let pending = i64::from(cluster.spec.size) - count(voters(cluster));
            vec![make_series(cluster, pending.max(0))]
        },
    ),
    (
        "cluster_members_outdated",
        "Members of an EtcdCluster whose pods were made for an earlier spec",
        outdated_members,
    ),
    (
        "cluster_has_leader",
        "1 while a member of an EtcdCluster is known to be the leader",
        |cluster, _| {
            let status = cluster.status.as_ref();
            let leads = status.is_some_and(|status| status.leader.is_some());
            vec![make_series(cluster, i64::from(leads))]
        },
    ),
    (
        "cluster_condition",
        "1 for the current status of each condition of an EtcdCluster",
        conditions,
    ),
    (
        "cluster_step_start_timestamp_seconds",
        "When this process first observed the step in progress of an EtcdCluster, as a Unix timestamp",
        |cluster, reading| {
            let step = reading.step.iter();
            step.map(|(kind, since)| make_series(cluster, since.as_second()).with("step", kind))
                .collect()
        },
    ),
    (
        "cluster_blockers",
        "What must change before the next step of an EtcdCluster, counted by reason",
        blockers,
    ),
    (
        "cluster_database_quota_bytes",
        "Quota of the database of each member of an EtcdCluster",
        |cluster, reading| {
            let quota = reading.quota.iter();
            quota.map(|quota| make_series(cluster, *quota)).collect()
        },
    ),
    (
        "member_database_bytes",
        "Size of a member's database file when it was last read",
        |cluster, reading| databases(cluster, reading, |database| Some(database.size)),
    ),
    (
        "member_database_in_use_bytes",
        "Part of a member's database that is in use; a defragmentation frees the rest",
        |cluster, reading| databases(cluster, reading, |database| database.in_use),
    ),
    (
        "member_raft_lag_entries",
        "Raft entries by which a member is behind the most advanced one when it was last read",
        |cluster, reading| databases(cluster, reading, |database| Some(database.behind)),
    ),
];

/// The metric about clusters that have no other series here: its name and its help text.
pub const CONTROLLED_ELSEWHERE: (&str, &str) = (
    "cluster_controlled_elsewhere",
    "1 for an EtcdCluster in scope that another installation of the operator controls",
);

impl ClusterMetrics {
    /// The metrics of the clusters in this store that are in scope, whether this installation or another one controls them.
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

    /// Adds the metrics to the page.
    pub fn register(&self, metrics: &Metrics) {
        for (name, help, family) in FAMILIES {
            let figures = self.clone();
            metrics.register_computed(name, help, move || figures.each(family));
        }
        let (name, help) = CONTROLLED_ELSEWHERE;
        let figures = self.clone();
        metrics.register_computed(name, help, move || figures.elsewhere());
    }

    /// One series for each cluster in scope that another installation controls: it has no other series, so no other
    /// alert would find it.
    fn elsewhere(&self) -> Vec<Figure> {
        let is_left = |cluster: &&Arc<EtcdCluster>| {
            self.scope.serves(cluster.metadata.annotations.as_ref()).is_ok()
                && scope::elsewhere(cluster, &self.installation).is_some()
        };
        let clusters = self.clusters.list();
        let left = clusters.iter().filter(is_left);
        left.map(|cluster| make_series(cluster, 1)).collect()
    }

    /// The series of a metric for each cluster that this installation controls.
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

fn make_series(cluster: &EtcdCluster, value: i64) -> Figure {
    Figure::of("cluster", cluster, value)
}

/// One series with the version and etcd's cluster ID; a label is empty while its value is not known.
fn info(cluster: &EtcdCluster, _: &Reading) -> Vec<Figure> {
    let status = cluster.status.as_ref();
    let version = status.map_or("", |status| status.current_version.as_str());
    let id = status.and_then(|status| status.cluster_id.as_deref());
    let series = make_series(cluster, 1).with("version", version);
    vec![series.with("cluster_id", id.unwrap_or_default())]
}

const VOTER: &str = "voter";
const LEARNER: &str = "learner";
/// The role of a member that is not in etcd's membership.
const NO_ROLE: &str = "none";

fn members_of(cluster: &EtcdCluster) -> &[MemberStatus] {
    let status = cluster.status.as_ref();
    let members = status.and_then(|status| status.member_status.as_deref());
    members.unwrap_or_default()
}

fn role(member: &MemberStatus) -> &'static str {
    match member.role.as_deref() {
        Some("voter") => VOTER,
        Some("learner") => LEARNER,
        _ => NO_ROLE,
    }
}

fn voters(cluster: &EtcdCluster) -> usize {
    let members = members_of(cluster).iter();
    members.filter(|member| role(member) == VOTER).count()
}

/// How many pods were made for an earlier spec: every pod while a new template is not applied to the StatefulSet. A refused spec
/// asks for none. No series without a recent observation.
fn outdated_members(cluster: &EtcdCluster, reading: &Reading) -> Vec<Figure> {
    let status = cluster.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let accepted = condition::find(conditions.unwrap_or_default(), ConditionType::Accepted);
    let is_refused = accepted.is_some_and(|accepted| accepted.status == "False");
    let is_template_pending = !is_refused && status.is_some_and(|status| status.applied_template.is_some());
    let outdated = reading.pods.map(|pods| {
        if is_template_pending {
            pods.all
        } else {
            pods.outdated
        }
    });
    outdated
        .map(|outdated| make_series(cluster, count(outdated)))
        .into_iter()
        .collect()
}

/// Voters always have series, so that an alert on them finds one; others only if there are any.
fn members(cluster: &EtcdCluster, _: &Reading) -> Vec<Figure> {
    let mut figures = Vec::new();
    for wanted in [VOTER, LEARNER, NO_ROLE] {
        for (health, is_healthy) in [("healthy", true), ("unhealthy", false)] {
            let members = members_of(cluster).iter();
            let those = members.filter(|member| role(member) == wanted && member.healthy == is_healthy);
            let count = count(those.count());
            if wanted == VOTER || count > 0 {
                let series = make_series(cluster, count).with("role", wanted);
                figures.push(series.with("health", health));
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

/// The number of blockers for each reason. Those that an older operator has written have no reasons, and count as
/// unknown.
fn blockers(cluster: &EtcdCluster, _: &Reading) -> Vec<Figure> {
    let status = cluster.status.as_ref();
    let Some(plan) = status.and_then(|status| status.plan.as_ref()) else {
        return Vec::new();
    };
    let mut by_reason = BTreeMap::<&str, usize>::new();
    match (&plan.blockers, &plan.blocked_by) {
        (Some(blockers), _) => {
            for blocker in blockers {
                *by_reason.entry(&blocker.reason).or_default() += 1;
            }
        }
        (None, Some(texts)) => {
            by_reason.insert(UNKNOWN_REASON, texts.len());
        }
        (None, None) => {}
    }
    let by_reason = by_reason.into_iter();
    by_reason
        .map(|(reason, number)| make_series(cluster, count(number)).with("reason", reason))
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
