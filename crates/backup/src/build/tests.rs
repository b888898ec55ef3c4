//! Tests of the Jobs that the controller builds.

use etcd_operator_api::contract::{self, JobOrder, ORDER_VARIABLE, Task as Order};
use etcd_operator_api::{EtcdBackup, EtcdBackupSpec};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use super::{BuildInputs, job};
use crate::desired::parse_spec;
use crate::observed_state::ResolvedSource;
use crate::persisted_state::{Run, Task};

fn now() -> Timestamp {
    "2026-11-23T03:00:05Z".parse().unwrap()
}

fn build(task: Task, spec: &Value) -> Job {
    let spec: EtcdBackupSpec = serde_json::from_value(spec.clone()).unwrap();
    let desired = parse_spec(&EtcdBackup::new("nightly", spec), now()).unwrap();
    let source = ResolvedSource {
        endpoints: vec!["https://orders-0.orders.shop.svc:2379".to_owned()],
        client_tls: Some("etcd-client-tls".to_owned()),
        pull_secrets: vec!["registry".to_owned()],
        etcd_image: Some("quay.io/coreos/etcd:v3.6.16".to_owned()),
        cluster_id: Some("cdf8".to_owned()),
        incarnation: Some(2),
    };
    let mut run = Run::new(task, "2026-11-23T03:00:00Z".parse().unwrap());
    run.started_at = Some("2026-11-23T03:00:01Z".parse().unwrap());
    let inputs = BuildInputs {
        desired: &desired,
        namespace: "shop",
        name: "nightly",
        uid: "uid",
        generation: 1,
        retention: &desired.retention,
        source: &source,
        image: "etcd-operator:1",
        now: now(),
    };
    assert_eq!(job(&run, &inputs), job(&run, &inputs));
    job(&run, &inputs)
}

fn json_of(job: &Job) -> Value {
    serde_json::to_value(job).unwrap()
}

fn order(job: &Job) -> JobOrder {
    let container = &json_of(job)["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["env"][0]["name"], ORDER_VARIABLE);
    let text = container["env"][0]["value"].as_str().unwrap();
    contract::read(text.as_bytes()).unwrap()
}

fn s3() -> Value {
    json!({
        "etcdCluster": {"name": "orders"}, "storageType": "S3", "schedule": "0 3 * * *", "timeZone": "Europe/Berlin",
        "s3": {"path": "bucket/etcd/orders", "awsSecret": "aws", "caSecret": "ca", "endpoint": "https://minio:9000"},
        "encryption": {"secretRef": {"name": "keys"}}, "backupPolicy": {"timeoutInSecond": 600, "maxBackups": 4, "keepDaily": 7},
        "job": {"serviceAccountName": "irsa", "priorityClassName": "high", "nodeSelector": {"disk": "ssd"}},
    })
}

#[test]
fn a_pod_runs_unprivileged_and_without_a_token() {
    for task in [Task::Backup, Task::Prune, Task::Erase] {
        let pod = &json_of(&build(task, &s3()))["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(pod["restartPolicy"], "Never");
        let container = &pod["containers"][0]["securityContext"];
        assert_eq!(container["readOnlyRootFilesystem"], true);
        assert_eq!(container["allowPrivilegeEscalation"], false);
        assert_eq!(container["capabilities"], json!({"drop": ["ALL"]}));
        assert_eq!(pod["serviceAccountName"], "irsa");
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]));
        assert_eq!(pod["priorityClassName"], "high");
        assert_eq!(pod["nodeSelector"], json!({"disk": "ssd"}));
    }
}

#[test]
fn each_task_mounts_only_the_secrets_it_needs() {
    let secrets = |task| -> Vec<String> {
        let pod = json_of(&build(task, &s3()))["spec"]["template"]["spec"].clone();
        let volumes = pod["volumes"].as_array().unwrap();
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        assert_eq!(volumes.len(), mounts.len());
        assert!(mounts.iter().all(|mount| mount["readOnly"] == true));
        let name = |volume: &Value| volume["secret"]["secretName"].as_str().unwrap().to_owned();
        volumes.iter().map(name).collect()
    };
    assert_eq!(secrets(Task::Backup), ["aws", "ca", "etcd-client-tls", "keys"]);
    assert_eq!(secrets(Task::Prune), ["aws", "ca"]);
}

#[test]
fn an_order_contains_task_location_and_deadline() {
    let backup = build(Task::Backup, &s3());
    let found = order(&backup);
    assert_eq!(found.run, "2026-11-23T03:00:00Z/uid");
    assert_eq!(
        (found.store.bucket.as_str(), found.store.path.as_str()),
        ("bucket", "etcd/orders")
    );
    let Order::Backup(task) = found.task else {
        panic!("another task")
    };
    assert_eq!(
        task.deadline,
        "2026-11-23T03:10:01Z".parse::<Timestamp>().unwrap()
    );
    assert_eq!(task.cluster_id.as_deref(), Some("cdf8"));
    // Four of the 600 seconds have passed. The Job gets 60 more, so that the process ends first.
    assert_eq!(backup.spec.as_ref().unwrap().active_deadline_seconds, Some(656));
    let Order::Prune { keep } = order(&build(Task::Prune, &s3())).task else {
        panic!("another task")
    };
    assert_eq!(
        (keep.newest, keep.daily, keep.zone.as_deref()),
        (Some(4), 7, Some("Europe/Berlin"))
    );
}

