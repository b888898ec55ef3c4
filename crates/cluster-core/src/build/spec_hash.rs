//! The hash of what the user asks of a running member: members whose hash differs are to be restarted, others never.
//!
//! It is made of the user's words and not of the pod: what only a newer operator does otherwise must not change it. So
//! what the user does not ask for is not in it, and a field that is added changes nothing for those who do not set it.

use etcd_operator_api::cluster::DefaultRepository;
use etcd_operator_api::hash;
use etcd_operator_etcd_types::version::Version;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::image;
use crate::desired::{Compaction, Desired, Options, Pod, Storage, Tls};

/// The annotation of the pod template, and so of every pod, with the hash of the intent it was made from.
pub const ANNOTATION_SPEC_HASH: &str = "etcd.database.coreos.com/intent";

/// Requests to restart the members without a change of the spec, each with the value that it was made with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RestartRequests {
    /// By annotation of the `EtcdCluster`.
    pub annotated: Option<String>,
    /// By `kubectl rollout restart` of the StatefulSet.
    pub by_kubectl: Option<String>,
}

/// The hash of those settings for which members are restarted. It names every field of [`Desired`], so that a new field
/// needs a decision whether it restarts members.
pub fn spec_hash(desired: &Desired, version: &Version, restart: &RestartRequests) -> String {
    let Desired {
        name: _,
        size: _,
        image,
        pull_policy,
        pull_secrets,
        paused: _,
        pod,
        storage,
        service: _,
        options,
        tls,
        updates: _,
        replace_after: _,
        awaits_restore: _,
        without_effect: _,
    } = desired;
    hash::hash(&drop_nulls(json!({
        "version": version.to_string(),
        // Where the installation pulls the default image from is no wish of the user.
        "image": image::etcd_image(image, version, &DefaultRepository::default()),
        "pullPolicy": pull_policy,
        "pullSecrets": non_empty(pull_secrets),
        "pod": pod_settings(pod),
        "storage": storage_settings(storage),
        "options": etcd_settings(options),
        "tls": tls_settings(tls),
        "restart": restart.annotated,
        "restartedAt": restart.by_kubectl,
    })))
}

/// Removes fields that are not set, so that a new field changes no hash of clusters that do not set it.
fn drop_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, drop_nulls(value)));
            fields.filter(|(_, value)| !value.is_null()).collect()
        }
        other => other,
    }
}

fn non_empty<T: Serialize>(items: &[T]) -> Option<&[T]> {
    (!items.is_empty()).then_some(items)
}

/// The settings of the pod, without labels and annotations, which running pods get without a restart.
fn pod_settings(pod: &Pod) -> Value {
    let Pod {
        // A running pod is given these.
        labels: _,
        annotations: _,
        node_selector,
        affinity,
        one_per_node,
        tolerations,
        spread,
        resources,
        priority_class,
        env,
        security,
        service_account,
        grace_seconds,
        cluster_domain,
        patch,
    } = pod;
    let without_metadata = |patch: &Map<String, Value>| -> Map<String, Value> {
        let parts = patch.iter().filter(|(part, _)| *part != "metadata");
        parts.map(|(part, value)| (part.clone(), value.clone())).collect()
    };
    let patch = patch
        .as_ref()
        .map(without_metadata)
        .filter(|patch| !patch.is_empty());
    json!({
        "nodeSelector": Some(node_selector).filter(|labels| !labels.is_empty()),
        "affinity": affinity,
        "apart": one_per_node.then_some(true),
        "tolerations": non_empty(tolerations),
        "spread": spread,
        "resources": resources,
        "priorityClass": priority_class,
        "env": non_empty(env),
        "security": security,
        "serviceAccount": service_account,
        "graceSeconds": grace_seconds,
        "clusterDomain": cluster_domain,
        // As a hash, because a null says something here.
        "patch": patch.map(|patch| hash::hash(&Value::Object(patch))),
    })
}

/// Of a persistent volume only that it is one: a claim outlives the pod and changes without a restart.
fn storage_settings(storage: &Storage) -> Value {
    match storage {
        Storage::Persistent { .. } => json!("PersistentVolume"),
        Storage::Ephemeral { in_memory, limit, .. } => json!({"inMemory": in_memory, "limit": limit}),
    }
}

fn etcd_settings(options: &Options) -> Value {
    let Options {
        quota,
        compaction,
        snapshot_count,
        heartbeat_ms,
        election_ms,
        max_request_bytes,
        extra,
    } = options;
    let compaction = compaction.as_ref().map(|compaction| match compaction {
        Compaction::Periodic(age) => json!({"seconds": age.as_secs()}),
        Compaction::Revisions(count) => json!({"revisions": count}),
    });
    json!({
        "quota": quota,
        "compaction": compaction,
        "snapshotCount": snapshot_count,
        "heartbeatMs": heartbeat_ms,
        "electionMs": election_ms,
        "maxRequestBytes": max_request_bytes,
        "extra": non_empty(extra),
    })
}

fn tls_settings(tls: &Tls) -> Value {
    let Tls { peer, client } = tls;
    json!({"peer": peer, "server": client.as_ref().map(|client| &client.server)})
}
