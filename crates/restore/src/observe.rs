//! Looking at one `EtcdRestore`: the copies of its cluster, its backup, its Jobs and their pods. Reads only.

mod rivals;

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
use crate::desired::{Desired, From};
use crate::memory::Memory;
use crate::plan::{Phase, chosen};
use crate::reconcile::Deps;
use crate::world::{Cluster, JobEnd, JobSeen, Nodes, World};

use rivals::rival;
pub use rivals::{can_be_replaced, rival_among};

/// How long a Job may have no pod before that is told.
const FOR_A_POD: Duration = Duration::from_secs(20);
/// The longest text of why a pod waits.
const LONGEST: usize = 200;
/// The word of a cluster's controller for one of which nothing was ever started.
const AWAITING: &str = "AwaitingRestore";
/// The size of a volume where the user does not say.
const VOLUME: u64 = 8 << 30;

/// Looks at one restore.
pub async fn observe(restore: &EtcdRestore, desired: Desired, deps: &Deps) -> Result<World, Error> {
    let key = ObjectKey::of(restore);
    let uid = restore.uid().unwrap_or_default();
    let status = restore.status.as_ref();
    let is_edited = status.is_some_and(|status| status.observed_generation < restore.metadata.generation);
    let memory = Memory::read(status);
    // One that was chosen stays the one until somebody says otherwise: another one is not restored days later by itself.
    let chosen_in = [Phase::Verifying, Phase::BackingUp, Phase::Failed].map(Phase::as_str);
    let has_begun = Phase::has_begun(&memory.phase);
    let is_chosen = has_begun || (chosen_in.contains(&memory.phase.as_str()) && !is_edited);
    let backup = match &desired.from {
        From::Backup { name, .. } => deps.backups.get(&key.beside(name)),
        From::Object(_) | From::Refused(_) => None,
    };
    let before = memory.object.as_deref().filter(|_| is_chosen);
    let source = chosen(&desired, backup.as_deref(), before);
    let claim = source.as_ref().ok().and_then(|source| source.location.claim());
    let is_claim_shared = match claim {
        Some(claim) => is_shared(&key.beside(claim), deps).await?,
        None => None,
    };
    let is_ours = |labels: &BTreeMap<String, String>| labels.get(LABEL_RESTORE) == Some(&key.name);
    let jobs = deps
        .jobs
        .filter(&key.namespace, |job: &Job| is_ours(job.labels()));
    let (owned, foreign): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| is_owned(&**job, &uid));
    let pods = deps
        .pods
        .filter(&key.namespace, |pod: &Pod| is_ours(pod.labels()));
    Ok(World {
        now: deps.clock.now(),
        cluster: cluster(&desired, &key, deps),
        is_cluster_missing: deps.clusters.sight(&key.beside(&desired.cluster)) == Sight::Missing,
        scope: restore.annotations().get(ANNOTATION_SCOPE).cloned(),
        rival: rival(restore, &key, deps),
        source,
        is_claim_shared,
        jobs: owned
            .iter()
            .map(|job| seen(job, pods.iter().map(|pod| &**pod), deps.clock.now()))
            .collect(),
        foreign: foreign.first().map(|job| job.name_any()),
        image: deps.operator_image.clone(),
        name: key.name.clone(),
        is_edited,
        memory,
        uid,
        desired,
    })
}

/// Whether an object belongs to the `EtcdRestore` of this UID.
pub fn is_owned(object: &impl Resource, uid: &str) -> bool {
    let mut owners = object.meta().owner_references.iter().flatten();
    owners.any(|owner| owner.uid == uid && owner.controller == Some(true))
}

/// Whether several nodes can mount a claim at once; none if there is no such claim.
async fn is_shared(claim: &ObjectKey, deps: &Deps) -> Result<Option<bool>, Error> {
    let claim = deps.applier.read::<PersistentVolumeClaim>(claim).await?;
    Ok(claim.and_then(takes_several))
}

/// Whether several nodes can mount it at once, if it says so.
pub fn takes_several(claim: PersistentVolumeClaim) -> Option<bool> {
    let modes = claim.spec?.access_modes?;
    let shared = ["ReadWriteMany", "ReadOnlyMany"];
    Some(modes.iter().any(|mode| shared.contains(&mode.as_str())))
}

fn cluster(desired: &Desired, key: &ObjectKey, deps: &Deps) -> Result<Cluster, String> {
    let found = deps.clusters.get(&key.beside(&desired.cluster));
    found_cluster(&desired.cluster, found.as_deref(), key)
}

