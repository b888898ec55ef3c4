//! Reads the state of one `EtcdBackup` from the informers: its Jobs, their pods, and the `EtcdCluster` it backs up.

use std::collections::BTreeSet;

use etcd_operator_api::backup::Verification;
use etcd_operator_api::cluster::{DefaultRepository, RestoreProgress};
use etcd_operator_api::condition::{self, ConditionType, Truth};
use etcd_operator_api::contract::{self, JobResult};
use etcd_operator_api::crd::is_edited;
use etcd_operator_api::location::Blocks;
use etcd_operator_api::names::{ANNOTATION_BACKUP_NOW, CLIENT_PORT, LABEL_BACKUP};
use etcd_operator_api::refusal::bounded;
use etcd_operator_api::unscheduled::unscheduled;
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore};
use etcd_operator_runtime::job_end::{END_ALLOWANCE, is_active};
use etcd_operator_runtime::key::ObjectKey;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use kube::{Resource, ResourceExt};

use crate::build::{CONTAINER, GENERATION, HELD, LOCATION};
use crate::desired::{Desired, Source};
use crate::observed_state::{
    ContainerDeath, JobSlot, ObservedBackup, ObservedJob, ObservedPod, ResolvedSource, SourceProblem,
    SourceUnavailable, TerminalCondition, Termination,
};
use crate::persisted_state::{PersistedState, Task};
use crate::reconcile::Deps;

/// The longest value of a backup request, and the longest text about a Job or a pod.
const MAX_TEXT: usize = 200;

/// Reads the state of one backup. It requests no Job slot; that is up to the caller.
pub fn observe(backup: &EtcdBackup, desired: Desired, now: Timestamp, deps: &Deps) -> ObservedBackup {
    let key = ObjectKey::of(backup);
    let uid = backup.uid().unwrap_or_default();
    let mut jobs = deps.jobs.belonging_to(&key);
    jobs.retain(|job| has_label(&**job, &key));
    let (owned, foreign): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| is_owned(&**job, &uid));
    let status = backup.status.as_ref();
    let request = backup.annotations().get(ANNOTATION_BACKUP_NOW);
    let persisted = PersistedState::read(status);
    let held_objects = match persisted.run_of(Task::Prune) {
        Some(_) => held_objects(&key, deps),
        None => BTreeSet::new(),
    };
    ObservedBackup {
        source: resolve_source(&desired, &key, deps),
        now,
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        created_at: backup.creation_timestamp().map_or(now, |time| time.0),
        deleted_at: backup.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        generation: backup.metadata.generation.unwrap_or_default(),
        is_edited: status
            .is_some_and(|status| is_edited(status.observed_generation, backup.metadata.generation)),
        backup_request: request
            .filter(|text| !text.is_empty())
            .map(|text| text.chars().take(MAX_TEXT).collect()),
        persisted,
        jobs: owned.iter().map(|job| observe_job(job)).collect(),
        pods: observe_pods(&key, deps),
        held_objects,
        foreign_job: foreign.first().map(|job| job.name_any()),
        job_slot: JobSlot::NotRequested,
        uid,
        desired,
    }
}

/// Reads the pods of all Jobs of an `EtcdBackup`, also of Jobs that are gone.
pub fn observe_pods(key: &ObjectKey, deps: &Deps) -> Vec<ObservedPod> {
    let pods = deps.pods.belonging_to(key);
    let own = pods.iter().filter(|pod| has_label(&***pod, key));
    own.filter_map(|pod| observe_pod(pod)).collect()
}

/// Whether the label of an object names this `EtcdBackup`.
fn has_label(object: &impl ResourceExt, backup: &ObjectKey) -> bool {
    object.labels().get(LABEL_BACKUP) == Some(&backup.name)
}

/// The keys of the stored backups that unfinished restores of the namespace need: verification and safety backup may take
/// hours, and a prune meanwhile must not delete what is to be restored.
pub fn held_objects(key: &ObjectKey, deps: &Deps) -> BTreeSet<String> {
    let restores = deps
        .restores
        .filter(&key.namespace, |restore| !has_finished(restore));
    restores.iter().flat_map(|restore| objects_of(restore)).collect()
}

fn has_finished(restore: &EtcdRestore) -> bool {
    let status = restore.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    condition::find(conditions.unwrap_or_default(), ConditionType::Finished)
        .is_some_and(|finished| finished.status == Truth::True.as_str())
}

