//! Observes one `EtcdRestore`: its cluster, its backup, its Jobs and their pods, mostly from the informers' stores. Reads
//! only.

mod competing_restores;

use std::collections::BTreeMap;
use std::time::Duration;

use etcd_operator_api::cluster::{
    DEFAULT_REPOSITORY, EtcdClusterSpec, EtcdClusterStatus, ImagePullPolicy, Medium, PodPolicy,
};
use etcd_operator_api::condition::{self, ConditionType, Truth};
use etcd_operator_api::contract::{self, JobResult};
use etcd_operator_api::names::{
    ANNOTATION_MADE_BY, ANNOTATION_RESTORE, ANNOTATION_SCOPE, CLIENT_PORT, LABEL_RESTORE,
};
use etcd_operator_api::reference::Sight;
use etcd_operator_api::refusal::bounded;
use etcd_operator_api::version::EtcdVersion;
use etcd_operator_api::{EtcdCluster, EtcdRestore, quantity};
use etcd_operator_runtime::apply::Error;
use etcd_operator_runtime::key::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{Resource, ResourceExt as _};

use crate::build::{CONTAINER, TOOL};
use crate::desired::{BackupRef, Desired};
use crate::observed_state::{JobEnd, ObservedCluster, ObservedJob, ObservedRestore, Scheduling};
use crate::persisted_state::PersistedState;
use crate::plan::{Phase, select_source};
use crate::reconcile::Deps;

use competing_restores::competing_restore;
pub use competing_restores::{can_be_replaced, competing_restore_among};

/// How long a Job may have no pod before that is reported.
const POD_CREATION_TIMEOUT: Duration = Duration::from_secs(20);
/// Longest message about a pod or a cluster.
const MAX_MESSAGE_CHARS: usize = 200;
/// The reason with which the cluster controller reports that no member was ever started.
const AWAITING_RESTORE: &str = "AwaitingRestore";
/// Default size of a member's volume.
const DEFAULT_VOLUME_BYTES: u64 = 8 << 30;

/// Observes one restore.
pub async fn observe(restore: &EtcdRestore, desired: Desired, deps: &Deps) -> Result<ObservedRestore, Error> {
    let key = ObjectKey::of(restore);
    let uid = restore.uid().unwrap_or_default();
    let status = restore.status.as_ref();
    let is_edited = status.is_some_and(|status| status.observed_generation < restore.metadata.generation);
    let state = PersistedState::read(status);
    // A selected backup stays selected until the user edits the spec, so that a later backup is never restored by itself.
    let selecting_phases = [Phase::Verifying, Phase::BackingUp, Phase::Failed].map(Phase::as_str);
    let is_in_progress = Phase::is_in_progress(&state.phase);
    let keeps_selection = is_in_progress || (selecting_phases.contains(&state.phase.as_str()) && !is_edited);
    let backup = match &desired.backup {
        BackupRef::Backup { name, .. } => deps.backups.get(&key.beside(name)),
        BackupRef::Object(_) | BackupRef::Refused(_) => None,
    };
    let selected_before = state.object.as_deref().filter(|_| keeps_selection);
    let source = select_source(&desired, backup.as_deref(), selected_before);
    let pvc = source.as_ref().ok().and_then(|source| source.location.claim());
    let is_pvc_shared = match pvc {
        Some(pvc) => read_pvc_sharing(&key.beside(pvc), deps).await?,
        None => None,
    };
    let is_ours = |labels: &BTreeMap<String, String>| labels.get(LABEL_RESTORE) == Some(&key.name);
    let jobs = deps
        .jobs
        .filter(&key.namespace, |job: &Job| is_ours(job.labels()));
    let (owned, foreign_job): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| is_owned(&**job, &uid));
    let pods = deps
        .pods
        .filter(&key.namespace, |pod: &Pod| is_ours(pod.labels()));
    Ok(ObservedRestore {
        now: deps.clock.now(),
        cluster: observe_desired_cluster(&desired, &key, deps),
        is_cluster_missing: deps.clusters.sight(&key.beside(&desired.cluster)) == Sight::Missing,
        scope: restore.annotations().get(ANNOTATION_SCOPE).cloned(),
        competing_restore: competing_restore(restore, &key, deps),
        source,
        is_pvc_shared,
        jobs: owned
            .iter()
            .map(|job| observe_job(job, pods.iter().map(|pod| &**pod), deps.clock.now()))
            .collect(),
        foreign_job: foreign_job.first().map(|job| job.name_any()),
        operator_image: deps.operator_image.clone(),
        name: key.name.clone(),
        is_edited,
        state,
        uid,
        desired,
    })
}

