//! Where our kinds start growing: the alternatives that exclude each other or come only together, and nothing else.

use serde_json::{Value, json};

/// Store types and the fields that describe them.
const STORES: &[(&str, &str)] = &[
    ("S3", "s3"),
    ("ABS", "abs"),
    ("GCS", "gcs"),
    ("OSS", "oss"),
    ("Local", "local"),
];

/// Small valid objects of the kind `EtcdCluster`, `EtcdBackup` or `EtcdRestore`, from which [`super::objects`] reaches
/// every field.
pub fn seeds(kind: &str) -> Vec<Value> {
    let specs = match kind {
        "EtcdCluster" => clusters(),
        "EtcdBackup" => backups(),
        "EtcdRestore" => restores(),
        other => panic!("{other} is none of our kinds"),
    };
    let object = |spec| {
        json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2",
            "kind": kind,
            "metadata": {"name": "one", "namespace": "default"},
            "spec": spec,
        })
    };
    specs.into_iter().map(object).collect()
}

fn clusters() -> Vec<Value> {
    vec![
        json!({}),
        json!({"storage": {"size": "8Gi"}}),
        json!({"TLS": {"static": {"member": {"serverSecret": "server"}, "operatorSecret": "operator"}}}),
        json!({"service": {"type": "LoadBalancer"}}),
        json!({"etcd": {"autoCompaction": {"retention": "1000"}}}),
    ]
}

fn backups() -> Vec<Value> {
    let sources = [
        json!({"etcdCluster": {"name": "one"}}),
        json!({"etcdEndpoints": ["http://one.example.dev:2379"], "schedule": "0 3 * * *"}),
    ];
    let stored = |source: &Value| {
        let source = source.clone();
        STORES
            .iter()
            .map(move |store| in_store(source.clone(), "storageType", store))
    };
    sources.iter().flat_map(stored).collect()
}

fn restores() -> Vec<Value> {
    let cluster = json!({"etcdCluster": {"name": "one"}});
    let mut all: Vec<Value> = STORES
        .iter()
        .map(|store| in_store(cluster.clone(), "backupStorageType", store))
        .collect();
    let mut named = cluster;
    named["source"] = json!({"backup": {"name": "one"}});
    all.push(named.clone());
    all.extend(clusters().into_iter().map(|template| {
        named["clusterTemplate"] = json!({"spec": template});
        named.clone()
    }));
    all
}

fn in_store(mut spec: Value, field: &str, (store, block): &(&str, &str)) -> Value {
    spec[field] = json!(store);
    spec[*block] = if *block == "local" {
        json!({"persistentVolumeClaim": "claim"})
    } else {
        json!({"path": "bucket/key"})
    };
    spec
}
