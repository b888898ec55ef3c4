//! What the API server does to built-in kinds beyond storing them: defaults, protection finalizers, immutable fields.
//! Only what an operator can meet; what other controllers do (scheduling, binding) does not belong here.

use serde_json::{Map, Value, json};

use super::kind::Kind;
use super::quantity;
use super::schema::{Schema, Shape};
use super::status_error::Cause;

fn or_insert(object: &mut Value, key: &str, value: Value) {
    if let Value::Object(map) = object
        && map.get(key).is_none_or(Value::is_null)
    {
        map.insert(key.to_owned(), value);
    }
}

fn defaults(object: &mut Value, pairs: &[(&str, Value)]) {
    for (key, value) in pairs {
        or_insert(object, key, value.clone());
    }
}

/// Nulls, empty maps and empty lists do not survive decoding into the server's types; empty structs do.
fn drop_empty(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|key, child| {
                let (below, _) = schema.field(key);
                drop_empty(&below, child);
                match (&below.shape, &*child) {
                    (_, Value::Null) => false,
                    (Shape::Object(shape), Value::Object(map)) => {
                        !(map.is_empty() && shape.additional.is_some())
                    }
                    (Shape::Array(_), Value::Array(list)) => !list.is_empty(),
                    _ => true,
                }
            });
        }
        Value::Array(list) => {
            let (below, _) = schema.items();
            list.iter_mut().for_each(|item| drop_empty(&below, item));
        }
        _ => {}
    }
}

/// Metadata as the server's own types write it: nothing null, no empty maps or lists.
pub(crate) fn tidy_metadata(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, child| match child {
            Value::Null => false,
            Value::Object(map) => !map.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::String(text) => !text.is_empty(),
            _ => true,
        });
    }
}

/// Brings a built-in object into the form in which the server stores it.
pub(crate) fn fill(kind: &Kind, object: &mut Value) {
    drop_empty(&kind.schema, object);
    quantity::normalise(&kind.schema, object);
    match kind.kind.as_str() {
        "Pod" => {
            or_insert(object, "status", json!({}));
            pod_spec(&mut object["spec"]);
            or_insert(&mut object["spec"], "enableServiceLinks", json!(true));
            request_limits(&mut object["spec"]);
            let quality = quality(&object["spec"]);
            pod_status(&mut object["status"], quality);
        }
        "Service" => service(object),
        "PersistentVolumeClaim" => {
            or_insert(&mut object["spec"], "volumeMode", json!("Filesystem"));
            if object["status"].get("phase").is_none() {
                object["status"]["phase"] = json!("Pending");
            }
        }
        "StatefulSet" => stateful_set(object),
        "Deployment" => deployment(object),
        "Job" => job(object),
        "Secret" => secret(object),
        "Namespace" => {
            let name = object["metadata"]["name"].clone();
            or_insert(&mut object["metadata"], "labels", json!({}));
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            or_insert(object, "status", json!({"phase": "Active"}));
        }
        "PodDisruptionBudget" => {
            or_insert(object, "status", json!({}));
            defaults(
                &mut object["status"],
                &[
                    ("currentHealthy", json!(0)),
                    ("desiredHealthy", json!(0)),
                    ("disruptionsAllowed", json!(0)),
                    ("expectedPods", json!(0)),
                ],
            );
        }
        _ => {}
    }
}

