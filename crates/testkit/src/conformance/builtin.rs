//! What built-in kinds do beyond being stored: defaults, immutable fields, leases, events, evictions.

use serde_json::{Value, json};

use super::widget::{map, stateful_set};
use super::wire::{As, Outcome, Wire, holds, holds_that, same};

fn claim(storage: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}},
    })
}

pub(super) async fn a_service_gets_an_address_it_keeps(w: Wire) -> Outcome {
    let body = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"selector": {"a": "b"}, "ports": [{"name": "client", "port": 2379}]},
    });
    let path = w.at("v1", "services", "s");
    let made = w.patch(As::Apply("one"), &path, &body).await?.expect(201)?;
    holds_that!(made["spec"]["clusterIP"].is_string(), "no address in {made}");
    let again = w.patch(As::Apply("one"), &path, &body).await?.expect(200)?;
    same!(
        again["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    let after = w.put(&path, &body).await?.expect(200)?;
    same!(after["spec"]["clusterIP"], made["spec"]["clusterIP"]);
    let mut headless = body.clone();
    headless["metadata"]["name"] = json!("h");
    headless["spec"]["clusterIP"] = json!("None");
    let made = w
        .post(&w.at("v1", "services", ""), &headless)
        .await?
        .expect(201)?;
    same!(made["spec"]["clusterIPs"], json!(["None"]));
    holds()
}

pub(super) async fn quantities_are_stored_in_canonical_form(w: Wire) -> Outcome {
    let made = w
        .post(&w.at("v1", "persistentvolumeclaims", ""), &claim("1024Mi"))
        .await?
        .expect(201)?;
    same!(made["spec"]["resources"]["requests"]["storage"], json!("1Gi"));
    same!(
        made["metadata"]["finalizers"],
        json!(["kubernetes.io/pvc-protection"])
    );
    holds()
}

pub(super) async fn a_claim_is_fixed_after_creation(w: Wire) -> Outcome {
    w.post(&w.at("v1", "persistentvolumeclaims", ""), &claim("1Gi"))
        .await?
        .expect(201)?;
    let path = w.at("v1", "persistentvolumeclaims", "c");
    let refused = w
        .patch(
            As::Merge,
            &path,
            &json!({"spec": {"accessModes": ["ReadOnlyMany"]}}),
        )
        .await?;
    same!(
        refused.expect(422)?["details"]["causes"][0]["reason"],
        json!("FieldValueForbidden")
    );
    let dying = w.delete(&path, None).await?.expect(200)?;
    holds_that!(
        dying["metadata"]["deletionTimestamp"].is_string(),
        "the claim is gone at once"
    );
    holds()
}

pub(super) async fn most_of_a_stateful_set_is_fixed(w: Wire) -> Outcome {
    w.post(&w.at("apps/v1", "statefulsets", ""), &stateful_set("s"))
        .await?
        .expect(201)?;
    let path = w.at("apps/v1", "statefulsets", "s");
    let refused = w
        .patch(As::Merge, &path, &json!({"spec": {"serviceName": "other"}}))
        .await?
        .refused(422, "Invalid")?;
    same!(refused["details"]["causes"][0]["field"], json!("spec"));
    same!(
        refused["details"]["causes"][0]["reason"],
        json!("FieldValueForbidden")
    );
    w.patch(
        As::Merge,
        &path,
        &json!({"spec": {"replicas": 1, "minReadySeconds": 3}}),
    )
    .await?
    .expect(200)?;
    holds()
}

pub(super) async fn the_selector_of_a_stateful_set_must_match_its_pods(w: Wire) -> Outcome {
    let mut body = stateful_set("s");
    body["spec"]["selector"]["matchLabels"]["app"] = json!("other");
    let refused = w
        .post(&w.at("apps/v1", "statefulsets", ""), &body)
        .await?
        .refused(422, "Invalid")?;
    same!(
        refused["details"]["causes"][0]["field"],
        json!("spec.template.metadata.labels")
    );
    holds()
}

pub(super) async fn a_secret_encodes_plain_text(w: Wire) -> Outcome {
    let body = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
        "stringData": {"a": "b", "long": "any text"}, "data": {"c": "ZA=="},
    });
    let made = w.post(&w.at("v1", "secrets", ""), &body).await?.expect(201)?;
    same!(
        made["data"],
        json!({"a": "Yg==", "c": "ZA==", "long": "YW55IHRleHQ="})
    );
    same!(made["type"], json!("Opaque"));
    let refused = w
        .patch(As::Merge, &w.at("v1", "secrets", "s"), &json!({"type": "other"}))
        .await?
        .expect(422)?;
    same!(refused["details"]["causes"][0]["field"], json!("type"));
    holds()
}

pub(super) async fn an_immutable_map_stays(w: Wire) -> Outcome {
    let mut body = map("a", &json!({"k": "v"}));
    body["immutable"] = json!(true);
    w.post(&w.map(""), &body).await?.expect(201)?;
    w.patch(As::Merge, &w.map("a"), &json!({"data": {"k": "w"}}))
        .await?
        .refused(422, "Invalid")?;
    w.patch(
        As::Merge,
        &w.map("a"),
        &json!({"metadata": {"labels": {"a": "b"}}}),
    )
    .await?
    .expect(200)?;
    holds()
}

