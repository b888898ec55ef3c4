//! What the server adds to a new object of a built-in kind after noting who set which field, and what such an object
//! looks like before anything is set.

use serde_json::{Value, json};

use super::{defaults, or_insert};
use crate::fake::kind::Kind;

const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";

/// Adds what the server adds to a new object after noting who set which field: nobody owns this.
pub(crate) fn admit(kind: &Kind, object: &mut Value, sequence: u64) {
    if kind.custom {
        return;
    }
    match kind.kind.as_str() {
        "PersistentVolumeClaim" => {
            let metadata = &mut object["metadata"];
            or_insert(metadata, "finalizers", json!([]));
            if let Some(list) = metadata["finalizers"].as_array_mut()
                && !list.iter().any(|finalizer| finalizer == CLAIM_PROTECTION)
            {
                list.push(json!(CLAIM_PROTECTION));
            }
        }
        "Pod" => {
            let spec = &mut object["spec"];
            defaults(
                spec,
                &[
                    ("preemptionPolicy", json!("PreemptLowerPriority")),
                    ("priority", json!(0)),
                    ("serviceAccountName", json!("default")),
                ],
            );
            let account = spec["serviceAccountName"].clone();
            or_insert(spec, "serviceAccount", account);
            let toleration = |key: &str| json!({"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300});
            or_insert(
                spec,
                "tolerations",
                json!([
                    toleration("node.kubernetes.io/not-ready"),
                    toleration("node.kubernetes.io/unreachable")
                ]),
            );
        }
        "Service" if object["spec"]["type"] != "ExternalName" => {
            let spec = &mut object["spec"];
            let address = format!("10.96.{}.{}", (sequence >> 8) & 0xff, sequence & 0xff);
            or_insert(spec, "clusterIP", json!(address));
            let address = spec["clusterIP"].clone();
            defaults(
                spec,
                &[
                    ("clusterIPs", json!([address])),
                    ("ipFamilies", json!(["IPv4"])),
                    ("ipFamilyPolicy", json!("SingleStack")),
                ],
            );
        }
        "Namespace" => or_insert(object, "spec", json!({"finalizers": ["kubernetes"]})),
        "Job" => job_selector(object),
        _ => {}
    }
}

fn job_selector(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    let uid = object["metadata"]["uid"].clone();
    let manual = object["spec"]["manualSelector"] == json!(true);
    if !manual && uid.is_string() && object["spec"].get("selector").is_none() {
        let labels = [
            ("batch.kubernetes.io/controller-uid", &uid),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("job-name", &name),
        ];
        for root in ["/metadata", "/spec/template"] {
            let Some(holder) = object.pointer_mut(root) else {
                continue;
            };
            let holder = if root == "/metadata" {
                holder
            } else {
                &mut holder["metadata"]
            };
            for (key, value) in labels {
                or_insert(&mut *holder, "labels", json!({}));
                holder["labels"][key] = value.clone();
            }
        }
        object["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    }
}

/// An object of the kind as the server's own types write it before anything is set: what is there already is not
/// counted as added by the first write.
pub(crate) fn skeleton(kind: &Kind) -> Value {
    let template = json!({"metadata": {}, "spec": {"containers": null}});
    let mut out = match kind.kind.as_str() {
        _ if kind.custom => json!({}),
        "Pod" => json!({"spec": {"containers": null}, "status": {}}),
        "StatefulSet" => {
            json!({"spec": {"selector": null, "template": template, "updateStrategy": {}}, "status": {}})
        }
        "Deployment" => {
            json!({"spec": {"selector": null, "template": template, "strategy": {}}, "status": {}})
        }
        "Job" => json!({"spec": {"template": template}, "status": {}}),
        "PersistentVolumeClaim" => json!({"spec": {"resources": {}}, "status": {}}),
        "Service" => json!({"spec": {}, "status": {"loadBalancer": {}}}),
        "Namespace" | "PersistentVolume" | "Node" | "PodDisruptionBudget" | "Lease" => {
            json!({"spec": {}, "status": {}})
        }
        "Event" => json!({
            "involvedObject": {}, "source": {}, "eventTime": null, "firstTimestamp": null, "lastTimestamp": null,
            "reportingComponent": "", "reportingInstance": "",
        }),
        _ => json!({}),
    };
    out["metadata"] = json!({});
    out
}
