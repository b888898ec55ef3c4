//! The pod of a Job: the operator's own image under a user without rights, with what it needs mounted and no token.

use std::collections::BTreeMap;

use etcd_operator_api::contract::{self, ORDER_VARIABLE, mounts};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, Container, EmptyDirVolumeSource, EnvVar, LocalObjectReference,
    PersistentVolumeClaimVolumeSource, PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements,
    SeccompProfile, SecretVolumeSource, SecurityContext, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Frame;
use crate::plan::{Task, Wanted};

/// The container of the pod.
pub const CONTAINER: &str = "restore";

/// The one that shows that the members' image has the program that restores.
pub const TOOL: &str = "tool";

/// A user without name or rights, the same as for members.
const NOBODY: i64 = 65532;

pub(super) fn template(wanted: &Wanted, frame: &Frame<'_>) -> PodTemplateSpec {
    let (volumes, mounts): (Vec<_>, Vec<_>) = mounted(wanted, frame).into_iter().unzip();
    let nodes = &frame.cluster.nodes;
    let pull_secrets = frame.cluster.pull_secrets.iter();
    let pull_secrets: Vec<_> = pull_secrets
        .map(|name| LocalObjectReference { name: name.clone() })
        .collect();
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(frame.labels(&wanted.task)),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            restart_policy: Some("Never".to_owned()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            image_pull_secrets: (!pull_secrets.is_empty()).then_some(pull_secrets),
            // What the members' pods may read, this one may: what it finds out is to hold for them.
            service_account_name: frame.cluster.service_account.clone(),
            // Where they can run, it can, and where every node repels strangers nothing else would ever start.
            node_selector: (!nodes.labels.is_empty()).then(|| nodes.labels.clone()),
            affinity: nodes.affinity.clone().map(|rules| Affinity {
                node_affinity: Some(rules),
                ..Affinity::default()
            }),
            tolerations: (!nodes.tolerations.is_empty()).then(|| nodes.tolerations.clone()),
            priority_class_name: nodes.priority_class.clone(),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(NOBODY),
                run_as_group: Some(NOBODY),
                fs_group: Some(NOBODY),
                fs_group_change_policy: Some("OnRootMismatch".to_owned()),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    ..SeccompProfile::default()
                }),
                ..PodSecurityContext::default()
            }),
            init_containers: tool(wanted, frame).map(|tool| vec![tool]),
            containers: vec![container(wanted, frame, mounts)],
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
    }
}

/// Runs the program that restores, in the members' own image, so far as to tell its version: where it is missing, nothing is
/// touched. Up to 3.5 the client can do it, and images always have that.
fn tool(wanted: &Wanted, frame: &Frame<'_>) -> Option<Container> {
    let cluster = frame.cluster;
    let (image, version) = (cluster.image.clone()?, cluster.version.as_ref()?);
    let program = if (version.major, version.minor) < (3, 6) {
        "etcdctl"
    } else {
        "etcdutl"
    };
    (wanted.task == Task::Verify).then(|| Container {
        name: TOOL.to_owned(),
        image: Some(image),
        image_pull_policy: cluster.pull_policy.map(str::to_owned),
        command: Some(vec![format!("/usr/local/bin/{program}"), "version".to_owned()]),
        env: Some(vec![EnvVar {
            name: "ETCDCTL_API".to_owned(),
            value: Some("3".to_owned()),
            ..EnvVar::default()
        }]),
        resources: Some(resources()),
        security_context: Some(harmless()),
        ..Container::default()
    })
}

fn harmless() -> SecurityContext {
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

fn container(wanted: &Wanted, frame: &Frame<'_>, mounts: Vec<VolumeMount>) -> Container {
    let order = frame.order(wanted);
    let document = String::from_utf8(contract::write(&order)).expect("JSON is UTF-8");
    Container {
        name: CONTAINER.to_owned(),
        image: Some(frame.image.to_owned()),
        command: Some(vec!["etcd-operator".to_owned(), order.task.command().to_owned()]),
        env: Some(vec![EnvVar {
            name: ORDER_VARIABLE.to_owned(),
            // `$(NAME)` would be taken for a variable.
            value: Some(document.replace("$(", "$$(")),
            ..EnvVar::default()
        }]),
        resources: Some(resources()),
        volume_mounts: Some(mounts),
        security_context: Some(harmless()),
        termination_message_policy: Some("File".to_owned()),
        ..Container::default()
    }
}

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

fn mounted(wanted: &Wanted, frame: &Frame<'_>) -> Vec<(Volume, VolumeMount)> {
    let mut all = vec![scratch()];
    let mut add = |name: &str, secret: Option<&str>, at: &str| {
        all.extend(secret.map(|secret| mounted_secret(name, secret, at)));
    };
    add(
        "client-tls",
        frame.cluster.client_tls.as_deref(),
        mounts::CLIENT_TLS,
    );
    // Whoever compares reads what members serve, and nothing of the store.
    let is_read = !matches!(wanted.task, Task::Compare { .. });
    let Some(source) = frame.source.filter(|_| is_read) else {
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
        let is_only_read = wanted.task == Task::Verify;
        (volume, mount("backups", mounts::VOLUME, is_only_read))
    }));
    all
}

/// Everything else of the pod is read-only.
fn scratch() -> (Volume, VolumeMount) {
    let volume = Volume {
        name: "scratch".to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    };
    (volume, mount("scratch", mounts::SCRATCH, false))
}

/// A pod whose Secret is missing would wait without a word: the process starts and says what it lacks.
fn mounted_secret(name: &str, secret: &str, at: &str) -> (Volume, VolumeMount) {
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

fn mount(name: &str, at: &str, is_fixed: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: at.to_owned(),
        read_only: is_fixed.then_some(true),
        ..VolumeMount::default()
    }
}
