//! Server-side apply: ownership, conflicts, removal, lists, subresources.

use serde_json::{Value, json};

use super::widget::{GROUP, map, stateful_set, widget};
use super::wire::{As, Outcome, Wire, holds, holds_that, same};

fn entry<'a>(object: &'a Value, manager: &str) -> &'a Value {
    let list = object["metadata"]["managedFields"].as_array();
    list.into_iter()
        .flatten()
        .find(|entry| entry["manager"] == manager)
        .unwrap_or(&Value::Null)
}

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

pub(super) async fn a_field_of_another_manager_is_a_conflict_unless_forced(w: Wire) -> Outcome {
    w.patch(
        As::Apply("one"),
        &w.map("a"),
        &map("a", &json!({"k": "v", "l": "w"})),
    )
    .await?
    .expect(201)?;
    let wanted = map("a", &json!({"k": "x"}));
    let refused = w
        .patch(As::Apply("two"), &w.map("a"), &wanted)
        .await?
        .refused(409, "Conflict")?;
    same!(
        refused["details"]["causes"][0]["reason"],
        json!("FieldManagerConflict")
    );
    same!(refused["details"]["causes"][0]["field"], json!(".data.k"));
    same!(
        refused["details"]["causes"][0]["message"],
        json!("conflict with \"one\"")
    );
    let forced = w
        .patch(As::Force("two"), &w.map("a"), &wanted)
        .await?
        .expect(200)?;
    same!(forced["data"], json!({"k": "x", "l": "w"}));
    same!(entry(&forced, "one")["fieldsV1"], json!({"f:data": {"f:l": {}}}));
    same!(entry(&forced, "two")["fieldsV1"], json!({"f:data": {"f:k": {}}}));
    holds()
}

pub(super) async fn several_conflicts_are_all_named(w: Wire) -> Outcome {
    w.patch(
        As::Apply("one"),
        &w.map("a"),
        &map("a", &json!({"k": "v", "l": "w"})),
    )
    .await?
    .expect(201)?;
    let wanted = map("a", &json!({"k": "x", "l": "y"}));
    let refused = w
        .patch(As::Apply("two"), &w.map("a"), &wanted)
        .await?
        .refused(409, "Conflict")?;
    same!(refused["details"]["causes"].as_array().map_or(0, Vec::len), 2);
    holds()
}

