//! Pods: defaults, what of them can change, their status, their eviction.

use serde_json::{Value, json};

use super::widget::pod;
use super::wire::{As, Broken, Outcome, Wire, holds, holds_that, same};

pub(super) async fn a_pod_gets_its_defaults(w: Wire) -> Outcome {
    let made = w
        .post(&w.at("v1", "pods", ""), &pod("a", "x"))
        .await?
        .expect(201)?;
    same!(made["spec"]["restartPolicy"], json!("Always"));
    same!(made["status"]["phase"], json!("Pending"));
    same!(made["metadata"]["generation"], json!(1));
    holds()
}

pub(super) async fn a_pod_spec_is_fixed_but_for_images(w: Wire) -> Outcome {
    w.post(&w.at("v1", "pods", ""), &pod("a", "x"))
        .await?
        .expect(201)?;
    let path = w.at("v1", "pods", "a");
    let image = json!({"spec": {"containers": [{"name": "main", "image": "registry.example.dev/main:2"}]}});
    let after = w.patch(As::Strategic, &path, &image).await?.expect(200)?;
    same!(after["metadata"]["generation"], json!(2));
    let refused = w
        .patch(As::Merge, &path, &json!({"spec": {"hostname": "h"}}))
        .await?
        .expect(422)?;
    same!(refused["details"]["causes"][0]["field"], json!("spec"));
    holds()
}

pub(super) async fn the_status_of_a_pod_is_written_apart(w: Wire) -> Outcome {
    w.post(&w.at("v1", "pods", ""), &pod("a", "x"))
        .await?
        .expect(201)?;
    let path = format!("{}/status", w.at("v1", "pods", "a"));
    let ready = json!({"status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}});
    let after = w.patch(As::Strategic, &path, &ready).await?.expect(200)?;
    same!(after["status"]["phase"], json!("Running"));
    let list = w
        .get(&format!(
            "{}?fieldSelector=status.phase%3DRunning",
            w.at("v1", "pods", "")
        ))
        .await?
        .expect(200)?;
    same!(list["items"].as_array().map_or(0, Vec::len), 1);
    let after = w
        .patch(
            As::Merge,
            &w.at("v1", "pods", "a"),
            &json!({"metadata": {"labels": {"b": "c"}}}),
        )
        .await?;
    same!(after.expect(200)?["status"]["phase"], json!("Running"));
    holds()
}

pub(super) async fn a_pod_needs_containers(w: Wire) -> Outcome {
    let mut body = pod("a", "x");
    body["spec"]["containers"] = json!([]);
    let refused = w
        .post(&w.at("v1", "pods", ""), &body)
        .await?
        .refused(422, "Invalid")?;
    same!(refused["details"]["causes"][0]["field"], json!("spec.containers"));
    holds()
}

pub(super) async fn unknown_fields_of_built_in_kinds_are_dropped(w: Wire) -> Outcome {
    let mut body = pod("a", "x");
    body["spec"]["unheard"] = json!(1);
    body["spec"]["containers"][0]["unheard"] = json!(1);
    let made = w.post(&w.at("v1", "pods", ""), &body).await?.expect(201)?;
    holds_that!(made["spec"].get("unheard").is_none(), "{made}");
    holds()
}

async fn running_pod(w: &Wire, name: &str) -> Result<(), Broken> {
    let mut body = pod(name, "x");
    body["spec"]["nodeName"] = json!("node-1");
    w.post(&w.at("v1", "pods", ""), &body).await?.expect(201)?;
    let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    w.patch(
        As::Strategic,
        &format!("{}/status", w.at("v1", "pods", name)),
        &status,
    )
    .await?
    .expect(200)?;
    Ok(())
}

fn eviction(name: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}})
}

pub(super) async fn an_eviction_without_a_budget_deletes_the_pod(w: Wire) -> Outcome {
    running_pod(&w, "a").await?;
    let path = format!("{}/eviction", w.at("v1", "pods", "a"));
    w.post(&path, &eviction("a")).await?.expect(201)?;
    let dying = w.get(&w.at("v1", "pods", "a")).await?.expect(200)?;
    holds_that!(
        dying["metadata"]["deletionTimestamp"].is_string(),
        "the pod lives on: {dying}"
    );
    w.post(
        &format!("{}/eviction", w.at("v1", "pods", "none")),
        &eviction("none"),
    )
    .await?
    .refused(404, "NotFound")?;
    holds()
}

pub(super) async fn a_budget_holds_up_evictions(w: Wire) -> Outcome {
    for name in ["a", "b"] {
        running_pod(&w, name).await?;
    }
    let budgets = |name: &str| w.at("policy/v1", "poddisruptionbudgets", name);
    let body = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "p"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    });
    w.post(&budgets(""), &body).await?.expect(201)?;
    let evict = |name: &str| format!("{}/eviction", w.at("v1", "pods", name));
    w.post(&evict("a"), &eviction("a"))
        .await?
        .refused(429, "TooManyRequests")?;
    let status = json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2,
    }});
    w.patch(As::Merge, &format!("{}/status", budgets("p")), &status)
        .await?
        .expect(200)?;
    w.post(&evict("a"), &eviction("a")).await?.expect(201)?;
    let spent = w.get(&budgets("p")).await?.expect(200)?;
    same!(spent["status"]["disruptionsAllowed"], json!(0));
    holds_that!(
        spent["status"]["disruptedPods"]["a"].is_string(),
        "the pod is not noted: {spent}"
    );
    let refused = w
        .post(&evict("b"), &eviction("b"))
        .await?
        .refused(429, "TooManyRequests")?;
    same!(
        refused["details"]["causes"][0]["reason"],
        json!("DisruptionBudget")
    );
    holds_that!(
        w.get(&w.at("v1", "pods", "b")).await?.expect(200)?["metadata"]
            .get("deletionTimestamp")
            .is_none(),
        "the pod is dying"
    );
    holds()
}

pub(super) async fn a_pod_with_everything_is_stored_in_one_form(w: Wire) -> Outcome {
    let mut body = pod("a", "x");
    let container = &mut body["spec"]["containers"][0];
    container["ports"] = json!([{"containerPort": 2379}]);
    container["resources"] = json!({"limits": {"memory": "64M"}});
    container["startupProbe"] = json!({"exec": {"command": ["true"]}});
    container["securityContext"] = json!({"runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}});
    container["envFrom"] = json!([{"secretRef": {"name": "s"}}]);
    container["image"] = json!("registry.example.dev:5000/main");
    body["spec"]["initContainers"] = json!([{"name": "first", "image": "a@sha256:b"}]);
    body["spec"]["restartPolicy"] = json!("Never");
    body["spec"]["serviceAccountName"] = json!("default");
    body["spec"]["volumes"] = json!([
        {"name": "a", "configMap": {"name": "a", "items": [{"key": "k", "path": "p"}]}},
        {"name": "b", "projected": {"sources": [{"secret": {"name": "s"}}]}},
    ]);
    body["spec"]["topologySpreadConstraints"] =
        json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]);
    body["spec"]["affinity"] = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "x"}}}},
    ]}});
    w.post(&w.at("v1", "pods", ""), &body).await?.expect(201)?;
    holds()
}
