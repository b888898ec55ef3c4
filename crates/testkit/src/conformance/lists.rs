//! Lists: selectors, pages, versions.

use serde_json::{Value, json};

use super::widget::{GROUP, map, widget};
use super::wire::{Broken, Outcome, Verdict, Wire, holds, holds_that, same};

fn names(list: &Value) -> Value {
    list["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| item["metadata"]["name"].clone())
        .collect()
}

async fn three_labelled(w: &Wire) -> Result<(), Broken> {
    for (name, labels) in [
        ("a", json!({"tier": "one", "x": "1"})),
        ("b", json!({"tier": "two"})),
        ("c", json!({"tier": "two", "x": "2"})),
    ] {
        let mut body = map(name, &json!({}));
        body["metadata"]["labels"] = labels;
        w.post(&w.map(""), &body).await?.expect(201)?;
    }
    Ok(())
}

pub(super) async fn a_list_is_sorted_and_has_a_version(w: Wire) -> Outcome {
    for name in ["c", "a", "b"] {
        w.post(&w.map(""), &map(name, &json!({"k": name})))
            .await?
            .expect(201)?;
    }
    let list = w.get(&w.map("")).await?.expect(200)?;
    same!(names(&list), json!(["a", "b", "c"]));
    same!(list["kind"], json!("ConfigMapList"));
    holds_that!(
        list["metadata"]["resourceVersion"].is_string(),
        "no version in {list}"
    );
    holds_that!(
        list["metadata"].get("continue").is_none(),
        "this is a page: {list}"
    );
    holds()
}

pub(super) async fn an_empty_list_has_items(w: Wire) -> Outcome {
    let list = w.get(&w.widget("")).await?.expect(200)?;
    same!(list["items"], json!([]));
    same!(list["kind"], json!("WidgetList"));
    holds()
}

pub(super) async fn custom_items_of_a_list_name_their_kind(w: Wire) -> Outcome {
    w.post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .expect(201)?;
    let list = w.get(&w.widget("")).await?.expect(200)?;
    same!(list["items"][0]["kind"], json!("Widget"));
    holds()
}

pub(super) async fn label_selectors_choose(w: Wire) -> Outcome {
    three_labelled(&w).await?;
    for (selector, wanted) in [
        ("tier=one", json!(["a"])),
        ("tier==two", json!(["b", "c"])),
        ("tier!=one", json!(["b", "c"])),
        ("x", json!(["a", "c"])),
        ("!x", json!(["b"])),
        ("tier%20in%20(one,two),x", json!(["a", "c"])),
        ("tier%20notin%20(one)", json!(["b", "c"])),
        ("tier=none", json!([])),
    ] {
        let list = w
            .get(&format!("{}?labelSelector={selector}", w.map("")))
            .await?
            .expect(200)?;
        same!(names(&list), wanted);
    }
    same!(
        w.get(&format!("{}?labelSelector=a%20b%20c", w.map("")))
            .await?
            .code,
        400
    );
    holds()
}

pub(super) async fn field_selectors_choose_by_name(w: Wire) -> Outcome {
    three_labelled(&w).await?;
    let list = w
        .get(&format!("{}?fieldSelector=metadata.name=b", w.map("")))
        .await?
        .expect(200)?;
    same!(names(&list), json!(["b"]));
    let list = w
        .get(&format!("{}?fieldSelector=metadata.name!=b", w.map("")))
        .await?
        .expect(200)?;
    same!(names(&list), json!(["a", "c"]));
    let path = format!("{}?fieldSelector=metadata.namespace={}", w.map(""), w.namespace);
    same!(names(&w.get(&path).await?.expect(200)?), json!(["a", "b", "c"]));
    w.get(&format!("{}?fieldSelector=spec.size=1", w.widget("")))
        .await?
        .refused(400, "BadRequest")?;
    holds()
}

pub(super) async fn pages_together_are_the_list(w: Wire) -> Outcome {
    for name in ["a", "b", "c", "d", "e"] {
        w.post(&w.map(""), &map(name, &json!({}))).await?.expect(201)?;
    }
    let mut all = Vec::new();
    let mut path = format!("{}?limit=2", w.map(""));
    let mut left = vec![Some(3), Some(1), None].into_iter();
    loop {
        let page = w.get(&path).await?.expect(200)?;
        all.extend(names(&page).as_array().cloned().unwrap_or_default());
        same!(
            page["metadata"]["remainingItemCount"],
            json!(left.next().flatten())
        );
        let Some(token) = page["metadata"]["continue"]
            .as_str()
            .filter(|token| !token.is_empty())
        else {
            break;
        };
        path = format!("{}?limit=2&continue={}", w.map(""), token.replace('|', "%7C"));
    }
    same!(Value::Array(all), json!(["a", "b", "c", "d", "e"]));
    holds()
}

pub(super) async fn later_pages_show_the_state_of_the_first(w: Wire) -> Outcome {
    for name in ["a", "b", "c"] {
        w.post(&w.map(""), &map(name, &json!({}))).await?.expect(201)?;
    }
    let first = w.get(&format!("{}?limit=1", w.map(""))).await?.expect(200)?;
    w.delete(&w.map("c"), None).await?.expect(200)?;
    w.post(&w.map(""), &map("d", &json!({}))).await?.expect(201)?;
    let token = first["metadata"]["continue"].as_str().unwrap_or_default();
    let rest = w
        .get(&format!("{}?continue={}", w.map(""), token.replace('|', "%7C")))
        .await?
        .expect(200)?;
    same!(names(&rest), json!(["b", "c"]));
    same!(
        rest["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    holds()
}

pub(super) async fn a_page_of_a_forgotten_version_is_expired(w: Wire) -> Outcome {
    for name in ["a", "b", "c"] {
        w.post(&w.map(""), &map(name, &json!({}))).await?.expect(201)?;
    }
    let first = w.get(&format!("{}?limit=1", w.map(""))).await?.expect(200)?;
    w.post(&w.map(""), &map("d", &json!({}))).await?.expect(201)?;
    let Some(forget) = w.env.forget_history() else {
        return Ok(Verdict::Skipped);
    };
    forget.await;
    let token = first["metadata"]["continue"].as_str().unwrap_or_default();
    let path = format!("{}?continue={}", w.map(""), token.replace('|', "%7C"));
    let expired = w.get(&path).await?.refused(410, "Expired")?;
    let token = expired["metadata"]["continue"].as_str().unwrap_or_default();
    let path = format!("{}?continue={}", w.map(""), token.replace('|', "%7C"));
    let rest = w.get(&path).await?.expect(200)?;
    same!(names(&rest), json!(["b", "c", "d"]));
    holds()
}

pub(super) async fn a_list_can_ask_for_an_exact_version(w: Wire) -> Outcome {
    w.post(&w.map(""), &map("a", &json!({}))).await?.expect(201)?;
    let version = w.version(&w.map("")).await?;
    w.post(&w.map(""), &map("b", &json!({}))).await?.expect(201)?;
    let path = format!(
        "{}?resourceVersion={version}&resourceVersionMatch=Exact",
        w.map("")
    );
    let list = w.get(&path).await?.expect(200)?;
    same!(names(&list), json!(["a"]));
    let path = format!(
        "{}?resourceVersion={version}&resourceVersionMatch=NotOlderThan",
        w.map("")
    );
    same!(names(&w.get(&path).await?.expect(200)?), json!(["a", "b"]));
    holds()
}

pub(super) async fn a_list_over_all_namespaces_has_this_one(w: Wire) -> Outcome {
    w.post(&w.widget(""), &widget("a", &json!({"size": 1})))
        .await?
        .expect(201)?;
    let path = format!(
        "/apis/{GROUP}/v1/widgets?fieldSelector=metadata.namespace={}",
        w.namespace
    );
    let list = w.get(&path).await?.expect(200)?;
    same!(names(&list), json!(["a"]));
    holds()
}

pub(super) async fn a_page_of_a_selection_counts_nothing(w: Wire) -> Outcome {
    three_labelled(&w).await?;
    let page = w
        .get(&format!("{}?limit=1&labelSelector=tier%3Dtwo", w.map("")))
        .await?
        .expect(200)?;
    same!(names(&page), json!(["b"]));
    holds_that!(
        page["metadata"]["continue"].is_string(),
        "no further page: {page}"
    );
    holds_that!(
        page["metadata"].get("remainingItemCount").is_none(),
        "it counts: {page}"
    );
    holds()
}

pub(super) async fn a_list_of_a_version_to_come_times_out(w: Wire) -> Outcome {
    let answer = w
        .get(&format!("{}?resourceVersion=9000000000", w.map("")))
        .await?;
    let refused = answer.refused(504, "Timeout")?;
    same!(
        refused["details"]["causes"][0]["reason"],
        json!("ResourceVersionTooLarge")
    );
    holds()
}
