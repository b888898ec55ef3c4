//! Tests of the built Jobs.

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::cluster::DefaultRepository;
use etcd_operator_api::contract::{self, JobOrder, ORDER_VARIABLE, Task};
use etcd_operator_api::location::{Location, ObjectPath};
use etcd_operator_runtime::key::ObjectKey;
use serde_json::{Value, json};

use super::{BuildInputs, job};
use crate::observe::observe_cluster;
use crate::observed_state::{ObservedCluster, Scheduling, Source};
use crate::plan::{DesiredJob, JobTask};

/// The scheduling rules of a cluster with node and pod affinity.
fn observed_scheduling() -> Scheduling {
    let keyed = |key: &str| json!([{"key": key, "operator": "Exists"}]);
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": keyed("ssd")}]});
    let anti_affinity = json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}]);
    let mut cluster = EtcdCluster::default();
    cluster.metadata.name = Some("orders".to_owned());
    cluster.spec.pod = serde_json::from_value(json!({
        "nodeSelector": {"pool": "etcd"}, "tolerations": keyed("dedicated"), "priorityClassName": "databases",
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": anti_affinity},
        },
    }))
    .expect("a policy");
    let key = ObjectKey::new("shop", "orders");
    observe_cluster(&cluster, &key, &DefaultRepository::default()).scheduling
}

fn job_for(task: JobTask, location: Location) -> Value {
    let source = Source {
        location,
        object: "etcd/$(HOME)".to_owned(),
        keys: Some("keys".to_owned()),
    };
    job_from(task, Some(&source))
}

fn job_from(task: JobTask, source: Option<&Source>) -> Value {
    let cluster = ObservedCluster {
        name: "orders".to_owned(),
        cluster_id: Some("cdf8".to_owned()),
        version: "3.6.16".parse().ok(),
        image: Some("quay.io/coreos/etcd:v3.6.16".to_owned()),
        endpoints: vec!["https://orders-0.orders.shop.svc:2379".to_owned()],
        client_tls_secret: Some("client".to_owned()),
        image_pull_secrets: vec!["registry".to_owned()],
        service_account: Some("irsa".to_owned()),
        scheduling: observed_scheduling(),
        ..ObservedCluster::default()
    };
    let inputs = BuildInputs {
        namespace: "shop",
        name: "back",
        uid: "r",
        cluster: &cluster,
        source,
        image: "operator:1",
        now: "2026-03-01T12:00:00Z".parse().expect("a time"),
    };
    let desired = DesiredJob {
        name: "back-v1".to_owned(),
        task,
    };
    serde_json::to_value(job(&desired, &inputs)).expect("JSON")
}

fn s3() -> Location {
    Location::S3 {
        path: ObjectPath {
            bucket: "bucket".to_owned(),
            key: "etcd/v1".to_owned(),
        },
        secret: Some("aws".to_owned()),
        endpoint: None,
        path_style: false,
        region: None,
        encryption: None,
        class: None,
        ca_secret: Some("ca".to_owned()),
    }
}

fn compare() -> JobTask {
    JobTask::Compare {
        cluster_id: "d".to_owned(),
        revision: 1_040,
        digest: "1:2:00".to_owned(),
    }
}

fn recheck() -> JobTask {
    JobTask::Recheck {
        size: 900,
        etag: None,
        has_manifest: true,
    }
}

fn secrets(job: &Value) -> Vec<&str> {
    let volumes = job["spec"]["template"]["spec"]["volumes"]
        .as_array()
        .expect("volumes");
    let names = volumes.iter().map(|volume| &volume["secret"]["secretName"]);
    names.filter_map(Value::as_str).collect()
}

#[test]
fn each_job_mounts_only_the_secrets_it_needs_and_has_no_token() {
    let verify = job_for(JobTask::Verify, s3());
    assert_eq!(secrets(&verify), ["client", "aws", "ca", "keys"]);
    assert_eq!(secrets(&job_for(compare(), s3())), ["client"]);
    assert_eq!(secrets(&job_from(compare(), None)), ["client"]);
    assert_eq!(
        secrets(&job_for(JobTask::BackUp, s3())),
        ["client", "aws", "ca", "keys"]
    );
    let pod = &verify["spec"]["template"]["spec"];
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["serviceAccountName"], "irsa");
    assert_eq!(
        pod["containers"][0]["securityContext"]["capabilities"],
        json!({"drop": ["ALL"]})
    );
    assert_eq!(verify["metadata"]["ownerReferences"][0]["kind"], "EtcdRestore");
    assert_eq!(verify["metadata"]["labels"]["app"], "etcd-restore");
}

