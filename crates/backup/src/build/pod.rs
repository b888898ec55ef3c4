//! The pod of a Job: the operator's own image under a user without rights, with what it needs mounted and no token.

use std::collections::BTreeMap;

use etcd_operator_api::backup::Verification;
use etcd_operator_api::contract::{self, ORDER_VARIABLE, mounts};
use etcd_operator_api::names::{APP_BACKUP_VALUE, LABEL_APP};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, EmptyDirVolumeSource, EnvVar, LocalObjectReference,
    PersistentVolumeClaimVolumeSource, PodSecurityContext, PodSpec, PodTemplateSpec, ResourceRequirements,
    SeccompProfile, SecretVolumeSource, SecurityContext, TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::{Frame, order};
use crate::memory::{Run, Task};

/// The container of the pod.
pub const CONTAINER: &str = "backup";

/// A user without name or rights, the same as for members.
const NOBODY: i64 = 65532;
/// Seconds in which an upload is given up in order.
const STOP: i64 = 45;

pub(super) fn template(run: &Run, frame: &Frame<'_>) -> PodTemplateSpec {
    let job = &frame.desired.job;
    let (volumes, mounts) = mounted(run, frame).into_iter().unzip();
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(frame.labels(run)),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            restart_policy: Some("Never".to_owned()),
            // Identities of platforms come by volumes and addresses of their own.
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            image_pull_secrets: listed(
                frame
                    .origin
                    .pull_secrets
                    .iter()
                    .map(|name| reference(name))
                    .collect(),
            ),
            service_account_name: filled(job.service_account_name.clone()),
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
            termination_grace_period_seconds: Some(STOP),
            containers: vec![container(run, frame, mounts)],
            volumes: listed(volumes),
            node_selector: job.node_selector.clone().filter(|all| !all.is_empty()),
            affinity: job.affinity.clone(),
            tolerations: job.tolerations.clone().and_then(listed),
            priority_class_name: filled(job.priority_class_name.clone()),
            topology_spread_constraints: Some(vec![spread()]),
            ..PodSpec::default()
        }),
    }
}

fn container(run: &Run, frame: &Frame<'_>, mounts: Vec<VolumeMount>) -> Container {
    let order = order::order(run, frame);
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
        resources: Some(frame.desired.job.resources.clone().unwrap_or_else(resources)),
        volume_mounts: listed(mounts),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            ..SecurityContext::default()
        }),
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
        limits: Some(amounts(&[("memory", "256Mi")])),
        ..ResourceRequirements::default()
    }
}

fn mounted(run: &Run, frame: &Frame<'_>) -> Vec<(Volume, VolumeMount)> {
    let mut all = Vec::new();
    let mut add = |name: &str, secret: Option<&str>, at: &str| {
        all.extend(secret.map(|secret| mounted_secret(name, secret, at)));
    };
    let location = &frame.desired.location;
    add("store", location.secret(), mounts::STORE_SECRET);
    add("store-ca", location.ca_secret(), mounts::STORE_CA);
    if run.task == Task::Backup {
        add(
            "client-tls",
            frame.origin.client_tls.as_deref(),
            mounts::CLIENT_TLS,
        );
        add("keys", frame.desired.keys.as_deref(), mounts::KEYS);
    }
    all.extend(location.claim().map(|claim| {
        let volume = Volume {
            name: "backups".to_owned(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim.to_owned(),
                read_only: None,
            }),
            ..Volume::default()
        };
        (volume, mount("backups", mounts::VOLUME, false))
    }));
    if run.task == Task::Backup && frame.desired.verification == Verification::Full {
        all.push(scratch());
    }
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

/// Many that are due at once do not end up on one node.
fn spread() -> TopologySpreadConstraint {
    let labels = [(LABEL_APP.to_owned(), APP_BACKUP_VALUE.to_owned())];
    TopologySpreadConstraint {
        max_skew: 1,
        topology_key: "kubernetes.io/hostname".to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        label_selector: Some(LabelSelector {
            match_labels: Some(labels.into()),
            ..LabelSelector::default()
        }),
        ..TopologySpreadConstraint::default()
    }
}

fn reference(name: &str) -> LocalObjectReference {
    LocalObjectReference {
        name: name.to_owned(),
    }
}

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn listed<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
