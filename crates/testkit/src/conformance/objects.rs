//! Create, get and replace of single objects, and how failures look.

use serde_json::json;

use super::widget::{GROUP, map, widget};
use super::wire::{As, Outcome, Wire, holds, holds_that, same};

pub(super) async fn creating_an_object_answers_201_with_its_identity(w: Wire) -> Outcome {
    let made = w
        .post(&w.map(""), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    same!(made["data"], json!({"k": "v"}));
    same!(made["metadata"]["namespace"], json!(w.namespace));
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        holds_that!(made["metadata"][field].is_string(), "no {field} in {made}");
    }
    let read = w.get(&w.map("a")).await?.expect(200)?;
    same!(read, made);
    holds()
}

pub(super) async fn creating_an_object_twice_is_a_conflict(w: Wire) -> Outcome {
    w.post(&w.map(""), &map("a", &json!({}))).await?.expect(201)?;
    let refused = w
        .post(&w.map(""), &map("a", &json!({})))
        .await?
        .refused(409, "AlreadyExists")?;
    same!(refused["details"], json!({"name": "a", "kind": "configmaps"}));
    same!(refused["message"], json!("configmaps \"a\" already exists"));
    holds()
}

pub(super) async fn an_absent_object_is_named_in_the_failure(w: Wire) -> Outcome {
    let refused = w.get(&w.map("none")).await?.refused(404, "NotFound")?;
    same!(refused["details"], json!({"name": "none", "kind": "configmaps"}));
    let refused = w.get(&w.widget("none")).await?.refused(404, "NotFound")?;
    same!(
        refused["details"],
        json!({"name": "none", "group": GROUP, "kind": "widgets"})
    );
    same!(
        refused["message"],
        json!(format!("widgets.{GROUP} \"none\" not found"))
    );
    w.put(&w.map("none"), &map("none", &json!({})))
        .await?
        .refused(404, "NotFound")?;
    w.patch(As::Merge, &w.map("none"), &json!({"data": {}}))
        .await?
        .refused(404, "NotFound")?;
    w.delete(&w.map("none"), None).await?.refused(404, "NotFound")?;
    holds()
}

pub(super) async fn an_unknown_resource_is_not_found(w: Wire) -> Outcome {
    w.get(&w.at("v1", "unheardofs", ""))
        .await?
        .refused(404, "NotFound")?;
    same!(
        w.get(&w.at("unheard.example.dev/v1", "things", "")).await?.code,
        404
    );
    holds()
}

pub(super) async fn an_absent_namespace_takes_no_objects(w: Wire) -> Outcome {
    let path = format!("/api/v1/namespaces/{}-absent/configmaps", w.namespace);
    let refused = w
        .post(&path, &map("a", &json!({})))
        .await?
        .refused(404, "NotFound")?;
    same!(refused["details"]["kind"], json!("namespaces"));
    holds()
}

pub(super) async fn generated_names_start_with_their_prefix(w: Wire) -> Outcome {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "some-"}});
    let mut names = Vec::new();
    for _ in 0..2 {
        let made = w.post(&format!("{}?dryRun=All", w.map("")), &body).await?;
        let made = made.expect(201)?;
        names.push(made["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        same!(made["metadata"]["generateName"], json!("some-"));
    }
    holds_that!(
        names
            .iter()
            .all(|name| name.starts_with("some-") && name.len() == 10),
        "{names:?}"
    );
    holds_that!(names[0] != names[1], "{names:?}");
    holds()
}

pub(super) async fn invalid_names_are_refused_with_the_rule(w: Wire) -> Outcome {
    for name in ["Upper", "under_score", "-dash", "dot.", "with space"] {
        let refused = w
            .post(&w.map(""), &map(name, &json!({})))
            .await?
            .refused(422, "Invalid")?;
        same!(refused["details"]["causes"][0]["field"], json!("metadata.name"));
        same!(
            refused["details"]["causes"][0]["reason"],
            json!("FieldValueInvalid")
        );
    }
    let long = "a".repeat(254);
    w.post(&w.map(""), &map(&long, &json!({})))
        .await?
        .refused(422, "Invalid")?;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a.b"}, "spec": {"ports": [{"port": 1}]}});
    w.post(&w.at("v1", "services", ""), &service)
        .await?
        .refused(422, "Invalid")?;
    holds()
}

pub(super) async fn a_name_is_required(w: Wire) -> Outcome {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}});
    let refused = w.post(&w.map(""), &body).await?.refused(422, "Invalid")?;
    same!(
        refused["details"]["causes"][0]["reason"],
        json!("FieldValueRequired")
    );
    holds()
}

