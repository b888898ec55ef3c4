//! Status and scale.

use serde_json::{Value, json};

use super::widget::{GROUP, map, pod, stateful_set, widget};
use super::wire::{As, Outcome, Wire, holds, holds_that, same};

pub(super) async fn a_creation_ignores_the_status(w: Wire) -> Outcome {
    let mut body = widget("a", &json!({"size": 1}));
    body["status"] = json!({"phase": "Up"});
    let made = w.post(&w.widget(""), &body).await?.expect(201)?;
    holds_that!(made.get("status").is_none(), "the status was taken: {made}");
    holds()
}

pub(super) async fn a_write_of_the_object_leaves_the_status_alone(w: Wire) -> Outcome {
    w.post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .expect(201)?;
    let path = format!("{}/status", w.widget("a"));
    let mut object = w
        .patch(As::Merge, &path, &json!({"status": {"phase": "Up"}}))
        .await?
        .expect(200)?;
    object["status"] = json!({"phase": "Down"});
    object["spec"]["size"] = json!(2);
    let after = w.put(&w.widget("a"), &object).await?.expect(200)?;
    same!(after["status"]["phase"], json!("Up"));
    same!(after["spec"]["size"], json!(2));
    let after = w
        .patch(As::Merge, &w.widget("a"), &json!({"status": null}))
        .await?
        .expect(200)?;
    same!(after["status"]["phase"], json!("Up"));
    holds()
}

pub(super) async fn a_write_of_the_status_leaves_the_object_alone(w: Wire) -> Outcome {
    let mut object = w
        .post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .expect(201)?;
    object["status"] = json!({"phase": "Up", "unheard": 1});
    object["spec"]["size"] = json!(2);
    object["metadata"]["labels"] = json!({"a": "b"});
    let after = w
        .put(&format!("{}/status", w.widget("a")), &object)
        .await?
        .expect(200)?;
    same!(after["status"], json!({"phase": "Up"}));
    same!(after["spec"]["size"], json!(1));
    holds_that!(
        after["metadata"].get("labels").is_none(),
        "labels were written: {after}"
    );
    let read = w.get(&format!("{}/status", w.widget("a"))).await?.expect(200)?;
    same!(read, after);
    w.put(&format!("{}/status", w.widget("a")), &object)
        .await?
        .refused(409, "Conflict")?;
    holds()
}

pub(super) async fn a_status_is_validated(w: Wire) -> Outcome {
    w.post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .expect(201)?;
    let path = format!("{}/status", w.widget("a"));
    let bad = json!({"status": {"conditions": [{"type": "Ready", "status": "Perhaps"}]}});
    w.patch(As::Merge, &path, &bad).await?.refused(422, "Invalid")?;
    holds()
}

pub(super) async fn a_default_status_is_there_before_one_is_written(w: Wire) -> Outcome {
    let gauge = |name: &str| w.at(&format!("{GROUP}/v1"), "gauges", name);
    let unwritten = json!({"seen": -1, "level": 0});
    let mut body = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Gauge", "metadata": {"name": "a"}});
    // Kubernetes notes managers only of objects that were created with a field that somebody can own.
    body["metadata"]["labels"] = json!({"of": "a"});
    body["status"] = json!({"seen": 7});
    let made = w.post(&gauge(""), &body).await?.expect(201)?;
    same!(made["status"], unwritten);
    same!(w.get(&gauge("a")).await?.expect(200)?["status"], unwritten);
    let path = format!("{}/status", gauge("a"));
    let written = w.patch(As::Merge, &path, &json!({"status": {"seen": 1}})).await?;
    same!(written.expect(200)?["status"]["seen"], json!(1));
    let removed = w.patch(As::Merge, &path, &json!({"status": null})).await?;
    same!(removed.expect(200)?["status"], unwritten);
    same!(w.get(&gauge("a")).await?.expect(200)?["status"], unwritten);
    holds()
}

pub(super) async fn a_kind_without_a_subresource_does_not_have_it(w: Wire) -> Outcome {
    w.post(&w.map(""), &map("a", &json!({}))).await?.expect(201)?;
    same!(w.get(&format!("{}/status", w.map("a"))).await?.code, 404);
    same!(w.get(&format!("{}/scale", w.map("a"))).await?.code, 404);
    holds()
}

pub(super) async fn a_custom_object_scales(w: Wire) -> Outcome {
    w.post(&w.widget(""), &widget("a", &json!({"size": 3})))
        .await?
        .expect(201)?;
    let status = format!("{}/status", w.widget("a"));
    let patch = json!({"status": {"size": 2, "selector": "app=a"}});
    w.patch(As::Merge, &status, &patch).await?.expect(200)?;
    let path = format!("{}/scale", w.widget("a"));
    let mut scale = w.get(&path).await?.expect(200)?;
    same!(scale["kind"], json!("Scale"));
    same!(scale["spec"]["replicas"], json!(3));
    same!(scale["status"], json!({"replicas": 2, "selector": "app=a"}));
    scale["spec"]["replicas"] = json!(5);
    let after = w.put(&path, &scale).await?.expect(200)?;
    same!(after["spec"]["replicas"], json!(5));
    let object = w.get(&w.widget("a")).await?.expect(200)?;
    same!(object["spec"]["size"], json!(5));
    same!(object["metadata"]["generation"], json!(2));
    w.put(&path, &scale).await?.refused(409, "Conflict")?;
    let after = w
        .patch(As::Merge, &path, &json!({"spec": {"replicas": 4}}))
        .await?
        .expect(200)?;
    same!(after["spec"]["replicas"], json!(4));
    holds()
}

