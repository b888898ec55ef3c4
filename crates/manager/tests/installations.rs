//! Several installations of the operator on one API server: which one controls an object, and which Events they emit.

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
/// Longer than several resync periods.
const SEVERAL_RESYNCS: Duration = Duration::from_hours(1);

/// A fake API server with managers.
struct Fixture {
    fake: Fake,
    clock: SharedClock,
    stop: CancellationToken,
    managers: JoinSet<anyhow::Result<()>>,
}

impl Fixture {
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
    async fn start_both(&mut self) {
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

    /// Reasons and messages of all Events.
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
async fn a_changed_scope_annotation_moves_a_cluster_between_installations() {
    let mut fixture = Fixture::new();
    fixture.cluster(&json!({"size": 3}), &json!({SCOPE: "clusterwide"}));
    fixture.start_both().await;
    let owned_by = |owner: &'static str, verdict: &'static str| {
        move |fixture: &Fixture| {
            let status = fixture.status("EtcdCluster");
            status["controlledBy"] == owner && condition(&status, "Accepted")["reason"] == verdict
        }
    };
    fixture
        .until("the annotated cluster", owned_by("ops/etcd-operator", "Valid"))
        .await;
    fixture
        .fake
        .update_object(GROUP, "EtcdCluster", "shop", "x", |cluster| {
            cluster["metadata"]["annotations"] = json!({});
            cluster["spec"]["auth"] = json!({"enabled": true, "rootSecret": "s"});
        });
    fixture
        .until(
            "the cluster without annotation",
            owned_by("shop/etcd-operator", "NotImplemented"),
        )
        .await;
    fixture
        .fake
        .update_object(GROUP, "EtcdCluster", "shop", "x", |cluster| {
            cluster["metadata"]["annotations"] = json!({SCOPE: "clusterwide"});
        });
    fixture
        .until(
            "the cluster back",
            owned_by("ops/etcd-operator", "NotImplemented"),
        )
        .await;
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_no_longer_served_reports_it_and_is_released() {
    let mut fixture = Fixture::new();
    fixture.cluster(&json!({"size": 3}), &json!({}));
    fixture.start("shop", &[]).await;
    fixture
        .until("a verdict", |b| b.accepted("EtcdCluster")["reason"] == "Valid")
        .await;
    fixture
        .fake
        .update_object(GROUP, "EtcdCluster", "shop", "x", |cluster| {
            cluster["metadata"]["annotations"] = json!({SCOPE: "clusterwide"});
        });
    fixture
        .until("the end of service", |b| {
            b.accepted("EtcdCluster")["reason"] == "NotServed"
        })
        .await;
    assert_eq!(fixture.status("EtcdCluster")["controlledBy"], Value::Null);
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn installations_separated_by_the_annotation_emit_no_events_about_each_other() {
    let mut fixture = Fixture::new();
    fixture.cluster(&json!({"size": 3}), &json!({SCOPE: "clusterwide"}));
    fixture.start_both().await;
    sleep(SEVERAL_RESYNCS).await;
    assert_eq!(fixture.status("EtcdCluster")["controlledBy"], "ops/etcd-operator");
    let events = fixture.events();
    assert!(
        events.iter().all(|(reason, _)| reason != "ControlledElsewhere"),
        "{events:?}"
    );
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_installation_reports_a_foreign_cluster_once() {
    let mut fixture = Fixture::new();
    fixture.cluster(&json!({"size": 3}), &json!({}));
    fixture.start("shop", &[]).await;
    fixture
        .until("an owner", |b| {
            b.status("EtcdCluster")["controlledBy"].is_string()
        })
        .await;
    let all = ["--cluster-wide", "--require-scope-annotation=false"];
    fixture.start("ops", &all).await;
    sleep(SEVERAL_RESYNCS).await;
    assert_eq!(
        fixture.status("EtcdCluster")["controlledBy"],
        "shop/etcd-operator"
    );
    let events = fixture.fake.list_objects("events.k8s.io/v1", "Event", "shop");
    let events_found: Vec<_> = events
        .iter()
        .filter(|event| event["reason"] == "ControlledElsewhere")
        .collect();
    assert_eq!(events_found.len(), 1, "{events_found:?}");
    assert_eq!(events_found[0]["series"], Value::Null, "{events_found:?}");
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_the_api_server_rejects_is_published_as_an_event() {
    let mut fixture = Fixture::new();
    fixture.cluster(&json!({"size": 3}), &json!({}));
    let statuses = Matching::any().resource("etcdclusters").subresource("status");
    fixture.fake.fault(statuses, Fault::Status(422), u32::MAX);
    fixture.start("shop", &[]).await;
    fixture
        .until("an Event", |b| {
            b.events().iter().any(|(reason, note)| {
                reason == "Accepted" && note.contains("The API server rejected the status update")
            })
        })
        .await;
    fixture.end().await;
}

/// A cluster spec that the API server accepts and this operator cannot decode.
fn undecodable_spec() -> Value {
    json!({"size": 3, "TLS": {"managed": {"validity": "99999999999999999999h"}}})
}

fn backup() -> Value {
    json!({
        "apiVersion": GROUP, "kind": "EtcdBackup", "metadata": {"name": "x", "namespace": "shop"},
        "spec": {"etcdCluster": {"name": "x"}, "storageType": "OSS", "oss": {"path": "bucket/key", "ossSecret": "s"}},
    })
}

#[tokio::test(start_paused = true)]
async fn a_malformed_cluster_of_another_installation_is_not_written() {
    let by_annotation = (json!({SCOPE: "clusterwide"}), json!({"phase": "Running"}));
    let by_status = (
        json!({}),
        json!({"phase": "Running", "controlledBy": "ops/etcd-operator"}),
    );
    for (annotations, status) in [by_annotation, by_status] {
        let mut fixture = Fixture::new();
        fixture.cluster(&undecodable_spec(), &annotations);
        fixture
            .fake
            .update_object(GROUP, "EtcdCluster", "shop", "x", |cluster| {
                cluster["status"] = status;
            });
        // A served object shows when the manager has processed the other one.
        let mut served = backup();
        served["metadata"]["name"] = json!("y");
        served["spec"]["etcdCluster"]["name"] = json!("y");
        fixture.fake.put_object(served);
        let mark = fixture.fake.mark();
        fixture.start("shop", &[]).await;
        sleep(Duration::from_mins(2)).await;
        let backup = fixture.fake.get_object(GROUP, "EtcdBackup", "shop", "y").unwrap();
        assert!(backup["status"].is_object());
        let writes = fixture.fake.writes_since(mark);
        assert!(
            writes.iter().all(|call| call.resource != "etcdclusters"),
            "{writes:?}"
        );
        assert!(fixture.events().iter().all(|(reason, _)| reason != "Invalid"));
        fixture.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_cluster_gets_an_event_and_is_not_reported_as_missing() {
    let mut fixture = Fixture::new();
    fixture.cluster(&undecodable_spec(), &json!({}));
    fixture.fake.put_object(backup());
    fixture.start("shop", &[]).await;
    fixture
        .until("a verdict on the cluster", |b| {
            b.events()
                .iter()
                .any(|(reason, note)| reason == "Invalid" && note.contains("spec.TLS"))
        })
        .await;
    fixture
        .until("a verdict on the backup", |b| {
            b.accepted("EtcdBackup")["status"] == "True"
        })
        .await;
    let reference = condition(&fixture.status("EtcdBackup"), "ReferenceFound");
    assert_eq!(
        (&reference["status"], &reference["reason"]),
        (&json!("False"), &json!("Unreadable"))
    );
    fixture.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_backup_follows_the_scope_of_its_malformed_cluster() {
    let mut fixture = Fixture::new();
    fixture.cluster(&undecodable_spec(), &json!({SCOPE: "clusterwide"}));
    fixture.fake.put_object(backup());
    fixture.start("shop", &[]).await;
    fixture
        .until("a verdict", |b| b.accepted("EtcdBackup")["reason"] == "NotServed")
        .await;
    fixture.end().await;
}

/// The installation that controls a cluster also controls its backups and restores. Otherwise two installations would create
/// Jobs and overwrite each other's statuses.
#[tokio::test(start_paused = true)]
async fn backups_and_restores_of_a_foreign_cluster_are_ignored_until_it_is_released() {
    let mut fixture = Fixture::new();
    fixture.cluster(&json!({"size": 3}), &json!({}));
    let own = |installation: Value| {
        move |cluster: &mut Value| {
            cluster["status"] = json!({"phase": "Running", "controlledBy": installation});
        }
    };
    fixture.fake.update_object(
        GROUP,
        "EtcdCluster",
        "shop",
        "x",
        own(json!("gone/etcd-operator")),
    );
    fixture.fake.put_object(backup());
    fixture.fake.put_object(json!({
        "apiVersion": GROUP, "kind": "EtcdRestore", "metadata": {"name": "x", "namespace": "shop"},
        "spec": {"etcdCluster": {"name": "x"}, "backupStorageType": "OSS", "oss": {"path": "bucket/key", "ossSecret": "s"}},
    }));
    let mark = fixture.fake.mark();
    fixture.start("shop", &[]).await;
    fixture
        .until("an Event on each", |b| {
            let events_found = b.events().into_iter();
            events_found
                .filter(|(reason, _)| reason == "ControlledElsewhere")
                .count()
                == 3
        })
        .await;
    sleep(SEVERAL_RESYNCS).await;
    let events = fixture.events();
    assert_eq!(events.len(), 3, "{events:?}");
    assert!(
        events
            .iter()
            .all(|(_, note)| note
                .contains("kubectl --namespace shop patch etcdcluster x --subresource=status")),
        "{events:?}"
    );
    let writes = fixture.fake.writes_since(mark);
    let ours = |resource: &str| resource.starts_with("etcd") || resource == "jobs";
    assert!(writes.iter().all(|call| !ours(&call.resource)), "{writes:?}");
    // As the Event suggests.
    fixture
        .fake
        .update_object(GROUP, "EtcdCluster", "shop", "x", own(Value::Null));
    fixture
        .until("all are accepted", |b| {
            let is_accepted = |kind| b.accepted(kind)["status"] == "True";
            b.status("EtcdCluster")["controlledBy"] == "shop/etcd-operator"
                && is_accepted("EtcdBackup")
                && is_accepted("EtcdRestore")
        })
        .await;
    fixture.end().await;
}

/// The same if this version cannot decode the cluster: the cluster must not be reported as missing.
#[tokio::test(start_paused = true)]
async fn a_backup_of_a_malformed_foreign_cluster_is_ignored() {
    let mut fixture = Fixture::new();
    fixture.cluster(&undecodable_spec(), &json!({}));
    fixture
        .fake
        .update_object(GROUP, "EtcdCluster", "shop", "x", |cluster| {
            cluster["status"] = json!({"phase": "Running", "controlledBy": "ops/etcd-operator"});
        });
    fixture.fake.put_object(backup());
    let mark = fixture.fake.mark();
    fixture.start("shop", &[]).await;
    fixture
        .until("an Event", |b| {
            let events_found = b.events().into_iter();
            events_found
                .filter(|(reason, _)| reason == "ControlledElsewhere")
                .count()
                == 1
        })
        .await;
    sleep(SEVERAL_RESYNCS).await;
    let writes = fixture.fake.writes_since(mark);
    assert!(
        writes.iter().all(|call| !call.resource.starts_with("etcd")),
        "{writes:?}"
    );
    fixture.end().await;
}
