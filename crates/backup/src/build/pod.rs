//! The pod of a Job: the operator's own image under a user without rights, with what it needs mounted and no token. Where a
//! backup is restored to be checked it is the image of etcd, whose own programs do that, with the operator's put into it.

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

/// The container that brings the operator's program into an image of etcd.
const INSTALL: &str = "install";
/// Where it is put.
const TOOLS: &str = "/opt/etcd-operator";
/// The program there.
const PROGRAM: &str = "/opt/etcd-operator/etcd-operator";

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
            init_containers: restores(run, frame).then(|| vec![install(frame)]),
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
    let (image, program, amounts) = match image(run, frame) {
        Some(etcd) => (etcd, PROGRAM, resources("256Mi", "1Gi")),
        None => (frame.image, "etcd-operator", resources("64Mi", "256Mi")),
    };
    let document = String::from_utf8(contract::write(&order)).expect("JSON is UTF-8");
    Container {
        name: CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        command: Some(vec![program.to_owned(), order.task.command().to_owned()]),
        env: Some(vec![EnvVar {
            name: ORDER_VARIABLE.to_owned(),
            // `$(NAME)` would be taken for a variable.
            value: Some(document.replace("$(", "$$(")),
            ..EnvVar::default()
        }]),
        resources: Some(frame.desired.job.resources.clone().unwrap_or(amounts)),
        volume_mounts: listed(mounts),
        security_context: Some(confined()),
        termination_message_policy: Some("File".to_owned()),
        ..Container::default()
    }
}

/// Whether a run restores what it has stored.
fn restores(run: &Run, frame: &Frame<'_>) -> bool {
    image(run, frame).is_some()
}

/// The image of etcd that a run needs: that of the cluster, unless the spec names one.
fn image<'a>(run: &Run, frame: &Frame<'a>) -> Option<&'a str> {
    let is_wanted = run.task == Task::Backup && frame.desired.verification == Verification::Restore;
    let image = frame
        .desired
        .etcd_image
        .as_deref()
        .or(frame.origin.etcd_image.as_deref());
    image.filter(|_| is_wanted)
}

/// Brings the operator's program into the pod, and takes no more than the container that runs it.
fn install(frame: &Frame<'_>) -> Container {
    Container {
        name: INSTALL.to_owned(),
        image: Some(frame.image.to_owned()),
        command: Some(["etcd-operator", "install", TOOLS].map(str::to_owned).to_vec()),
        resources: Some(
            frame
                .desired
                .job
                .resources
                .clone()
                .unwrap_or_else(|| resources("64Mi", "256Mi")),
        ),
        volume_mounts: Some(vec![mount("tools", TOOLS, false)]),
        security_context: Some(confined()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

fn confined() -> SecurityContext {
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

fn resources(memory: &str, most: &str) -> ResourceRequirements {
    let amounts = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        pairs
            .map(|(name, amount)| ((*name).to_owned(), Quantity((*amount).to_owned())))
            .collect::<BTreeMap<_, _>>()
    };
    ResourceRequirements {
        requests: Some(amounts(&[("cpu", "50m"), ("memory", memory)])),
        limits: Some(amounts(&[("memory", most)])),
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
    if run.task == Task::Backup && frame.desired.verification != Verification::Checksum {
        all.push((empty("scratch"), mount("scratch", mounts::SCRATCH, false)));
    }
    if restores(run, frame) {
        all.push((empty("tools"), mount("tools", TOOLS, true)));
    }
    all
}

/// What can be written to; everything else of the pod is read-only.
fn empty(name: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    }
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