pub(super) async fn invalid_labels_are_refused(w: Wire) -> Outcome {
    let mut body = map("a", &json!({}));
    body["metadata"]["labels"] = json!({"ok": "not ok"});
    let refused = w.post(&w.map(""), &body).await?.refused(422, "Invalid")?;
    same!(refused["details"]["causes"][0]["field"], json!("metadata.labels"));
    body["metadata"]["labels"] = json!({"not ok": "ok"});
    w.post(&w.map(""), &body).await?.refused(422, "Invalid")?;
    body["metadata"]["labels"] = json!({"ok": "a".repeat(64)});
    w.post(&w.map(""), &body).await?.refused(422, "Invalid")?;
    holds()
}

pub(super) async fn a_namespace_in_the_body_must_be_that_of_the_path(w: Wire) -> Outcome {
    let mut body = map("a", &json!({}));
    body["metadata"]["namespace"] = json!("elsewhere");
    w.post(&w.map(""), &body).await?.refused(400, "BadRequest")?;
    holds()
}

pub(super) async fn a_body_of_another_kind_is_refused(w: Wire) -> Outcome {
    let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
    same!(w.post(&w.map(""), &body).await?.code, 400);
    holds()
}

pub(super) async fn a_version_cannot_be_chosen_on_creation(w: Wire) -> Outcome {
    let mut body = map("a", &json!({}));
    body["metadata"]["resourceVersion"] = json!("7");
    let code = w.post(&w.map(""), &body).await?.code;
    holds_that!(code >= 400, "the version was taken: {code}");
    holds()
}