pub(super) async fn the_same_value_is_shared_and_not_a_conflict(w: Wire) -> Outcome {
    w.patch(As::Apply("one"), &w.map("a"), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    let shared = w
        .patch(As::Apply("two"), &w.map("a"), &map("a", &json!({"k": "v"})))
        .await?
        .expect(200)?;
    for manager in ["one", "two"] {
        same!(
            entry(&shared, manager)["fieldsV1"],
            json!({"f:data": {"f:k": {}}})
        );
    }
    let kept = w
        .patch(As::Apply("one"), &w.map("a"), &map("a", &json!({})))
        .await?
        .expect(200)?;
    same!(kept["data"], json!({"k": "v"}));
    let gone = w
        .patch(As::Apply("two"), &w.map("a"), &map("a", &json!({})))
        .await?
        .expect(200)?;
    holds_that!(
        gone["data"].get("k").is_none(),
        "the field stayed without owners: {gone}"
    );
    holds()
}

pub(super) async fn what_a_manager_applies_no_longer_is_removed(w: Wire) -> Outcome {
    let body = widget(
        "a",
        &json!({"size": 2, "code": "abc", "table": {"k": "v", "l": "w"}}),
    );
    w.patch(As::Apply("one"), &w.widget("a"), &body)
        .await?
        .expect(201)?;
    let body = widget("a", &json!({"size": 2, "table": {"k": "v"}}));
    let after = w
        .patch(As::Apply("one"), &w.widget("a"), &body)
        .await?
        .expect(200)?;
    holds_that!(after["spec"].get("code").is_none(), "code stayed: {after}");
    same!(after["spec"]["table"], json!({"k": "v"}));
    let body = widget("a", &json!({"size": 2}));
    let after = w
        .patch(As::Apply("one"), &w.widget("a"), &body)
        .await?
        .expect(200)?;
    holds_that!(after["spec"].get("table").is_none(), "the table stayed: {after}");
    holds()
}

pub(super) async fn a_merge_patch_takes_ownership(w: Wire) -> Outcome {
    w.patch(
        As::Apply("one"),
        &w.map("a"),
        &map("a", &json!({"k": "v", "l": "w"})),
    )
    .await?
    .expect(201)?;
    let path = format!("{}?fieldManager=hand", w.map("a"));
    let after = w
        .patch(As::Merge, &path, &json!({"data": {"k": "x"}}))
        .await?
        .expect(200)?;
    same!(entry(&after, "one")["fieldsV1"], json!({"f:data": {"f:l": {}}}));
    same!(entry(&after, "hand")["operation"], json!("Update"));
    same!(entry(&after, "hand")["fieldsV1"], json!({"f:data": {"f:k": {}}}));
    let wanted = map("a", &json!({"k": "v", "l": "w"}));
    let refused = w
        .patch(As::Apply("one"), &w.map("a"), &wanted)
        .await?
        .refused(409, "Conflict")?;
    same!(refused["details"]["causes"][0]["field"], json!(".data.k"));
    holds()
}

pub(super) async fn a_creation_owns_all_it_set(w: Wire) -> Outcome {
    let path = format!("{}?fieldManager=maker", w.widget(""));
    let made = w
        .post(
            &path,
            &widget("a", &json!({"size": 1, "tags": ["x"], "parts": [{"name": "p"}]})),
        )
        .await?;
    let made = made.expect(201)?;
    holds_that!(entry(&made, "maker")["fieldsV1"]["f:spec"].is_object(), "{made}");
    holds_that!(
        entry(&made, "maker")["fieldsV1"]["f:spec"]["f:parts"]["k:{\"name\":\"p\"}"].is_object(),
        "{made}"
    );
    let plain = w
        .post(&w.map(""), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    same!(
        entry(&plain, "conformance")["fieldsV1"],
        json!({"f:data": {".": {}, "f:k": {}}})
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

pub(super) async fn a_removed_field_falls_back_to_its_default(w: Wire) -> Outcome {
    let body = widget("a", &json!({"size": 2, "mode": "Fast", "limits": {"high": 9}}));
    w.patch(As::Apply("one"), &w.widget("a"), &body)
        .await?
        .expect(201)?;
    let body = widget("a", &json!({"size": 2, "limits": {"low": 2}}));
    let after = w
        .patch(As::Apply("one"), &w.widget("a"), &body)
        .await?
        .expect(200)?;
    same!(after["spec"]["mode"], json!("Slow"));
    same!(after["spec"]["limits"], json!({"low": 2, "high": 7}));
    let after = w
        .patch(
            As::Merge,
            &w.widget("a"),
            &json!({"spec": {"limits": {"low": null}}}),
        )
        .await?
        .expect(200)?;
    same!(after["spec"]["limits"], json!({"low": 1, "high": 7}));
    holds()
}

pub(super) async fn what_an_update_removes_is_owned_no_longer(w: Wire) -> Outcome {
    w.patch(
        As::Apply("one"),
        &w.map("a"),
        &map("a", &json!({"k": "v", "l": "w"})),
    )
    .await?
    .expect(201)?;
    let after = w
        .patch(As::Merge, &w.map("a"), &json!({"data": {"k": null}}))
        .await?
        .expect(200)?;
    same!(entry(&after, "one")["fieldsV1"], json!({"f:data": {"f:l": {}}}));
    let after = w
        .patch(As::Apply("two"), &w.map("a"), &map("a", &json!({"k": "x"})))
        .await?
        .expect(200)?;
    same!(after["data"], json!({"k": "x", "l": "w"}));
    holds()
}

pub(super) async fn an_empty_list_of_managers_forgets_them(w: Wire) -> Outcome {
    w.patch(As::Apply("one"), &w.map("a"), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    let patch = json!({"metadata": {"managedFields": [{}]}});
    let after = w.patch(As::Merge, &w.map("a"), &patch).await?.expect(200)?;
    holds_that!(
        entry(&after, "one").is_null(),
        "the manager is still known: {after}"
    );
    w.patch(As::Apply("two"), &w.map("a"), &map("a", &json!({"k": "x"})))
        .await?;
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