pub(super) async fn a_lease_is_taken_by_compare_and_swap(w: Wire) -> Outcome {
    let leases = |name: &str| w.at("coordination.k8s.io/v1", "leases", name);
    let body = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
        "spec": {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.000006Z"},
    });
    let made = w.post(&leases(""), &body).await?.expect(201)?;
    let mut first = made.clone();
    first["spec"]["holderIdentity"] = json!("two");
    let mut second = made;
    second["spec"]["holderIdentity"] = json!("three");
    w.put(&leases("l"), &first).await?.expect(200)?;
    w.put(&leases("l"), &second).await?.refused(409, "Conflict")?;
    same!(
        w.get(&leases("l")).await?.expect(200)?["spec"]["holderIdentity"],
        json!("two")
    );
    holds()
}

pub(super) async fn a_replace_of_an_absent_lease_creates_it(w: Wire) -> Outcome {
    let path = w.at("coordination.k8s.io/v1", "leases", "l");
    let body = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
        "spec": {"holderIdentity": "one"},
    });
    w.put(&path, &body).await?.expect(201)?;
    w.put(&path, &body).await?.refused(422, "Invalid")?;
    holds()
}

pub(super) async fn events_are_the_same_in_both_groups(w: Wire) -> Outcome {
    let body = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "eventTime": "2026-01-02T03:04:05.000006Z", "type": "Normal", "reason": "Tested", "action": "Testing",
        "note": "a note", "reportingController": "example.dev/tester", "reportingInstance": "tester-1",
        "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": w.namespace},
    });
    w.post(&w.at("events.k8s.io/v1", "events", ""), &body)
        .await?
        .expect(201)?;
    let core = w.get(&w.at("v1", "events", "e")).await?.expect(200)?;
    same!(core["message"], json!("a note"));
    same!(core["involvedObject"]["name"], json!("a"));
    same!(core["reportingComponent"], json!("example.dev/tester"));
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000006Z"}});
    let after = w
        .patch(As::Merge, &w.at("events.k8s.io/v1", "events", "e"), &series)
        .await?
        .expect(200)?;
    same!(after["series"]["count"], json!(2));
    same!(after["note"], json!("a note"));
    let path = format!("{}?fieldSelector=reason%3DTested", w.at("v1", "events", ""));
    same!(
        w.get(&path).await?.expect(200)?["items"]
            .as_array()
            .map_or(0, Vec::len),
        1
    );
    holds()
}

pub(super) async fn a_job_gets_its_selector_and_keeps_its_template(w: Wire) -> Outcome {
    let body = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "b:1"}]}}},
    });
    let path = w.at("batch/v1", "jobs", "j");
    let made = w.patch(As::Apply("one"), &path, &body).await?.expect(201)?;
    let label = &made["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"];
    same!(*label, made["metadata"]["uid"]);
    let other = json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "b:2"}]}}}});
    let refused = w
        .patch(As::Strategic, &path, &other)
        .await?
        .refused(422, "Invalid")?;
    same!(refused["details"]["causes"][0]["field"], json!("spec.template"));
    holds()
}

pub(super) async fn a_namespace_knows_its_name_as_a_label(w: Wire) -> Outcome {
    let read = w
        .get(&format!("/api/v1/namespaces/{}", w.namespace))
        .await?
        .expect(200)?;
    same!(
        read["metadata"]["labels"]["kubernetes.io/metadata.name"],
        json!(w.namespace)
    );
    same!(read["status"]["phase"], json!("Active"));
    holds()
}

pub(super) async fn a_bound_claim_can_grow_but_not_shrink(w: Wire) -> Outcome {
    w.post(&w.at("v1", "persistentvolumeclaims", ""), &claim("1Gi"))
        .await?
        .expect(201)?;
    let path = w.at("v1", "persistentvolumeclaims", "c");
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    w.patch(As::Merge, &format!("{path}/status"), &bound)
        .await?
        .expect(200)?;
    let smaller = json!({"spec": {"resources": {"requests": {"storage": "512Mi"}}}});
    w.patch(As::Merge, &path, &smaller).await?.expect(422)?;
    holds()
}

pub(super) async fn a_stateful_set_with_claims_applies_without_change(w: Wire) -> Outcome {
    let mut body = stateful_set("s");
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    body["spec"]["volumeClaimTemplates"] = json!([claim]);
    let container = &mut body["spec"]["template"]["spec"]["containers"][0];
    container["resources"] =
        json!({"limits": {"cpu": "500m", "memory": "1024Mi"}, "requests": {"cpu": 0.25}});
    container["readinessProbe"] = json!({"httpGet": {"port": 8080}, "periodSeconds": 3});
    container["livenessProbe"] = json!({"tcpSocket": {"port": "client"}});
    container["env"] = json!([{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    container["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data"}, {"name": "tls", "mountPath": "/tls"}]);
    body["spec"]["template"]["spec"]["volumes"] =
        json!([{"name": "tls", "secret": {"secretName": "tls"}}, {"name": "scratch", "emptyDir": {}}]);
    let path = w.at("apps/v1", "statefulsets", "s");
    w.patch(As::Apply("one"), &path, &body).await?.expect(201)?;
    let once = w.patch(As::Apply("one"), &path, &body).await?.expect(200)?;
    let twice = w.patch(As::Apply("one"), &path, &body).await?.expect(200)?;
    same!(
        twice["metadata"]["resourceVersion"],
        once["metadata"]["resourceVersion"]
    );
    same!(twice["metadata"]["generation"], json!(1));
    body["spec"]["replicas"] = json!(5);
    let after = w.patch(As::Apply("one"), &path, &body).await?.expect(200)?;
    same!(after["metadata"]["generation"], json!(2));
    holds()
}
