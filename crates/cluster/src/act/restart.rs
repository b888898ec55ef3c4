//! Restarting a member with the current pod template: everybody else is asked again right before its pod goes.

use etcd_operator_cluster_core::observed_state::{Ordinal, kube_objects};
use etcd_operator_cluster_core::plan::{
    Departure, NotLowered, OtherVoters, PodRef, cluster_not_lowered, not_lowered,
};
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::Membership as MembershipRead;
use etcd_operator_etcd::version::Minor;
use etcd_operator_runtime::apply;
use etcd_operator_runtime::key::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{Selector, SelectorExt};

use super::{Error, MEMBERSHIP_UNKNOWN, Outcome, preferred_connection, read_pod};
use crate::observe::Observation;
use crate::reconcile::Deps;

/// The restart of a member.
pub struct Restart<'a> {
    /// Its pod.
    pub pod: &'a PodRef,
    /// The other voters.
    pub others: &'a OtherVoters,
    /// How the pod goes.
    pub departure: Departure,
    /// The minor version that it starts with, if that is lower than the one that it runs.
    pub lowered_to: Option<Minor>,
}

/// Lets a member restart with the current pod template, if all other voters serve at this moment, and nothing keeps it
/// from a lower minor version. Otherwise it waits.
pub async fn restart_pod(
    restart: Restart<'_>,
    observation: &Observation,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Outcome, Error> {
    let Restart {
        pod,
        others,
        departure,
        lowered_to,
    } = restart;
    let name = observation.observed.name(pod.ordinal);
    if let Some(minor) = lowered_to
        && let Some(why) = why_not_lowered(pod.ordinal, minor, observation).await
    {
        return Ok(Outcome::Waits(format!("{name} is not restarted: {why}")));
    }
    for (ordinal, id) in others {
        if let Some(why) = why_not_serving(*ordinal, *id, observation, key, deps).await? {
            let other = observation.observed.name(*ordinal);
            return Ok(Outcome::Waits(format!("{name} is not restarted: {other} {why}")));
        }
    }
    if let Some(why) = why_membership_changed(observation).await {
        return Ok(Outcome::Waits(format!("{name} is not restarted: {why}")));
    }
    let pod_key = key.beside(&name);
    let found = deps.applier.read::<Pod>(&pod_key).await?;
    if found.is_none_or(|found| found.metadata.deletion_timestamp.is_some()) {
        // The informer's copy does not show it yet: the restart is not told twice.
        return Ok(Outcome::Stale(format!("pod {name} goes already")));
    }
    let done = match departure {
        Departure::Evicted => deps.applier.evict(&pod_key, &pod.uid).await,
        Departure::Deleted => deps.applier.delete_uid::<Pod>(&pod_key, &pod.uid, None).await,
    };
    match done {
        Ok(()) => Ok(Outcome::Done(format!(
            "Restarting {name} with the changed pod template."
        ))),
        Err(error) if error.is_eviction_refused() => {
            let budgets = if names_no_budget(&error) {
                budgets_of(&pod_key, &pod.uid, deps).await?
            } else {
                Vec::new()
            };
            Ok(Outcome::EvictionRefused(describe_refusal(
                &error.to_string(),
                &budgets,
            )))
        }
        Err(error) if error.is_conflict() => Ok(Outcome::Stale(format!("pod {name} was replaced"))),
        Err(error) => Err(error.into()),
    }
}

/// Why a member must not start with a lower minor version at this moment; `None` if it may. One that does not answer,
/// and whose pod is to be replaced all the same, starts if the cluster version is lowered.
async fn why_not_lowered(ordinal: Ordinal, minor: Minor, observation: &Observation) -> Option<NotLowered> {
    let cluster_version = observation.probes.cluster_version().await;
    if let Some(connection) = observation.probes.connections.get(&ordinal) {
        return match connection.status().await {
            Ok(status) => not_lowered(&status, cluster_version.as_ref(), minor),
            Err(_) => Some(NotLowered::StorageVersion),
        };
    }
    cluster_not_lowered(cluster_version.as_ref(), minor)
}

/// Whether an eviction failed as it does for a pod of several PodDisruptionBudgets, which the API server does not name
/// then.
fn names_no_budget(error: &apply::Error) -> bool {
    matches!(error, apply::Error::Api { source, .. } if matches!(&**source, kube::Error::Api(status) if status.code == 500))
}

/// The names of the PodDisruptionBudgets that select a pod.
async fn budgets_of(pod: &ObjectKey, uid: &str, deps: &Deps) -> Result<Vec<String>, Error> {
    let found = deps.applier.read::<Pod>(pod).await?;
    let found = found.filter(|found| found.metadata.uid.as_deref() == Some(uid));
    let labels = found.and_then(|found| found.metadata.labels).unwrap_or_default();
    let budgets: Vec<PodDisruptionBudget> = deps.applier.list(&pod.namespace).await?;
    let applies = |budget: &PodDisruptionBudget| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
        let selector = selector.map(Selector::try_from).and_then(Result::ok);
        selector.is_some_and(|selector| selector.matches(&labels))
    };
    let budgets = budgets.into_iter().filter(applies);
    let mut names: Vec<_> = budgets.filter_map(|budget| budget.metadata.name).collect();
    names.sort_unstable();
    Ok(names)
}

