//! Restores that nobody asks for any more.

use etcd_operator_api::contract::{self, ObjectFacts, RestoreIntent, RestoreSecrets, StoreOrder};
use etcd_operator_api::names::ANNOTATION_RESTORE;
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, run};
use serde_json::json;

use super::{cluster, status};
use crate::{MINUTE, SECOND};

/// The kinds' group and version.
const API: &str = "etcd.database.coreos.com/v1beta2";

fn uid(sim: &Simulation, api: &str, kind: &str, name: &str) -> Option<String> {
    let object = sim.fake().get_object(api, kind, NAMESPACE, name)?;
    object["metadata"]["uid"].as_str().map(str::to_owned)
}

/// As the annotation stands in an object that was written down while the restore was carried out.
fn ask(sim: &Simulation, uid: &str) {
    let intent = RestoreIntent {
        version: contract::VERSION,
        uid: uid.to_owned(),
        name: "back".to_owned(),
        store: StoreOrder::default(),
        secrets: RestoreSecrets::default(),
        object: ObjectFacts::default(),
        revision: 1,
        etcd_version: "3.6.16".to_owned(),
        digest: "1:2:00".to_owned(),
        revision_bump: 0,
        keep_previous_seconds: 60,
        compared_cluster: None,
        single_member: false,
    };
    let text = String::from_utf8(contract::write(&intent)).unwrap();
    sim.annotate("c", ANNOTATION_RESTORE, &text);
}

#[test]
fn an_annotation_that_comes_back_weeks_later_stops_no_pod() {
    run(4, |sim| async move {
        cluster(&sim, 3).await;
        let pods = |sim: &Simulation| ["c-0", "c-1", "c-2"].map(|name| uid(sim, "v1", "Pod", name));
        let before = pods(&sim);
        let object = |phase: &str| {
            json!({
                "apiVersion": API, "kind": "EtcdRestore", "metadata": {"name": "back", "namespace": NAMESPACE},
                "spec": {"etcdCluster": {"name": "c"}}, "status": {"phase": phase},
            })
        };
        // Its EtcdRestore is gone; then another one bears its name; then it is there, and over.
        ask(&sim, "of-before");
        tokio::time::sleep(2 * MINUTE).await;
        sim.fake().put_object(object("Verifying"));
        tokio::time::sleep(2 * MINUTE).await;
        let restore = uid(&sim, API, "EtcdRestore", "back").unwrap();
        sim.fake()
            .update_object(API, "EtcdRestore", NAMESPACE, "back", |restore| {
                restore["status"]["phase"] = json!("RolledBack");
            });
        ask(&sim, &restore);
        tokio::time::sleep(2 * MINUTE).await;
        assert!(status(&sim)["restore"].is_null(), "{}", status(&sim));
        assert_eq!(pods(&sim), before);
        assert!(sim.is_whole("c", 3));
        sim.check();
        // The same is obeyed once its EtcdRestore asks for it.
        sim.fake()
            .update_object(API, "EtcdRestore", NAMESPACE, "back", |restore| {
                restore["status"]["phase"] = json!("Verifying");
            });
        sim.expect("it begins", MINUTE + 30 * SECOND, |sim| {
            status(sim)["restore"]["uid"] == restore.as_str()
        })
        .await;
    });
}
