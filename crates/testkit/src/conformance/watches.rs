//! Watches: order, selectors, bookmarks, starting points, versions that are gone.

use serde_json::{Value, json};

use super::widget::{map, widget};
use super::wire::{As, Events, Outcome, Verdict, Wire, holds, holds_that, same};

fn name(object: &Value) -> &Value {
    &object["metadata"]["name"]
}

async fn from(w: &Wire, path: &str, version: &str, more: &str) -> Result<Events, super::Broken> {
    w.watch(
        path,
        &format!("timeoutSeconds=15&resourceVersion={version}{more}"),
    )
    .await
}

pub(super) async fn a_watch_shows_changes_in_order_from_a_version(w: Wire) -> Outcome {
    w.post(&w.map(""), &map("before", &json!({})))
        .await?
        .expect(201)?;
    let version = w.version(&w.map("")).await?;
    let made = w
        .post(&w.map(""), &map("a", &json!({"k": "1"})))
        .await?
        .expect(201)?;
    let changed = w
        .patch(As::Merge, &w.map("a"), &json!({"data": {"k": "2"}}))
        .await?
        .expect(200)?;
    w.delete(&w.map("a"), None).await?.expect(200)?;
    let mut events = from(&w, &w.map(""), &version, "").await?;
    same!(events.next("ADDED").await?, made);
    same!(events.next("MODIFIED").await?, changed);
    let gone = events.next("DELETED").await?;
    same!(*name(&gone), json!("a"));
    holds_that!(
        gone["metadata"]["resourceVersion"] != changed["metadata"]["resourceVersion"],
        "the deletion has the version of the last change"
    );
    holds()
}

pub(super) async fn an_open_watch_shows_later_changes(w: Wire) -> Outcome {
    let version = w.version(&w.widget("")).await?;
    let mut events = from(&w, &w.widget(""), &version, "").await?;
    w.post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .expect(201)?;
    same!(*name(&events.next("ADDED").await?), json!("a"));
    w.patch(
        As::Merge,
        &format!("{}/status", w.widget("a")),
        &json!({"status": {"phase": "Up"}}),
    )
    .await?
    .expect(200)?;
    same!(events.next("MODIFIED").await?["status"]["phase"], json!("Up"));
    w.delete(&w.widget("a"), None).await?.expect(200)?;
    events.next("DELETED").await?;
    holds()
}