/// The backup that a restore has selected, and the one that its spec names.
fn objects_of(restore: &EtcdRestore) -> impl Iterator<Item = String> {
    let spec = &restore.spec;
    let blocks = Blocks::from(spec);
    let location = spec
        .backup_storage_type
        .and_then(|kind| blocks.locate(kind, "spec.backupStorageType").ok());
    let named = location.and_then(|location| location.key().map(str::to_owned));
    let selected = restore.status.as_ref().and_then(|status| status.object.clone());
    selected.into_iter().chain(named)
}

/// Whether an object is controlled by the `EtcdBackup` of this UID.
pub fn is_owned(object: &impl Resource, uid: &str) -> bool {
    let mut owners = object.meta().owner_references.iter().flatten();
    owners.any(|owner| owner.uid == uid && owner.controller == Some(true))
}

/// Resolves the etcd cluster in the spec to endpoints, Secrets and image.
fn resolve_source(
    desired: &Desired,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<ResolvedSource, SourceUnavailable> {
    let name = match &desired.source {
        Source::Endpoints(endpoints) => {
            return Ok(ResolvedSource {
                endpoints: endpoints.clone(),
                client_tls: desired.client_tls.clone(),
                ..ResolvedSource::default()
            });
        }
        Source::Cluster(name) => name,
    };
    let resolved = match deps.clusters.get(&key.beside(name)) {
        None => Err(SourceProblem::NotFound),
        Some(cluster) if cluster.metadata.deletion_timestamp.is_some() => Err(SourceProblem::BeingDeleted),
        Some(cluster) => resolve_cluster(&cluster, desired, key, &deps.default_repository),
    };
    resolved.map_err(|reason| SourceUnavailable {
        cluster: name.clone(),
        reason,
    })
}

/// The client URLs of the members that have a role in the status, with Secrets and image, or why the cluster cannot be
/// backed up now.
fn resolve_cluster(
    cluster: &EtcdCluster,
    desired: &Desired,
    key: &ObjectKey,
    default_repository: &DefaultRepository,
) -> Result<ResolvedSource, SourceProblem> {
    let (name, status) = (cluster.name_any(), cluster.status.clone().unwrap_or_default());
    let admits_no_clients = |restore: &RestoreProgress| restore.is_active() && !restore.open;
    if status.restore.as_ref().is_some_and(admits_no_clients) {
        // Until then the members belong neither to the old cluster nor to the restored one. Once clients are admitted, their
        // writes must be backed up, even if the last member still restores.
        return Err(SourceProblem::BeingRestored);
    }
    if cluster.spec.size == 0 {
        return Err(SourceProblem::Hibernated);
    }
    let cluster_id = status.cluster_id.ok_or(SourceProblem::NotFormed)?;
    let members = status.member_status.unwrap_or_default();
    let members = members.iter().filter(|member| member.role.is_some());
    let requires_tls = cluster.has_secure_clients();
    if requires_tls && desired.client_tls.is_none() && cluster.operator_secret().is_none() {
        return Err(SourceProblem::NoClientCertificate);
    }
    let secret = cluster
        .operator_secret()
        .filter(|_| requires_tls)
        .map(str::to_owned);
    let client_tls = desired.client_tls.clone().or(secret);
    let scheme = if requires_tls || desired.client_tls.is_some() {
        "https"
    } else {
        "http"
    };
    let domain = cluster
        .spec
        .pod
        .as_ref()
        .and_then(|pod| pod.cluster_domain.as_ref());
    let domain = domain
        .map(|domain| domain.trim_matches('.'))
        .filter(|d| !d.is_empty());
    let zone = domain.map_or_else(|| "svc".to_owned(), |domain| format!("svc.{domain}"));
    let client_url = |pod: &str| {
        let namespace = &key.namespace;
        format!("{scheme}://{pod}.{name}.{namespace}.{zone}:{CLIENT_PORT}")
    };
    let endpoints: Vec<String> = members.map(|member| client_url(&member.name)).collect();
    if endpoints.is_empty() {
        return Err(SourceProblem::NoServingMember);
    }
    let etcd_image = cluster.etcd_image(&status.current_version, default_repository);
    let needs_image = desired.verification == Verification::Restore && desired.etcd_image.is_none();
    if needs_image && etcd_image.is_none() {
        return Err(SourceProblem::UnknownVersion);
    }
    let pull_secrets = cluster.spec.image_pull_secrets.iter().flatten();
    Ok(ResolvedSource {
        endpoints,
        client_tls,
        pull_secrets: pull_secrets.map(|secret| secret.name.clone()).collect(),
        etcd_image,
        cluster_id: Some(cluster_id),
        incarnation: status.incarnation,
    })
}

/// Reads what the plan needs of a Job.
pub fn observe_job(job: &Job) -> ObservedJob {
    let condition = |types: &[&str]| {
        let mut conditions = job
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        let found = conditions
            .find(|condition| condition.status == "True" && types.contains(&condition.type_.as_str()))?;
        Some(TerminalCondition {
            is_complete: found.type_ == "Complete",
            reason: found.reason.clone().unwrap_or_default(),
            message: bounded(found.message.as_deref().unwrap_or_default(), MAX_TEXT),
        })
    };
    ObservedJob {
        name: job.name_any(),
        uid: job.uid().unwrap_or_default(),
        generation: job
            .annotations()
            .get(GENERATION)
            .and_then(|text| text.parse().ok())
            .unwrap_or_default(),
        location: job.annotations().get(LOCATION).cloned(),
        held_objects: job
            .annotations()
            .get(HELD)
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or_default(),
        is_being_deleted: job.metadata.deletion_timestamp.is_some(),
        terminal_condition: condition(&["Complete", "Failed"]),
        failure_target: condition(&["FailureTarget"]),
    }
}

/// Reads what the plan needs of a pod; `None` if no Job owns it.
fn observe_pod(pod: &Pod) -> Option<ObservedPod> {
    let owner = pod.owner_references().iter().find(|owner| owner.kind == "Job")?;
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref());
    let container = containers
        .unwrap_or_default()
        .iter()
        .find(|container| container.name == CONTAINER);
    let state = container.and_then(|container| container.state.as_ref());
    Some(ObservedPod {
        job: owner.name.clone(),
        job_uid: owner.uid.clone(),
        is_active: is_active(pod),
        deleted_at: pod.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        ends_by: ends_by(pod),
        has_started: state.is_some_and(|state| state.running.is_some() || state.terminated.is_some()),
        waiting_reason: waiting_reason(pod, state),
        termination: state.and_then(read_termination),
    })
}

