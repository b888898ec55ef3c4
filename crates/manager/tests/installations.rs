//! Installations of the operator beside each other on one API server: whose an object is, and who speaks of it.

#![allow(clippy::unwrap_used, reason = "a test may end at the first surprise")]

#[path = "installations/endpoints.rs"]
mod endpoints;

use std::time::Duration;

use clap::Parser as _;
use etcd_operator_api::crd;
use etcd_operator_manager::cli::{Cli, Command};
use etcd_operator_manager::run::Manager;
use etcd_operator_runtime::clock::{SharedClock, TestClock};
use etcd_operator_runtime::health::Server;
use etcd_operator_testkit::Fake;
use etcd_operator_testkit::fake::{Fault, Matching};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const GROUP: &str = "etcd.database.coreos.com/v1beta2";
const SCOPE: &str = "etcd.database.coreos.com/scope";
/// Longer than the pause after which everything is looked at again.
const RESYNCS: Duration = Duration::from_hours(1);

/// An API server and the managers on it.
struct Bench {
    fake: Fake,
    clock: SharedClock,
    stop: CancellationToken,
    managers: JoinSet<anyhow::Result<()>>,
}

impl Bench {
    fn new() -> Self {
        let fake = Fake::new();
        for namespace in ["shop", "ops"] {
            fake.add_namespace(namespace);
        }
        for definition in crd::all() {
            fake.register(&definition);
        }
        Self {
            fake,
            clock: TestClock::shared(),
            stop: CancellationToken::new(),
            managers: JoinSet::new(),
        }
    }

    async fn start(&mut self, namespace: &str, flags: &[&str]) {
        let line = ["etcd-operator", "manager", "--health-address", "127.0.0.1:0"];
        let line = line.iter().chain(flags);
        let Command::Manager(args) = Cli::try_parse_from(line).unwrap().command else {
            panic!("another command")
        };
        let manager = Manager {
            server: Server::bind(args.health_address).await.unwrap(),
            args: *args,
            namespace: namespace.to_owned(),
            api_server: "http://fake".to_owned(),
            client: self.fake.client(namespace),
            clock: self.clock.clone(),
        };
        self.managers.spawn(manager.run(self.stop.clone()));
    }

    /// A namespaced installation in `shop` and a cluster-wide one in `ops`.
    async fn both(&mut self) {
        self.start("shop", &[]).await;
        self.start("ops", &["--cluster-wide"]).await;
    }

    fn cluster(&self, spec: &Value, annotations: &Value) {
        self.fake.put_object(json!({
            "apiVersion": GROUP, "kind": "EtcdCluster",
            "metadata": {"name": "x", "namespace": "shop", "annotations": annotations}, "spec": spec,
        }));
    }

    fn status(&self, kind: &str) -> Value {
        let object = self.fake.get_object(GROUP, kind, "shop", "x");
        object.unwrap_or_default()["status"].clone()
    }

    fn accepted(&self, kind: &str) -> Value {
        condition(&self.status(kind), "Accepted")
    }

    /// Reasons and notes of all Events.
    fn events(&self) -> Vec<(String, String)> {
        let events = self.fake.list_objects("events.k8s.io/v1", "Event", "shop");
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        events
            .iter()
            .map(|event| (text(event, "reason"), text(event, "note")))
            .collect()
    }

    async fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let wait = async {
            while !holds(self) {
                sleep(Duration::from_millis(100)).await;
            }
        };
        let ended = timeout(Duration::from_mins(2), wait).await;
        let statuses = ["EtcdCluster", "EtcdBackup"].map(|kind| self.status(kind));
        assert!(ended.is_ok(), "{what}: {statuses:?} {:?}", self.events());
    }

    async fn end(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.managers.join_next().await {
            ended.unwrap().unwrap();
        }
    }
}

