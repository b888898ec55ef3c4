//! What is reported about an `EtcdCluster`.
//!
//! Pure: the status of before and the time come in, the status of after goes out, equal to the one of before where
//! there is nothing new to say. Fields this version does not own are carried over untouched.

mod backups;
mod conditions;
mod events;
mod hibernation_exit;
mod inputs;
mod members;
mod rollout;
mod scope;
mod step_failure;
mod summary;
#[cfg(test)]
mod tests;
mod text;
mod unknown_fields;

use etcd_operator_api::cluster::{BlockerStatus, PlanStatus, RestoreProgress, RolloutStatus};
use etcd_operator_api::names::{ANNOTATION_RESTART, CLIENT_PORT};
use etcd_operator_api::refusal::{self, Refusal};
use etcd_operator_api::{
    EtcdCluster, EtcdClusterStatus,
    condition::{self, ConditionType, Finding, Readiness, Truth},
};
use jiff::Timestamp;

use crate::build::NoOperatorImage;
use crate::desired::Desired;
use crate::observed_state::ObservedCluster;
use crate::persisted_state::{PersistedState, Restore, Rollout};
use crate::plan::{self, ClusterView, Plan, Reason};

pub use backups::BackupFreshness;
pub use events::{new_problems, transitions};
pub use inputs::StatusInputs;
pub use scope::for_unserved_cluster;
pub use step_failure::{is_plan_drop_reported, is_plan_dropped};

use text::{MAX_CHARS, MAX_ITEMS, blocked_by};

/// Whether the status reports a refused change or a name conflict, which only the API server can take back.
pub fn reports_refusals(cluster: &EtcdCluster) -> bool {
    let conditions = cluster
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    events::refused_changes(conditions).is_some() || events::name_conflict(conditions).is_some()
}

/// The status after a plan. Without news it equals the stored one: Raft indexes are updated only along with other
/// changes.
pub fn status(
    cluster: &EtcdCluster,
    observed: &ObservedCluster,
    plan: &Plan,
    inputs: &StatusInputs<'_>,
) -> EtcdClusterStatus {
    let before = cluster.status.clone().unwrap_or_default();
    let view = ClusterView::new(observed);
    let desired = &observed.desired;
    let persisted = &plan.persisted;
    let generation = cluster.metadata.generation;
    let conditions = condition::merge(
        before.conditions.as_deref().unwrap_or_default(),
        &conditions::findings(&view, plan, inputs, &before),
        generation,
        observed.now,
    );
    let written = before.plan.as_ref().and_then(|plan| plan.step.as_ref());
    let step = match (&persisted.pending, &persisted.unknown_step) {
        (Some(pending), _) => Some(unknown_fields::step(
            pending.write(|ordinal| observed.name(ordinal)),
            written,
        )),
        (None, Some(_)) => written.cloned(),
        (None, None) => None,
    };
    let summary = members::summarize(
        &view,
        persisted,
        before.member_status.as_deref().unwrap_or_default(),
    );
    let ready = summary.ready.as_ref().map_or(0, Vec::len);
    let mut after = EtcdClusterStatus {
        phase: phase(plan, inputs).to_owned(),
        reason: Some(summary::reason(&view, plan, inputs, &before)),
        control_paused: cluster.spec.paused,
        conditions: Some(conditions),
        size: i32::try_from(count_members(observed, persisted, ready)).unwrap_or(i32::MAX),
        service_name: Some(desired.name.client_service()),
        client_port: Some(CLIENT_PORT.into()),
        ready_members: Some(format!("{ready}/{}", desired.size.get())),
        members: etcd_operator_api::cluster::MembersStatus {
            ready: summary.ready,
            unready: summary.unready,
        },
        current_version: summary.version.unwrap_or(before.current_version),
        version: rollout::version_text(&view, plan, before.version),
        target_version: match plan.explanation.reason {
            // Whoever brings its data must know what they have to suit.
            Reason::AwaitingRestore => desired.version(None).to_string(),
            _ => rollout::target_text(&view, plan, before.target_version),
        },
        observed_generation: generation,
        cluster_id: persisted.cluster.map(|id| id.to_string()),
        incarnation: Some(persisted.incarnation).filter(|number| *number > 0),
        last_incarnation: Some(persisted.last_incarnation).filter(|number| *number > 0),
        selector: Some(desired.name.selector()),
        leader: summary.leader,
        storage: Some(desired.storage.describe()),
        endpoints: persisted.has_formed().then(|| vec![endpoint(observed)]),
        controlled_by: Some(inputs.installation.to_owned()),
        member_status: Some(summary.members).filter(|members| !members.is_empty()),
        plan: Some(PlanStatus {
            step,
            why: Some(rollout::with_path(
                &view,
                plan,
                conditions::summarize(&view, plan, inputs),
            )),
            blocked_by: Some(blocked_by(plan)).filter(|list| !list.is_empty()),
            blockers: Some(blockers(plan)).filter(|list| !list.is_empty()),
            refused_step: step_failure::refused_step(inputs, before.plan.as_ref()),
        }),
        replaced: persisted.replaced.map(|id| id.to_string()),
        applied_template: inputs.applied_template.clone(),
        restored_revision: Some(persisted.restored_revision).filter(|revision| *revision > 0),
        earlier_restores: Some(persisted.earlier_restores.clone()).filter(|uids| !uids.is_empty()),
        updated_members: updated_members(&view, persisted),
        rollout: persisted.rollout.as_ref().map(|rollout| RolloutStatus {
            last_served: inputs.last_served_template.clone(),
            restart: restart_request(cluster, observed, rollout),
            ..rollout.write(|ordinal| observed.name(ordinal))
        }),
        served_spec_hashes: Some(persisted.served_spec_hashes.clone()).filter(|hashes| !hashes.is_empty()),
        restore: restore(observed, persisted, before.restore),
    };
    if cluster.status.as_ref() != Some(&after) {
        members::refresh(after.member_status.as_deref_mut().unwrap_or_default(), &view);
    }
    after
}

