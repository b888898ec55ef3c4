//! The two containers of a member's pod.

use etcd_operator_api::names::{CLIENT_PORT, METRICS_PORT, PEER_PORT};
use etcd_operator_etcd_types::version::Minor;
use k8s_openapi::api::core::v1::{Container, ContainerPort, EnvVar, EnvVarSource, ObjectFieldSelector};

use super::{
    BuildInputs, image,
    labels::{CLUSTER_UID, DATA, ETCD, ETCD_MINOR, INCARNATION, INSTALL},
    probes, security,
    volumes::{self, PERMIT, PROGRAM, TOOLS, VOLUME},
};
use crate::desired::{Desired, Storage, VARIABLES};

/// Which interface of etcd its tool speaks.
const ETCDCTL_API: &str = "ETCDCTL_API";

/// The container of etcd. Its command is the guard, `etcd-operator member`, which becomes etcd with these flags once it
/// may start.
pub(super) fn etcd(desired: &Desired, inputs: &BuildInputs, flags: Vec<String>) -> Container {
    let mut command = vec![
        PROGRAM.to_owned(),
        "member".to_owned(),
        format!("{CLUSTER_UID}{}", inputs.cluster_uid),
        format!("{INCARNATION}{}", inputs.state_annotations.incarnation),
        format!("--volume={VOLUME}"),
        format!("--permit={PERMIT}"),
    ];
    let minor = Minor::of(&inputs.version);
    command.extend(minor.map(|minor| format!("{ETCD_MINOR}{minor}")));
    command.extend(volumes::certificates(desired));
    command.extend(["--", "/usr/local/bin/etcd"].map(str::to_owned));
    command.extend(flags);
    let mut env: Vec<EnvVar> = VARIABLES
        .iter()
        .map(|(name, path)| variable(name, path))
        .collect();
    env.extend(desired.pod.env.iter().cloned());
    // Whoever types in the pod means the interface that members serve; older tools speak another one by themselves.
    let is_set = env.iter().any(|variable| variable.name == ETCDCTL_API);
    if minor.is_some_and(|minor| minor < Minor::V3_4) && !is_set {
        env.push(EnvVar {
            name: ETCDCTL_API.to_owned(),
            value: Some("3".to_owned()),
            ..EnvVar::default()
        });
    }
    Container {
        name: ETCD.to_owned(),
        image: Some(image::etcd_image(
            &desired.image,
            &inputs.version,
            &inputs.default_repository,
        )),
        image_pull_policy: desired.pull_policy.map(|policy| policy.as_str().to_owned()),
        command: Some(command),
        env: Some(env),
        ports: Some(vec![
            port("client", CLIENT_PORT),
            port("peer", PEER_PORT),
            port("metrics", METRICS_PORT),
        ]),
        resources: desired.pod.resources.clone(),
        volume_mounts: Some(volumes::mounts(desired)),
        startup_probe: Some(probes::startup()),
        liveness_probe: Some(probes::liveness()),
        readiness_probe: Some(probes::readiness(desired, &inputs.version)),
        security_context: Some(security::container()),
        // The last lines of a member that died tell a damaged disk from a bad flag.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// The init container that copies the operator's program into the pod, and reports how far the log on a persistent
/// volume goes. It has the resources of etcd's container, so that the pod needs no more than that.
pub(super) fn install(desired: &Desired, inputs: &BuildInputs) -> Container {
    let mut command = ["etcd-operator", "install", TOOLS].map(str::to_owned).to_vec();
    let mut mounts = vec![volumes::tools()];
    if matches!(desired.storage, Storage::Persistent { .. }) {
        command.push(format!("--volume={VOLUME}"));
        mounts.push(volumes::mount(DATA, VOLUME, true));
    }
    Container {
        name: INSTALL.to_owned(),
        image: Some(inputs.operator_image.to_string()),
        command: Some(command),
        resources: desired.pod.resources.clone(),
        volume_mounts: Some(mounts),
        security_context: Some(security::container()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// An environment variable with the value of a field of the pod.
pub(super) fn variable(name: &str, path: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: path.to_owned(),
                ..ObjectFieldSelector::default()
            }),
            ..EnvVarSource::default()
        }),
        ..EnvVar::default()
    }
}

fn port(name: &str, number: u16) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: number.into(),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}
