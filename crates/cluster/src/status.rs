//! What is reported about an `EtcdCluster`.
//!
//! Pure: the status of before and the time come in, the status of after goes out, equal to the one of before where
//! there is nothing new to say. Fields this version does not own are carried over untouched.

#[cfg(test)]
mod tests;

use etcd_operator_api::{
    EtcdCluster, EtcdClusterStatus,
    condition::{self, ConditionType, Finding, Truth},
    refusal::{self, Refusal},
    scope::NotServed,
};
use jiff::Timestamp;

use crate::desired::Desired;

/// Said on every valid object, so that nobody waits for members that will not come.
const NOT_RUN: &str = "This version of the operator checks EtcdClusters and does not run members yet.";

/// The status of a cluster that this installation looks after.
pub fn status(
    cluster: &EtcdCluster,
    desired: &Result<Desired, Vec<Refusal>>,
    installation: &str,
    now: Timestamp,
) -> EtcdClusterStatus {
    let before = cluster.status.clone().unwrap_or_default();
    let generation = cluster.metadata.generation;
    let findings = findings(desired);
    let conditions = condition::merge(
        before.conditions.as_deref().unwrap_or_default(),
        &findings,
        generation,
        now,
    );
    let mut after = EtcdClusterStatus {
        observed_generation: generation,
        conditions: Some(conditions),
        controlled_by: Some(installation.to_owned()),
        ..before
    };
    match desired {
        Ok(desired) => {
            "Waiting".clone_into(&mut after.phase);
            after.reason = Some(NOT_RUN.to_owned());
            after.control_paused = desired.paused;
            after.ready_members = Some(format!("0/{}", desired.size.get()));
            after.selector = Some(desired.name.selector());
            after.storage = Some(desired.storage.describe());
        }
        Err(refused) => {
            "Invalid".clone_into(&mut after.phase);
            after.reason = refused.iter().min().map(ToString::to_string);
        }
    }
    after
}

fn findings(desired: &Result<Desired, Vec<Refusal>>) -> Vec<Finding> {
    let desired = match desired {
        Err(refused) => return vec![refusal::accepted(refused)],
        Ok(desired) => desired,
    };
    let mut accepted = refusal::accepted(&[]);
    if !desired.without_effect.is_empty() {
        accepted.message = format!(
            "The spec is valid. Without effect: {}.",
            desired.without_effect.join(", ")
        );
    }
    let mut findings = vec![
        accepted,
        Finding {
            type_: ConditionType::Progressing,
            status: Truth::False,
            reason: if desired.paused {
                "Paused"
            } else {
                "NotImplemented"
            },
            message: NOT_RUN.to_owned(),
        },
    ];
    if desired.storage.is_ephemeral() {
        findings.push(Finding {
            type_: ConditionType::StorageEphemeral,
            status: Truth::True,
            reason: "DataLivesWithPods",
            message: "The data of a member is lost with its pod, and all data with all pods. For data that outlives pods, create the cluster with storage: {size: 8Gi}.".to_owned(),
        });
    }
    findings
}

/// The installation that looks after this cluster, if it is another one than ours.
pub fn controlled_by_another<'a>(cluster: &'a EtcdCluster, installation: &str) -> Option<&'a str> {
    another(cluster.status.as_ref()?.controlled_by.as_deref(), installation)
}

/// The installation that `controlledBy` names, if it is another one than ours.
pub fn another<'a>(controlled_by: Option<&'a str>, installation: &str) -> Option<&'a str> {
    controlled_by.filter(|by| !by.is_empty() && *by != installation)
}

/// The status of a cluster that is not this installation's business: said once, where nobody has said anything yet,
/// and over its own verdict where it looked after the cluster until now, so that another installation may take it.
pub fn left_alone(
    cluster: &EtcdCluster,
    not_served: &NotServed,
    installation: &str,
    now: Timestamp,
) -> Option<EtcdClusterStatus> {
    let before = cluster.status.clone().unwrap_or_default();
    if before.controlled_by.as_deref() == Some(installation) {
        let conditions = condition::given_up(
            before.conditions.as_deref().unwrap_or_default(),
            not_served,
            cluster.metadata.generation,
            now,
        );
        return Some(EtcdClusterStatus {
            conditions: Some(conditions),
            controlled_by: None,
            phase: String::new(),
            reason: None,
            control_paused: false,
            ready_members: None,
            ..before
        });
    }
    let conditions = condition::left_alone(
        before.conditions.as_deref(),
        not_served,
        cluster.metadata.generation,
        now,
    )?;
    Some(EtcdClusterStatus {
        conditions: Some(conditions),
        ..before
    })
}
