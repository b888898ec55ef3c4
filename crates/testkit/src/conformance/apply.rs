//! Server-side apply: creation, preconditions, validation, subresources. Whose a field is, is in `owners`.

use serde_json::{Value, json};

use super::owners::entry;
use super::widget::{GROUP, map, stateful_set, widget};
use super::wire::{As, Outcome, Wire, holds, holds_that, same};

fn status(name: &str, conditions: &Value) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "Widget",
        "metadata": {"name": name},
        "status": {"conditions": conditions},
    })
}

pub(super) async fn applying_an_absent_object_creates_it(w: Wire) -> Outcome {
    let made = w
        .patch(As::Apply("one"), &w.map("a"), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    same!(entry(&made, "one")["operation"], json!("Apply"));
    same!(entry(&made, "one")["fieldsV1"], json!({"f:data": {"f:k": {}}}));
    let again = w
        .patch(As::Apply("one"), &w.map("a"), &map("a", &json!({"k": "w"})))
        .await?
        .expect(200)?;
    same!(again["data"]["k"], json!("w"));
    holds()
}

pub(super) async fn applying_the_same_again_changes_nothing(w: Wire) -> Outcome {
    let made = w
        .patch(As::Apply("one"), &w.map("a"), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    let again = w
        .patch(As::Apply("one"), &w.map("a"), &map("a", &json!({"k": "v"})))
        .await?
        .expect(200)?;
    same!(
        again["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    let body = widget("a", &json!({"size": 2, "parts": [{"name": "x", "count": 1}]}));
    let made = w
        .patch(As::Apply("one"), &w.widget("a"), &body)
        .await?
        .expect(201)?;
    let again = w
        .patch(As::Apply("one"), &w.widget("a"), &body)
        .await?
        .expect(200)?;
    same!(again, made);
    let body = stateful_set("s");
    let path = w.at("apps/v1", "statefulsets", "s");
    let made = w.patch(As::Apply("one"), &path, &body).await?.expect(201)?;
    let again = w.patch(As::Apply("one"), &path, &body).await?.expect(200)?;
    same!(
        again["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    holds()
}

pub(super) async fn status_is_applied_by_its_subresource_only(w: Wire) -> Outcome {
    w.post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .expect(201)?;
    let path = format!("{}/status", w.widget("a"));
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let after = w
        .patch(As::Apply("one"), &path, &status("a", &ready))
        .await?
        .expect(200)?;
    same!(after["status"]["conditions"], ready);
    same!(entry(&after, "one")["subresource"], json!("status"));
    let synced = json!([{"type": "Synced", "status": "False", "reason": "No"}]);
    let after = w
        .patch(As::Apply("two"), &path, &status("a", &synced))
        .await?
        .expect(200)?;
    same!(after["status"]["conditions"].as_array().map_or(0, Vec::len), 2);
    let mut both = widget("a", &json!({"size": 2}));
    both["status"] = json!({"phase": "Ignored"});
    let after = w
        .patch(As::Force("three"), &w.widget("a"), &both)
        .await?
        .expect(200)?;
    holds_that!(
        after["status"].get("phase").is_none(),
        "the status was written: {after}"
    );
    both["spec"]["size"] = json!(7);
    let after = w.patch(As::Apply("four"), &path, &both).await?.expect(200)?;
    same!(after["spec"]["size"], json!(2));
    same!(after["status"]["phase"], json!("Ignored"));
    let again = w
        .patch(As::Apply("one"), &path, &status("a", &ready))
        .await?
        .expect(200)?;
    same!(
        again["metadata"]["resourceVersion"],
        after["metadata"]["resourceVersion"]
    );
    w.patch(
        As::Apply("one"),
        &format!("{}/status", w.widget("none")),
        &status("none", &ready),
    )
    .await?
    .refused(404, "NotFound")?;
    holds()
}

pub(super) async fn an_applied_version_is_a_precondition(w: Wire) -> Outcome {
    let made = w
        .patch(As::Apply("one"), &w.map("a"), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    let mut body = map("a", &json!({"k": "w"}));
    body["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
    w.patch(As::Apply("one"), &w.map("a"), &body).await?.expect(200)?;
    body["data"]["k"] = json!("x");
    w.patch(As::Apply("one"), &w.map("a"), &body)
        .await?
        .refused(409, "Conflict")?;
    holds()
}

pub(super) async fn an_applied_uid_must_exist(w: Wire) -> Outcome {
    let mut body = map("a", &json!({"k": "v"}));
    body["metadata"]["uid"] = json!("11111111-2222-4333-8444-555555555555");
    w.patch(As::Apply("one"), &w.map("a"), &body)
        .await?
        .refused(409, "Conflict")?;
    w.post(&w.map(""), &map("a", &json!({}))).await?.expect(201)?;
    let refused = w
        .patch(As::Force("one"), &w.map("a"), &body)
        .await?
        .refused(422, "Invalid")?;
    same!(refused["details"]["causes"][0]["field"], json!("metadata.uid"));
    holds()
}

pub(super) async fn an_apply_needs_a_manager_and_no_managed_fields(w: Wire) -> Outcome {
    let path = format!("{}?fieldManager=", w.map("a"));
    same!(
        w.patch(As::Apply(""), &path, &map("a", &json!({}))).await?.code,
        422
    );
    let mut body = map("a", &json!({}));
    body["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    same!(w.patch(As::Apply("one"), &w.map("a"), &body).await?.code, 400);
    holds()
}

pub(super) async fn an_applied_object_is_validated(w: Wire) -> Outcome {
    w.patch(
        As::Apply("one"),
        &w.widget("a"),
        &widget("a", &json!({"size": 0})),
    )
    .await?
    .refused(422, "Invalid")?;
    w.patch(
        As::Apply("one"),
        &w.widget("a"),
        &widget("a", &json!({"size": 1})),
    )
    .await?
    .expect(201)?;
    w.patch(
        As::Apply("one"),
        &w.widget("a"),
        &widget("a", &json!({"size": 100})),
    )
    .await?
    .refused(422, "Invalid")?;
    holds()
}

pub(super) async fn an_applied_unknown_field_is_refused(w: Wire) -> Outcome {
    let body = widget("a", &json!({"size": 1, "unheard": true}));
    let code = w.patch(As::Apply("one"), &w.widget("a"), &body).await?.code;
    holds_that!(code >= 400, "an unknown field was applied: {code}");
    holds()
}

pub(super) async fn an_apply_can_be_tried_without_effect(w: Wire) -> Outcome {
    let path = format!("{}?dryRun=All", w.widget("a"));
    w.patch(As::Apply("one"), &path, &widget("a", &json!({"size": 2})))
        .await?
        .expect(201)?;
    w.get(&w.widget("a")).await?.refused(404, "NotFound")?;
    let made = w
        .patch(
            As::Apply("one"),
            &w.widget("a"),
            &widget("a", &json!({"size": 2})),
        )
        .await?
        .expect(201)?;
    let tried = w
        .patch(As::Apply("one"), &path, &widget("a", &json!({"size": 3})))
        .await?
        .expect(200)?;
    same!(tried["spec"]["size"], json!(3));
    same!(w.get(&w.widget("a")).await?.expect(200)?, made);
    holds()
}

pub(super) async fn an_applied_null_is_no_value_of_a_field_that_has_no_default(w: Wire) -> Outcome {
    let body = widget("a", &json!({"size": 2, "code": null}));
    w.patch(As::Apply("one"), &w.widget("a"), &body)
        .await?
        .refused(422, "Invalid")?;
    let body = widget("a", &json!({"size": 2, "mode": null}));
    let made = w
        .patch(As::Apply("one"), &w.widget("a"), &body)
        .await?
        .expect(201)?;
    same!(made["spec"]["mode"], json!("Slow"));
    holds()
}

pub(super) async fn two_appliers_of_status_and_spec_do_not_meet(w: Wire) -> Outcome {
    w.patch(
        As::Apply("one"),
        &w.widget("a"),
        &widget("a", &json!({"size": 2})),
    )
    .await?
    .expect(201)?;
    let path = format!("{}/status", w.widget("a"));
    let ready = json!([{"type": "Ready", "status": "True", "reason": "Yes"}]);
    w.patch(As::Apply("one"), &path, &status("a", &ready))
        .await?
        .expect(200)?;
    let after = w
        .patch(
            As::Apply("one"),
            &w.widget("a"),
            &widget("a", &json!({"size": 3})),
        )
        .await?
        .expect(200)?;
    same!(after["status"]["conditions"], ready);
    let less = json!([{"type": "Ready", "status": "False"}]);
    let after = w
        .patch(As::Apply("one"), &path, &status("a", &less))
        .await?
        .expect(200)?;
    same!(after["status"]["conditions"], less);
    same!(after["spec"]["size"], json!(3));
    let after = w
        .patch(As::Apply("one"), &path, &status("a", &json!([])))
        .await?
        .expect(200)?;
    holds_that!(
        after["status"]["conditions"].as_array().is_none_or(Vec::is_empty),
        "conditions stayed: {after}"
    );
    holds()
}