/// Whether the `EtcdRestore` with this UID is the controller of an object.
pub fn is_owned(object: &impl Resource, uid: &str) -> bool {
    let mut owners = object.meta().owner_references.iter().flatten();
    owners.any(|owner| owner.uid == uid && owner.controller == Some(true))
}

/// Whether several nodes can mount a PVC at the same time; `None` if the PVC does not exist.
async fn read_pvc_sharing(pvc: &ObjectKey, deps: &Deps) -> Result<Option<bool>, Error> {
    let pvc = deps.applier.read::<PersistentVolumeClaim>(pvc).await?;
    Ok(pvc.and_then(is_multi_node))
}

/// Whether the access modes of a PVC allow several nodes; `None` if it has none.
pub fn is_multi_node(pvc: PersistentVolumeClaim) -> Option<bool> {
    let modes = pvc.spec?.access_modes?;
    let shared = ["ReadWriteMany", "ReadOnlyMany"];
    Some(modes.iter().any(|mode| shared.contains(&mode.as_str())))
}

fn observe_desired_cluster(
    desired: &Desired,
    key: &ObjectKey,
    deps: &Deps,
) -> Result<ObservedCluster, String> {
    let found = deps.clusters.get(&key.beside(&desired.cluster));
    find_cluster(&desired.cluster, found.as_deref(), key)
}

/// The observed state of the cluster `found`, or why it cannot be restored.
pub fn find_cluster(
    name: &str,
    found: Option<&EtcdCluster>,
    key: &ObjectKey,
) -> Result<ObservedCluster, String> {
    let cluster = found.ok_or_else(|| {
        format!("There is no readable EtcdCluster {name}. Create it first; the restore then starts.")
    })?;
    if cluster.metadata.deletion_timestamp.is_some() {
        return Err(format!("The EtcdCluster {name} is being deleted."));
    }
    Ok(observe_cluster(cluster, key))
}

/// The facts about a cluster that a restore needs.
pub fn observe_cluster(cluster: &EtcdCluster, key: &ObjectKey) -> ObservedCluster {
    let (name, spec) = (cluster.name_any(), &cluster.spec);
    let status = cluster.status.clone().unwrap_or_default();
    let backup_blocker = find_backup_blocker(&status, spec.size);
    let members = status.member_status.unwrap_or_default();
    let members: Vec<_> = members.iter().filter(|member| member.role.is_some()).collect();
    let is_secure = cluster.has_secure_clients();
    let client_tls_secret = cluster.operator_secret().filter(|_| is_secure).map(str::to_owned);
    let scheme = if is_secure { "https" } else { "http" };
    let pod = spec.pod.as_ref();
    let domain = pod
        .and_then(|pod| pod.cluster_domain.as_deref())
        .map(|domain| domain.trim_matches('.'))
        .filter(|domain| !domain.is_empty());
    let zone = domain.map_or_else(|| "svc".to_owned(), |domain| format!("svc.{domain}"));
    let namespace = &key.namespace;
    let address = |member: &str| format!("{scheme}://{member}.{name}.{namespace}.{zone}:{CLIENT_PORT}");
    let version = |text: &str| text.parse::<EtcdVersion>().ok();
    let wanted = spec.version.as_deref().and_then(version);
    let tagged = spec.image.as_deref().and_then(EtcdVersion::from_image);
    let text = cluster.annotations().get(ANNOTATION_RESTORE);
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let accepted = condition::find(conditions, ConditionType::Accepted)
        .filter(|accepted| accepted.status == Truth::False.as_str());
    let has_await_restore = spec.bootstrap.as_ref().is_some_and(|boot| boot.await_restore);
    let awaits_restore = has_await_restore && status.cluster_id.is_none();
    // A lost status has no cluster ID either, so only the condition of the cluster controller proves that it is empty.
    let reports_awaiting = condition::find(conditions, ConditionType::Progressing)
        .is_some_and(|progressing| progressing.reason.as_deref() == Some(AWAITING_RESTORE));
    let version = version(&status.current_version)
        .or(wanted)
        .or(tagged)
        .or(version(&status.target_version));
    let version_text = version.as_ref().map(ToString::to_string).unwrap_or_default();
    ObservedCluster {
        image: spec
            .etcd_image(&version_text)
            .filter(|_| !uses_upstream_image(spec)),
        image_pull_policy: spec.image_pull_policy.map(ImagePullPolicy::as_str),
        awaits_restore,
        is_known_empty: awaits_restore && reports_awaiting,
        created_by: cluster.annotations().get(ANNOTATION_MADE_BY).cloned(),
        spec_refusal: accepted.and_then(|accepted| accepted.message.clone()),
        member_count: match usize::try_from(spec.size).unwrap_or_default() {
            0 => members.len(),
            size => size,
        },
        version,
        volume_size: volume_size(spec),
        quota: quota(spec),
        is_ephemeral: is_ephemeral(spec),
        backup_blocker,
        is_paused: spec.paused,
        request: text.map(|text| contract::read(text.as_bytes()).map_err(|error| error.to_string())),
        status_message: status
            .reason
            .filter(|_| !reports_awaiting && status.phase != "Running"),
        cluster_id: status.cluster_id,
        incarnation: status.incarnation,
        progress: status.restore,
        earlier_restores: status.earlier_restores.unwrap_or_default(),
        endpoints: members.iter().map(|member| address(&member.name)).collect(),
        client_tls_secret,
        image_pull_secrets: spec
            .image_pull_secrets
            .iter()
            .flatten()
            .map(|secret| secret.name.clone())
            .collect(),
        service_account: pod
            .and_then(|pod| pod.service_account_name.clone())
            .filter(|name| !name.is_empty()),
        scheduling: pod.map(scheduling).unwrap_or_default(),
        name,
    }
}

