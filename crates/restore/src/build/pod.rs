//! Builds the pod of a Job: the operator's image, non-root, without a service account token.

use std::collections::BTreeMap;

use etcd_operator_api::contract::{self, ORDER_VARIABLE, mounts};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, EmptyDirVolumeSource, EnvVar, LocalObjectReference,
    PersistentVolumeClaimVolumeSource, PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements,
    SeccompProfile, SecretVolumeSource, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::BuildInputs;
use crate::plan::{DesiredJob, JobTask};

/// Name of the main container.
pub const CONTAINER: &str = "restore";

/// Name of the init container that checks that the members' image contains etcd's restore tool.
pub const TOOL: &str = "tool";

/// User and group ID of the pod, the same as for members.
const NON_ROOT_ID: i64 = 65532;

/// Builds the pod template of a Job. The pod runs where members may run, and with their service account.
pub(super) fn template(desired: &DesiredJob, inputs: &BuildInputs<'_>) -> PodTemplateSpec {
    let (volumes, mounts): (Vec<_>, Vec<_>) = volumes_and_mounts(desired, inputs).into_iter().unzip();
    let scheduling = &inputs.cluster.scheduling;
    let image_pull_secrets = inputs.cluster.image_pull_secrets.iter();
    let image_pull_secrets: Vec<_> = image_pull_secrets
        .map(|name| LocalObjectReference { name: name.clone() })
        .collect();
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(inputs.labels(&desired.task)),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            restart_policy: Some("Never".to_owned()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            image_pull_secrets: (!image_pull_secrets.is_empty()).then_some(image_pull_secrets),
            // The same service account as the members, so that the verification also covers their access to the store.
            service_account_name: inputs.cluster.service_account.clone(),
            // The same nodes as the members: if all nodes are tainted, the pod could not start anywhere else.
            node_selector: (!scheduling.labels.is_empty()).then(|| scheduling.labels.clone()),
            affinity: scheduling.affinity.clone().map(|rules| Affinity {
                node_affinity: Some(rules),
                ..Affinity::default()
            }),
            tolerations: (!scheduling.tolerations.is_empty()).then(|| scheduling.tolerations.clone()),
            priority_class_name: scheduling.priority_class.clone(),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(NON_ROOT_ID),
                run_as_group: Some(NON_ROOT_ID),
                fs_group: Some(NON_ROOT_ID),
                fs_group_change_policy: Some("OnRootMismatch".to_owned()),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    ..SeccompProfile::default()
                }),
                ..PodSecurityContext::default()
            }),
            init_containers: tool_container(desired, inputs).map(|tool| vec![tool]),
            containers: vec![container(desired, inputs, mounts)],
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
    }
}

/// An init container that runs etcd's restore tool from the members' image with the command `version`. Only the
/// verification has one, and only if the user specified the image and its version is known.
///
/// If the image lacks the tool, the restore fails before it changes anything. Up to etcd 3.5 `etcdctl` can restore, and
/// images always contain it; from 3.6 on only `etcdutl` can.
fn tool_container(desired: &DesiredJob, inputs: &BuildInputs<'_>) -> Option<Container> {
    let cluster = inputs.cluster;
    let (image, version) = (cluster.image.clone()?, cluster.version.as_ref()?);
    let program = if (version.major, version.minor) < (3, 6) {
        "etcdctl"
    } else {
        "etcdutl"
    };
    (desired.task == JobTask::Verify).then(|| Container {
        name: TOOL.to_owned(),
        image: Some(image),
        image_pull_policy: cluster.image_pull_policy.map(str::to_owned),
        command: Some(vec![format!("/usr/local/bin/{program}"), "version".to_owned()]),
        env: Some(vec![EnvVar {
            name: "ETCDCTL_API".to_owned(),
            value: Some("3".to_owned()),
            ..EnvVar::default()
        }]),
        resources: Some(resources()),
        security_context: Some(restricted_security_context()),
        ..Container::default()
    })
}

fn restricted_security_context() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            ..Capabilities::default()
        }),
        ..SecurityContext::default()
    }
}

fn container(desired: &DesiredJob, inputs: &BuildInputs<'_>, mounts: Vec<VolumeMount>) -> Container {
    let order = inputs.order(desired);
    let document = String::from_utf8(contract::write(&order)).expect("JSON is UTF-8");
    Container {
        name: CONTAINER.to_owned(),
        image: Some(inputs.image.to_owned()),
        command: Some(vec!["etcd-operator".to_owned(), order.task.command().to_owned()]),
        env: Some(vec![EnvVar {
            name: ORDER_VARIABLE.to_owned(),
            // `$(NAME)` would be taken for a variable.
            value: Some(document.replace("$(", "$$(")),
            ..EnvVar::default()
        }]),
        resources: Some(resources()),
        volume_mounts: Some(mounts),
        security_context: Some(restricted_security_context()),
        termination_message_policy: Some("File".to_owned()),
        ..Container::default()
    }
}

/// The resources of every container of a Job's pod; no field of the spec changes them.
fn resources() -> ResourceRequirements {
    let amounts = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        pairs
            .map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())))
            .collect::<BTreeMap<_, _>>()
    };
    ResourceRequirements {
        requests: Some(amounts(&[("cpu", "50m"), ("memory", "64Mi")])),
        limits: Some(amounts(&[("memory", "512Mi")])),
        ..ResourceRequirements::default()
    }
}

/// The volumes of a Job, each with its mount. A comparison gets none of the store, and only a safety backup may write
/// to a volume with backups.
fn volumes_and_mounts(desired: &DesiredJob, inputs: &BuildInputs<'_>) -> Vec<(Volume, VolumeMount)> {
    let mut all = vec![scratch_volume()];
    let mut add = |name: &str, secret: Option<&str>, at: &str| {
        all.extend(secret.map(|secret| secret_volume(name, secret, at)));
    };
    add(
        "client-tls",
        inputs.cluster.client_tls_secret.as_deref(),
        mounts::CLIENT_TLS,
    );
    // A comparison reads from the members, not from the store.
    let needs_store = !matches!(desired.task, JobTask::Compare { .. });
    let Some(source) = inputs.source.filter(|_| needs_store) else {
        return all;
    };
    let location = &source.location;
    add("store", location.secret(), mounts::STORE_SECRET);
    add("store-ca", location.ca_secret(), mounts::STORE_CA);
    add("keys", source.keys.as_deref(), mounts::KEYS);
    all.extend(location.claim().map(|claim| {
        let volume = Volume {
            name: "backups".to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim.to_owned(),
                read_only: None,
            }),
            ..Volume::default()
        };
        let is_read_only = desired.task != JobTask::BackUp;
        (volume, mount("backups", mounts::VOLUME, is_read_only))
    }));
    all
}

/// The only writable volume of the pod, apart from the backups.
fn scratch_volume() -> (Volume, VolumeMount) {
    let volume = Volume {
        name: "scratch".to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    };
    (volume, mount("scratch", mounts::SCRATCH, false))
}

/// A volume with a Secret. The Secret is optional: without it the pod still starts, and its process reports what is missing.
fn secret_volume(name: &str, secret: &str, at: &str) -> (Volume, VolumeMount) {
    let volume = Volume {
        name: name.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            default_mode: Some(0o440),
            optional: Some(true),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    };
    (volume, mount(name, at, true))
}

fn mount(name: &str, at: &str, is_read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: at.to_owned(),
        read_only: is_read_only.then_some(true),
        ..VolumeMount::default()
    }
}