/// How many members there are: those that the status records, or else the StatefulSet, or else the ready ones. While
/// members start anew or a restore is active, the StatefulSet does not count.
fn count_members(observed: &ObservedCluster, persisted: &PersistedState, ready: usize) -> usize {
    let is_restoring = persisted.restore.as_ref().is_some_and(Restore::is_active);
    let is_starting = is_restoring || persisted.pending.is_some();
    let noted = observed.set.as_ref().filter(|_| !is_starting);
    let noted = noted.map_or(0, |set| set.voters.len());
    let counts = [persisted.members.len(), noted, ready];
    counts.into_iter().find(|count| *count > 0).unwrap_or_default()
}

/// The request for a restart by annotation that this rollout includes. The spec hash that is asked for is made with it, so it
/// counts once the rollout is for that hash.
fn restart_request(cluster: &EtcdCluster, observed: &ObservedCluster, rollout: &Rollout) -> Option<String> {
    let annotations = cluster.metadata.annotations.as_ref();
    let requested = annotations.and_then(|annotations| annotations.get(ANNOTATION_RESTART));
    match requested.filter(|value| !value.is_empty()) {
        Some(value) if rollout.spec_hash == observed.wanted.spec_hash => {
            Some(refusal::bounded(value, MAX_CHARS))
        }
        _ => cluster.status.as_ref()?.rollout.as_ref()?.restart.clone(),
    }
}

/// How many pods have the current template, of how many; `None` before the cluster has formed.
fn updated_members(view: &ClusterView<'_>, persisted: &PersistedState) -> Option<String> {
    let (updated, all) = rollout::count_updated(view);
    persisted.has_formed().then(|| format!("{updated}/{all}"))
}

/// The progress of a restore; that of one that this version does not understand stays as it is.
fn restore(
    observed: &ObservedCluster,
    persisted: &PersistedState,
    before: Option<RestoreProgress>,
) -> Option<RestoreProgress> {
    if persisted.unknown_step.is_some() {
        return before;
    }
    let restore = persisted.restore.as_ref()?;
    let now = restore.write(Some(plan::member_restore_statuses(observed, restore)));
    Some(unknown_fields::restore(now, before.as_ref()))
}

/// The phase of a cluster whose spec cannot be.
const INVALID: &str = "Invalid";

