//! Custom kinds: pruning, defaults, validation, generation.

use serde_json::{Value, json};

use super::widget::{GROUP, gadget, widget};
use super::wire::{As, Broken, Outcome, Wire, holds, holds_that, same};

async fn refused(w: &Wire, spec: Value) -> Result<Value, Broken> {
    w.post(&w.widget(""), &widget("a", &spec))
        .await?
        .refused(422, "Invalid")
}

fn cause<'a>(failure: &'a Value, field: &str) -> &'a Value {
    let list = failure["details"]["causes"].as_array();
    list.into_iter()
        .flatten()
        .find(|cause| cause["field"] == field)
        .unwrap_or(&Value::Null)
}

pub(super) async fn unknown_fields_are_pruned(w: Wire) -> Outcome {
    let spec =
        json!({"size": 1, "unheard": {"a": 1}, "free": {"any": [1]}, "parts": [{"name": "x", "odd": 1}]});
    let made = w.post(&w.widget(""), &widget("a", &spec)).await?.expect(201)?;
    holds_that!(made["spec"].get("unheard").is_none(), "unheard stayed: {made}");
    holds_that!(
        made["spec"]["parts"][0].get("odd").is_none(),
        "odd stayed: {made}"
    );
    same!(made["spec"]["free"], json!({"any": [1]}));
    holds()
}

pub(super) async fn defaults_are_filled_in(w: Wire) -> Outcome {
    let spec = json!({"size": 1, "limits": {"low": 3}, "parts": [{"name": "x"}]});
    let made = w.post(&w.widget(""), &widget("a", &spec)).await?.expect(201)?;
    same!(made["spec"]["mode"], json!("Slow"));
    same!(made["spec"]["limits"], json!({"low": 3, "high": 7}));
    same!(made["spec"]["parts"][0]["note"], json!("none"));
    let made = w
        .post(&w.widget(""), &widget("b", &json!({"size": 1})))
        .await?
        .expect(201)?;
    holds_that!(
        made["spec"].get("limits").is_none(),
        "an absent object got defaults: {made}"
    );
    holds()
}

pub(super) async fn null_counts_as_absent_unless_allowed(w: Wire) -> Outcome {
    let spec = json!({"size": 1, "mode": null, "code": null, "flag": null});
    let made = w.post(&w.widget(""), &widget("a", &spec)).await?.expect(201)?;
    same!(made["spec"]["mode"], json!("Slow"));
    holds_that!(made["spec"].get("code").is_none(), "a null stayed: {made}");
    holds_that!(
        made["spec"].get("flag") == Some(&Value::Null),
        "the allowed null is gone: {made}"
    );
    holds()
}

pub(super) async fn missing_fields_are_named(w: Wire) -> Outcome {
    let failure = refused(&w, json!({})).await?;
    same!(
        cause(&failure, "spec.size")["reason"],
        json!("FieldValueRequired")
    );
    same!(cause(&failure, "spec.size")["message"], json!("Required value"));
    same!(failure["details"]["kind"], json!("Widget"));
    let failure = refused(&w, json!({"size": 1, "parts": [{"count": 1}]})).await?;
    same!(
        cause(&failure, "spec.parts[0].name")["reason"],
        json!("FieldValueRequired")
    );
    holds()
}

pub(super) async fn numbers_out_of_range_are_refused(w: Wire) -> Outcome {
    let failure = refused(&w, json!({"size": 0})).await?;
    same!(
        cause(&failure, "spec.size")["message"],
        json!("Invalid value: 0: spec.size in body should be greater than or equal to 1")
    );
    let failure = refused(&w, json!({"size": 100, "mode": "Fast"})).await?;
    same!(
        cause(&failure, "spec.size")["message"],
        json!("Invalid value: 100: spec.size in body should be less than or equal to 99")
    );
    holds()
}

