//! Writes that name the version they were decided on: none of them may hit an object that has changed since.

use serde_json::{Value, json};

use super::widget::{map, stateful_set, widget};
use super::wire::{As, Broken, Outcome, Wire, holds, same};

const NOBODY: &str = "11111111-2222-4333-8444-555555555555";

/// The fences of an object, as metadata of a write.
fn fences(seen: &Value) -> Value {
    json!({
        "uid": seen["metadata"]["uid"],
        "resourceVersion": seen["metadata"]["resourceVersion"],
    })
}

/// A widget as an applier that has seen `seen` sends it.
fn applied(seen: &Value, size: u8) -> Value {
    let mut body = widget("a", &json!({"size": size}));
    body["metadata"]["uid"] = seen["metadata"]["uid"].clone();
    body["metadata"]["resourceVersion"] = seen["metadata"]["resourceVersion"].clone();
    body
}

/// A widget as first seen and as it is now.
async fn changed_widget(w: &Wire) -> Result<(Value, Value), Broken> {
    let seen = w
        .patch(
            As::Force("one"),
            &w.widget("a"),
            &widget("a", &json!({"size": 1})),
        )
        .await?
        .expect(201)?;
    let label = json!({"metadata": {"labels": {"by": "hand"}}});
    let now = w.patch(As::Merge, &w.widget("a"), &label).await?.expect(200)?;
    Ok((seen, now))
}

pub(super) async fn a_forced_apply_of_a_stale_version_is_a_conflict(w: Wire) -> Outcome {
    let (seen, now) = changed_widget(&w).await?;
    w.patch(As::Force("one"), &w.widget("a"), &applied(&seen, 2))
        .await?
        .refused(409, "Conflict")?;
    same!(w.get(&w.widget("a")).await?.expect(200)?, now);
    let after = w
        .patch(As::Force("one"), &w.widget("a"), &applied(&now, 2))
        .await?
        .expect(200)?;
    same!(after["spec"]["size"], json!(2));
    same!(after["metadata"]["labels"]["by"], json!("hand"));
    holds()
}

pub(super) async fn a_stale_apply_is_a_conflict_even_if_it_would_change_nothing(w: Wire) -> Outcome {
    let (seen, now) = changed_widget(&w).await?;
    w.patch(As::Force("one"), &w.widget("a"), &applied(&seen, 1))
        .await?
        .refused(409, "Conflict")?;
    let same_again = w
        .patch(As::Force("one"), &w.widget("a"), &applied(&now, 1))
        .await?
        .expect(200)?;
    same!(
        same_again["metadata"]["resourceVersion"],
        now["metadata"]["resourceVersion"]
    );
    holds()
}

pub(super) async fn an_apply_meant_for_a_deleted_object_makes_no_new_one(w: Wire) -> Outcome {
    let (_, now) = changed_widget(&w).await?;
    w.delete(&w.widget("a"), None).await?.expect(200)?;
    w.patch(As::Force("one"), &w.widget("a"), &applied(&now, 2))
        .await?
        .refused(409, "Conflict")?;
    w.get(&w.widget("a")).await?.refused(404, "NotFound")?;
    holds()
}

pub(super) async fn an_applied_version_alone_does_not_keep_from_creating(w: Wire) -> Outcome {
    let (_, now) = changed_widget(&w).await?;
    w.delete(&w.widget("a"), None).await?.expect(200)?;
    let mut body = applied(&now, 2);
    body["metadata"]["uid"] = Value::Null;
    let made = w
        .patch(As::Force("one"), &w.widget("a"), &body)
        .await?
        .expect(201)?;
    same!(made["spec"]["size"], json!(2));
    holds()
}

pub(super) async fn a_fenced_deletion_needs_the_uid_and_the_version(w: Wire) -> Outcome {
    let (seen, now) = changed_widget(&w).await?;
    let options = |fences: Value| json!({"propagationPolicy": "Background", "preconditions": fences});
    let mut other = fences(&now);
    other["uid"] = json!(NOBODY);
    for wrong in [fences(&seen), other] {
        w.delete(&w.widget("a"), Some(&options(wrong)))
            .await?
            .refused(409, "Conflict")?;
        same!(w.get(&w.widget("a")).await?.expect(200)?, now);
    }
    w.delete(&w.widget("a"), Some(&options(fences(&now))))
        .await?
        .expect(200)?;
    w.delete(&w.widget("a"), Some(&options(fences(&now))))
        .await?
        .refused(404, "NotFound")?;
    w.post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .expect(201)?;
    w.delete(&w.widget("a"), Some(&options(fences(&now))))
        .await?
        .refused(409, "Conflict")?;
    holds()
}

pub(super) async fn a_fenced_deletion_of_a_held_object_only_marks_it_once(w: Wire) -> Outcome {
    let mut body = map("a", &json!({}));
    body["metadata"]["finalizers"] = json!(["example.dev/one"]);
    let made = w.post(&w.map(""), &body).await?.expect(201)?;
    let options = |seen: &Value| json!({"preconditions": fences(seen)});
    w.delete(&w.map("a"), Some(&options(&made))).await?.expect(200)?;
    let dying = w.get(&w.map("a")).await?.expect(200)?;
    w.delete(&w.map("a"), Some(&options(&made)))
        .await?
        .refused(409, "Conflict")?;
    w.delete(&w.map("a"), Some(&options(&dying))).await?.expect(200)?;
    same!(w.get(&w.map("a")).await?.expect(200)?, dying);
    holds()
}