pub(super) async fn a_dry_run_changes_nothing(w: Wire) -> Outcome {
    let dry = |path: String| format!("{path}?dryRun=All");
    w.post(&dry(w.map("")), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    w.get(&w.map("a")).await?.refused(404, "NotFound")?;
    let made = w
        .post(&w.map(""), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    w.post(&dry(w.map("")), &map("a", &json!({"k": "v"})))
        .await?
        .refused(409, "AlreadyExists")?;
    let patched = w
        .patch(As::Merge, &dry(w.map("a")), &json!({"data": {"k": "w"}}))
        .await?
        .expect(200)?;
    same!(patched["data"]["k"], json!("w"));
    same!(
        patched["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    w.put(&dry(w.map("a")), &map("a", &json!({"k": "x"})))
        .await?
        .expect(200)?;
    w.delete(&dry(w.map("a")), None).await?.expect(200)?;
    same!(w.get(&w.map("a")).await?.expect(200)?, made);
    holds()
}

pub(super) async fn a_replace_with_the_current_version_succeeds(w: Wire) -> Outcome {
    let mut object = w
        .post(&w.map(""), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    object["data"] = json!({"l": "w"});
    let replaced = w.put(&w.map("a"), &object).await?.expect(200)?;
    same!(replaced["data"], json!({"l": "w"}));
    holds_that!(
        replaced["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"],
        "the version stayed"
    );
    same!(replaced["metadata"]["uid"], object["metadata"]["uid"]);
    same!(
        replaced["metadata"]["creationTimestamp"],
        object["metadata"]["creationTimestamp"]
    );
    holds()
}

pub(super) async fn a_replace_with_a_stale_version_is_a_conflict(w: Wire) -> Outcome {
    let old = w
        .post(&w.map(""), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    w.patch(As::Merge, &w.map("a"), &json!({"data": {"k": "w"}}))
        .await?
        .expect(200)?;
    let refused = w.put(&w.map("a"), &old).await?.refused(409, "Conflict")?;
    same!(refused["details"], json!({"name": "a", "kind": "configmaps"}));
    let patch =
        json!({"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "data": {"k": "x"}});
    w.patch(As::Merge, &w.map("a"), &patch)
        .await?
        .refused(409, "Conflict")?;
    holds()
}

pub(super) async fn a_replace_that_changes_nothing_keeps_the_version(w: Wire) -> Outcome {
    let made = w
        .post(&w.map(""), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    let again = w.put(&w.map("a"), &made).await?.expect(200)?;
    same!(
        again["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    let made = w
        .post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .expect(201)?;
    let again = w.put(&w.widget("a"), &made).await?.expect(200)?;
    same!(again, made);
    holds()
}

pub(super) async fn a_config_map_can_be_replaced_without_a_version_but_a_custom_object_cannot(
    w: Wire,
) -> Outcome {
    w.post(&w.map(""), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    w.put(&w.map("a"), &map("a", &json!({"k": "w"})))
        .await?
        .expect(200)?;
    w.post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .expect(201)?;
    let refused = w
        .put(&w.widget("a"), &widget("a", &json!({"size": 2})))
        .await?
        .refused(422, "Invalid")?;
    same!(
        refused["details"]["causes"][0]["field"],
        json!("metadata.resourceVersion")
    );
    holds()
}

pub(super) async fn a_replace_cannot_change_name_or_uid(w: Wire) -> Outcome {
    let mut object = w
        .post(&w.map(""), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    object["metadata"]["uid"] = json!("11111111-2222-4333-8444-555555555555");
    w.put(&w.map("a"), &object).await?.refused(409, "Conflict")?;
    w.put(&w.map("a"), &map("b", &json!({})))
        .await?
        .refused(400, "BadRequest")?;
    w.patch(As::Merge, &w.map("a"), &json!({"metadata": {"name": "b"}}))
        .await?
        .refused(400, "BadRequest")?;
    holds()
}

pub(super) async fn system_fields_survive_a_replace(w: Wire) -> Outcome {
    let mut object = w
        .post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .expect(201)?;
    let before = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "creationTimestamp", "generation", "managedFields"] {
            metadata.remove(field);
        }
    }
    object["metadata"]["labels"] = json!({"a": "b"});
    let after = w.put(&w.widget("a"), &object).await?.expect(200)?;
    for field in ["uid", "creationTimestamp", "generation"] {
        same!(after["metadata"][field], before["metadata"][field]);
    }
    holds()
}

pub(super) async fn only_the_metadata_can_be_asked_for(w: Wire) -> Outcome {
    w.post(&w.map(""), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    let read = w
        .get_metadata(&w.map("a"), "PartialObjectMetadata")
        .await?
        .expect(200)?;
    same!(read["kind"], json!("PartialObjectMetadata"));
    holds_that!(read.get("data").is_none(), "data came too: {read}");
    w.get_metadata(&w.map(""), "PartialObjectMetadata")
        .await?
        .refused(406, "NotAcceptable")?;
    let list = w
        .get_metadata(&w.map(""), "PartialObjectMetadataList")
        .await?
        .expect(200)?;
    same!(list["kind"], json!("PartialObjectMetadataList"));
    holds()
}

pub(super) async fn system_fields_cannot_be_chosen_on_creation(w: Wire) -> Outcome {
    let mut body = widget("a", &json!({"size": 1}));
    for (field, value) in [
        ("uid", json!("11111111-2222-4333-8444-555555555555")),
        ("creationTimestamp", json!("2020-01-01T00:00:00Z")),
        ("deletionTimestamp", json!("2020-01-01T00:00:00Z")),
        ("generation", json!(7)),
        ("labels", json!(null)),
        ("annotations", json!({})),
    ] {
        body["metadata"][field] = value;
    }
    let made = w.post(&w.widget(""), &body).await?.expect(201)?;
    same!(made["metadata"]["generation"], json!(1));
    holds_that!(
        made["metadata"]["uid"] != body["metadata"]["uid"],
        "the uid was taken"
    );
    holds_that!(
        made["metadata"].get("deletionTimestamp").is_none(),
        "it is born dying: {made}"
    );
    holds_that!(
        made["metadata"].get("annotations").is_none(),
        "empty annotations stayed: {made}"
    );
    holds()
}

pub(super) async fn owners_must_be_named_in_full(w: Wire) -> Outcome {
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": "11111111-2222-4333-8444-555555555555"});
    let mut body = map("a", &json!({}));
    body["metadata"]["ownerReferences"] = json!([owner("")]);
    w.post(&w.map(""), &body).await?.refused(422, "Invalid")?;
    let (mut one, mut two) = (owner("x"), owner("y"));
    one["controller"] = json!(true);
    two["controller"] = json!(true);
    body["metadata"]["ownerReferences"] = json!([one, two]);
    w.post(&w.map(""), &body).await?.refused(422, "Invalid")?;
    body["metadata"]["ownerReferences"] = json!([one]);
    w.post(&w.map(""), &body).await?.expect(201)?;
    holds()
}
