//! Every wish about pods, seen on one that runs: in its object, and in the process that etcd is.

use std::fs;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::images;
use etcd_operator_e2e::scenario::Stage;
use etcd_operator_e2e::unprivileged::bounded;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::tenant::{SOON, Tenant};

/// What is asked for. Nothing of it is what a pod would have anyway.
fn spec(tenant: &Tenant) -> Value {
    let anywhere = json!({"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "Exists"},
    ]}]});
    json!({
        "size": 1,
        "version": tenant.version().number(),
        "storage": {"size": "256Mi", "storageClassName": "local", "labels": {"backup": "nightly"}},
        "pod": {
            "labels": {"team": "orders"},
            "annotations": {"example.com/scrape": "true"},
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": anywhere}},
            "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "etcd", "effect": "NoSchedule"}],
            "topologySpreadConstraints": [{
                "maxSkew": 2, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"team": "orders"}},
            }],
            "resources": {"requests": {"cpu": "30m", "memory": "48Mi"}, "limits": {"memory": "400Mi"}},
            "priorityClassName": "of-etcd",
            "etcdEnv": [{"name": "GOMAXPROCS", "value": "3"}],
            "securityContext": {"runAsUser": 9000, "runAsGroup": 9000, "fsGroup": 9000, "runAsNonRoot": true},
            "serviceAccountName": "of-etcd",
            "terminationGracePeriodSeconds": 17,
            "patch": {"spec": {
                "hostAliases": [{"ip": "10.0.0.7", "hostnames": ["registry.internal"]}],
                "containers": [{
                    "name": "beside", "image": images::TOOLS, "imagePullPolicy": "Never", "command": ["probe", "pause"], "securityContext": bounded(),
                }],
            }},
        },
        "etcd": {
            "quotaBackendBytes": "123Mi", "autoCompaction": {"mode": "Periodic", "retention": "3h"},
            "snapshotCount": 12345, "heartbeatMs": 150, "electionMs": 1500, "maxRequestBytes": 2_097_152,
            "extraArgs": ["--max-txn-ops=256"],
        },
        "service": {"type": "NodePort", "annotations": {"example.com/zone": "a"}},
    })
}

/// Every text, number and flag of `wanted` is in `found`; of lists each entry, wherever it stands.
fn lacks(wanted: &Value, found: &Value, path: &str, missing: &mut Vec<String>) {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            for (key, value) in wanted {
                let found = found.get(key).unwrap_or(&Value::Null);
                lacks(value, found, &format!("{path}.{key}"), missing);
            }
        }
        (Value::Array(wanted), Value::Array(found)) => {
            for (at, value) in wanted.iter().enumerate() {
                let is_there = found.iter().any(|one| {
                    let mut of_this = Vec::new();
                    lacks(value, one, "", &mut of_this);
                    of_this.is_empty()
                });
                if !is_there {
                    missing.push(format!("{path}[{at}]: {value}"));
                }
            }
        }
        _ if wanted == found => {}
        _ => missing.push(format!("{path}: {found} and not {wanted}")),
    }
}

pub async fn seen(stage: Arc<Stage>) -> Result<()> {
    let tenant = Tenant::on(stage.clone(), EtcdVersion::V3_6_16).await?;
    let cluster = stage.cluster();
    cluster
        .apply(&json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "of-etcd"}, "value": 7,
        }))
        .await?;
    cluster
        .apply(&json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "of-etcd", "namespace": stage.namespace()},
        }))
        .await?;
    let spec = spec(&tenant);
    tenant.apply(&spec).await?;
    tenant.converged(1).await?;

    let get = async |what: &str| -> Result<Value> {
        let said = tenant.kubectl(&["get", what, "--output=json"]).await?;
        Ok(serde_json::from_str(&said)?)
    };
    let (pod, wish) = (get("pod/c-0").await?, &spec["pod"]);
    let mut missing = Vec::new();
    for key in ["labels", "annotations"] {
        lacks(&wish[key], &pod["metadata"][key], key, &mut missing);
    }
    for key in [
        "nodeSelector",
        "affinity",
        "tolerations",
        "topologySpreadConstraints",
        "priorityClassName",
        "securityContext",
        "serviceAccountName",
        "terminationGracePeriodSeconds",
    ] {
        lacks(&wish[key], &pod["spec"][key], key, &mut missing);
    }
    lacks(&wish["patch"]["spec"], &pod["spec"], "patch", &mut missing);
    let etcd = pod["spec"]["containers"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["name"] == "etcd"))
        .context("no container is called etcd")?;
    lacks(&wish["resources"], &etcd["resources"], "resources", &mut missing);
    let claim = get("pvc/data-c-0").await?;
    lacks(
        &json!({
            "metadata": {"labels": {"backup": "nightly"}},
            "spec": {"storageClassName": "local", "resources": {"requests": {"storage": "256Mi"}}},
        }),
        &claim,
        "claim",
        &mut missing,
    );
    let service = json!({
        "metadata": {"annotations": spec["service"]["annotations"]}, "spec": {"type": spec["service"]["type"]},
    });
    lacks(&service, &get("service/c-client").await?, "service", &mut missing);
    ensure!(missing.is_empty(), "{missing:#?}");

    // What the process itself was given, whatever objects say.
    let process = tenant.container("c-0").await?.processes()?;
    let [process] = process.as_slice() else {
        anyhow::bail!("etcd is not one process but {}", process.len());
    };
    let of_process = |what: &str| -> Result<Vec<String>> {
        let text = fs::read_to_string(format!("/proc/{}/{what}", process.pid()))?;
        Ok(text.split('\0').map(str::to_owned).collect())
    };
    let flags = of_process("cmdline")?;
    for wanted in [
        "--quota-backend-bytes=128974848",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=10800s",
        "--snapshot-count=12345",
        "--heartbeat-interval=150",
        "--election-timeout=1500",
        "--max-request-bytes=2097152",
        "--max-txn-ops=256",
    ] {
        ensure!(
            flags.iter().any(|flag| flag == wanted),
            "{wanted} is not among {flags:?}"
        );
    }
    let environment = of_process("environ")?;
    ensure!(
        environment.iter().any(|variable| variable == "GOMAXPROCS=3"),
        "{environment:?}"
    );
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
    ensure!(status.contains("\nUid:\t9000\t"), "{status}");

    // Labels reach the pod that runs, and it runs on.
    let mut spec = spec;
    spec["pod"]["labels"] = json!({"team": "payments"});
    tenant.apply(&spec).await?;
    let is_relabelled = |pod: Option<&Pod>| {
        pod.and_then(|pod| pod.metadata.labels.as_ref())
            .is_some_and(|labels| labels.get("team").is_some_and(|team| team == "payments"))
    };
    stage
        .pod("c-0", "it wears another label", SOON, is_relabelled)
        .await?;
    let now = get("pod/c-0").await?;
    ensure!(
        now["metadata"]["uid"] == pod["metadata"]["uid"],
        "it was re-created"
    );
    ensure!(
        now["metadata"]["labels"]["etcd_node"] == "c-0",
        "{}",
        now["metadata"]
    );
    Ok(())
}
