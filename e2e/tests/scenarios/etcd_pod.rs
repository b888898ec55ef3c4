//! One etcd in a pod, without an operator: for scenarios about the bed that need something to break. Nothing of it is
//! how the operator runs etcd.

use std::time::Duration;

use anyhow::{Context, Result};
use etcd_operator_e2e::command::printed;
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::images;
use etcd_operator_e2e::scenario::Stage;
use etcd_operator_e2e::unprivileged::unprivileged;
use serde_json::json;

/// The only container.
pub const CONTAINER: &str = "etcd";
/// Its data directory on the claim.
pub const DATA: &str = "data";
const SOON: Duration = Duration::from_mins(1);

/// Starts one on a node, with its data on a claim or in the pod, and waits until it takes a write.
pub async fn start(
    stage: &Stage,
    pod: &str,
    node: &str,
    version: EtcdVersion,
    claim: Option<&str>,
) -> Result<()> {
    let archive = images::etcd(version).await?;
    stage.cluster().node(node)?.import(&archive).await?;
    let volume = match claim {
        Some(claim) => json!({ "name": "data", "persistentVolumeClaim": { "claimName": claim } }),
        None => json!({ "name": "data", "emptyDir": {} }),
    };
    stage
        .cluster()
        .apply(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": pod, "namespace": stage.namespace(), "labels": { "app": "etcd" } },
            "spec": unprivileged(json!({
                "terminationGracePeriodSeconds": 1,
                "nodeSelector": { "kubernetes.io/hostname": node },
                "volumes": [volume],
                "containers": [{
                    "name": CONTAINER, "image": images::etcd_reference(version), "imagePullPolicy": "Never",
                    "command": [
                        "/usr/local/bin/etcd",
                        format!("--data-dir=/var/etcd/{DATA}"),
                        "--listen-client-urls=http://0.0.0.0:2379",
                        "--advertise-client-urls=http://$(ADDRESS):2379",
                    ],
                    "env": [
                        { "name": "ADDRESS", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
                        { "name": "ETCDCTL_API", "value": "3" },
                    ],
                    "volumeMounts": [{ "name": "data", "mountPath": "/var/etcd" }],
                }],
            })),
        }))
        .await?;
    stage.ready(pod).await?;
    until(&format!("{pod} takes a write"), SOON, || async {
        Ok(ctl(stage, pod, &["put", "greeting", "hello"]).await.ok())
    })
    .await?;
    Ok(())
}

/// Runs its own etcdctl in it.
pub async fn ctl(stage: &Stage, pod: &str, words: &[&str]) -> Result<String> {
    let exec = ["exec", "-n", stage.namespace(), pod, "--", "etcdctl"];
    let output = stage
        .cluster()
        .control_plane()
        .kubectl(&[&exec, words].concat())
        .await?;
    printed(output, &format!("etcdctl {}", words.join(" ")))
}

/// What it has logged, in its present run or in the one before.
pub async fn log(stage: &Stage, pod: &str, previous: bool) -> Result<String> {
    let previous = format!("--previous={previous}");
    let logs = ["logs", "-n", stage.namespace(), pod, &previous];
    printed(
        stage.cluster().control_plane().kubectl(&logs).await?,
        "kubectl logs",
    )
    .context("its log cannot be had")
}
