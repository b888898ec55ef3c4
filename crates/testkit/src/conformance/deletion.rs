//! Deleting: preconditions, finalizers, grace, propagation, collections, namespaces.

use serde_json::{Value, json};

use super::widget::{GROUP, map, pod, widget};
use super::wire::{As, Outcome, Wire, holds, holds_that, same};

fn preconditions(field: &str, value: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {field: value}})
}

pub(super) async fn a_deletion_answers_success_and_the_object_is_gone(w: Wire) -> Outcome {
    let made = w.post(&w.map(""), &map("a", &json!({}))).await?.expect(201)?;
    let done = w.delete(&w.map("a"), None).await?.expect(200)?;
    same!(done["status"], json!("Success"));
    same!(done["details"]["uid"], made["metadata"]["uid"]);
    w.get(&w.map("a")).await?.refused(404, "NotFound")?;
    w.delete(&w.map("a"), None).await?.refused(404, "NotFound")?;
    w.post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .expect(201)?;
    let done = w.delete(&w.widget("a"), None).await?.expect(200)?;
    same!(done["details"]["group"], json!(GROUP));
    holds()
}

pub(super) async fn a_deletion_of_another_uid_is_a_conflict(w: Wire) -> Outcome {
    let made = w.post(&w.map(""), &map("a", &json!({}))).await?.expect(201)?;
    let other = json!("11111111-2222-4333-8444-555555555555");
    w.delete(&w.map("a"), Some(&preconditions("uid", &other)))
        .await?
        .refused(409, "Conflict")?;
    w.get(&w.map("a")).await?.expect(200)?;
    w.delete(&w.map("a"), Some(&preconditions("uid", &made["metadata"]["uid"])))
        .await?
        .expect(200)?;
    holds()
}