#[test]
fn a_volume_is_writable_and_its_path_defaults_to_the_name_of_the_cluster() {
    let local = json!({
        "etcdCluster": {"name": "orders"}, "storageType": "Local", "local": {"persistentVolumeClaim": "backups"},
    });
    let job = build(Task::Backup, &local);
    assert_eq!(order(&job).store.path, "orders");
    let pod = &json_of(&job)["spec"]["template"]["spec"];
    let volumes = pod["volumes"].as_array().unwrap();
    assert!(
        volumes
            .iter()
            .any(|volume| volume["persistentVolumeClaim"]["claimName"] == "backups")
    );
    assert!(pod["securityContext"]["fsGroup"].is_number());
}

#[test]
fn only_a_backup_that_is_read_back_gets_a_scratch_volume() {
    let scratch = |task, verification: &str| {
        let mut spec = s3();
        spec["verification"] = json!(verification);
        let pod = json_of(&build(task, &spec))["spec"]["template"]["spec"].clone();
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        let writable = mounts.iter().find(|mount| mount["readOnly"].is_null())?;
        assert_eq!(writable["mountPath"], contract::mounts::SCRATCH);
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == writable["name"]);
        volume.map(|volume| volume["emptyDir"].clone())
    };
    assert_eq!(scratch(Task::Backup, "Full"), Some(json!({})));
    assert_eq!(scratch(Task::Backup, "Restore"), Some(json!({})));
    assert_eq!(scratch(Task::Backup, "Checksum"), None);
    assert_eq!(scratch(Task::Prune, "Full"), None);
}

#[test]
fn verification_by_restore_runs_in_the_etcd_image_of_the_cluster() {
    let pod = |task, image: Option<&str>| {
        let mut spec = s3();
        spec["verification"] = json!("Restore");
        spec["job"]["etcdImage"] = json!(image);
        json_of(&build(task, &spec))["spec"]["template"]["spec"].clone()
    };
    let restoring = pod(Task::Backup, None);
    let (install, container) = (&restoring["initContainers"][0], &restoring["containers"][0]);
    assert_eq!(container["image"], "quay.io/coreos/etcd:v3.6.16");
    assert_eq!(
        container["command"],
        json!(["/opt/etcd-operator/etcd-operator", "backup"])
    );
    assert_eq!(install["image"], "etcd-operator:1");
    assert_eq!(
        install["command"],
        json!(["etcd-operator", "install", "/opt/etcd-operator"])
    );
    assert_eq!(install["securityContext"], container["securityContext"]);
    // The init container writes the program; the main container can run but not change it.
    let mount = |container: &Value| {
        let mounts = container["volumeMounts"].as_array().unwrap().clone();
        mounts.into_iter().find(|mount| mount["name"] == "tools").unwrap()
    };
    assert_eq!(mount(install)["mountPath"], "/opt/etcd-operator");
    assert_eq!(
        (
            mount(container)["readOnly"].clone(),
            mount(install)["readOnly"].clone()
        ),
        (json!(true), Value::Null)
    );
    assert_eq!(container["resources"]["limits"]["memory"], "1Gi");
    let own = pod(Task::Backup, Some("registry/etcd:own"));
    assert_eq!(own["containers"][0]["image"], "registry/etcd:own");
    let prune = pod(Task::Prune, None);
    assert_eq!(
        (
            prune["containers"][0]["image"].clone(),
            prune["initContainers"].clone()
        ),
        (json!("etcd-operator:1"), Value::Null)
    );
}

#[test]
fn a_pod_is_not_retried_after_a_permanent_failure_nor_beside_another() {
    let spec = &json_of(&build(Task::Backup, &s3()))["spec"];
    assert_eq!(spec["podReplacementPolicy"], "Failed");
    assert_eq!(
        spec["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"],
        json!([2, 3])
    );
    assert_eq!(spec["podFailurePolicy"]["rules"][0]["action"], "FailJob");
    assert!(
        spec["ttlSecondsAfterFinished"].is_null(),
        "its result would be lost"
    );
}

/// The kubelet keeps this deadline also where no deletion reaches its node. The Job's comes first, as its condition is reported.
#[test]
fn a_pod_has_a_deadline_of_its_own_a_minute_after_that_of_its_job() {
    for task in [Task::Backup, Task::Prune, Task::Erase] {
        let spec = &json_of(&build(task, &s3()))["spec"];
        assert_eq!(spec["activeDeadlineSeconds"], 656);
        assert_eq!(spec["template"]["spec"]["activeDeadlineSeconds"], 716);
    }
}

#[test]
fn a_variable_reference_in_the_spec_is_escaped() {
    let mut spec = s3();
    spec["s3"]["path"] = json!("bucket/$(HOME)/x");
    let job = json_of(&build(Task::Backup, &spec));
    let value = &job["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"];
    assert!(value.as_str().unwrap().contains("$$(HOME)"));
}
