//! Merge patch, JSON patch and strategic merge patch.

use serde_json::json;

use super::widget::{map, stateful_set, widget};
use super::wire::{As, Outcome, Wire, holds, holds_that, same};

pub(super) async fn a_merge_patch_sets_and_null_deletes(w: Wire) -> Outcome {
    let made = w
        .post(&w.map(""), &map("a", &json!({"k": "v", "l": "w"})))
        .await?
        .expect(201)?;
    let patched = w
        .patch(As::Merge, &w.map("a"), &json!({"data": {"k": null, "m": "x"}}))
        .await?
        .expect(200)?;
    same!(patched["data"], json!({"l": "w", "m": "x"}));
    holds_that!(
        patched["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"],
        "the version stayed"
    );
    holds()
}

pub(super) async fn a_merge_patch_replaces_lists(w: Wire) -> Outcome {
    w.post(
        &w.widget(""),
        &widget("a", &json!({"size": 1, "list": ["a", "b"]})),
    )
    .await?
    .expect(201)?;
    let patched = w
        .patch(As::Merge, &w.widget("a"), &json!({"spec": {"list": ["c"]}}))
        .await?
        .expect(200)?;
    same!(patched["spec"]["list"], json!(["c"]));
    holds()
}

pub(super) async fn a_patch_that_changes_nothing_keeps_the_version(w: Wire) -> Outcome {
    let made = w
        .post(&w.map(""), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    let again = w
        .patch(As::Merge, &w.map("a"), &json!({"data": {"k": "v", "l": null}}))
        .await?
        .expect(200)?;
    same!(
        again["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    holds()
}

pub(super) async fn a_merge_patch_with_the_current_version_succeeds(w: Wire) -> Outcome {
    let made = w
        .post(&w.map(""), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    let version = &made["metadata"]["resourceVersion"];
    let patch = json!({"metadata": {"resourceVersion": version}, "data": {"k": "w"}});
    w.patch(As::Merge, &w.map("a"), &patch).await?.expect(200)?;
    w.patch(As::Merge, &w.map("a"), &patch)
        .await?
        .refused(409, "Conflict")?;
    holds()
}

pub(super) async fn a_json_patch_tests_and_changes(w: Wire) -> Outcome {
    w.post(&w.map(""), &map("a", &json!({"k": "v", "l": "w"})))
        .await?
        .expect(201)?;
    let patch = json!([
        {"op": "test", "path": "/data/k", "value": "v"},
        {"op": "replace", "path": "/data/k", "value": "x"},
        {"op": "remove", "path": "/data/l"},
        {"op": "add", "path": "/metadata/annotations", "value": {"a/b": "c"}},
    ]);
    let patched = w.patch(As::Json, &w.map("a"), &patch).await?.expect(200)?;
    same!(patched["data"], json!({"k": "x"}));
    let code = w.patch(As::Json, &w.map("a"), &patch).await?.code;
    same!(code, 422);
    holds()
}

pub(super) async fn a_strategic_patch_merges_lists_by_key(w: Wire) -> Outcome {
    let path = w.at("apps/v1", "statefulsets", "");
    w.post(&path, &stateful_set("s")).await?.expect(201)?;
    let container = json!({"name": "main", "env": [{"name": "B", "value": "2"}]});
    let patch = json!({"spec": {"template": {"spec": {"containers": [container, {"name": "side", "image": "side:1"}]}}}});
    let patched = w
        .patch(As::Strategic, &w.at("apps/v1", "statefulsets", "s"), &patch)
        .await?
        .expect(200)?;
    let containers = &patched["spec"]["template"]["spec"]["containers"];
    same!(containers.as_array().map_or(0, Vec::len), 2);
    let main = containers
        .as_array()
        .into_iter()
        .flatten()
        .find(|c| c["name"] == "main")
        .cloned()
        .unwrap_or_default();
    same!(main["image"], json!("registry.example.dev/main:1"));
    same!(main["env"].as_array().map_or(0, Vec::len), 2);
    let patch =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}}});
    let patched = w
        .patch(As::Strategic, &w.at("apps/v1", "statefulsets", "s"), &patch)
        .await?
        .expect(200)?;
    same!(
        patched["spec"]["template"]["spec"]["containers"]
            .as_array()
            .map_or(0, Vec::len),
        1
    );
    holds()
}

pub(super) async fn custom_objects_take_no_strategic_patch(w: Wire) -> Outcome {
    w.post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .expect(201)?;
    same!(
        w.patch(As::Strategic, &w.widget("a"), &json!({"spec": {"size": 2}}))
            .await?
            .code,
        415
    );
    holds()
}

pub(super) async fn a_patch_is_validated(w: Wire) -> Outcome {
    w.post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .expect(201)?;
    w.patch(As::Merge, &w.widget("a"), &json!({"spec": {"size": 0}}))
        .await?
        .refused(422, "Invalid")?;
    same!(
        w.get(&w.widget("a")).await?.expect(200)?["spec"]["size"],
        json!(1)
    );
    holds()
}
