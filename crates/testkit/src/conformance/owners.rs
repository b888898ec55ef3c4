//! Server-side apply: which manager owns a field, and what becomes of it.

use serde_json::{Value, json};

use super::widget::{map, widget};
use super::wire::{As, Outcome, Wire, holds, holds_that, same};

/// The record of one manager.
pub(super) fn entry<'a>(object: &'a Value, manager: &str) -> &'a Value {
    let list = object["metadata"]["managedFields"].as_array();
    list.into_iter()
        .flatten()
        .find(|entry| entry["manager"] == manager)
        .unwrap_or(&Value::Null)
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
