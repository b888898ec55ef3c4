//! The pod of a Job: the operator's image as an unprivileged user, with its Secrets and volumes mounted and no token.
//!
//! With the verification `Restore` the pod runs the etcd image, as etcd's own programs restore the backup. An init container
//! copies the operator's program into it.

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

use super::{BuildInputs, order};
use crate::persisted_state::{Run, Task};

/// The name of the main container.
pub const CONTAINER: &str = "backup";

/// The name of the init container that copies the operator's program.
const INSTALL: &str = "install";
/// The directory it copies into.
const TOOLS: &str = "/opt/etcd-operator";
/// The operator's program in that directory.
const PROGRAM: &str = "/opt/etcd-operator/etcd-operator";

/// An unprivileged user ID, the same as for members.
const NON_ROOT: i64 = 65532;
/// The termination grace period in seconds: enough to abort an upload.
const TERMINATION_GRACE: i64 = 45;

/// Builds the pod template of a run's Job. The deadline is in seconds from the start of the pod.
pub(super) fn template(run: &Run, inputs: &BuildInputs<'_>, deadline: i64) -> PodTemplateSpec {
    let job = &inputs.desired.job;
    let (volumes, mounts) = volumes_and_mounts(run, inputs).into_iter().unzip();
    PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(inputs.labels(run)),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            restart_policy: Some("Never".to_owned()),
            active_deadline_seconds: Some(deadline),
            // Platform identities use volumes and endpoints of their own.
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            image_pull_secrets: non_empty_list(
                inputs
                    .source
                    .pull_secrets
                    .iter()
                    .map(|name| reference(name))
                    .collect(),
            ),
            service_account_name: non_empty(job.service_account_name.clone()),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(NON_ROOT),
                run_as_group: Some(NON_ROOT),
                fs_group: Some(NON_ROOT),
                fs_group_change_policy: Some("OnRootMismatch".to_owned()),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    ..SeccompProfile::default()
                }),
                ..PodSecurityContext::default()
            }),
            termination_grace_period_seconds: Some(TERMINATION_GRACE),
            init_containers: runs_restore(run, inputs).then(|| vec![install_container(inputs)]),
            containers: vec![main_container(run, inputs, mounts)],
            volumes: non_empty_list(volumes),
            node_selector: job.node_selector.clone().filter(|all| !all.is_empty()),
            affinity: job.affinity.clone(),
            tolerations: job.tolerations.clone().and_then(non_empty_list),
            priority_class_name: non_empty(job.priority_class_name.clone()),
            topology_spread_constraints: Some(vec![node_spread()]),
            ..PodSpec::default()
        }),
    }
}

/// The container that carries out the order, in the operator's image; in the etcd image if the backup is verified by a
/// restore.
fn main_container(run: &Run, inputs: &BuildInputs<'_>, mounts: Vec<VolumeMount>) -> Container {
    let order = order::order(run, inputs);
    let (image, program, default_resources) = match etcd_image(run, inputs) {
        Some(etcd) => (etcd, PROGRAM, resources("256Mi", "1Gi")),
        None => (inputs.image, "etcd-operator", resources("64Mi", "256Mi")),
    };
    let document = String::from_utf8(contract::write(&order)).expect("JSON is UTF-8");
    Container {
        name: CONTAINER.to_owned(),
        image: Some(image.to_owned()),
        command: Some(vec![program.to_owned(), order.task.command().to_owned()]),
        env: Some(vec![EnvVar {
            name: ORDER_VARIABLE.to_owned(),
            // Kubernetes would expand `$(NAME)`.
            value: Some(document.replace("$(", "$$(")),
            ..EnvVar::default()
        }]),
        resources: Some(inputs.desired.job.resources.clone().unwrap_or(default_resources)),
        volume_mounts: non_empty_list(mounts),
        security_context: Some(restricted()),
        termination_message_policy: Some("File".to_owned()),
        ..Container::default()
    }
}