/// A refused eviction in the words of the API server, with the budgets of the pod where there are several.
fn describe_refusal(message: &str, budgets: &[String]) -> String {
    match budgets {
        [] | [_] => message.to_owned(),
        several => format!(
            "{}. The PodDisruptionBudgets {} apply to the pod, and only one may",
            message.trim_end_matches('.'),
            several.join(", ")
        ),
    }
}

/// Why a voter may not be relied on at this moment: its pod goes or is not ready, or it does not answer a linearizable
/// read. `None` if it serves. The plan has excused a pod that was observed unready.
async fn why_not_serving(
    ordinal: Ordinal,
    id: MemberId,
    observation: &Observation,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Option<&'static str>, Error> {
    let observed = &observation.observed;
    let observed_member = observed.member(ordinal);
    let Some(seen) = &observed_member.pod else {
        return Ok(Some("has no pod"));
    };
    let pod = PodRef {
        ordinal,
        uid: seen.uid.clone(),
    };
    let Some(now) = read_pod(&pod, observation, key, deps).await? else {
        return Ok(Some("has another pod by now"));
    };
    if now.metadata.deletion_timestamp.is_some() {
        return Ok(Some("is being deleted"));
    }
    // A pod that was observed unready is one that the plan excuses.
    if seen.ready && !kube_objects::is_ready(&now) {
        return Ok(Some("is not ready"));
    }
    let Some(connection) = observation.probes.connections.get(&ordinal) else {
        return Ok(Some("is not connected"));
    };
    let Ok(status) = connection.status().await else {
        return Ok(Some("does not return its status"));
    };
    let Ok(position) = connection.position().await else {
        return Ok(Some("does not answer a linearizable read"));
    };
    let is_voter = position.member == id
        && Some(position.cluster) == observed.persisted.cluster
        && !status.is_learner
        && status.leader.is_some();
    Ok((!is_voter).then_some("does not confirm that it is a voter that follows a leader"))
}

/// Why the membership is not what was observed; `None` if a linearizable read returns the same now.
async fn why_membership_changed(observation: &Observation) -> Option<&'static str> {
    let (Some(known), Some(connection)) = (observation.observed.known(), preferred_connection(observation))
    else {
        return Some(MEMBERSHIP_UNKNOWN);
    };
    match connection.membership().await {
        MembershipRead::Known(now) if now.members == known.members && now.cluster == known.cluster => None,
        MembershipRead::Known(_) => Some("the membership has changed"),
        MembershipRead::Unknown(_) => Some(MEMBERSHIP_UNKNOWN),
    }
}

/// Deletes a pod in which etcd did not run, unless anything about it has changed since.
pub async fn delete_stopped_pod(
    pod: &PodRef,
    resource_version: &str,
    observation: &Observation,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<Outcome, Error> {
    let name = observation.observed.name(pod.ordinal);
    let deleted = deps
        .applier
        .delete_version::<Pod>(&key.beside(&name), &pod.uid, resource_version)
        .await;
    match deleted {
        Ok(()) => Ok(Outcome::Done(format!(
            "Deleted pod {name}, which did not run etcd, so that it takes the changed pod template."
        ))),
        Err(error) if error.is_conflict() => Ok(Outcome::Stale(format!("pod {name} has changed"))),
        Err(error) => Err(error.into()),
    }
}
