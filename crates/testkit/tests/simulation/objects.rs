//! The objects of a cluster as the small operator makes them.

use etcd_operator_testkit::simulation::NAMESPACE;
use serde_json::{Value, json};

fn labels(cluster: &str) -> Value {
    json!({"app": "etcd", "etcd_cluster": cluster})
}

fn owner(cluster: &Value) -> Value {
    json!([{
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster", "controller": true,
        "name": cluster["metadata"]["name"], "uid": cluster["metadata"]["uid"],
    }])
}

pub fn service(cluster: &Value, is_headless: bool) -> Value {
    let name = cluster["metadata"]["name"].as_str().unwrap();
    let full = if is_headless {
        name.to_owned()
    } else {
        format!("{name}-client")
    };
    let mut object = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": full, "namespace": NAMESPACE, "ownerReferences": owner(cluster)},
        "spec": {"selector": labels(name), "ports": [{"port": 2379}]},
    });
    if is_headless {
        object["spec"]["clusterIP"] = json!("None");
        object["spec"]["publishNotReadyAddresses"] = json!(true);
    }
    object
}

pub fn set(cluster: &Value, replicas: u64, has_claims: bool) -> Value {
    let name = cluster["metadata"]["name"].as_str().unwrap();
    let uid = cluster["metadata"]["uid"].as_str().unwrap();
    let version = cluster["spec"]["version"].as_str().unwrap();
    let host = format!("$(POD_NAME).{name}.{NAMESPACE}.svc");
    let variable =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let mut volumes = vec![json!({"name": "permit", "downwardAPI": {"items": [{
        "path": "permit",
        "fieldRef": {"fieldPath": "metadata.annotations['etcd.database.coreos.com/permit']"},
    }]}})];
    if !has_claims {
        volumes.push(json!({"name": "data", "emptyDir": {}}));
    }
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": NAMESPACE, "ownerReferences": owner(cluster)},
        "spec": {
            "replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"}, "selector": {"matchLabels": labels(name)},
            "template": {
                "metadata": {"labels": labels(name)},
                "spec": {
                    "containers": [{
                        "name": "etcd", "image": format!("quay.io/coreos/etcd:v{version}"),
                        "env": [
                            variable("POD_NAME", "metadata.name"), variable("POD_UID", "metadata.uid"),
                            variable("POD_IP", "status.podIP"), variable("POD_NAMESPACE", "metadata.namespace"),
                        ],
                        "command": [
                            "/opt/etcd-operator/etcd-operator", "member", format!("--cluster-uid={uid}"),
                            "--incarnation=1", "--volume=/var/etcd", "--permit=/etc/etcd-operator/permit/permit",
                            "--", "/usr/local/bin/etcd", "--name=$(POD_NAME)", "--data-dir=/var/etcd/data",
                            format!("--initial-advertise-peer-urls=http://{host}:2380"),
                            format!("--advertise-client-urls=http://{host}:2379"),
                        ],
                    }],
                    "volumes": volumes,
                },
            },
        },
    });
    if has_claims {
        object["spec"]["volumeClaimTemplates"] = json!([{
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }]);
    }
    object
}

pub fn budget(cluster: &Value, quorum: u64) -> Value {
    let name = cluster["metadata"]["name"].as_str().unwrap();
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": NAMESPACE, "ownerReferences": owner(cluster)},
        "spec": {"minAvailable": quorum, "selector": {"matchLabels": labels(name)}},
    })
}