/// The status of a cluster whose spec is refused and whose members are not observed. What it says of them stays.
pub fn for_refused_spec(
    cluster: &EtcdCluster,
    refused: &[Refusal],
    installation: &str,
    now: Timestamp,
) -> EtcdClusterStatus {
    let before = cluster.status.clone().unwrap_or_default();
    let reason = refused.iter().min().map(ToString::to_string);
    let mut findings = vec![refusal::accepted(refused)];
    findings.extend(refusal::stalled(refused));
    let conditions = merge_conditions(cluster, &findings, now);
    EtcdClusterStatus {
        phase: INVALID.to_owned(),
        reason,
        observed_generation: cluster.metadata.generation,
        conditions: Some(conditions),
        controlled_by: Some(installation.to_owned()),
        ..before
    }
}

/// The status of a valid cluster for which nothing can be done, because the operator lacks something.
pub fn for_missing_operator_image(
    cluster: &EtcdCluster,
    desired: &Desired,
    why: &NoOperatorImage,
    installation: &str,
    now: Timestamp,
) -> EtcdClusterStatus {
    let before = cluster.status.clone().unwrap_or_default();
    let mut findings = conditions::spec_findings(desired, None);
    let reason = if desired.paused {
        "Paused"
    } else {
        NoOperatorImage::REASON
    };
    findings.extend(Readiness::Stalled.findings(reason, &why.to_string()));
    findings.push(Finding {
        type_: ConditionType::Progressing,
        status: Truth::False,
        reason,
        message: why.to_string(),
    });
    EtcdClusterStatus {
        phase: "Waiting".to_owned(),
        reason: Some(why.to_string()),
        control_paused: desired.paused,
        ready_members: before
            .ready_members
            .clone()
            .or(Some(format!("0/{}", desired.size.get()))),
        selector: Some(desired.name.selector()),
        storage: Some(desired.storage.describe()),
        observed_generation: cluster.metadata.generation,
        conditions: Some(merge_conditions(cluster, &findings, now)),
        controlled_by: Some(installation.to_owned()),
        ..before
    }
}

fn merge_conditions(
    cluster: &EtcdCluster,
    findings: &[Finding],
    now: Timestamp,
) -> Vec<condition::Condition> {
    let before = cluster
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    condition::merge(
        before.unwrap_or_default(),
        findings,
        cluster.metadata.generation,
        now,
    )
}

/// The phase in one word; the ancestor's words where it had one.
fn phase(plan: &Plan, inputs: &StatusInputs<'_>) -> &'static str {
    match plan.explanation.reason {
        _ if !inputs.refusals.is_empty() => INVALID,
        Reason::Hibernated => "Hibernated",
        Reason::QuorumLost | Reason::DataLost => "Failed",
        _ if plan.persisted.restore.as_ref().is_some_and(Restore::is_active) => "Restoring",
        _ if plan.persisted.has_formed() => "Running",
        Reason::AwaitingRestore | Reason::Blocked | Reason::MembersUnreachable => "Waiting",
        _ => "Creating",
    }
}

/// The URL of the client Service. Its scheme is that of the stored pod template.
fn endpoint(observed: &ObservedCluster) -> String {
    let wanted = observed.desired.tls.client.is_some();
    let is_secure = observed.set.as_ref().map_or(wanted, |set| set.secure_clients);
    let scheme = if is_secure { "https" } else { "http" };
    let service = observed.desired.name.client_service();
    format!("{scheme}://{service}.{}.svc:{CLIENT_PORT}", observed.namespace)
}

/// The blockers with their reasons, one for each member.
fn blockers(plan: &Plan) -> Vec<BlockerStatus> {
    let blockers = plan.explanation.blockers.iter().take(MAX_ITEMS);
    let mut list: Vec<_> = blockers
        .map(|blocker| BlockerStatus {
            reason: blocker.reason().as_str().to_owned(),
            member: blocker.member_name().map(str::to_owned),
            message: refusal::bounded(&blocker.to_string(), MAX_CHARS),
        })
        .collect();
    list.sort_by(|one, other| {
        (&one.reason, &one.member, &one.message).cmp(&(&other.reason, &other.member, &other.message))
    });
    list.dedup();
    list
}
