//! Looking at one `EtcdBackup`: the copies of its Jobs, their pods and the cluster it backs up. Reads only.

use std::collections::BTreeMap;

use etcd_operator_api::backup::Verification;
use etcd_operator_api::cluster::RestoreProgress;
use etcd_operator_api::contract::{self, JobResult};
use etcd_operator_api::names::{ANNOTATION_BACKUP_NOW, CLIENT_PORT, LABEL_BACKUP};
use etcd_operator_api::refusal::bounded;
use etcd_operator_api::{EtcdBackup, EtcdCluster};
use etcd_operator_runtime::key::ObjectKey;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use kube::{Resource, ResourceExt as _};

use crate::build::{CONTAINER, GENERATION, LOCATION};
use crate::desired::{Desired, Source};
use crate::memory::Memory;
use crate::reconcile::Deps;
use crate::world::{JobEnd, JobSeen, Origin, PodSeen, World};

/// The longest text of a request, and of why a pod waits.
const LONGEST: usize = 200;

/// Looks at one backup, as if it were not its turn.
pub fn observe(backup: &EtcdBackup, desired: Desired, now: Timestamp, deps: &Deps) -> World {
    let key = ObjectKey::of(backup);
    let uid = backup.uid().unwrap_or_default();
    let is_ours = |labels: &BTreeMap<String, String>| labels.get(LABEL_BACKUP) == Some(&key.name);
    let jobs = deps
        .jobs
        .filter(&key.namespace, |job: &Job| is_ours(job.labels()));
    let (owned, foreign): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| is_owned(&**job, &uid));
    let pods = deps
        .pods
        .filter(&key.namespace, |pod: &Pod| is_ours(pod.labels()));
    let status = backup.status.as_ref();
    let request = backup.annotations().get(ANNOTATION_BACKUP_NOW);
    World {
        origin: origin(&desired, &key, deps),
        now,
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        created: backup.creation_timestamp().map_or(now, |time| time.0),
        deleted: backup.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        generation: backup.metadata.generation.unwrap_or_default(),
        is_edited: status.is_some_and(|status| status.observed_generation < backup.metadata.generation),
        request: request
            .filter(|text| !text.is_empty())
            .map(|text| text.chars().take(LONGEST).collect()),
        memory: Memory::read(status),
        jobs: owned.iter().map(|job| seen(job)).collect(),
        pods: pods.iter().filter_map(|pod| pod_seen(pod)).collect(),
        foreign: foreign.first().map(|job| job.name_any()),
        has_turn: false,
        uid,
        desired,
    }
}

/// Whether an object belongs to the `EtcdBackup` of this UID.
pub fn is_owned(object: &impl Resource, uid: &str) -> bool {
    let mut owners = object.meta().owner_references.iter().flatten();
    owners.any(|owner| owner.uid == uid && owner.controller == Some(true))
}

/// Where what is backed up is found, or why it is not there.
fn origin(desired: &Desired, key: &ObjectKey, deps: &Deps) -> Result<Origin, String> {
    let name = match &desired.source {
        Source::Endpoints(endpoints) => {
            return Ok(Origin {
                endpoints: endpoints.clone(),
                client_tls: desired.client_tls.clone(),
                ..Origin::default()
            });
        }
        Source::Cluster(name) => name,
    };
    let cluster = deps.clusters.get(&key.beside(name));
    let cluster = cluster.ok_or_else(|| format!("there is no EtcdCluster {name} that can be read"))?;
    if cluster.metadata.deletion_timestamp.is_some() {
        return Err(format!("the EtcdCluster {name} is being deleted"));
    }
    of_cluster(&cluster, desired, key)
}