/// The deadline of a pod, with its grace period and time to report. It counts from the start of the pod, or from its deletion if
/// its kubelet has not reported a start.
fn ends_by(pod: &Pod) -> Option<Timestamp> {
    let spec = pod.spec.as_ref()?;
    let deadline = SignedDuration::from_secs(spec.active_deadline_seconds?);
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let start = started.or(pod.metadata.deletion_timestamp.as_ref())?;
    // The clock of its node may be behind that of the API server, which knows only that the pod did not start before this.
    let start = pod
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(start, |created| start.max(created));
    let grace = SignedDuration::from_secs(spec.termination_grace_period_seconds.unwrap_or_default());
    start.0.checked_add(deadline + grace + END_ALLOWANCE).ok()
}

/// Reads how the main container ended: the result in its termination message, or how it died without one.
fn read_termination(state: &ContainerState) -> Option<Termination> {
    let terminated = state.terminated.as_ref()?;
    let finished_at = terminated
        .finished_at
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let text = terminated.message.as_deref().unwrap_or_default();
    let result = contract::read::<JobResult>(text.as_bytes()).map_err(|error| ContainerDeath {
        reason: terminated.reason.clone().unwrap_or_else(|| "Error".to_owned()),
        exit_code: terminated.exit_code,
        unreadable: (!text.is_empty()).then(|| error.to_string()),
    });
    Some(Termination { finished_at, result })
}