pub(super) async fn a_scale_is_validated_like_the_object(w: Wire) -> Outcome {
    w.post(&w.widget(""), &widget("a", &json!({"size": 3})))
        .await?
        .expect(201)?;
    let path = format!("{}/scale", w.widget("a"));
    same!(
        w.patch(As::Merge, &path, &json!({"spec": {"replicas": 100}}))
            .await?
            .code,
        422
    );
    same!(
        w.patch(As::Merge, &path, &json!({"spec": {"replicas": -1}}))
            .await?
            .code,
        422
    );
    same!(
        w.get(&w.widget("a")).await?.expect(200)?["spec"]["size"],
        json!(3)
    );
    holds()
}

pub(super) async fn a_stateful_set_scales(w: Wire) -> Outcome {
    w.post(&w.at("apps/v1", "statefulsets", ""), &stateful_set("s"))
        .await?
        .expect(201)?;
    let path = format!("{}/scale", w.at("apps/v1", "statefulsets", "s"));
    let scale = w.get(&path).await?.expect(200)?;
    same!(scale["spec"]["replicas"], json!(3));
    same!(scale["status"]["selector"], json!("app=s"));
    let after = w
        .patch(As::Merge, &path, &json!({"spec": {"replicas": 5}}))
        .await?
        .expect(200)?;
    same!(after["spec"]["replicas"], json!(5));
    let object = w.get(&w.at("apps/v1", "statefulsets", "s")).await?.expect(200)?;
    same!(object["spec"]["replicas"], json!(5));
    same!(object["metadata"]["generation"], json!(2));
    holds()
}

pub(super) async fn the_status_of_a_stateful_set_is_separate(w: Wire) -> Outcome {
    w.post(&w.at("apps/v1", "statefulsets", ""), &stateful_set("s"))
        .await?
        .expect(201)?;
    let path = format!("{}/status", w.at("apps/v1", "statefulsets", "s"));
    let patch = json!({"spec": {"replicas": 9}, "status": {"replicas": 3, "readyReplicas": 2, "currentRevision": "r"}});
    let after = w.patch(As::Merge, &path, &patch).await?.expect(200)?;
    same!(after["spec"]["replicas"], json!(3));
    same!(after["status"]["readyReplicas"], json!(2));
    same!(after["metadata"]["generation"], json!(1));
    let sent: Value = json!({"status": {"readyReplicas": 0}, "spec": {"replicas": 4}});
    let after = w
        .patch(As::Merge, &w.at("apps/v1", "statefulsets", "s"), &sent)
        .await?
        .expect(200)?;
    same!(after["status"]["readyReplicas"], json!(2));
    same!(after["metadata"]["generation"], json!(2));
    holds()
}

pub(super) async fn the_status_of_a_pod_can_bring_labels(w: Wire) -> Outcome {
    w.post(&w.at("v1", "pods", ""), &pod("a", "x"))
        .await?
        .expect(201)?;
    let path = format!("{}/status", w.at("v1", "pods", "a"));
    let patch =
        json!({"metadata": {"labels": {"b": "c"}}, "spec": {"hostname": "h"}, "status": {"message": "m"}});
    let after = w.patch(As::Merge, &path, &patch).await?.expect(200)?;
    same!(after["status"]["message"], json!("m"));
    holds_that!(
        after["spec"].get("hostname").is_none(),
        "the spec was written: {after}"
    );
    holds()
}

pub(super) async fn a_budget_counts_changes_of_its_spec(w: Wire) -> Outcome {
    let budgets = |name: &str| w.at("policy/v1", "poddisruptionbudgets", name);
    let body = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "p"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    });
    let made = w
        .patch(As::Apply("one"), &budgets("p"), &body)
        .await?
        .expect(201)?;
    same!(made["metadata"]["generation"], json!(1));
    let again = w
        .patch(As::Apply("one"), &budgets("p"), &body)
        .await?
        .expect(200)?;
    same!(
        again["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    let after = w
        .patch(As::Merge, &budgets("p"), &json!({"spec": {"maxUnavailable": 0}}))
        .await?
        .expect(200)?;
    same!(after["metadata"]["generation"], json!(2));
    let status = json!({"status": {"observedGeneration": 2, "disruptionsAllowed": 0}});
    let after = w
        .patch(As::Merge, &format!("{}/status", budgets("p")), &status)
        .await?
        .expect(200)?;
    same!(after["metadata"]["generation"], json!(2));
    same!(after["status"]["observedGeneration"], json!(2));
    holds()
}