fn condition(status: &Value, type_: &str) -> Value {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.into_iter().find(|c| c["type"] == type_);
    found.unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_cluster_whose_annotation_changes_goes_from_one_installation_to_the_other_and_back() {
    let mut bench = Bench::new();
    bench.cluster(&json!({"size": 3}), &json!({SCOPE: "clusterwide"}));
    bench.both().await;
    let owned_by = |owner: &'static str, verdict: &'static str| {
        move |bench: &Bench| {
            let status = bench.status("EtcdCluster");
            status["controlledBy"] == owner && condition(&status, "Accepted")["reason"] == verdict
        }
    };
    bench
        .until("the annotated cluster", owned_by("ops/etcd-operator", "Valid"))
        .await;
    bench
        .fake
        .update_object(GROUP, "EtcdCluster", "shop", "x", |cluster| {
            cluster["metadata"]["annotations"] = json!({});
            cluster["spec"]["auth"] = json!({"enabled": true, "rootSecret": "s"});
        });
    bench
        .until(
            "the bare cluster",
            owned_by("shop/etcd-operator", "NotImplemented"),
        )
        .await;
    bench
        .fake
        .update_object(GROUP, "EtcdCluster", "shop", "x", |cluster| {
            cluster["metadata"]["annotations"] = json!({SCOPE: "clusterwide"});
        });
    bench
        .until(
            "the cluster back",
            owned_by("ops/etcd-operator", "NotImplemented"),
        )
        .await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_nobody_serves_any_more_says_so_and_belongs_to_nobody() {
    let mut bench = Bench::new();
    bench.cluster(&json!({"size": 3}), &json!({}));
    bench.start("shop", &[]).await;
    bench
        .until("a verdict", |b| b.accepted("EtcdCluster")["reason"] == "Valid")
        .await;
    bench
        .fake
        .update_object(GROUP, "EtcdCluster", "shop", "x", |cluster| {
            cluster["metadata"]["annotations"] = json!({SCOPE: "clusterwide"});
        });
    bench
        .until("the end of service", |b| {
            b.accepted("EtcdCluster")["reason"] == "NotServed"
        })
        .await;
    assert_eq!(bench.status("EtcdCluster")["controlledBy"], Value::Null);
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn installations_that_are_told_apart_by_the_annotation_publish_nothing_about_each_other() {
    let mut bench = Bench::new();
    bench.cluster(&json!({"size": 3}), &json!({SCOPE: "clusterwide"}));
    bench.both().await;
    sleep(RESYNCS).await;
    assert_eq!(bench.status("EtcdCluster")["controlledBy"], "ops/etcd-operator");
    let events = bench.events();
    assert!(
        events.iter().all(|(reason, _)| reason != "ControlledElsewhere"),
        "{events:?}"
    );
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_installation_that_finds_its_cluster_taken_says_so_once() {
    let mut bench = Bench::new();
    bench.cluster(&json!({"size": 3}), &json!({}));
    bench.start("shop", &[]).await;
    bench
        .until("an owner", |b| {
            b.status("EtcdCluster")["controlledBy"].is_string()
        })
        .await;
    let all = ["--cluster-wide", "--require-scope-annotation=false"];
    bench.start("ops", &all).await;
    sleep(RESYNCS).await;
    assert_eq!(bench.status("EtcdCluster")["controlledBy"], "shop/etcd-operator");
    let events = bench.fake.list_objects("events.k8s.io/v1", "Event", "shop");
    let told: Vec<_> = events
        .iter()
        .filter(|event| event["reason"] == "ControlledElsewhere")
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["series"], Value::Null, "{told:?}");
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_the_api_server_does_not_store_is_published() {
    let mut bench = Bench::new();
    bench.cluster(&json!({"size": 3}), &json!({}));
    let statuses = Matching::any().resource("etcdclusters").subresource("status");
    bench.fake.fault(statuses, Fault::Status(422), u32::MAX);
    bench.start("shop", &[]).await;
    bench
        .until("an Event", |b| {
            b.events().iter().any(|(reason, note)| {
                reason == "Accepted" && note.contains("The API server rejected the status update")
            })
        })
        .await;
    bench.end().await;
}

/// A cluster that every API server takes and this operator cannot read.
fn unreadable() -> Value {
    json!({"size": 3, "TLS": {"managed": {"validity": "99999999999999999999h"}}})
}

fn backup() -> Value {
    json!({
        "apiVersion": GROUP, "kind": "EtcdBackup", "metadata": {"name": "x", "namespace": "shop"},
        "spec": {"etcdCluster": {"name": "x"}, "storageType": "OSS", "oss": {"path": "bucket/key", "ossSecret": "s"}},
    })
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_cluster_of_another_installation_is_not_written_to() {
    let by_annotation = (json!({SCOPE: "clusterwide"}), json!({"phase": "Running"}));
    let by_status = (
        json!({}),
        json!({"phase": "Running", "controlledBy": "ops/etcd-operator"}),
    );
    for (annotations, status) in [by_annotation, by_status] {
        let mut bench = Bench::new();
        bench.cluster(&unreadable(), &annotations);
        bench
            .fake
            .update_object(GROUP, "EtcdCluster", "shop", "x", |cluster| {
                cluster["status"] = status;
            });
        // One that is served shows when the other has been looked at.
        let mut served = backup();
        served["metadata"]["name"] = json!("y");
        served["spec"]["etcdCluster"]["name"] = json!("y");
        bench.fake.put_object(served);
        let mark = bench.fake.mark();
        bench.start("shop", &[]).await;
        sleep(Duration::from_mins(2)).await;
        let backup = bench.fake.get_object(GROUP, "EtcdBackup", "shop", "y").unwrap();
        assert!(backup["status"].is_object());
        let writes = bench.fake.writes_since(mark);
        assert!(
            writes.iter().all(|call| call.resource != "etcdclusters"),
            "{writes:?}"
        );
        assert!(bench.events().iter().all(|(reason, _)| reason != "Invalid"));
        bench.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_cluster_is_told_so_and_not_called_missing_by_its_backup() {
    let mut bench = Bench::new();
    bench.cluster(&unreadable(), &json!({}));
    bench.fake.put_object(backup());
    bench.start("shop", &[]).await;
    bench
        .until("a verdict on the cluster", |b| {
            b.events()
                .iter()
                .any(|(reason, note)| reason == "Invalid" && note.contains("spec.TLS"))
        })
        .await;
    bench
        .until("a verdict on the backup", |b| {
            b.accepted("EtcdBackup")["status"] == "True"
        })
        .await;
    let reference = condition(&bench.status("EtcdBackup"), "ReferenceFound");
    assert_eq!(
        (&reference["status"], &reference["reason"]),
        (&json!("False"), &json!("Unreadable"))
    );
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_backup_follows_its_cluster_even_where_that_cannot_be_read() {
    let mut bench = Bench::new();
    bench.cluster(&unreadable(), &json!({SCOPE: "clusterwide"}));
    bench.fake.put_object(backup());
    bench.start("shop", &[]).await;
    bench
        .until("a verdict", |b| b.accepted("EtcdBackup")["reason"] == "NotServed")
        .await;
    bench.end().await;
}

/// Whoever looks after a cluster looks after its backups and restores as well: two would make two Jobs, and write two
/// statuses in turn.
#[tokio::test(start_paused = true)]
async fn backups_and_restores_of_a_cluster_that_is_taken_are_left_alone_until_it_is_given_up() {
    let mut bench = Bench::new();
    bench.cluster(&json!({"size": 3}), &json!({}));
    let own = |installation: Value| {
        move |cluster: &mut Value| {
            cluster["status"] = json!({"phase": "Running", "controlledBy": installation});
        }
    };
    bench.fake.update_object(
        GROUP,
        "EtcdCluster",
        "shop",
        "x",
        own(json!("gone/etcd-operator")),
    );
    bench.fake.put_object(backup());
    bench.fake.put_object(json!({
        "apiVersion": GROUP, "kind": "EtcdRestore", "metadata": {"name": "x", "namespace": "shop"},
        "spec": {"etcdCluster": {"name": "x"}, "backupStorageType": "OSS", "oss": {"path": "bucket/key", "ossSecret": "s"}},
    }));
    let mark = bench.fake.mark();
    bench.start("shop", &[]).await;
    bench
        .until("a word on each", |b| {
            let told = b.events().into_iter();
            told.filter(|(reason, _)| reason == "ControlledElsewhere").count() == 3
        })
        .await;
    sleep(RESYNCS).await;
    let events = bench.events();
    assert_eq!(events.len(), 3, "{events:?}");
    assert!(
        events
            .iter()
            .all(|(_, note)| note
                .contains("kubectl --namespace shop patch etcdcluster x --subresource=status")),
        "{events:?}"
    );
    let writes = bench.fake.writes_since(mark);
    let ours = |resource: &str| resource.starts_with("etcd") || resource == "jobs";
    assert!(writes.iter().all(|call| !ours(&call.resource)), "{writes:?}");
    // As that Event says.
    bench
        .fake
        .update_object(GROUP, "EtcdCluster", "shop", "x", own(Value::Null));
    bench
        .until("all are taken", |b| {
            let is_taken = |kind| b.accepted(kind)["status"] == "True";
            b.status("EtcdCluster")["controlledBy"] == "shop/etcd-operator"
                && is_taken("EtcdBackup")
                && is_taken("EtcdRestore")
        })
        .await;
    bench.end().await;
}

/// The same where this version cannot read the cluster: a backup must not be told that its cluster is missing.
#[tokio::test(start_paused = true)]
async fn a_backup_of_an_unreadable_cluster_that_is_taken_is_left_alone() {
    let mut bench = Bench::new();
    bench.cluster(&unreadable(), &json!({}));
    bench
        .fake
        .update_object(GROUP, "EtcdCluster", "shop", "x", |cluster| {
            cluster["status"] = json!({"phase": "Running", "controlledBy": "ops/etcd-operator"});
        });
    bench.fake.put_object(backup());
    let mark = bench.fake.mark();
    bench.start("shop", &[]).await;
    bench
        .until("a word", |b| {
            let told = b.events().into_iter();
            told.filter(|(reason, _)| reason == "ControlledElsewhere").count() == 1
        })
        .await;
    sleep(RESYNCS).await;
    let writes = bench.fake.writes_since(mark);
    assert!(
        writes.iter().all(|call| !call.resource.starts_with("etcd")),
        "{writes:?}"
    );
    bench.end().await;
}