/// Whether a run verifies its backup by a restore.
fn runs_restore(run: &Run, inputs: &BuildInputs<'_>) -> bool {
    etcd_image(run, inputs).is_some()
}

/// The etcd image for the verification `Restore`: the one in the spec, else the cluster's. `None` if the run needs none.
fn etcd_image<'a>(run: &Run, inputs: &BuildInputs<'a>) -> Option<&'a str> {
    let is_needed = run.task == Task::Backup && inputs.desired.verification == Verification::Restore;
    let image = inputs
        .desired
        .etcd_image
        .as_deref()
        .or(inputs.source.etcd_image.as_deref());
    image.filter(|_| is_needed)
}

/// The init container that copies the operator's program. It requests no more resources than the main container.
fn install_container(inputs: &BuildInputs<'_>) -> Container {
    Container {
        name: INSTALL.to_owned(),
        image: Some(inputs.image.to_owned()),
        command: Some(["etcd-operator", "install", TOOLS].map(str::to_owned).to_vec()),
        resources: Some(
            inputs
                .desired
                .job
                .resources
                .clone()
                .unwrap_or_else(|| resources("64Mi", "256Mi")),
        ),
        volume_mounts: Some(vec![mount("tools", TOOLS, false)]),
        security_context: Some(restricted()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

fn restricted() -> SecurityContext {
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

/// The default resources of a container, with these amounts of memory. `spec.job.resources` replaces them.
fn resources(memory_request: &str, memory_limit: &str) -> ResourceRequirements {
    let quantities = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        pairs
            .map(|(name, quantity)| ((*name).to_owned(), Quantity((*quantity).to_owned())))
            .collect::<BTreeMap<_, _>>()
    };
    ResourceRequirements {
        requests: Some(quantities(&[("cpu", "50m"), ("memory", memory_request)])),
        limits: Some(quantities(&[("memory", memory_limit)])),
        ..ResourceRequirements::default()
    }
}

/// The volumes that a run needs, each with its mount. Only a backup gets the certificates for etcd and the encryption
/// keys.
fn volumes_and_mounts(run: &Run, inputs: &BuildInputs<'_>) -> Vec<(Volume, VolumeMount)> {
    let mut all = Vec::new();
    let mut add = |name: &str, secret: Option<&str>, path: &str| {
        all.extend(secret.map(|secret| secret_volume(name, secret, path)));
    };
    let location = &inputs.desired.location;
    add("store", location.secret(), mounts::STORE_SECRET);
    add("store-ca", location.ca_secret(), mounts::STORE_CA);
    if run.task == Task::Backup {
        add(
            "client-tls",
            inputs.source.client_tls.as_deref(),
            mounts::CLIENT_TLS,
        );
        add("keys", inputs.desired.encryption_secret.as_deref(), mounts::KEYS);
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
    if run.task == Task::Backup && inputs.desired.verification != Verification::Checksum {
        all.push((empty_dir("scratch"), mount("scratch", mounts::SCRATCH, false)));
    }
    if runs_restore(run, inputs) {
        all.push((empty_dir("tools"), mount("tools", TOOLS, true)));
    }
    all
}

/// An `emptyDir`: the root file system of the pod is read-only.
fn empty_dir(name: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    }
}

/// A Secret and its mount. The Secret is optional: with a missing required one the pod would never start, while the process
/// can report what is missing.
fn secret_volume(name: &str, secret: &str, path: &str) -> (Volume, VolumeMount) {
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
    (volume, mount(name, path, true))
}

fn mount(name: &str, path: &str, is_read_only: bool) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: path.to_owned(),
        read_only: is_read_only.then_some(true),
        ..VolumeMount::default()
    }
}

/// Spreads the pods of backups over nodes, as many may be due at once.
fn node_spread() -> TopologySpreadConstraint {
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

fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn non_empty_list<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