/// What counts of the cluster that was found, or why it cannot be restored.
pub fn found_cluster(name: &str, found: Option<&EtcdCluster>, key: &ObjectKey) -> Result<Cluster, String> {
    let cluster = found.ok_or_else(|| {
        format!("There is no EtcdCluster {name} that can be read: create it first; it is restored once it is there.")
    })?;
    if cluster.metadata.deletion_timestamp.is_some() {
        return Err(format!("The EtcdCluster {name} is being deleted."));
    }
    Ok(of_cluster(cluster, key))
}

/// What counts of a cluster.
pub fn of_cluster(cluster: &EtcdCluster, key: &ObjectKey) -> Cluster {
    let (name, spec) = (cluster.name_any(), &cluster.spec);
    let status = cluster.status.clone().unwrap_or_default();
    let silence = silence(&status, spec.size);
    let members = status.member_status.unwrap_or_default();
    let members: Vec<_> = members.iter().filter(|member| member.role.is_some()).collect();
    let is_secure = cluster.has_secure_clients();
    let client_tls = cluster.operator_secret().filter(|_| is_secure).map(str::to_owned);
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
    let awaits = spec.bootstrap.as_ref().is_some_and(|boot| boot.await_restore);
    let is_waiting = awaits && status.cluster_id.is_none();
    // A status that was lost has no ID either: only what its controller says of it is known.
    let says_so = condition::find(conditions, ConditionType::Progressing)
        .is_some_and(|progressing| progressing.reason.as_deref() == Some(AWAITING));
    let version = version(&status.current_version)
        .or(wanted)
        .or(tagged)
        .or(version(&status.target_version));
    let said = version.as_ref().map(ToString::to_string).unwrap_or_default();
    Cluster {
        image: spec.etcd_image(&said).filter(|_| !is_upstreams(spec)),
        pull_policy: spec.image_pull_policy.map(ImagePullPolicy::as_str),
        is_waiting,
        holds_nothing: is_waiting && says_so,
        made_by: cluster.annotations().get(ANNOTATION_MADE_BY).cloned(),
        refused: accepted.and_then(|accepted| accepted.message.clone()),
        members: match usize::try_from(spec.size).unwrap_or_default() {
            0 => members.len(),
            size => size,
        },
        version,
        volume: volume(spec),
        quota: quota(spec),
        is_ephemeral: is_ephemeral(spec),
        silence,
        is_paused: spec.paused,
        intent: text.map(|text| contract::read(text.as_bytes()).map_err(|error| error.to_string())),
        story: status.reason.filter(|_| !says_so && status.phase != "Running"),
        cluster_id: status.cluster_id,
        incarnation: status.incarnation,
        progress: status.restore,
        earlier: status.earlier_restores.unwrap_or_default(),
        endpoints: members.iter().map(|member| address(&member.name)).collect(),
        client_tls,
        pull_secrets: spec
            .image_pull_secrets
            .iter()
            .flatten()
            .map(|secret| secret.name.clone())
            .collect(),
        service_account: pod
            .and_then(|pod| pod.service_account_name.clone())
            .filter(|name| !name.is_empty()),
        nodes: pod.map(nodes).unwrap_or_default(),
        name,
    }
}

/// Where the members may run.
fn nodes(pod: &PodPolicy) -> Nodes {
    let rules = pod.affinity.as_ref();
    Nodes {
        labels: pod.node_selector.clone().unwrap_or_default(),
        affinity: rules.and_then(|rules| rules.node_affinity.clone()),
        tolerations: pod.tolerations.clone().unwrap_or_default(),
        priority_class: pod.priority_class_name.clone().filter(|name| !name.is_empty()),
    }
}

/// Whether the image is left to the operator, which takes upstream's: these have what it takes.
fn is_upstreams(spec: &EtcdClusterSpec) -> bool {
    let said = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    said(&spec.image).is_none() && said(&spec.repository).is_none_or(|named| named == DEFAULT_REPOSITORY)
}

/// The quota that is asked for.
fn quota(spec: &EtcdClusterSpec) -> Option<u64> {
    let quota = spec.etcd.as_ref()?.quota_backend_bytes.as_ref()?;
    quantity::bytes(quota).ok()
}

/// Whether the data live with the pods.
fn is_ephemeral(spec: &EtcdClusterSpec) -> bool {
    let claim = spec
        .pod
        .as_ref()
        .and_then(|pod| pod.persistent_volume_claim_spec.as_ref());
    match &spec.storage {
        Some(storage) => storage.medium != Medium::PersistentVolume,
        None => claim.is_none(),
    }
}