const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";

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
fn quality(spec: &Value) -> &'static str {
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
fn request_limits(spec: &mut Value) {
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

fn pod_status(status: &mut Value, quality: &str) {
    defaults(
        status,
        &[("phase", json!("Pending")), ("qosClass", json!(quality))],
    );
    condition_times(status, &["lastProbeTime", "lastTransitionTime"]);
    if let Some(address) = status.get("podIP").cloned() {
        or_insert(status, "podIPs", json!([{"ip": address}]));
    }
}

fn pod_spec(spec: &mut Value) {
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
            self::container(container, host);
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

fn container(container: &mut Value, host_network: bool) {
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

fn service(object: &mut Value) {
    let spec = &mut object["spec"];
    defaults(
        spec,
        &[("type", json!("ClusterIP")), ("sessionAffinity", json!("None"))],
    );
    if spec["type"] != "ExternalName" {
        or_insert(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let number = port["port"].clone();
        defaults(port, &[("protocol", json!("TCP")), ("targetPort", number)]);
    }
    or_insert(object, "status", json!({"loadBalancer": {}}));
}

fn stateful_set(object: &mut Value) {
    let spec = &mut object["spec"];
    defaults(
        spec,
        &[
            (
                "persistentVolumeClaimRetentionPolicy",
                json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
            ),
            ("podManagementPolicy", json!("OrderedReady")),
            ("replicas", json!(1)),
            ("revisionHistoryLimit", json!(10)),
            ("updateStrategy", json!({"type": "RollingUpdate"})),
        ],
    );
    if spec["updateStrategy"]["type"] == "RollingUpdate" {
        or_insert(&mut spec["updateStrategy"], "rollingUpdate", json!({}));
        or_insert(
            &mut spec["updateStrategy"]["rollingUpdate"],
            "partition",
            json!(0),
        );
    }
    pod_spec(&mut spec["template"]["spec"]);
    for claim in spec
        .get_mut("volumeClaimTemplates")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        defaults(
            claim,
            &[
                ("apiVersion", json!("v1")),
                ("kind", json!("PersistentVolumeClaim")),
                ("status", json!({"phase": "Pending"})),
            ],
        );
        or_insert(&mut claim["spec"], "volumeMode", json!("Filesystem"));
    }
    or_insert(object, "status", json!({}));
    defaults(
        &mut object["status"],
        &[("availableReplicas", json!(0)), ("replicas", json!(0))],
    );
}

fn deployment(object: &mut Value) {
    let rolling =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}});
    let spec = &mut object["spec"];
    defaults(
        spec,
        &[
            ("progressDeadlineSeconds", json!(600)),
            ("replicas", json!(1)),
            ("revisionHistoryLimit", json!(10)),
            ("strategy", rolling),
        ],
    );
    pod_spec(&mut spec["template"]["spec"]);
    or_insert(object, "status", json!({}));
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

fn job(object: &mut Value) {
    let spec = &mut object["spec"];
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        defaults(spec, &[("completions", json!(1)), ("parallelism", json!(1))]);
    }
    defaults(
        spec,
        &[
            ("backoffLimit", json!(6)),
            ("completionMode", json!("NonIndexed")),
            ("manualSelector", json!(false)),
            ("parallelism", json!(1)),
            ("podReplacementPolicy", json!("TerminatingOrFailed")),
            ("suspend", json!(false)),
        ],
    );
    pod_spec(&mut spec["template"]["spec"]);
    or_insert(object, "status", json!({}));
}

fn secret(object: &mut Value) {
    or_insert(object, "type", json!("Opaque"));
    let Some(root) = object.as_object_mut() else {
        return;
    };
    if let Some(Value::Object(plain)) = root.remove("stringData") {
        let data = root.entry("data").or_insert_with(|| json!({}));
        for (key, value) in plain {
            data[key] = json!(base64(value.as_str().unwrap_or_default().as_bytes()));
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let group = [
            chunk[0],
            chunk.get(1).copied().unwrap_or(0),
            chunk.get(2).copied().unwrap_or(0),
        ];
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for index in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * index)) as usize & 63];
            out.push(if index <= chunk.len() {
                char::from(letter)
            } else {
                '='
            });
        }
    }
    out
}

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

/// What the server refuses in a new object of a built-in kind.
pub(crate) fn check_new(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut need = |path: &str| {
        let pointer = format!("/{}", path.replace('.', "/"));
        let empty = match object.pointer(&pointer) {
            None | Some(Value::Null) => true,
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::String(text)) => text.is_empty(),
            Some(_) => false,
        };
        if empty {
            causes.push(Cause::required(path, ""));
        }
    };
    match kind.kind.as_str() {
        "Pod" => need("spec.containers"),
        "StatefulSet" | "Deployment" => {
            need("spec.selector");
            need("spec.template.spec.containers");
        }
        "Job" => need("spec.template.spec.containers"),
        _ => {}
    }
    if matches!(kind.kind.as_str(), "StatefulSet" | "Deployment") {
        let selector = object["spec"]["selector"]["matchLabels"].as_object();
        let labels = object["spec"]["template"]["metadata"]["labels"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        if selector.is_some_and(|wanted| wanted.iter().any(|(key, value)| labels.get(key) != Some(value))) {
            causes.push(Cause::invalid(
                "spec.template.metadata.labels",
                &Value::Object(labels),
                "`selector` does not match template `labels`",
            ));
        }
    }
    if kind.kind == "Job" && object["spec"]["template"]["spec"]["restartPolicy"] == "Always" {
        causes.push(Cause::unsupported(
            "spec.template.spec.restartPolicy",
            &json!("Always"),
            &[json!("OnFailure"), json!("Never")],
        ));
    }
    causes
}