/// The scheduling rules of the members.
fn scheduling(pod: &PodPolicy) -> Scheduling {
    let rules = pod.affinity.as_ref();
    Scheduling {
        labels: pod.node_selector.clone().unwrap_or_default(),
        affinity: rules.and_then(|rules| rules.node_affinity.clone()),
        tolerations: pod.tolerations.clone().unwrap_or_default(),
        priority_class: pod.priority_class_name.clone().filter(|name| !name.is_empty()),
    }
}

/// Whether the members use the upstream image, which contains etcd's restore tool.
fn uses_upstream_image(spec: &EtcdClusterSpec) -> bool {
    let version_text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    version_text(&spec.image).is_none()
        && version_text(&spec.repository).is_none_or(|named| named == DEFAULT_REPOSITORY)
}

/// The database quota in the spec.
fn quota(spec: &EtcdClusterSpec) -> Option<u64> {
    let quota = spec.etcd.as_ref()?.quota_backend_bytes.as_ref()?;
    quantity::bytes(quota).ok()
}

/// Whether the data is in the pods and lost with them.
fn is_ephemeral(spec: &EtcdClusterSpec) -> bool {
    let pvc = spec
        .pod
        .as_ref()
        .and_then(|pod| pod.persistent_volume_claim_spec.as_ref());
    match &spec.storage {
        Some(storage) => storage.medium != Medium::PersistentVolume,
        None => pvc.is_none(),
    }
}

/// Why no member can provide a consistent backup at the moment.
fn find_backup_blocker(status: &EtcdClusterStatus, size: i32) -> Option<String> {
    if size == 0 {
        return Some("it is hibernated (spec.size is 0)".to_owned());
    }
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let is_true = |type_| condition::find(conditions, type_).is_some_and(|known| known.status == "True");
    let is_lost = is_true(ConditionType::QuorumLost) || is_true(ConditionType::DataLost);
    is_lost.then(|| {
        let why = status.reason.as_deref().unwrap_or_default();
        format!("it has no quorum ({})", bounded(why, MAX_MESSAGE_CHARS))
    })
}

/// Size of a member's volume in bytes; `None` if the data is ephemeral and only the node limits it.
fn volume_size(spec: &EtcdClusterSpec) -> Option<u64> {
    let version_text = |size: Option<&Quantity>| size.and_then(|size| quantity::bytes(size).ok());
    let bytes = |size: Option<&Quantity>| version_text(size).unwrap_or(DEFAULT_VOLUME_BYTES);
    if let Some(storage) = &spec.storage {
        let size = storage.size.as_ref();
        return if is_ephemeral(spec) {
            version_text(size)
        } else {
            Some(bytes(size))
        };
    }
    let pvc = spec.pod.as_ref()?.persistent_volume_claim_spec.as_ref()?;
    let requests = pvc
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    Some(bytes(requests.and_then(|requests| requests.get("storage"))))
}