/// Why the main container has not started: a waiting container, a failed init container, or the scheduler. `None` while
/// containers are merely being created.
fn waiting_reason(pod: &Pod, state: Option<&ContainerState>) -> Option<String> {
    let describe = |reason: Option<&str>, message: Option<&str>| {
        let text: Vec<&str> = [reason, message].into_iter().flatten().collect();
        (!text.is_empty()).then(|| bounded(&text.join(": "), MAX_TEXT))
    };
    let inits = pod
        .status
        .iter()
        .flat_map(|status| &status.init_container_statuses);
    let inits = inits.flatten().filter_map(|init| init.state.as_ref());
    let waiting = inits
        .clone()
        .chain(state)
        .filter_map(|state| state.waiting.as_ref())
        .find(|waiting| {
            !matches!(
                waiting.reason.as_deref(),
                Some("ContainerCreating" | "PodInitializing")
            )
        });
    if let Some(waiting) = waiting {
        return describe(waiting.reason.as_deref(), waiting.message.as_deref());
    }
    let failed_init = inits
        .filter_map(|state| state.terminated.as_ref())
        .find(|terminated| terminated.exit_code != 0);
    if let Some(failed) = failed_init {
        return describe(failed.reason.as_deref(), failed.message.as_deref());
    }
    Some(bounded(&unscheduled(pod)?.text()?, MAX_TEXT))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::desired::parse_spec;

    #[test]
    fn a_deleted_pod_and_a_job_that_fails_as_soon_as_it_has_ended_are_read() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": "nightly-1-x",
                "creationTimestamp": "2025-12-31T23:59:15Z", "deletionTimestamp": "2026-01-01T00:00:45Z",
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "nightly-1", "uid": "1"}],
            },
            "spec": {"activeDeadlineSeconds": 720, "terminationGracePeriodSeconds": 45, "containers": []},
            "status": {"phase": "Running", "startTime": "2025-12-31T23:50:00Z", "containerStatuses": [{
                "name": CONTAINER, "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
                "state": {"running": {}},
            }]},
        }))
        .expect("a pod");
        let pod = observe_pod(&pod).expect("a pod of a Job");
        assert!(pod.is_active && pod.has_started && !pod.is_running(), "{pod:?}");
        assert_eq!(
            pod.ended_at(),
            Some("2026-01-01T00:00:45Z".parse().expect("a time"))
        );
        // Twelve minutes after its creation, as the clock of its node is behind, with 45 seconds to stop and a minute to report.
        assert_eq!(pod.ends_by, Some("2026-01-01T00:13:00Z".parse().expect("a time")));
        let job = |conditions: &Value| {
            let job: Job = serde_json::from_value(json!({
                "metadata": {"name": "nightly-1", "uid": "1"}, "status": {"conditions": conditions},
            }))
            .expect("a Job");
            let job = observe_job(&job);
            let reason = |end: Option<TerminalCondition>| end.map(|end| (end.is_complete, end.reason));
            (reason(job.terminal_condition), reason(job.failure_target))
        };
        let condition = |type_: &str| json!({"type": type_, "status": "True", "reason": "DeadlineExceeded"});
        let late = Some((false, "DeadlineExceeded".to_owned()));
        let ending = job(&json!([condition("FailureTarget")]));
        assert_eq!(ending, (None, late.clone()));
        let ended = job(&json!([condition("FailureTarget"), condition("Failed")]));
        assert_eq!(ended, (late.clone(), late));
    }

    /// A test restore pulls etcd from where new members pull it.
    #[test]
    fn a_cluster_without_a_repository_is_test_restored_from_the_mirror() {
        let backup: EtcdBackup = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup",
            "metadata": {"name": "nightly", "namespace": "shop"},
            "spec": {
                "etcdCluster": {"name": "orders"}, "verification": "Restore",
                "storageType": "Local", "local": {"persistentVolumeClaim": "backups", "path": "etcd"},
            },
        }))
        .expect("a backup");
        let desired = parse_spec(&backup, Timestamp::UNIX_EPOCH).expect("a valid spec");
        let mirror = "mirror.example.com/etcd".parse().expect("a repository");
        let image = |spec: &Value| {
            let cluster: EtcdCluster = serde_json::from_value(json!({
                "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
                "metadata": {"name": "orders"}, "spec": spec,
                "status": {
                    "clusterID": "cdf8", "currentVersion": "3.6.16",
                    "memberStatus": [{"name": "orders-0", "role": "voter"}],
                },
            }))
            .expect("a cluster");
            let resolved = resolve_cluster(&cluster, &desired, &ObjectKey::of(&backup), &mirror);
            resolved.expect("a source").etcd_image
        };
        assert_eq!(
            image(&json!({})).as_deref(),
            Some("mirror.example.com/etcd:v3.6.16")
        );
        let own = json!({"repository": "own/etcd"});
        assert_eq!(image(&own).as_deref(), Some("own/etcd:v3.6.16"));
    }
}
