//! Server-side apply inside lists and maps: which items and entries have owners of their own.

use serde_json::{Value, json};

use super::widget::{map, stateful_set, widget};
use super::wire::{As, Outcome, Wire, holds, same};

pub(super) async fn labels_and_annotations_are_owned_one_by_one(w: Wire) -> Outcome {
    let with = |labels: Value| {
        let mut body = map("a", &json!({}));
        body["metadata"]["labels"] = labels;
        body
    };
    w.patch(As::Apply("one"), &w.map("a"), &with(json!({"a": "1", "b": "1"})))
        .await?
        .expect(201)?;
    w.patch(As::Apply("two"), &w.map("a"), &with(json!({"c": "1"})))
        .await?
        .expect(200)?;
    let after = w
        .patch(As::Apply("one"), &w.map("a"), &with(json!({"a": "1"})))
        .await?
        .expect(200)?;
    same!(after["metadata"]["labels"], json!({"a": "1", "c": "1"}));
    holds()
}

pub(super) async fn items_of_a_keyed_list_are_owned_one_by_one(w: Wire) -> Outcome {
    let with = |parts: Value| widget("a", &json!({"size": 2, "parts": parts}));
    w.patch(
        As::Apply("one"),
        &w.widget("a"),
        &with(json!([{"name": "x", "count": 1}, {"name": "y"}])),
    )
    .await?
    .expect(201)?;
    let both = with(json!([{"name": "z", "count": 3}, {"name": "x", "note": "two"}]));
    let after = w
        .patch(As::Apply("two"), &w.widget("a"), &both)
        .await?
        .expect(200)?;
    let names: Value = after["spec"]["parts"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|part| part["name"].clone())
        .collect();
    same!(names, json!(["z", "x", "y"]));
    let contested = with(json!([{"name": "x", "count": 2}]));
    w.patch(As::Apply("two"), &w.widget("a"), &contested)
        .await?
        .refused(409, "Conflict")?;
    let both = with(json!([{"name": "z", "count": 3}]));
    let after = w
        .patch(As::Apply("two"), &w.widget("a"), &both)
        .await?
        .expect(200)?;
    same!(after["spec"]["parts"].as_array().map_or(0, Vec::len), 3);
    let after = w
        .patch(As::Apply("one"), &w.widget("a"), &with(json!([{"name": "y"}])))
        .await?
        .expect(200)?;
    let names: Value = after["spec"]["parts"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|part| part["name"].clone())
        .collect();
    same!(names, json!(["z", "y"]));
    holds()
}

