//! Writes against a scripted API server that records every call.

use super::*;
use crate::clock::TestClock;
use crate::error::{Class, Classified as _};
use crate::fake::{Reply, Server};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodStatus};
use kube::core::ObjectMeta;

fn config_map(data: &[(&str, &str)]) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            namespace: Some("shop".into()),
            name: Some("a".into()),
            ..ObjectMeta::default()
        },
        data: Some(
            data.iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
        ),
        ..ConfigMap::default()
    }
}

fn in_phase(phase: &str) -> PodStatus {
    PodStatus {
        phase: Some(phase.into()),
        ..PodStatus::default()
    }
}

fn pod(phase: &str) -> Pod {
    Pod {
        metadata: ObjectMeta {
            namespace: Some("shop".into()),
            name: Some("p".into()),
            uid: Some("u1".into()),
            resource_version: Some("7".into()),
            annotations: Some([("kept".to_owned(), "yes".to_owned())].into()),
            ..ObjectMeta::default()
        },
        status: Some(in_phase(phase)),
        ..Pod::default()
    }
}

/// A server that answers an apply or patch with the sent object, as version 5 of the object with UID u1.
fn accepting_server() -> Server {
    Server::new(|call| {
        let mut object = call.body.clone();
        object["metadata"]["uid"] = json!("u1");
        object["metadata"]["resourceVersion"] = json!("5");
        object["metadata"]["labels"] = json!({"foreign": "x"});
        Reply::ok(object)
    })
}

fn applier(server: &Server) -> Applier {
    Applier::new(
        server.client(),
        "etcd-operator/test",
        Leadership::always(TestClock::shared()),
    )
}

