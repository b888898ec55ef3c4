//! Observes the facts about a cluster that a restore needs.

use etcd_operator_api::cluster::{
    DefaultRepository, EtcdClusterSpec, EtcdClusterStatus, ImagePullPolicy, Medium, PodPolicy,
};
use etcd_operator_api::condition::{self, ConditionType, Truth};
use etcd_operator_api::contract;
use etcd_operator_api::names::{ANNOTATION_MADE_BY, ANNOTATION_RESTORE, CLIENT_PORT};
use etcd_operator_api::refusal::bounded;
use etcd_operator_api::version::EtcdVersion;
use etcd_operator_api::{EtcdCluster, quantity};
use etcd_operator_runtime::key::ObjectKey;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;

use super::MAX_MESSAGE_CHARS;
use crate::observed_state::{ObservedCluster, Scheduling};

/// The reason with which the cluster controller reports that no member was ever started.
const AWAITING_RESTORE: &str = "AwaitingRestore";
/// Default size of a member's volume.
const DEFAULT_VOLUME_BYTES: u64 = 8 << 30;

/// The observed state of the cluster `found`, or why it cannot be restored.
pub fn find_cluster(
    name: &str,
    found: Option<&EtcdCluster>,
    key: &ObjectKey,
    default_repository: &DefaultRepository,
) -> Result<ObservedCluster, String> {
    let cluster = found.ok_or_else(|| {
        format!("There is no readable EtcdCluster {name}. Create it first; the restore then starts.")
    })?;
    if cluster.metadata.deletion_timestamp.is_some() {
        return Err(format!("The EtcdCluster {name} is being deleted."));
    }
    Ok(observe_cluster(cluster, key, default_repository))
}

/// The facts about a cluster that a restore needs.
pub fn observe_cluster(
    cluster: &EtcdCluster,
    key: &ObjectKey,
    default_repository: &DefaultRepository,
) -> ObservedCluster {
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
        image: cluster
            .etcd_image(&version_text, default_repository)
            .filter(|image| !default_repository.is_upstream(image)),
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