pub(super) async fn a_watch_without_a_version_starts_with_what_there_is(w: Wire) -> Outcome {
    for name in ["a", "b"] {
        w.post(&w.map(""), &map(name, &json!({}))).await?.expect(201)?;
    }
    let mut events = w.watch(&w.map(""), "timeoutSeconds=15").await?;
    let mut found = Vec::new();
    for _ in 0..2 {
        found.push(name(&events.next("ADDED").await?).to_string());
    }
    found.sort();
    same!(format!("{found:?}"), r#"["\"a\"", "\"b\""]"#.to_owned());
    w.post(&w.map(""), &map("c", &json!({}))).await?.expect(201)?;
    same!(*name(&events.next("ADDED").await?), json!("c"));
    holds()
}

pub(super) async fn a_watch_of_one_namespace_shows_no_other(w: Wire) -> Outcome {
    let version = w.version(&w.map("")).await?;
    let other = "/api/v1/namespaces/default/configmaps";
    let outside = format!("from-{}", w.namespace);
    w.post(other, &map(&outside, &json!({}))).await?.expect(201)?;
    w.delete(&format!("{other}/{outside}"), None).await?.expect(200)?;
    w.post(&w.map(""), &map("inside", &json!({})))
        .await?
        .expect(201)?;
    let mut events = from(&w, &w.map(""), &version, "").await?;
    same!(*name(&events.next("ADDED").await?), json!("inside"));
    holds()
}

pub(super) async fn a_label_selector_turns_changes_into_comings_and_goings(w: Wire) -> Outcome {
    let version = w.version(&w.map("")).await?;
    w.post(&w.map(""), &map("a", &json!({"k": "1"})))
        .await?
        .expect(201)?;
    let label = |value: Value| json!({"metadata": {"labels": {"on": value}}});
    w.patch(As::Merge, &w.map("a"), &label(json!("yes")))
        .await?
        .expect(200)?;
    w.patch(As::Merge, &w.map("a"), &json!({"data": {"k": "2"}}))
        .await?
        .expect(200)?;
    let left = w
        .patch(As::Merge, &w.map("a"), &label(json!("no")))
        .await?
        .expect(200)?;
    let mut events = from(&w, &w.map(""), &version, "&labelSelector=on%3Dyes").await?;
    same!(events.next("ADDED").await?["data"]["k"], json!("1"));
    same!(events.next("MODIFIED").await?["data"]["k"], json!("2"));
    let gone = events.next("DELETED").await?;
    same!(gone["metadata"]["labels"]["on"], json!("yes"));
    same!(
        gone["metadata"]["resourceVersion"],
        left["metadata"]["resourceVersion"]
    );
    holds()
}

pub(super) async fn a_watch_from_long_ago_shows_each_change_since_as_it_was(w: Wire) -> Outcome {
    let version = w.version(&w.map("")).await?;
    let mut answers = vec![
        w.post(&w.map(""), &map("a", &json!({"k": "0"})))
            .await?
            .expect(201)?,
    ];
    for count in 1..80 {
        let on = if count % 4 < 2 { "yes" } else { "no" };
        let change = json!({"metadata": {"labels": {"on": on}}, "data": {"k": count.to_string()}});
        let answer = w.patch(As::Merge, &w.map("a"), &change).await?;
        answers.push(answer.expect(200)?);
    }
    let mut all = from(&w, &w.map(""), &version, "").await?;
    same!(all.next("ADDED").await?, answers[0]);
    for answer in &answers[1..] {
        same!(all.next("MODIFIED").await?, *answer);
    }
    let mut selected = from(&w, &w.map(""), &version, "&labelSelector=on%3Dyes").await?;
    same!(selected.next("ADDED").await?, answers[1]);
    for count in 2..80 {
        let what = ["ADDED", "MODIFIED", "DELETED"].get(count % 4);
        if let Some(what) = what {
            let event = selected.next(what).await?;
            let shown = if *what == "DELETED" { count - 1 } else { count };
            same!(event["data"], answers[shown]["data"]);
        }
    }
    holds()
}

pub(super) async fn a_field_selector_follows_one_object(w: Wire) -> Outcome {
    let version = w.version(&w.map("")).await?;
    for name in ["a", "b"] {
        w.post(&w.map(""), &map(name, &json!({}))).await?.expect(201)?;
    }
    let mut events = from(&w, &w.map(""), &version, "&fieldSelector=metadata.name%3Db").await?;
    same!(*name(&events.next("ADDED").await?), json!("b"));
    holds()
}

pub(super) async fn a_streaming_list_marks_the_end_of_what_there_was(w: Wire) -> Outcome {
    for name in ["a", "b"] {
        w.post(&w.map(""), &map(name, &json!({}))).await?.expect(201)?;
    }
    let query =
        "timeoutSeconds=15&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan";
    let mut events = w.watch(&w.map(""), query).await?;
    for wanted in ["a", "b"] {
        same!(*name(&events.next("ADDED").await?), json!(wanted));
    }
    let end = events.next_of(true).await?.unwrap_or_default();
    same!(end["type"], json!("BOOKMARK"));
    same!(
        end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        json!("true")
    );
    holds_that!(
        end["object"]["metadata"]["resourceVersion"].is_string(),
        "no version in {end}"
    );
    w.post(&w.map(""), &map("c", &json!({}))).await?.expect(201)?;
    same!(*name(&events.next("ADDED").await?), json!("c"));
    holds()
}

pub(super) async fn a_streaming_list_must_say_how_old_it_may_be(w: Wire) -> Outcome {
    let refused = w
        .get(&format!("{}?watch=true&sendInitialEvents=true", w.map("")))
        .await?;
    refused.refused(422, "Invalid")?;
    let refused = w
        .get(&format!(
            "{}?watch=true&resourceVersionMatch=NotOlderThan",
            w.map("")
        ))
        .await?;
    refused.refused(422, "Invalid")?;
    holds()
}

pub(super) async fn a_watch_ends_after_its_time_with_a_bookmark(w: Wire) -> Outcome {
    let made = w.post(&w.map(""), &map("a", &json!({}))).await?.expect(201)?;
    let version = made["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let query = format!("timeoutSeconds=8&allowWatchBookmarks=true&resourceVersion={version}");
    let mut events = w.watch(&w.map(""), &query).await?;
    let made = w.post(&w.map(""), &map("b", &json!({}))).await?.expect(201)?;
    same!(events.next("ADDED").await?, made);
    let mut last = None;
    while let Some(event) = events.next_quiet().await? {
        same!(event["type"], json!("BOOKMARK"));
        last = Some(event);
    }
    let last = last.unwrap_or_default();
    let version = |value: &Value| {
        value
            .as_str()
            .and_then(|text| text.parse::<u64>().ok())
            .unwrap_or(0)
    };
    holds_that!(
        version(&last["object"]["metadata"]["resourceVersion"])
            >= version(&made["metadata"]["resourceVersion"]),
        "no bookmark before the end, or an old one: {last}"
    );
    holds()
}

pub(super) async fn a_watch_from_a_forgotten_version_gets_an_expired_event(w: Wire) -> Outcome {
    let version = w.version(&w.map("")).await?;
    for name in ["a", "b"] {
        w.post(&w.map(""), &map(name, &json!({}))).await?.expect(201)?;
    }
    let Some(forget) = w.env.forget_history() else {
        return Ok(Verdict::Skipped);
    };
    forget.await;
    let mut events = from(&w, &w.map(""), &version, "").await?;
    same!(events.code, 200);
    let error = events.next("ERROR").await?;
    same!(error["code"], json!(410));
    same!(error["reason"], json!("Expired"));
    holds_that!(
        events.next_of(true).await?.is_none(),
        "the stream went on after the error"
    );
    holds()
}

pub(super) async fn a_watch_of_an_invalid_version_is_refused(w: Wire) -> Outcome {
    let answer = w
        .get(&format!(
            "{}?watch=true&timeoutSeconds=2&resourceVersion=abc",
            w.map("")
        ))
        .await?;
    holds_that!(answer.code >= 400, "it was served: {}", answer.code);
    holds()
}

pub(super) async fn only_the_metadata_can_be_watched(w: Wire) -> Outcome {
    w.post(&w.map(""), &map("a", &json!({"k": "v"})))
        .await?
        .expect(201)?;
    let mut events = w.watch_metadata(&w.map(""), "timeoutSeconds=15").await?;
    let object = events.next("ADDED").await?;
    same!(object["kind"], json!("PartialObjectMetadata"));
    holds_that!(object.get("data").is_none(), "data came too: {object}");
    holds()
}

pub(super) async fn a_watch_over_all_namespaces_shows_this_one(w: Wire) -> Outcome {
    let version = w.version(&w.map("")).await?;
    w.post(&w.map(""), &map("a", &json!({}))).await?.expect(201)?;
    let selector = format!("&fieldSelector=metadata.namespace%3D{}", w.namespace);
    let mut events = from(&w, "/api/v1/configmaps", &version, &selector).await?;
    same!(*name(&events.next("ADDED").await?), json!("a"));
    holds()
}