#[tokio::test(start_paused = true)]
async fn ensuring_what_is_stored_already_makes_no_call() {
    let server = accepting_server();
    let applier = applier(&server);
    let desired = config_map(&[("k", "v")]);
    let stored = applier.ensure(None, &desired).await.unwrap().changed().unwrap();
    assert_eq!(server.calls().len(), 1);
    assert_eq!(
        applier.ensure(Some(&stored), &desired).await.unwrap(),
        Written::Unchanged
    );
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_match_is_cached_until_the_object_or_the_desired_state_changes() {
    let server = accepting_server();
    let applier = applier(&server);
    let desired = config_map(&[("k", "v")]);
    let wish = Wish::from(&desired);
    let stored = applier.ensure(None, &desired).await.unwrap().changed().unwrap();
    assert!(!applier.agrees(&stored, &wish), "not compared yet");
    assert!(applier.change(Some(&stored), &*wish.object()).unwrap().is_none());
    assert!(applier.agrees(&stored, &wish));
    let mut newer = stored.clone();
    newer.metadata.resource_version = Some("6".into());
    assert!(!applier.agrees(&newer, &wish), "another version");
    newer.metadata.generation = Some(1);
    assert!(applier.change(Some(&newer), &desired).unwrap().is_none());
    newer.metadata.resource_version = Some("7".into());
    assert!(applier.agrees(&newer, &wish), "another status");
    let mut relabelled = newer.clone();
    relabelled.metadata.resource_version = Some("8".into());
    relabelled.metadata.labels.get_or_insert_default().clear();
    assert!(!applier.agrees(&relabelled, &wish), "other labels");
    newer.metadata.resource_version = Some("8".into());
    newer.metadata.generation = Some(2);
    assert!(!applier.agrees(&newer, &wish), "another spec");
    let other = Wish::from(&config_map(&[("k", "w")]));
    assert!(!applier.agrees(&stored, &other), "another desired state");
}

#[tokio::test(start_paused = true)]
async fn a_match_is_compared_again_once_the_object_or_the_desired_state_changes() {
    let server = accepting_server();
    let applier = applier(&server);
    let desired = config_map(&[("k", "v")]);
    let stored = applier.ensure(None, &desired).await.unwrap().changed().unwrap();
    for _ in 0..2 {
        let written = applier.ensure(Some(&stored), &desired).await.unwrap();
        assert_eq!(written, Written::Unchanged);
    }
    let mut changed = stored.clone();
    changed.metadata.resource_version = Some("6".into());
    changed.data = config_map(&[("k", "changed by another client")]).data;
    let written = applier.ensure(Some(&changed), &desired).await.unwrap();
    assert!(written.changed().is_some(), "another version");
    let written = applier
        .ensure(Some(&stored), &config_map(&[("k", "w")]))
        .await
        .unwrap();
    assert!(written.changed().is_some(), "another desired state");
    let mut other = changed;
    other.metadata.uid = Some("u2".into());
    other.metadata.resource_version = Some("5".into());
    let written = applier.ensure(Some(&other), &desired).await.unwrap();
    assert!(written.changed().is_some(), "another object of the same name");
}

#[tokio::test(start_paused = true)]
async fn an_apply_names_its_field_manager_and_the_observed_version() {
    let server = accepting_server();
    let applier = applier(&server);
    let stored = applier
        .ensure(None, &config_map(&[("k", "v")]))
        .await
        .unwrap()
        .changed()
        .unwrap();
    applier
        .ensure(Some(&stored), &config_map(&[("k", "w")]))
        .await
        .unwrap();
    let [create, update] = server.calls().try_into().unwrap();
    assert_eq!(create.method, "PATCH");
    assert_eq!(
        create.uri,
        "/api/v1/namespaces/shop/configmaps/a?&force=true&fieldManager=etcd-operator%2Ftest"
    );
    assert_eq!(create.body["metadata"]["resourceVersion"], Value::Null);
    assert_eq!(update.body["metadata"]["resourceVersion"], json!("5"));
    assert_eq!(update.body["metadata"]["uid"], json!("u1"));
    assert_eq!(
        update.body["metadata"].get("labels"),
        None,
        "only desired fields are applied"
    );
}

#[tokio::test(start_paused = true)]
async fn a_field_no_longer_wanted_leads_to_an_apply_without_it() {
    let server = accepting_server();
    let applier = applier(&server);
    let stored = applier
        .ensure(None, &config_map(&[("k", "v"), ("old", "x")]))
        .await
        .unwrap()
        .changed()
        .unwrap();
    let written = applier
        .ensure(Some(&stored), &config_map(&[("k", "v")]))
        .await
        .unwrap();
    assert!(written.changed().is_some());
    assert_eq!(server.calls()[1].body["data"], json!({"k": "v"}));
}

#[tokio::test(start_paused = true)]
async fn a_stale_leader_sends_nothing() {
    let server = accepting_server();
    let clock = TestClock::shared();
    let (leadership, tenure) = Leadership::standby(clock.clone());
    let applier = Applier::new(server.client(), "test", leadership);
    tenure.lead_until(clock.elapsed() + Duration::from_secs(7));
    applier.ensure(None, &config_map(&[])).await.unwrap();
    tokio::time::advance(Duration::from_secs(30)).await;
    let error = applier.ensure(None, &config_map(&[])).await.unwrap_err();
    assert_eq!((error.class(), error.reason()), (Class::Transient, "NotLeading"));
    assert!(applier.delete(&pod("Running")).await.is_err());
    assert!(
        applier
            .update_status(&pod("Running"), &in_phase("Failed"))
            .await
            .is_err()
    );
    assert!(
        applier
            .annotate(&pod("Running"), &[("a", Some("b"))])
            .await
            .is_err()
    );
    assert_eq!(server.calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn create_leaves_an_existing_object_unchanged() {
    let mut created_object = config_map(&[("k", "v")]);
    created_object.metadata.uid = Some("u1".into());
    let created_object = serde_json::to_value(&created_object).unwrap();
    let server = Server::scripted([
        Reply::ok(created_object),
        Reply::error(409, "already exists"),
        Reply::error(403, "no right"),
    ]);
    let applier = applier(&server);
    let wanted = config_map(&[("k", "v")]);
    let created = applier.create(&wanted).await.unwrap().unwrap();
    assert_eq!(created.metadata.uid.as_deref(), Some("u1"));
    assert_eq!(applier.create(&wanted).await.unwrap(), None);
    assert!(applier.create(&wanted).await.is_err());
    let call = &server.calls()[0];
    assert_eq!(
        (call.method.as_str(), &call.body["data"]["k"]),
        ("POST", &json!("v"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_creates_nothing_and_takes_an_existing_object_for_admitted() {
    let exists = json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "AlreadyExists"});
    let server = Server::scripted([
        Reply::ok(json!(pod("Pending"))),
        Reply::Json(409, exists),
        Reply::error(409, "a quota was changed meanwhile"),
        Reply::error(403, "no right"),
    ]);
    let applier = applier(&server);
    let desired = pod("Pending");
    applier.dry_run_create(&desired).await.unwrap();
    applier.dry_run_create(&desired).await.unwrap();
    for code in [409, 403] {
        let refused = applier.dry_run_create(&desired).await.unwrap_err();
        assert_eq!(refused.status().map(|status| status.code), Some(code));
    }
    for call in server.calls() {
        assert_eq!(call.method, "POST");
        assert!(call.uri.contains("dryRun=All"), "{}", call.uri);
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_names_the_uid_and_version_of_the_observed_object() {
    let replies = [
        Reply::ok(json!({"kind": "Status"})),
        Reply::error(404, "gone"),
        Reply::error(409, "uid differs"),
    ];
    let server = Server::scripted(replies);
    let applier = applier(&server);
    applier.delete(&pod("Running")).await.unwrap();
    applier.delete(&pod("Running")).await.unwrap();
    let error = applier.delete(&pod("Running")).await.unwrap_err();
    assert_eq!(error.class(), Class::Conflict);
    let call = &server.calls()[0];
    assert_eq!(call.method, "DELETE");
    assert_eq!(
        call.body["preconditions"],
        json!({"uid": "u1", "resourceVersion": "7"})
    );
    assert_eq!(
        applier.delete(&config_map(&[])).await.unwrap_err().class(),
        Class::Fatal,
        "never read"
    );
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_only_if_it_differs_and_the_object_is_unchanged() {
    let server = Server::scripted([Reply::ok(json!(pod("Failed"))), Reply::error(409, "changed")]);
    let applier = applier(&server);
    let observed = pod("Running");
    assert_eq!(
        applier
            .update_status(&observed, &in_phase("Running"))
            .await
            .unwrap(),
        Written::Unchanged
    );
    assert!(server.calls().is_empty());
    applier
        .update_status(&observed, &in_phase("Failed"))
        .await
        .unwrap()
        .changed()
        .unwrap();
    let call = server.calls().remove(0);
    assert_eq!(call.method, "PATCH");
    assert_eq!(
        call.body["status"],
        json!({"phase": "Failed"}),
        "nothing but the change"
    );
    assert!(
        call.uri.starts_with("/api/v1/namespaces/shop/pods/p/status?"),
        "{}",
        call.uri
    );
    assert_eq!(call.body["metadata"]["resourceVersion"], json!("7"));
    let error = applier
        .update_status(&observed, &in_phase("Failed"))
        .await
        .unwrap_err();
    assert_eq!(error.class(), Class::Conflict);
}

#[tokio::test(start_paused = true)]
async fn annotations_are_set_and_removed_on_the_observed_version() {
    let server = Server::scripted([Reply::ok(json!(pod("Running")))]);
    let applier = applier(&server);
    let observed = pod("Running");
    let same = [("kept", Some("yes")), ("absent", None)];
    assert_eq!(
        applier.annotate(&observed, &same).await.unwrap(),
        Written::Unchanged
    );
    applier
        .annotate(&observed, &[("permit", Some("p")), ("kept", None)])
        .await
        .unwrap();
    let expected = json!({"metadata": {"annotations": {"permit": "p", "kept": null},
                                       "uid": "u1", "resourceVersion": "7"}});
    assert_eq!(server.calls()[0].body, expected);
}

#[tokio::test(start_paused = true)]
async fn finalizers_are_replaced_only_when_they_differ() {
    let server = accepting_server();
    let applier = applier(&server);
    assert_eq!(
        applier.set_finalizers(&pod("Running"), &[]).await.unwrap(),
        Written::Unchanged
    );
    applier
        .set_finalizers(&pod("Running"), &["example.com/f"])
        .await
        .unwrap();
    assert_eq!(
        server.calls()[0].body["metadata"]["finalizers"],
        json!(["example.com/f"])
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_to_an_api_server_that_never_answers_times_out() {
    let server = Server::scripted([]);
    let started = tokio::time::Instant::now();
    let error = applier(&server).ensure(None, &config_map(&[])).await.unwrap_err();
    assert_eq!(
        (error.class(), error.reason()),
        (Class::Transient, "ApiServerTimeout")
    );
    assert_eq!(started.elapsed(), CALL_TIMEOUT);
    assert_eq!(error.to_string(), "apply ConfigMap shop/a: no answer within 10s");

    // A webhook may take up to 30 seconds, and whether that matters is for the API server to say.
    let started = tokio::time::Instant::now();
    let error = applier(&server)
        .dry_run_create(&pod("Pending"))
        .await
        .unwrap_err();
    assert_eq!(started.elapsed(), Duration::from_secs(35));
    assert!(error.to_string().ends_with("no answer within 35s"), "{error}");
}