pub(super) async fn a_status_patch_of_a_stale_version_is_a_conflict(w: Wire) -> Outcome {
    let (seen, now) = changed_widget(&w).await?;
    let path = format!("{}/status?fieldManager=one", w.widget("a"));
    let patch = |seen: &Value| json!({"metadata": fences(seen), "status": {"phase": "Running"}});
    w.patch(As::Merge, &path, &patch(&seen))
        .await?
        .refused(409, "Conflict")?;
    same!(w.get(&w.widget("a")).await?.expect(200)?, now);
    let after = w.patch(As::Merge, &path, &patch(&now)).await?.expect(200)?;
    same!(after["status"]["phase"], json!("Running"));
    same!(after["metadata"]["generation"], now["metadata"]["generation"]);
    let again = w.patch(As::Merge, &path, &patch(&after)).await?.expect(200)?;
    same!(
        again["metadata"]["resourceVersion"],
        after["metadata"]["resourceVersion"]
    );
    holds()
}

pub(super) async fn a_replaced_status_of_a_stale_version_is_a_conflict(w: Wire) -> Outcome {
    let (mut seen, mut now) = changed_widget(&w).await?;
    let path = format!("{}/status", w.widget("a"));
    seen["status"] = json!({"phase": "Running"});
    w.put(&path, &seen).await?.refused(409, "Conflict")?;
    now["status"] = json!({"phase": "Running"});
    let mut other = now.clone();
    other["metadata"]["uid"] = json!(NOBODY);
    w.put(&path, &other).await?.refused(409, "Conflict")?;
    now["spec"]["size"] = json!(9);
    let after = w.put(&path, &now).await?.expect(200)?;
    same!(after["status"]["phase"], json!("Running"));
    same!(after["spec"]["size"], json!(1));
    holds()
}

pub(super) async fn a_status_patch_keeps_what_its_writer_does_not_know(w: Wire) -> Outcome {
    changed_widget(&w).await?;
    let path = format!("{}/status", w.widget("a"));
    let newer = json!({"status": {
        "phase": "Running",
        "size": 3,
        "notes": {"by": "a newer writer", "deep": {"a": 1}},
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let seen = w.patch(As::Merge, &path, &newer).await?.expect(200)?;
    let older = json!({
        "metadata": fences(&seen),
        "status": {"phase": "Done", "notes": {"deep": {"b": 2}}},
    });
    let after = w.patch(As::Merge, &path, &older).await?.expect(200)?;
    same!(
        after["status"],
        json!({
            "phase": "Done",
            "size": 3,
            "notes": {"by": "a newer writer", "deep": {"a": 1, "b": 2}},
            "conditions": [{"type": "Ready", "status": "True"}],
        })
    );
    holds()
}

pub(super) async fn a_status_patch_cannot_store_what_the_schema_does_not_know(w: Wire) -> Outcome {
    changed_widget(&w).await?;
    let path = format!("{}/status", w.widget("a"));
    let patch = json!({"status": {"phase": "Running", "unheard": {"a": 1}}});
    let after = w.patch(As::Merge, &path, &patch).await?.expect(200)?;
    same!(after["status"], json!({"phase": "Running"}));
    holds()
}

pub(super) async fn a_patch_of_another_uid_is_refused_but_not_by_a_custom_status(w: Wire) -> Outcome {
    changed_widget(&w).await?;
    w.post(&w.map(""), &map("a", &json!({}))).await?.expect(201)?;
    w.post(&w.at("apps/v1", "statefulsets", ""), &stateful_set("a"))
        .await?
        .expect(201)?;
    let patch = json!({"metadata": {"uid": NOBODY, "labels": {"new": "yes"}}, "status": {"observedGeneration": 7, "phase": "Running"}});
    let set = w.at("apps/v1", "statefulsets", "a");
    for path in [w.widget("a"), w.map("a"), set.clone(), format!("{set}/status")] {
        let refused = w.patch(As::Merge, &path, &patch).await?.refused(422, "Invalid")?;
        same!(refused["details"]["causes"][0]["field"], json!("metadata.uid"));
    }
    let path = format!("{}/status", w.widget("a"));
    let after = w.patch(As::Merge, &path, &patch).await?.expect(200)?;
    same!(after["status"], json!({"phase": "Running"}));
    same!(after["metadata"]["labels"], json!({"by": "hand"}));
    let mut body = widget("a", &json!({"size": 9}));
    body["metadata"]["uid"] = json!(NOBODY);
    body["status"] = json!({"size": 4});
    let after = w.patch(As::Force("one"), &path, &body).await?.expect(200)?;
    same!(after["status"], json!({"phase": "Running", "size": 4}));
    same!(after["spec"]["size"], json!(1));
    holds()
}
