//! Pods as the strictest of Kubernetes' pod security standards wants them. Every namespace that a scenario gets enforces
//! it, so that whatever the operator makes there is held to it as well.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

/// The label of a namespace that takes no other pods.
const ENFORCED: (&str, &str) = ("pod-security.kubernetes.io/enforce", "restricted");
/// A user who is nobody on the node.
const USER: u32 = 65532;

/// A namespace that takes no other pods.
pub(crate) fn confined(metadata: ObjectMeta) -> Namespace {
    let (key, value) = ENFORCED;
    Namespace {
        metadata: ObjectMeta {
            labels: Some(BTreeMap::from([(key.to_owned(), value.to_owned())])),
            ..metadata
        },
        ..Namespace::default()
    }
}

/// The same spec of a pod, without any right on its node.
pub fn unprivileged(mut spec: Value) -> Value {
    spec["securityContext"] = json!({
        "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        container["securityContext"] = bounded();
    }
    spec
}

/// The security context of a container that can gain nothing.
pub fn bounded() -> Value {
    json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
}