pub(super) async fn wrong_types_are_refused(w: Wire) -> Outcome {
    let failure = refused(&w, json!({"size": "three"})).await?;
    same!(
        cause(&failure, "spec.size")["reason"],
        json!("FieldValueTypeInvalid")
    );
    let failure = refused(&w, json!({"size": 1, "list": "a"})).await?;
    same!(
        cause(&failure, "spec.list")["reason"],
        json!("FieldValueTypeInvalid")
    );
    let failure = refused(&w, json!({"size": 1, "limits": []})).await?;
    same!(
        cause(&failure, "spec.limits")["reason"],
        json!("FieldValueTypeInvalid")
    );
    let failure = refused(&w, json!({"size": 1, "flag": "yes"})).await?;
    same!(
        cause(&failure, "spec.flag")["reason"],
        json!("FieldValueTypeInvalid")
    );
    refused(&w, json!({"size": 1.5})).await?;
    refused(&w, json!({"size": 1, "table": {"a": 1}})).await?;
    holds()
}

pub(super) async fn an_int_or_string_takes_both(w: Wire) -> Outcome {
    w.post(&w.widget(""), &widget("a", &json!({"size": 1, "port": 80})))
        .await?
        .expect(201)?;
    w.post(&w.widget(""), &widget("b", &json!({"size": 1, "port": "http"})))
        .await?
        .expect(201)?;
    refused(&w, json!({"size": 1, "port": true})).await?;
    holds()
}

pub(super) async fn values_outside_an_enumeration_are_refused(w: Wire) -> Outcome {
    let failure = refused(&w, json!({"size": 1, "mode": "Odd"})).await?;
    same!(
        cause(&failure, "spec.mode")["reason"],
        json!("FieldValueNotSupported")
    );
    holds()
}

pub(super) async fn patterns_and_lengths_hold(w: Wire) -> Outcome {
    let failure = refused(&w, json!({"size": 1, "code": "A1"})).await?;
    same!(
        cause(&failure, "spec.code")["message"],
        json!("Invalid value: \"A1\": spec.code in body should match '^[a-z]+$'")
    );
    let failure = refused(&w, json!({"size": 1, "code": "abcdef"})).await?;
    same!(cause(&failure, "spec.code")["reason"], json!("FieldValueTooLong"));
    refused(&w, json!({"size": 1, "name": ""})).await?;
    let failure = refused(&w, json!({"size": 1, "list": ["a", "b", "c", "d"]})).await?;
    same!(cause(&failure, "spec.list")["reason"], json!("FieldValueTooMany"));
    refused(&w, json!({"size": 1, "when": "yesterday"})).await?;
    w.post(
        &w.widget(""),
        &widget("a", &json!({"size": 1, "when": "2026-01-02T03:04:05Z"})),
    )
    .await?
    .expect(201)?;
    holds()
}

pub(super) async fn several_faults_are_all_named(w: Wire) -> Outcome {
    let failure = refused(&w, json!({"size": 0, "mode": "Odd", "code": "1"})).await?;
    for field in ["spec.size", "spec.mode", "spec.code"] {
        holds_that!(
            cause(&failure, field).is_object(),
            "{field} is not named in {failure}"
        );
    }
    holds()
}

pub(super) async fn keyed_lists_and_sets_have_no_doubles(w: Wire) -> Outcome {
    let failure = refused(&w, json!({"size": 1, "parts": [{"name": "x"}, {"name": "x"}]})).await?;
    same!(
        cause(&failure, "spec.parts[1]")["reason"],
        json!("FieldValueDuplicate")
    );
    let failure = refused(&w, json!({"size": 1, "tags": ["x", "x"]})).await?;
    same!(
        cause(&failure, "spec.tags[1]")["reason"],
        json!("FieldValueDuplicate")
    );
    holds()
}