fn of_cluster(cluster: &EtcdCluster, desired: &Desired, key: &ObjectKey) -> Result<Origin, String> {
    let (name, status) = (cluster.name_any(), cluster.status.clone().unwrap_or_default());
    let is_between = |restore: &RestoreProgress| restore.is_active() && !restore.open;
    if status.restore.as_ref().is_some_and(is_between) {
        // What is there is neither the old cluster nor the new one. Once clients are let in it is the new one, and what they
        // write is to be backed up, however long a last member takes.
        return Err(format!("the EtcdCluster {name} is being restored"));
    }
    let Some(cluster_id) = status.cluster_id else {
        return Err(format!("the EtcdCluster {name} has not formed yet"));
    };
    let members = status.member_status.unwrap_or_default();
    let members = members.iter().filter(|member| member.role.is_some());
    let is_secure = cluster.has_secure_clients();
    if is_secure && desired.client_tls.is_none() && cluster.operator_secret().is_none() {
        return Err(format!(
            "members of the EtcdCluster {name} speak TLS, and its spec names no operatorSecret any more"
        ));
    }
    let secret = cluster.operator_secret().filter(|_| is_secure).map(str::to_owned);
    let client_tls = desired.client_tls.clone().or(secret);
    let scheme = if is_secure || desired.client_tls.is_some() {
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
    let host = |pod: &str| {
        let namespace = &key.namespace;
        format!("{scheme}://{pod}.{name}.{namespace}.{zone}:{CLIENT_PORT}")
    };
    let endpoints: Vec<String> = members.map(|member| host(&member.name)).collect();
    if endpoints.is_empty() || cluster.spec.size == 0 {
        return Err(format!("the EtcdCluster {name} has no member that serves"));
    }
    let etcd_image = cluster.spec.etcd_image(&status.current_version);
    let needs_image = desired.verification == Verification::Restore && desired.etcd_image.is_none();
    if needs_image && etcd_image.is_none() {
        return Err(format!(
            "the EtcdCluster {name} does not tell yet which version of etcd runs"
        ));
    }
    let pull_secrets = cluster.spec.image_pull_secrets.iter().flatten();
    Ok(Origin {
        endpoints,
        client_tls,
        pull_secrets: pull_secrets.map(|secret| secret.name.clone()).collect(),
        etcd_image,
        cluster_id: Some(cluster_id),
        incarnation: status.incarnation,
    })
}

/// What counts of a Job.
pub fn seen(job: &Job) -> JobSeen {
    let conditions = job
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let end = conditions
        .filter(|condition| condition.status == "True")
        .find(|condition| ["Complete", "Failed"].contains(&condition.type_.as_str()));
    JobSeen {
        name: job.name_any(),
        uid: job.uid().unwrap_or_default(),
        generation: job
            .annotations()
            .get(GENERATION)
            .and_then(|text| text.parse().ok())
            .unwrap_or_default(),
        location: job.annotations().get(LOCATION).cloned(),
        is_going: job.metadata.deletion_timestamp.is_some(),
        end: end.map(|condition| JobEnd {
            is_complete: condition.type_ == "Complete",
            reason: condition.reason.clone().unwrap_or_default(),
            message: bounded(condition.message.as_deref().unwrap_or_default(), LONGEST),
        }),
    }
}

fn pod_seen(pod: &Pod) -> Option<PodSeen> {
    let owner = pod.owner_references().iter().find(|owner| owner.kind == "Job")?;
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let containers = status.and_then(|status| status.container_statuses.as_deref());
    let container = containers
        .unwrap_or_default()
        .iter()
        .find(|container| container.name == CONTAINER);
    let state = container.and_then(|container| container.state.as_ref());
    Some(PodSeen {
        job: owner.name.clone(),
        job_uid: owner.uid.clone(),
        is_live: !matches!(phase, Some("Succeeded" | "Failed")),
        has_started: state.is_some_and(|state| state.running.is_some() || state.terminated.is_some()),
        waits: waits(pod, state),
        said: state.and_then(said),
    })
}

/// What the container said at its end: its result, or else how it died.
fn said(state: &ContainerState) -> Option<(Timestamp, Result<JobResult, String>)> {
    let end = state.terminated.as_ref()?;
    let time = end
        .finished_at
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let text = end.message.as_deref().unwrap_or_default();
    let result = contract::read::<JobResult>(text.as_bytes()).map_err(|error| {
        let reason = end.reason.as_deref().unwrap_or("Error");
        let died = format!("its container ended with {reason} (exit code {})", end.exit_code);
        if text.is_empty() {
            died
        } else {
            format!("{died}; {error}")
        }
    });
    Some((time, result))
}

fn waits(pod: &Pod, state: Option<&ContainerState>) -> Option<String> {
    let told = |reason: Option<&str>, message: Option<&str>| {
        let text: Vec<&str> = [reason, message].into_iter().flatten().collect();
        (!text.is_empty()).then(|| bounded(&text.join(": "), LONGEST))
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
        return told(waiting.reason.as_deref(), waiting.message.as_deref());
    }
    let failed = inits
        .filter_map(|state| state.terminated.as_ref())
        .find(|end| end.exit_code != 0);
    if let Some(end) = failed {
        return told(end.reason.as_deref(), end.message.as_deref());
    }
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let unscheduled = conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    told(unscheduled.reason.as_deref(), unscheduled.message.as_deref())
}