fn spec_without(object: &Value, fields: &[&str]) -> Map<String, Value> {
    let mut spec = object["spec"].as_object().cloned().unwrap_or_default();
    for field in fields {
        spec.remove(*field);
    }
    spec
}

const STATEFUL_SET_MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

fn pod_images_removed(object: &Value) -> Map<String, Value> {
    let mut spec = spec_without(
        object,
        &[
            "activeDeadlineSeconds",
            "tolerations",
            "terminationGracePeriodSeconds",
        ],
    );
    for list in ["containers", "initContainers"] {
        for container in spec
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if let Some(container) = container.as_object_mut() {
                container.remove("image");
            }
        }
    }
    spec
}

/// What the server refuses to change in an object of a built-in kind.
pub(crate) fn check_change(kind: &Kind, before: &Value, after: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let immutable = |field: &str, causes: &mut Vec<Cause>| {
        let pointer = format!("/{}", field.replace('.', "/"));
        let (old, new) = (before.pointer(&pointer), after.pointer(&pointer));
        if old != new {
            causes.push(Cause::invalid(
                field,
                new.unwrap_or(&Value::Null),
                "field is immutable",
            ));
        }
    };
    match kind.kind.as_str() {
        "StatefulSet"
            if spec_without(before, &STATEFUL_SET_MUTABLE) != spec_without(after, &STATEFUL_SET_MUTABLE) =>
        {
            causes.push(Cause::forbidden(
                "spec",
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                 'minReadySeconds' are forbidden",
            ));
        }
        "Pod" if pod_images_removed(before) != pod_images_removed(after) => {
            causes.push(Cause::forbidden(
                "spec",
                "pod updates may not change fields other than `spec.containers[*].image`,\
                 `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                 existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                 previously negative)",
            ));
        }
        "PersistentVolumeClaim" => {
            let mutable = ["resources", "volumeAttributesClassName"];
            let bound = before["status"]["phase"] == "Bound" || before["spec"].get("volumeName").is_none();
            let mut fixed = mutable.to_vec();
            if bound {
                fixed.push("volumeName");
            }
            let grown = before["spec"]["resources"] != after["spec"]["resources"];
            let amount = |value: &Value| value.as_str().and_then(quantity::thousandths);
            let (asked, had) = (
                amount(&after["spec"]["resources"]["requests"]["storage"]),
                amount(&before["status"]["capacity"]["storage"]),
            );
            if grown && before["status"]["phase"] == "Bound" && asked < had {
                causes.push(Cause::forbidden(
                    "spec.resources.requests.storage",
                    "field can not be less than status.capacity",
                ));
            }
            if spec_without(before, &fixed) != spec_without(after, &fixed)
                || (grown && before["status"]["phase"] != "Bound")
            {
                causes.push(Cause::forbidden(
                    "spec",
                    "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
                     bound claims",
                ));
            }
        }
        "Service" if before["spec"]["type"] == "ClusterIP" && after["spec"]["type"] == "ClusterIP" => {
            if before["spec"]["clusterIP"] != after["spec"]["clusterIP"] {
                let shown = &after["spec"]["clusterIPs"];
                causes.push(Cause::invalid(
                    "spec.clusterIPs[0]",
                    shown,
                    "may not change once set",
                ));
            }
        }
        "Job" => {
            immutable("spec.completions", &mut causes);
            immutable("spec.selector", &mut causes);
            immutable("spec.template", &mut causes);
        }
        "Deployment" => immutable("spec.selector", &mut causes),
        "Secret" => immutable("type", &mut causes),
        _ => {}
    }
    if matches!(kind.kind.as_str(), "Secret" | "ConfigMap") && before["immutable"] == json!(true) {
        for field in ["data", "binaryData", "immutable"] {
            if before.get(field) != after.get(field) {
                causes.push(Cause::forbidden(
                    field,
                    "field is immutable when `immutable` is set",
                ));
            }
        }
    }
    causes
}