pub(super) async fn rules_are_evaluated(w: Wire) -> Outcome {
    let failure = refused(&w, json!({"size": 9})).await?;
    let message = cause(&failure, "spec")["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    holds_that!(message.contains("nine and more need mode Fast"), "{failure}");
    w.post(&w.widget(""), &widget("a", &json!({"size": 9, "mode": "Fast"})))
        .await?
        .expect(201)?;
    holds()
}

pub(super) async fn transition_rules_compare_with_the_old_object(w: Wire) -> Outcome {
    w.post(&w.widget(""), &widget("a", &json!({"size": 1, "name": "x"})))
        .await?
        .expect(201)?;
    let failure = w
        .patch(As::Merge, &w.widget("a"), &json!({"spec": {"name": "y"}}))
        .await?
        .refused(422, "Invalid")?;
    let message = cause(&failure, "spec.name")["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    holds_that!(message.contains("name cannot change"), "{failure}");
    w.patch(As::Merge, &w.widget("a"), &json!({"spec": {"size": 2}}))
        .await?
        .expect(200)?;
    holds()
}

pub(super) async fn the_generation_counts_changes_of_the_spec(w: Wire) -> Outcome {
    let made = w
        .post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .expect(201)?;
    same!(made["metadata"]["generation"], json!(1));
    let labelled = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
    let after = w.patch(As::Merge, &w.widget("a"), &labelled).await?.expect(200)?;
    same!(after["metadata"]["generation"], json!(1));
    let path = format!("{}/status", w.widget("a"));
    let after = w
        .patch(As::Merge, &path, &json!({"status": {"phase": "Up"}}))
        .await?
        .expect(200)?;
    same!(after["metadata"]["generation"], json!(1));
    let after = w
        .patch(As::Merge, &w.widget("a"), &json!({"spec": {"size": 2}}))
        .await?
        .expect(200)?;
    same!(after["metadata"]["generation"], json!(2));
    let after = w
        .patch(As::Merge, &w.widget("a"), &json!({"metadata": {"generation": 7}}))
        .await?
        .expect(200)?;
    same!(after["metadata"]["generation"], json!(2));
    holds()
}

pub(super) async fn without_a_status_subresource_status_is_a_field_like_others(w: Wire) -> Outcome {
    let gadgets = |name: &str| w.at(&format!("{GROUP}/v1"), "gadgets", name);
    let mut body = gadget("a", "x");
    body["status"] = json!({"phase": "New"});
    let made = w.post(&gadgets(""), &body).await?.expect(201)?;
    same!(made["status"]["phase"], json!("New"));
    let after = w
        .patch(As::Merge, &gadgets("a"), &json!({"status": {"phase": "Up"}}))
        .await?
        .expect(200)?;
    same!(after["status"]["phase"], json!("Up"));
    same!(after["metadata"]["generation"], json!(2));
    same!(w.get(&format!("{}/status", gadgets("a"))).await?.code, 404);
    holds()
}

pub(super) async fn a_custom_object_needs_its_kind(w: Wire) -> Outcome {
    let body = json!({"metadata": {"name": "a"}, "spec": {"size": 1}});
    same!(w.post(&w.widget(""), &body).await?.code, 400);
    holds()
}

pub(super) async fn rules_do_not_see_nulls(w: Wire) -> Outcome {
    let body = widget("a", &json!({"size": 1, "turns": null}));
    let made = w.post(&w.widget(""), &body).await?.expect(201)?;
    same!(made["spec"]["turns"], Value::Null);
    let more = json!({"spec": {"turns": 1000}});
    w.patch(As::Merge, &w.widget("a"), &more)
        .await?
        .refused(422, "Invalid")?;
    holds()
}

pub(super) async fn an_enumeration_holds_for_a_null_that_is_allowed(w: Wire) -> Outcome {
    let body = widget("a", &json!({"size": 1, "pace": null}));
    let refused = w.post(&w.widget(""), &body).await?.refused(422, "Invalid")?;
    let causes = refused["details"]["causes"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    holds_that!(
        causes
            .iter()
            .any(|cause| cause["reason"] == "FieldValueNotSupported" && cause["field"] == "spec.pace"),
        "{refused}"
    );
    w.post(&w.widget(""), &widget("a", &json!({"size": 1, "pace": 7})))
        .await?
        .refused(422, "Invalid")?;
    holds()
}

pub(super) async fn a_number_beyond_its_format_is_refused_and_rules_still_speak(w: Wire) -> Outcome {
    let body = widget("a", &json!({"size": 1, "turns": 99_999_999_999_i64}));
    let refused = w.post(&w.widget(""), &body).await?.refused(422, "Invalid")?;
    let text = refused["message"].as_str().unwrap_or_default();
    holds_that!(
        text.contains("too many turns") && text.contains("int32"),
        "{refused}"
    );
    holds()
}

pub(super) async fn a_rule_that_points_below_what_it_judges_shows_no_value(w: Wire) -> Outcome {
    let body = widget("a", &json!({"size": 60, "mode": "Fast"}));
    let refused = w.post(&w.widget(""), &body).await?.refused(422, "Invalid")?;
    same!(refused["details"]["causes"][0]["field"], json!("spec.code"));
    same!(
        refused["details"]["causes"][0]["message"],
        json!("Invalid value: large ones need a code")
    );
    holds()
}