pub(super) async fn a_deletion_of_an_old_version_is_a_conflict(w: Wire) -> Outcome {
    let made = w
        .post(&w.map(""), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    let new = w
        .patch(As::Merge, &w.map("a"), &json!({"data": {"k": "w"}}))
        .await?
        .expect(200)?;
    let version = |object: &Value| preconditions("resourceVersion", &object["metadata"]["resourceVersion"]);
    w.delete(&w.map("a"), Some(&version(&made)))
        .await?
        .refused(409, "Conflict")?;
    w.delete(&w.map("a"), Some(&version(&new))).await?.expect(200)?;
    holds()
}

pub(super) async fn finalizers_hold_an_object_until_the_last_is_gone(w: Wire) -> Outcome {
    let mut body = widget("a", &json!({"size": 1}));
    body["metadata"]["finalizers"] = json!(["example.dev/one", "example.dev/two"]);
    w.post(&w.widget(""), &body).await?.expect(201)?;
    let dying = w.delete(&w.widget("a"), None).await?.expect(200)?;
    holds_that!(
        dying["metadata"]["deletionTimestamp"].is_string(),
        "no deletionTimestamp in {dying}"
    );
    same!(dying["metadata"]["deletionGracePeriodSeconds"], json!(0));
    same!(dying["metadata"]["generation"], json!(2));
    let again = w.delete(&w.widget("a"), None).await?.expect(200)?;
    same!(
        again["metadata"]["resourceVersion"],
        dying["metadata"]["resourceVersion"]
    );
    let one = json!({"metadata": {"finalizers": ["example.dev/two"]}});
    w.patch(As::Merge, &w.widget("a"), &one).await?.expect(200)?;
    w.get(&w.widget("a")).await?.expect(200)?;
    let none = json!({"metadata": {"finalizers": []}});
    w.patch(As::Merge, &w.widget("a"), &none).await?.expect(200)?;
    w.get(&w.widget("a")).await?.refused(404, "NotFound")?;
    holds()
}

pub(super) async fn a_dying_object_takes_no_new_finalizers(w: Wire) -> Outcome {
    let mut body = map("a", &json!({}));
    body["metadata"]["finalizers"] = json!(["example.dev/one"]);
    w.post(&w.map(""), &body).await?.expect(201)?;
    w.delete(&w.map("a"), None).await?.expect(200)?;
    let more = json!({"metadata": {"finalizers": ["example.dev/one", "example.dev/two"]}});
    let refused = w
        .patch(As::Merge, &w.map("a"), &more)
        .await?
        .refused(422, "Invalid")?;
    same!(
        refused["details"]["causes"][0]["field"],
        json!("metadata.finalizers")
    );
    w.patch(As::Merge, &w.map("a"), &json!({"data": {"k": "v"}}))
        .await?
        .expect(200)?;
    w.patch(As::Merge, &w.map("a"), &json!({"metadata": {"finalizers": null}}))
        .await?
        .expect(200)?;
    w.get(&w.map("a")).await?.refused(404, "NotFound")?;
    holds()
}

pub(super) async fn the_removal_of_a_finalizer_is_watched_as_a_deletion(w: Wire) -> Outcome {
    let mut body = map("a", &json!({}));
    body["metadata"]["finalizers"] = json!(["example.dev/one"]);
    w.post(&w.map(""), &body).await?.expect(201)?;
    let version = w.version(&w.map("")).await?;
    w.delete(&w.map("a"), None).await?.expect(200)?;
    w.patch(As::Merge, &w.map("a"), &json!({"metadata": {"finalizers": null}}))
        .await?
        .expect(200)?;
    let mut events = w
        .watch(
            &w.map(""),
            &format!("timeoutSeconds=15&resourceVersion={version}"),
        )
        .await?;
    holds_that!(
        events.next("MODIFIED").await?["metadata"]["deletionTimestamp"].is_string(),
        "not dying"
    );
    events.next("DELETED").await?;
    holds()
}

pub(super) async fn a_deletion_can_orphan_or_wait_in_the_foreground(w: Wire) -> Outcome {
    for (name, policy, finalizer) in [
        ("a", "Orphan", "orphan"),
        ("b", "Foreground", "foregroundDeletion"),
    ] {
        w.post(&w.map(""), &map(name, &json!({}))).await?.expect(201)?;
        let path = format!("{}?propagationPolicy={policy}", w.map(name));
        let dying = w.delete(&path, None).await?;
        same!(dying.body["metadata"]["finalizers"], json!([finalizer]));
        w.get(&w.map(name)).await?.expect(200)?;
    }
    w.post(&w.map(""), &map("c", &json!({}))).await?.expect(201)?;
    w.delete(&w.map("c"), Some(&json!({"propagationPolicy": "Background"})))
        .await?
        .expect(200)?;
    w.get(&w.map("c")).await?.refused(404, "NotFound")?;
    holds()
}

pub(super) async fn a_job_is_orphaning_unless_told_otherwise(w: Wire) -> Outcome {
    let job = |name: &str| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b:1"}]}}},
        })
    };
    w.post(&w.at("batch/v1", "jobs", ""), &job("a"))
        .await?
        .expect(201)?;
    let dying = w.delete(&w.at("batch/v1", "jobs", "a"), None).await?;
    same!(dying.body["metadata"]["finalizers"], json!(["orphan"]));
    w.post(&w.at("batch/v1", "jobs", ""), &job("b"))
        .await?
        .expect(201)?;
    let path = format!("{}?propagationPolicy=Background", w.at("batch/v1", "jobs", "b"));
    w.delete(&path, None).await?.expect(200)?;
    w.get(&w.at("batch/v1", "jobs", "b"))
        .await?
        .refused(404, "NotFound")?;
    holds()
}

pub(super) async fn a_pod_on_a_node_is_given_time(w: Wire) -> Outcome {
    let pods = |name: &str| w.at("v1", "pods", name);
    let mut body = pod("a", "x");
    body["spec"]["nodeName"] = json!("node-1");
    w.post(&pods(""), &body).await?.expect(201)?;
    let dying = w.delete(&pods("a"), None).await?.expect(200)?;
    same!(dying["metadata"]["deletionGracePeriodSeconds"], json!(30));
    holds_that!(
        dying["metadata"]["deletionTimestamp"].is_string(),
        "no deletionTimestamp in {dying}"
    );
    w.get(&pods("a")).await?.expect(200)?;
    w.delete(&pods("a"), Some(&json!({"gracePeriodSeconds": 0})))
        .await?
        .expect(200)?;
    w.get(&pods("a")).await?.refused(404, "NotFound")?;
    w.post(&pods(""), &pod("b", "x")).await?.expect(201)?;
    w.delete(&pods("b"), None).await?.expect(200)?;
    w.get(&pods("b")).await?.refused(404, "NotFound")?;
    holds()
}

