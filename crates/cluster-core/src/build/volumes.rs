//! What is mounted where in a member's pod.

use etcd_operator_api::names::ANNOTATION_PERMIT;
use k8s_openapi::{
    api::core::v1::{
        DownwardAPIVolumeFile, DownwardAPIVolumeSource, EmptyDirVolumeSource, ObjectFieldSelector,
        SecretVolumeSource, Volume, VolumeMount,
    },
    apimachinery::pkg::api::resource::Quantity,
};

use super::labels::DATA;
use crate::desired::{Desired, Storage};

/// What a member keeps: etcd's data and what is known of it.
pub(super) const VOLUME: &str = "/var/etcd";
/// Where etcd keeps its data.
pub(super) const DATA_DIR: &str = "/var/etcd/data";
/// Where the operator's program is put.
pub(super) const TOOLS: &str = "/opt/etcd-operator";
/// The operator's program in a member's pod.
pub(super) const PROGRAM: &str = "/opt/etcd-operator/etcd-operator";
/// Where permits arrive: a directory, for a file mounted by itself is never renewed.
const PERMITS: &str = "/etc/etcd-operator/permit";
/// The permit.
pub(super) const PERMIT: &str = "/etc/etcd-operator/permit/permit";
/// The certificates for traffic between members.
pub(super) const PEER_TLS: &str = "/etc/etcdtls/member/peer-tls";
/// The certificates for traffic with clients.
pub(super) const SERVER_TLS: &str = "/etc/etcdtls/member/server-tls";

/// Readable by the pod's group, which is its user's.
pub(super) const SECRET_MODE: i32 = 0o440;

/// The volumes of the pod, but for one that a claim brings.
pub(super) fn volumes(desired: &Desired) -> Vec<Volume> {
    let mut all = Vec::new();
    if let Storage::Ephemeral { in_memory, limit, .. } = &desired.storage {
        all.push(Volume {
            name: DATA.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource {
                medium: in_memory.then(|| "Memory".to_owned()),
                size_limit: limit.map(|bytes| Quantity(bytes.to_string())),
                ..EmptyDirVolumeSource::default()
            }),
            ..Volume::default()
        });
    }
    all.push(Volume {
        name: "tools".to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    });
    all.push(permit());
    all.extend(secrets(desired).map(|(name, secret, _)| Volume {
        name: name.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            default_mode: Some(SECRET_MODE),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    }));
    all
}

/// The volume with the permit: a file that the kubelet fills from an annotation of the pod.
fn permit() -> Volume {
    let file = DownwardAPIVolumeFile {
        path: "permit".to_owned(),
        field_ref: Some(ObjectFieldSelector {
            field_path: format!("metadata.annotations['{ANNOTATION_PERMIT}']"),
            ..ObjectFieldSelector::default()
        }),
        ..DownwardAPIVolumeFile::default()
    };
    Volume {
        name: "permit".to_owned(),
        downward_api: Some(DownwardAPIVolumeSource {
            items: Some(vec![file]),
            ..DownwardAPIVolumeSource::default()
        }),
        ..Volume::default()
    }
}

/// The mounts of etcd's container. The Secret with which the operator reaches members is not among them.
pub(super) fn mounts(desired: &Desired) -> Vec<VolumeMount> {
    let mut all = vec![
        mount(DATA, VOLUME, false),
        mount("tools", TOOLS, true),
        mount("permit", PERMITS, true),
    ];
    all.extend(secrets(desired).map(|(name, _, path)| mount(name, path, true)));
    all
}

/// The writable mount of the install container, into which it copies the program.
pub(super) fn tools() -> VolumeMount {
    mount("tools", TOOLS, false)
}

fn secrets(desired: &Desired) -> impl Iterator<Item = (&'static str, &str, &'static str)> {
    let peer = desired.tls.peer.as_deref();
    let server = desired.tls.client.as_ref().map(|client| client.server.as_str());
    let peer = peer.map(|secret| ("peer-tls", secret, PEER_TLS));
    peer.into_iter()
        .chain(server.map(|secret| ("server-tls", secret, SERVER_TLS)))
}

pub(super) fn mount(name: &str, path: &str, is_read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: is_read_only.then_some(true),
        ..VolumeMount::default()
    }
}

/// Flags with the certificates by which the guard and the readiness probe connect to members: the member's own, as the
/// operator's must not be in the pod. None without TLS for clients.
pub(super) fn certificates(desired: &Desired) -> Vec<String> {
    let files = [
        ("ca", "server-ca.crt"),
        ("cert", "server.crt"),
        ("key", "server.key"),
    ];
    let flag = |(name, file)| format!("--client-{name}={SERVER_TLS}/{file}");
    match desired.tls.client {
        Some(_) => files.map(flag).to_vec(),
        None => Vec::new(),
    }
}