#[test]
fn verification_checks_the_restore_tool_in_the_members_image() {
    let init = |task| job_for(task, s3())["spec"]["template"]["spec"]["initContainers"].clone();
    let tool = init(JobTask::Verify);
    assert_eq!(tool[0]["image"], "quay.io/coreos/etcd:v3.6.16");
    assert_eq!(tool[0]["command"], json!(["/usr/local/bin/etcdutl", "version"]));
    assert_eq!(tool[0]["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(tool[0]["volumeMounts"], Value::Null, "the tool needs no Secret");
    for task in [compare(), recheck(), JobTask::BackUp] {
        assert_eq!(init(task), Value::Null);
    }
}

/// A mirror has upstream's images, whose restore tool needs no check.
#[test]
fn only_an_image_that_is_not_upstream_s_has_its_restore_tool_checked() {
    let mirror: DefaultRepository = "mirror.example.com/etcd".parse().expect("a repository");
    let key = ObjectKey::new("shop", "orders");
    let own = Some("own/etcd:v3.6.16");
    for (spec, checked) in [
        (json!({"version": "3.6.16"}), None),
        (
            json!({"version": "3.6.16", "repository": "quay.io/coreos/etcd"}),
            None,
        ),
        (
            json!({"version": "3.6.16", "repository": "mirror.example.com/etcd"}),
            None,
        ),
        (json!({"version": "3.6.16", "repository": "own/etcd"}), own),
        (json!({"image": "own/etcd:v3.6.16"}), own),
    ] {
        let cluster: EtcdCluster = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
            "metadata": {"name": "orders"}, "spec": spec,
        }))
        .expect("a cluster");
        let observed = observe_cluster(&cluster, &key, &mirror);
        assert_eq!(observed.image.as_deref(), checked, "{spec}");
    }
}

#[test]
fn jobs_run_on_the_nodes_of_the_members() {
    for task in [JobTask::Verify, JobTask::BackUp, recheck(), compare()] {
        let pod = job_for(task, s3())["spec"]["template"]["spec"].clone();
        assert_eq!(pod["nodeSelector"], json!({"pool": "etcd"}));
        assert_eq!(pod["tolerations"][0]["key"], "dedicated");
        assert_eq!(pod["priorityClassName"], "databases");
        let rules = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(rules["nodeSelectorTerms"][0]["matchExpressions"][0]["key"], "ssd");
        assert_eq!(pod["affinity"].as_object().map(serde_json::Map::len), Some(1));
    }
}

#[test]
fn a_backup_volume_is_mounted_read_only() {
    let local = Location::Local {
        claim: "backups".to_owned(),
        path: None,
    };
    for task in [JobTask::Verify, recheck()] {
        let pod = job_for(task, local.clone())["spec"]["template"]["spec"].clone();
        let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts");
        let volume_mount = mounts
            .iter()
            .find(|mount| mount["name"] == "backups")
            .expect("a mount");
        assert_eq!(volume_mount["readOnly"], true);
    }
}

#[test]
fn the_safety_backup_is_stored_in_the_folder_of_the_restored_backup() {
    let job = job_for(JobTask::BackUp, s3());
    let container = &job["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["command"], json!(["etcd-operator", "backup"]));
    let text = container["env"][0]["value"].as_str().expect("an order");
    let order: JobOrder = contract::read(text.replace("$$", "$").as_bytes()).expect("an order");
    assert_eq!(order.store.path, "etcd/before-back");
    let Task::Backup(task) = order.task else {
        panic!("unexpected task")
    };
    assert_eq!(task.verification, etcd_operator_api::backup::Verification::Full);
    assert_eq!((task.keys.is_some(), task.source.tls.is_some()), (true, true));
    assert_eq!(task.cluster_id.as_deref(), Some("cdf8"));
}

#[test]
fn an_order_names_the_object_by_its_full_key() {
    let order = |job: &Value| -> JobOrder {
        let container = &job["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["env"][0]["name"], ORDER_VARIABLE);
        let text = container["env"][0]["value"].as_str().expect("an order");
        assert!(
            text.contains("$$(HOME)"),
            "text of the spec is escaped and not expanded as a variable"
        );
        contract::read(text.replace("$$", "$").as_bytes()).expect("an order")
    };
    let verify = job_for(JobTask::Verify, s3());
    assert_eq!(order(&verify).store.path, "etcd/$(HOME)");
    let command = &verify["spec"]["template"]["spec"]["containers"][0]["command"];
    assert_eq!(command, &json!(["etcd-operator", "verify"]));
    assert_eq!(order(&job_for(recheck(), s3())).store.path, "etcd/$(HOME)");
    let Task::Compare(task) = order(&job_for(compare(), s3())).task else {
        panic!("unexpected task")
    };
    assert_eq!((task.revision, task.source.tls.is_some()), (1_040, true));
}