pub(super) async fn items_of_a_set_are_owned_one_by_one(w: Wire) -> Outcome {
    let with = |tags: Value| widget("a", &json!({"size": 2, "tags": tags}));
    w.patch(As::Apply("one"), &w.widget("a"), &with(json!(["x", "y"])))
        .await?
        .expect(201)?;
    w.patch(As::Apply("two"), &w.widget("a"), &with(json!(["z", "y"])))
        .await?
        .expect(200)?;
    let after = w
        .patch(As::Apply("one"), &w.widget("a"), &with(json!(["x"])))
        .await?
        .expect(200)?;
    let mut tags: Vec<String> = after["spec"]["tags"]
        .as_array()
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    tags.sort();
    same!(tags.join(","), r#""x","y","z""#.to_owned());
    holds()
}

pub(super) async fn atomic_lists_and_maps_have_one_owner(w: Wire) -> Outcome {
    let body = widget("a", &json!({"size": 2, "list": ["a"], "whole": {"a": "1"}}));
    w.patch(As::Apply("one"), &w.widget("a"), &body)
        .await?
        .expect(201)?;
    let body = widget("a", &json!({"size": 2, "list": ["a", "b"], "whole": {"b": "2"}}));
    let refused = w
        .patch(As::Apply("two"), &w.widget("a"), &body)
        .await?
        .refused(409, "Conflict")?;
    same!(refused["details"]["causes"].as_array().map_or(0, Vec::len), 2);
    let after = w
        .patch(As::Force("two"), &w.widget("a"), &body)
        .await?
        .expect(200)?;
    same!(after["spec"]["whole"], json!({"b": "2"}));
    same!(after["spec"]["list"], json!(["a", "b"]));
    holds()
}

pub(super) async fn free_form_objects_merge_field_by_field(w: Wire) -> Outcome {
    let body = |free: Value| widget("a", &json!({"size": 2, "free": free}));
    w.patch(
        As::Apply("one"),
        &w.widget("a"),
        &body(json!({"x": {"y": 1}, "l": [1]})),
    )
    .await?
    .expect(201)?;
    let after = w
        .patch(As::Apply("two"), &w.widget("a"), &body(json!({"x": {"z": 2}})))
        .await?
        .expect(200)?;
    same!(after["spec"]["free"], json!({"x": {"y": 1, "z": 2}, "l": [1]}));
    let after = w
        .patch(As::Apply("one"), &w.widget("a"), &body(json!({"l": [1]})))
        .await?
        .expect(200)?;
    same!(after["spec"]["free"], json!({"x": {"z": 2}, "l": [1]}));
    holds()
}

pub(super) async fn containers_ports_and_variables_merge_by_their_keys(w: Wire) -> Outcome {
    let path = w.at("apps/v1", "statefulsets", "s");
    w.patch(As::Apply("one"), &path, &stateful_set("s"))
        .await?
        .expect(201)?;
    let side = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"},
        "spec": {"template": {"spec": {"containers": [
            {"name": "main", "env": [{"name": "B", "value": "2"}], "ports": [{"containerPort": 2380}]},
            {"name": "side", "image": "side:1"},
        ]}}},
    });
    let after = w.patch(As::Apply("two"), &path, &side).await?.expect(200)?;
    let containers = &after["spec"]["template"]["spec"]["containers"];
    same!(containers[0]["env"].as_array().map_or(0, Vec::len), 2);
    same!(containers[0]["ports"].as_array().map_or(0, Vec::len), 2);
    same!(containers[1]["name"], json!("side"));
    let mut less = stateful_set("s");
    less["spec"]["template"]["spec"]["containers"][0]["env"] = json!([]);
    let after = w.patch(As::Apply("one"), &path, &less).await?.expect(200)?;
    same!(
        after["spec"]["template"]["spec"]["containers"][0]["env"],
        json!([{"name": "B", "value": "2"}])
    );
    holds()
}

pub(super) async fn finalizers_and_owners_are_applied_one_by_one(w: Wire) -> Outcome {
    let with = |finalizers: Value| {
        let mut body = map("a", &json!({}));
        body["metadata"]["finalizers"] = finalizers;
        body
    };
    w.patch(As::Apply("one"), &w.map("a"), &with(json!(["example.dev/one"])))
        .await?
        .expect(201)?;
    let after = w
        .patch(As::Apply("two"), &w.map("a"), &with(json!(["example.dev/two"])))
        .await?
        .expect(200)?;
    same!(after["metadata"]["finalizers"].as_array().map_or(0, Vec::len), 2);
    let after = w
        .patch(As::Apply("one"), &w.map("a"), &map("a", &json!({})))
        .await?
        .expect(200)?;
    same!(after["metadata"]["finalizers"], json!(["example.dev/two"]));
    holds()
}

pub(super) async fn ports_of_a_service_merge_by_port_and_protocol(w: Wire) -> Outcome {
    let service = |ports: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": ports}});
    let path = w.at("v1", "services", "s");
    let client = json!({"name": "client", "port": 2379});
    let peer = json!({"name": "peer", "port": 2380, "protocol": "TCP"});
    w.patch(As::Apply("one"), &path, &service(json!([client])))
        .await?
        .expect(201)?;
    let after = w
        .patch(As::Apply("two"), &path, &service(json!([peer])))
        .await?
        .expect(200)?;
    same!(after["spec"]["ports"].as_array().map_or(0, Vec::len), 2);
    let moved = json!({"name": "client", "port": 2379, "targetPort": 1});
    w.patch(As::Apply("two"), &path, &service(json!([peer, moved])))
        .await?;
    let after = w
        .patch(As::Force("one"), &path, &service(json!([moved])))
        .await?
        .expect(200)?;
    let ports = after["spec"]["ports"].as_array();
    let target = ports
        .into_iter()
        .flatten()
        .find(|port| port["name"] == "client")
        .map(|port| port["targetPort"].clone());
    same!(target, Some(json!(1)));
    holds()
}