/// Why none of its members can be asked for a backup of what all of them agreed on.
fn silence(status: &EtcdClusterStatus, size: i32) -> Option<String> {
    if size == 0 {
        return Some("it sleeps, as its spec.size is 0".to_owned());
    }
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let is_so = |type_| condition::find(conditions, type_).is_some_and(|known| known.status == "True");
    let is_lost = is_so(ConditionType::QuorumLost) || is_so(ConditionType::DataLost);
    is_lost.then(|| {
        let why = status.reason.as_deref().unwrap_or_default();
        format!("it has no quorum ({})", bounded(why, LONGEST))
    })
}

/// Bytes that each member may have; none where the data live with the pods and nothing but the node bounds them.
fn volume(spec: &EtcdClusterSpec) -> Option<u64> {
    let said = |size: Option<&Quantity>| size.and_then(|size| quantity::bytes(size).ok());
    let bytes = |size: Option<&Quantity>| said(size).unwrap_or(VOLUME);
    if let Some(storage) = &spec.storage {
        let size = storage.size.as_ref();
        return if is_ephemeral(spec) {
            said(size)
        } else {
            Some(bytes(size))
        };
    }
    let claim = spec.pod.as_ref()?.persistent_volume_claim_spec.as_ref()?;
    let requests = claim
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    Some(bytes(requests.and_then(|requests| requests.get("storage"))))
}

fn seen<'a>(job: &Job, pods: impl Iterator<Item = &'a Pod>, now: Timestamp) -> JobSeen {
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
    let tools: Vec<_> = own.iter().filter_map(|pod| Some((*pod, tool(pod)?))).collect();
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
    let said = states.iter().filter_map(|(_, state)| said((*state)?));
    JobSeen {
        name: job.name_any(),
        is_going: job.metadata.deletion_timestamp.is_some(),
        end: end.map(|condition| JobEnd {
            is_complete: condition.type_ == "Complete",
            at: condition
                .last_transition_time
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            message: bounded(condition.message.as_deref().unwrap_or_default(), LONGEST),
        }),
        lacks_tool: tools
            .iter()
            .find_map(|(_, state)| lacks(state.terminated.as_ref()?)),
        waits: tools
            .iter()
            .find_map(|(pod, state)| waits(pod, Some(*state).filter(|state| state.waiting.is_some())))
            .or_else(|| states.iter().find_map(|(pod, state)| waits(pod, *state)))
            .or_else(|| podless(job, now).filter(|_| states.is_empty())),
        said: said.max_by_key(|(time, _)| *time).map(|(_, said)| said),
        uid,
    }
}

/// What is known of a Job without a pod, once its controller has had the time to make one. Why there is none stands in its
/// Events alone, which nobody may read here.
fn podless(job: &Job, now: Timestamp) -> Option<String> {
    let made = job.metadata.creation_timestamp.as_ref()?.0;
    let is_late = made.checked_add(FOR_A_POD).is_ok_and(|due| now > due);
    is_late.then(|| {
        format!(
            "there is none; kubectl events --for job/{} tells why, for example a quota or a LimitRange of the namespace",
            job.name_any()
        )
    })
}

/// How the program that restores does in the members' image.
fn tool(pod: &Pod) -> Option<&ContainerState> {
    let containers = pod.status.as_ref()?.init_container_statuses.as_ref()?;
    let found = containers.iter().find(|container| container.name == TOOL)?;
    found.state.as_ref()
}

/// Why it did not start.
fn lacks(end: &ContainerStateTerminated) -> Option<String> {
    let words = || {
        let reason = end.reason.as_deref().unwrap_or("Error");
        let message = end.message.as_deref().unwrap_or_default();
        bounded(
            format!("{reason} (exit code {}) {message}", end.exit_code).trim(),
            LONGEST,
        )
    };
    // Who was evicted, or came to an end otherwise, says nothing of what is in the image.
    [127, 128].contains(&end.exit_code).then(words)
}

/// What the container said at its end: its result, or else how it died.
fn said(state: &ContainerState) -> Option<(Timestamp, Result<JobResult, String>)> {
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

fn waits(pod: &Pod, state: Option<&ContainerState>) -> Option<String> {
    let told = |reason: Option<&str>, message: Option<&str>| {
        let text: Vec<&str> = [reason, message].into_iter().flatten().collect();
        (!text.is_empty()).then(|| bounded(&text.join(": "), LONGEST))
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
        return told(waiting.reason.as_deref(), waiting.message.as_deref());
    }
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let unscheduled = conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    told(unscheduled.reason.as_deref(), unscheduled.message.as_deref())
}