fn observe_job<'a>(job: &Job, pods: impl Iterator<Item = &'a Pod>, now: Timestamp) -> ObservedJob {
    let uid = job.uid().unwrap_or_default();
    let conditions = job
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let end = conditions
        .filter(|condition| condition.status == "True")
        .find(|condition| ["Complete", "Failed"].contains(&condition.type_.as_str()));
    let own: Vec<_> = pods
        .filter(|pod| pod.owner_references().iter().any(|owner| owner.uid == uid))
        .collect();
    let tools: Vec<_> = own
        .iter()
        .filter_map(|pod| Some((*pod, tool_state(pod)?)))
        .collect();
    let states: Vec<_> = own
        .into_iter()
        .map(|pod| {
            let containers = pod
                .status
                .iter()
                .flat_map(|status| status.container_statuses.iter().flatten());
            let container = containers
                .into_iter()
                .find(|container| container.name == CONTAINER);
            (pod, container.and_then(|container| container.state.as_ref()))
        })
        .collect();
    let results = states.iter().filter_map(|(_, state)| job_result((*state)?));
    ObservedJob {
        name: job.name_any(),
        is_deleting: job.metadata.deletion_timestamp.is_some(),
        end: end.map(|condition| JobEnd {
            is_complete: condition.type_ == "Complete",
            at: condition
                .last_transition_time
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            message: bounded(
                condition.message.as_deref().unwrap_or_default(),
                MAX_MESSAGE_CHARS,
            ),
        }),
        tool_error: tools
            .iter()
            .find_map(|(_, state)| tool_start_error(state.terminated.as_ref()?)),
        pending_reason: tools
            .iter()
            .find_map(|(pod, state)| {
                waiting_reason(pod, Some(*state).filter(|state| state.waiting.is_some()))
            })
            .or_else(|| states.iter().find_map(|(pod, state)| waiting_reason(pod, *state)))
            .or_else(|| missing_pod_reason(job, now).filter(|_| states.is_empty())),
        result: results.max_by_key(|(time, _)| *time).map(|(_, result)| result),
        uid,
    }
}

/// Why a Job has no pod, once the Job controller should have created one. Only Events of the Job contain the reason, and
/// the operator may not read Events.
fn missing_pod_reason(job: &Job, now: Timestamp) -> Option<String> {
    let made = job.metadata.creation_timestamp.as_ref()?.0;
    let is_overdue = made.checked_add(POD_CREATION_TIMEOUT).is_ok_and(|due| now > due);
    is_overdue.then(|| {
        format!(
            "the Job has no pod; see kubectl events --for job/{} for the reason, for example a ResourceQuota or LimitRange",
            job.name_any()
        )
    })
}

/// The state of the init container that runs etcd's restore tool.
fn tool_state(pod: &Pod) -> Option<&ContainerState> {
    let containers = pod.status.as_ref()?.init_container_statuses.as_ref()?;
    let found = containers.iter().find(|container| container.name == TOOL)?;
    found.state.as_ref()
}

/// Why the tool did not start; `None` for other failures.
fn tool_start_error(end: &ContainerStateTerminated) -> Option<String> {
    let words = || {
        let reason = end.reason.as_deref().unwrap_or("Error");
        let message = end.message.as_deref().unwrap_or_default();
        bounded(
            format!("{reason} (exit code {}) {message}", end.exit_code).trim(),
            MAX_MESSAGE_CHARS,
        )
    };
    // Other exit codes, such as after an eviction, say nothing about the image.
    [127, 128].contains(&end.exit_code).then(words)
}

/// The result in the termination message of a container, or how the container died, with the time.
fn job_result(state: &ContainerState) -> Option<(Timestamp, Result<JobResult, String>)> {
    let end = state.terminated.as_ref()?;
    let time = end
        .finished_at
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let text = end.message.as_deref().unwrap_or_default();
    let result = contract::read::<JobResult>(text.as_bytes()).map_err(|_| {
        let reason = end.reason.as_deref().unwrap_or("Error");
        format!("its container ended with {reason} (exit code {})", end.exit_code)
    });
    Some((time, result))
}

/// Why a container or its pod does not start.
fn waiting_reason(pod: &Pod, state: Option<&ContainerState>) -> Option<String> {
    let joined = |reason: Option<&str>, message: Option<&str>| {
        let text: Vec<&str> = [reason, message].into_iter().flatten().collect();
        (!text.is_empty()).then(|| bounded(&text.join(": "), MAX_MESSAGE_CHARS))
    };
    let waiting = state.and_then(|state| state.waiting.as_ref());
    let soon = ["ContainerCreating", "PodInitializing"];
    let waiting = waiting.filter(|waiting| {
        !waiting
            .reason
            .as_deref()
            .is_some_and(|reason| soon.contains(&reason))
    });
    if let Some(waiting) = waiting {
        return joined(waiting.reason.as_deref(), waiting.message.as_deref());
    }
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let unscheduled = conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    joined(unscheduled.reason.as_deref(), unscheduled.message.as_deref())
}
