//! Defaults of pods and pod templates.

use serde_json::{Value, json};

use super::{defaults, or_insert};

/// Times that are written even when they are not set.
fn condition_times(status: &mut Value, fields: &[&str]) {
    for condition in status
        .get_mut("conditions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        for field in fields {
            or_insert(condition, field, Value::Null);
        }
    }
}

/// The quality of service class that follows from requests and limits.
pub(super) fn quality(spec: &Value) -> &'static str {
    let (mut any, mut all) = (false, true);
    for container in spec["containers"].as_array().into_iter().flatten() {
        let resources = &container["resources"];
        for name in ["cpu", "memory"] {
            let (request, limit) = (resources["requests"].get(name), resources["limits"].get(name));
            any |= request.is_some() || limit.is_some();
            all &= limit.is_some() && request == limit;
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// What is limited is also requested.
pub(super) fn request_limits(spec: &mut Value) {
    for container in spec
        .get_mut("containers")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(limits) = container["resources"]
            .get("limits")
            .and_then(Value::as_object)
            .cloned()
        {
            let mut requests = container["resources"]["requests"]
                .as_object()
                .cloned()
                .unwrap_or_default();
            for (name, amount) in limits {
                requests.entry(name).or_insert(amount);
            }
            container["resources"]["requests"] = Value::Object(requests);
        }
    }
}

pub(super) fn fill_status(status: &mut Value, quality: &str) {
    defaults(
        status,
        &[("phase", json!("Pending")), ("qosClass", json!(quality))],
    );
    condition_times(status, &["lastProbeTime", "lastTransitionTime"]);
    if let Some(address) = status.get("podIP").cloned() {
        or_insert(status, "podIPs", json!([{"ip": address}]));
    }
}

pub(super) fn fill_spec(spec: &mut Value) {
    let host = spec["hostNetwork"] == json!(true);
    defaults(
        spec,
        &[
            ("dnsPolicy", json!("ClusterFirst")),
            ("restartPolicy", json!("Always")),
            ("schedulerName", json!("default-scheduler")),
            ("securityContext", json!({})),
            ("terminationGracePeriodSeconds", json!(30)),
        ],
    );
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        or_insert(spec, "serviceAccount", account);
    }
    for list in ["containers", "initContainers"] {
        for container in spec
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            fill_container(container, host);
        }
    }
    for volume in spec
        .get_mut("volumes")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        for source in ["secret", "configMap", "projected", "downwardAPI"] {
            if let Some(source) = volume.get_mut(source) {
                or_insert(source, "defaultMode", json!(420));
            }
        }
    }
}

fn fill_container(container: &mut Value, host_network: bool) {
    let image = container["image"].as_str().unwrap_or_default();
    let tag = image
        .rsplit('/')
        .next()
        .and_then(|last| last.split_once(':'))
        .map(|(_, tag)| tag);
    let pull = if tag.is_none_or(|tag| tag == "latest") && !image.contains('@') {
        "Always"
    } else {
        "IfNotPresent"
    };
    defaults(
        container,
        &[
            ("imagePullPolicy", json!(pull)),
            ("resources", json!({})),
            ("terminationMessagePath", json!("/dev/termination-log")),
            ("terminationMessagePolicy", json!("File")),
        ],
    );
    for port in container
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        or_insert(port, "protocol", json!("TCP"));
        if host_network {
            let number = port["containerPort"].clone();
            or_insert(port, "hostPort", number);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(name) else {
            continue;
        };
        defaults(
            probe,
            &[
                ("timeoutSeconds", json!(1)),
                ("periodSeconds", json!(10)),
                ("successThreshold", json!(1)),
                ("failureThreshold", json!(3)),
            ],
        );
        if let Some(get) = probe.get_mut("httpGet") {
            defaults(get, &[("path", json!("/")), ("scheme", json!("HTTP"))]);
        }
    }
    for variable in container
        .get_mut("env")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(reference) = variable.pointer_mut("/valueFrom/fieldRef") {
            or_insert(reference, "apiVersion", json!("v1"));
        }
    }
}
