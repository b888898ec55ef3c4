//! What the kubelet asks a member: whether it lives, and whether clients may come.
//!
//! Nothing here may restart a member because the cluster has no quorum, is busy, or waits for the operator.
//!
//! A member that joins takes itself for a voter until it has applied its own coming, and etcd's page may ask that before
//! it waits for all that was agreed: whoever looks a second time is told. Before a cluster has formed nobody joins, and
//! one look lets clients come a second earlier. So pods that were made by then are no place for a learner.

use etcd_operator_api::names::{CLIENT_PORT, METRICS_PORT, PEER_PORT};
use etcd_operator_etcd_types::{
    policy::Feature,
    version::{Minor, Version},
};
use k8s_openapi::{
    api::core::v1::{ExecAction, HTTPGetAction, PodSpec, PodTemplateSpec, Probe, TCPSocketAction},
    apimachinery::pkg::util::intstr::IntOrString,
};

use super::{
    labels::ETCD,
    volumes::{self, PROGRAM},
};
use crate::desired::Desired;

/// Of the versions that know learners: true of a voter that answers with the others' consent.
const READYZ: &str = "/readyz";
/// How often that must have been true, one after the other, where a learner may be asked.
pub(super) const READY_SUCCESSES: i32 = 2;

/// Liveness by the peer port, which is open while the guard waits and as soon as etcd runs; a defragmentation does not
/// close it.
pub(super) fn liveness() -> Probe {
    Probe {
        tcp_socket: Some(socket(PEER_PORT)),
        period_seconds: Some(10),
        timeout_seconds: Some(5),
        failure_threshold: Some(6),
        ..Probe::default()
    }
}

/// Startup by the peer port, without a deadline in practice: the operator judges whether a start takes too long.
pub(super) fn startup() -> Probe {
    Probe {
        tcp_socket: Some(socket(PEER_PORT)),
        period_seconds: Some(1),
        timeout_seconds: Some(5),
        failure_threshold: Some(i32::MAX),
        ..Probe::default()
    }
}

/// Readiness of a voter that answers with a quorum, as far as the kubelet can find that out from this version. Before
/// 3.3 with TLS, it only connects to the client port.
pub(super) fn readiness(desired: &Desired, version: &Version) -> Probe {
    let has = |feature: Feature| feature.is_in(version);
    let http = |path: &str, port| Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::Int(i32::from(port)),
            ..HTTPGetAction::default()
        }),
        ..frequent_probe()
    };
    if has(Feature::ReadyzKnowsLearners) {
        // With the first look in a startup probe the second one comes later still: 6.7 s until three members are ready,
        // where it takes 5.9 s this way, and 4.9 s with one look.
        return Probe {
            success_threshold: Some(READY_SUCCESSES),
            ..http(READYZ, METRICS_PORT)
        };
    }
    if has(Feature::Learners) {
        // No page of these versions tells a learner from a voter.
        return Probe {
            exec: Some(ExecAction {
                command: Some(ready_command(desired)),
            }),
            period_seconds: Some(2),
            ..frequent_probe()
        };
    }
    // Without learners a healthy member is a voter.
    if has(Feature::MetricsAddress) {
        return http("/health", METRICS_PORT);
    }
    if desired.tls.client.is_none() && Minor::of(version).is_some() {
        return http("/health", CLIENT_PORT);
    }
    // With TLS that asks for certificates the kubelet gets no further than the connection.
    Probe {
        tcp_socket: Some(socket(CLIENT_PORT)),
        ..frequent_probe()
    }
}

/// Sets after how many successes of `/readyz` a pod is ready: one until the cluster has formed, then two. It also
/// changes a stored template that must not change otherwise.
pub(super) fn set_success_threshold(template: &mut PodTemplateSpec, has_formed: bool) {
    let containers = template.spec.iter_mut().flat_map(|spec| &mut spec.containers);
    let etcd = containers.filter(|container| container.name == ETCD);
    for probe in etcd.filter_map(|etcd| etcd.readiness_probe.as_mut()) {
        let successes = probe.success_threshold.unwrap_or(1);
        if !probes_readyz(probe) {
            continue;
        }
        if has_formed && successes < READY_SUCCESSES {
            probe.success_threshold = Some(READY_SUCCESSES);
        } else if !has_formed && successes == READY_SUCCESSES {
            probe.success_threshold = None;
        }
    }
}

/// Whether the pod is ready after one success of `/readyz`, as pods are that were made before the cluster formed. A
/// learner in it could be taken for a voter, and clients be routed to it.
pub fn has_single_success_probe(pod: &PodSpec) -> bool {
    let etcd = pod.containers.iter().filter(|container| container.name == ETCD);
    let mut probes = etcd.filter_map(|etcd| etcd.readiness_probe.as_ref());
    probes.any(|probe| probes_readyz(probe) && probe.success_threshold.unwrap_or(1) < READY_SUCCESSES)
}

fn probes_readyz(probe: &Probe) -> bool {
    let path = probe.http_get.as_ref().and_then(|http| http.path.as_deref());
    path == Some(READYZ)
}

/// The command of a readiness probe that finds out by itself whether the member is a voter.
fn ready_command(desired: &Desired) -> Vec<String> {
    let mut command = vec![PROGRAM.to_owned(), "ready".to_owned()];
    if desired.tls.client.is_none() {
        command.push(format!("--endpoint=http://127.0.0.1:{CLIENT_PORT}"));
        return command;
    }
    command.push(format!("--endpoint=https://127.0.0.1:{CLIENT_PORT}"));
    command.extend(volumes::certificates(desired));
    command.push("--client-server-name=localhost".to_owned());
    command
}

/// A probe every second that fails after five: an election makes every member unready for a moment, and must not take
/// them all from the Service at once.
fn frequent_probe() -> Probe {
    Probe {
        period_seconds: Some(1),
        timeout_seconds: Some(5),
        failure_threshold: Some(5),
        ..Probe::default()
    }
}

fn socket(port: u16) -> TCPSocketAction {
    TCPSocketAction {
        port: IntOrString::Int(port.into()),
        ..TCPSocketAction::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::build::desired;

    #[test]
    fn a_member_that_can_be_a_learner_is_believed_to_be_none_when_it_says_so_twice_or_after_it_read() {
        let cluster = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
            "metadata": {"name": "c"}, "spec": {},
        }));
        let desired = desired(&cluster.expect("a cluster")).expect("a valid spec");
        let probe = |version: &str| readiness(&desired, &version.parse().expect("a version"));
        for version in ["3.5.35", "3.6.16", "3.7.3"] {
            let probe = probe(version);
            let path = probe.http_get.and_then(|http| http.path);
            assert_eq!(
                (path.as_deref(), probe.success_threshold),
                (Some("/readyz"), Some(2)),
                "{version}"
            );
        }
        assert!(
            probe("3.4.44").exec.is_some(),
            "it reads before it asks who it is"
        );
        assert_eq!(probe("3.3.27").success_threshold, None, "it has no learners");
    }
}