pub(super) async fn a_collection_is_deleted_by_selector(w: Wire) -> Outcome {
    for (name, on) in [("a", "yes"), ("b", "no"), ("c", "yes")] {
        let mut body = map(name, &json!({}));
        body["metadata"]["labels"] = json!({"on": on});
        w.post(&w.map(""), &body).await?.expect(201)?;
    }
    same!(
        w.delete(&format!("{}?labelSelector=on%3Dyes", w.map("")), None)
            .await?
            .code,
        200
    );
    let left = w.get(&w.map("")).await?.expect(200)?;
    same!(left["items"].as_array().map_or(0, Vec::len), 1);
    same!(left["items"][0]["metadata"]["name"], json!("b"));
    holds()
}

pub(super) async fn a_dying_namespace_takes_no_objects(w: Wire) -> Outcome {
    let name = format!("{}-dying", w.namespace);
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    w.post("/api/v1/namespaces", &body).await?.expect(201)?;
    let dying = w
        .delete(&format!("/api/v1/namespaces/{name}"), None)
        .await?
        .expect(200)?;
    same!(dying["status"]["phase"], json!("Terminating"));
    let path = format!("/api/v1/namespaces/{name}/configmaps");
    let refused = w
        .post(&path, &map("a", &json!({})))
        .await?
        .refused(403, "Forbidden")?;
    same!(
        refused["details"]["causes"][0]["reason"],
        json!("NamespaceTerminating")
    );
    holds()
}

pub(super) async fn a_collection_of_custom_objects_answers_with_them(w: Wire) -> Outcome {
    let mut held = widget("b", &json!({"size": 1}));
    held["metadata"]["finalizers"] = json!(["example.dev/one"]);
    w.post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .expect(201)?;
    w.post(&w.widget(""), &held).await?.expect(201)?;
    let gone = w.delete(&w.widget(""), None).await?.expect(200)?;
    same!(gone["kind"], json!("WidgetList"));
    same!(gone["items"].as_array().map_or(0, Vec::len), 2);
    w.get(&w.widget("a")).await?.refused(404, "NotFound")?;
    holds_that!(
        w.get(&w.widget("b")).await?.expect(200)?["metadata"]["deletionTimestamp"].is_string(),
        "the finalizer did not hold it"
    );
    w.patch(
        As::Merge,
        &w.widget("b"),
        &json!({"metadata": {"finalizers": null}}),
    )
    .await?
    .expect(200)?;
    w.get(&w.widget("b")).await?.refused(404, "NotFound")?;
    holds()
}

pub(super) async fn a_dying_object_can_still_change(w: Wire) -> Outcome {
    let mut body = widget("a", &json!({"size": 1}));
    body["metadata"]["finalizers"] = json!(["example.dev/one"]);
    w.post(&w.widget(""), &body).await?.expect(201)?;
    w.delete(&w.widget("a"), None).await?.expect(200)?;
    let path = format!("{}/status", w.widget("a"));
    w.patch(As::Merge, &path, &json!({"status": {"phase": "Dying"}}))
        .await?
        .expect(200)?;
    let after = w
        .patch(As::Merge, &w.widget("a"), &json!({"spec": {"size": 2}}))
        .await?
        .expect(200)?;
    same!(after["metadata"]["generation"], json!(3));
    let undo = json!({"metadata": {"deletionTimestamp": null}});
    let after = w.patch(As::Merge, &w.widget("a"), &undo).await?.expect(200)?;
    holds_that!(
        after["metadata"]["deletionTimestamp"].is_string(),
        "it was brought back to life: {after}"
    );
    w.post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .refused(409, "AlreadyExists")?;
    holds()
}
