//! Scale of anything that can be scaled, and eviction of pods.

use std::sync::Arc;

use serde_json::{Value, json};

use super::delete::Options;
use super::kind::{Kind, ScalePaths};
use super::merge;
use super::ownership::{self, Operation, Writer};
use super::request::{Ask, PatchKind, Reply};
use super::route::Verb;
use super::selector::Selector;
use super::status_error::{Cause, Failure};
use super::store::{Key, State};
use super::stored::Stored;

fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

fn labels_as_text(selector: &Value) -> String {
    let pairs = selector["matchLabels"].as_object().into_iter().flatten();
    let mut parts: Vec<String> = pairs
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    parts.sort();
    parts.join(",")
}

fn scale_of(kind: &Kind, paths: &ScalePaths, object: &Value) -> Value {
    let number = |path: &str| object.pointer(&pointer(path)).and_then(Value::as_i64);
    let metadata = &object["metadata"];
    let mut spec = json!({});
    if let Some(replicas) = number(&paths.spec).filter(|&replicas| replicas != 0) {
        spec["replicas"] = json!(replicas);
    }
    let selector = match &paths.selector {
        Some(path) => object
            .pointer(&pointer(path))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        None if kind.custom => String::new(),
        None => labels_as_text(&object["spec"]["selector"]),
    };
    let mut status = json!({"replicas": number(&paths.status).unwrap_or(0)});
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    let mut kept = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        kept[field] = metadata[field].clone();
    }
    json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": kept, "spec": spec, "status": status})
}

fn set_condition(status: &mut Value, condition: Value) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(list) = status["conditions"].as_array_mut() else {
        return;
    };
    list.retain(|other| other["type"] != condition["type"]);
    list.push(condition);
}

impl State {
    /// GET, PUT and PATCH of the scale of an object.
    pub(crate) fn scale(&mut self, ask: &Ask) -> Result<Reply, Failure> {
        let kind = Arc::clone(&ask.kind);
        let paths = kind.scale.clone().ok_or_else(Failure::no_such_path)?;
        let key = Key::new(&kind, &ask.route.namespace, &ask.route.name);
        let live = self
            .get(&key)
            .cloned()
            .ok_or_else(|| Failure::not_found(&kind, &key.name))?;
        let current = scale_of(&kind, &paths, &live);
        let wanted = match (ask.route.verb, ask.patch) {
            (Verb::Get, _) => return Ok(Reply::ok(current)),
            (Verb::Update, _) => Value::clone(&ask.body),
            (Verb::Patch, Some(PatchKind::Json)) => {
                let mut scale = current.clone();
                merge::json_patch(&mut scale, &ask.body)?;
                scale
            }
            (Verb::Patch, _) => {
                let mut scale = current.clone();
                merge::json_merge(&mut scale, &ask.body);
                scale
            }
            _ => {
                return Err(Failure::new(
                    405,
                    "MethodNotAllowed",
                    "the server does not allow this method",
                ));
            }
        };
        let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas < 0 && !kind.custom {
            let cause = Cause::invalid(
                "spec.replicas",
                &json!(replicas),
                "must be greater than or equal to 0",
            );
            return Err(Failure::invalid("autoscaling", "Scale", &key.name, vec![cause]));
        }
        let mut object = Value::clone(&live);
        for field in ["resourceVersion", "uid"] {
            if let Some(sent) = wanted["metadata"]
                .get(field)
                .and_then(Value::as_str)
                .filter(|sent| !sent.is_empty())
            {
                object["metadata"][field] = json!(sent);
            }
        }
        let path = pointer(&paths.spec);
        let (parent, last) = path.rsplit_once('/').unwrap_or(("", "replicas"));
        if let Some(Value::Object(parent)) = object.pointer_mut(parent) {
            parent.insert(last.to_owned(), json!(replicas));
        }
        self.finish_update(ask, &key, &live, (object, &[]), None)?;
        let after = self.get(&key).cloned().unwrap_or(live);
        let mut out = scale_of(&kind, &paths, &after);
        if ask.dry_run() {
            out["spec"]["replicas"] = json!(replicas);
        }
        Ok(Reply::ok(out))
    }

    /// POST of an eviction: a deletion the disruption budgets of the pod must allow.
    pub(crate) fn evict(&mut self, ask: &Ask) -> Result<Reply, Failure> {
        let pods = Arc::clone(&ask.kind);
        let key = Key::new(&pods, &ask.route.namespace, &ask.route.name);
        let pod = self
            .get(&key)
            .cloned()
            .ok_or_else(|| Failure::not_found(&pods, &key.name))?;
        let options = &ask.body["deleteOptions"];
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let over = matches!(
            pod["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed" | "Pending")
        ) || pod["metadata"].get("deletionTimestamp").is_some();
        if !over {
            self.spend_budget(&key, &pod, ask.dry_run())?;
            if !ask.dry_run() {
                self.note_eviction(&key, &pod);
            }
        }
        let options = Options {
            uid: text(&options["preconditions"]["uid"]),
            version: text(&options["preconditions"]["resourceVersion"]),
            grace: options["gracePeriodSeconds"].as_i64(),
            propagation: None,
            dry_run: ask.dry_run(),
        };
        self.remove(&pods, &key, &options)?;
        Ok(Reply {
            code: 201,
            ..Reply::ok(json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
            }))
        })
    }

    fn spend_budget(&mut self, key: &Key, pod: &Value, dry_run: bool) -> Result<(), Failure> {
        let kind = self
            .kinds
            .at("policy", "v1", "poddisruptionbudgets")
            .expect("budgets are built in");
        let budgets: Vec<(Key, Arc<Stored>)> = self
            .of_kind(&kind, &key.namespace)
            .filter(|(_, budget)| {
                let selector = &budget["spec"]["selector"];
                selector.is_object() && Selector::from_object(selector).matches(pod)
            })
            .map(|(key, budget)| (key.clone(), Arc::clone(budget)))
            .collect();
        if budgets.len() > 1 {
            return Err(Failure::new(
                500,
                "InternalError",
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
        let Some((budget_key, budget)) = budgets.into_iter().next() else {
            return Ok(());
        };
        let status = &budget["status"];
        let refused = |message: String, seconds: Option<u32>| {
            let cause = Cause {
                reason: "DisruptionBudget".to_owned(),
                message,
                field: String::new(),
            };
            let failure = Failure::new(
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.",
            )
            .with_causes(vec![cause]);
            match seconds {
                Some(seconds) => failure.retry_after(seconds),
                None => failure,
            }
        };
        let name = &budget_key.name;
        let observed = status["observedGeneration"].as_i64().unwrap_or(0);
        if observed < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
            return Err(refused(
                format!("The disruption budget {name} is still being processed by the server."),
                Some(10),
            ));
        }
        let allowed = status["disruptionsAllowed"].as_i64().unwrap_or(0);
        if allowed < 1 {
            let number = |field: &str| status[field].as_i64().unwrap_or(0);
            let (wanted, found) = (number("desiredHealthy"), number("currentHealthy"));
            let why = if found <= wanted {
                format!("The disruption budget {name} needs {wanted} healthy pods and has {found} currently")
            } else {
                format!("The disruption budget {name} does not allow evicting pods currently")
            };
            return Err(refused(why, None));
        }
        if !dry_run {
            let stamp = self.stamp();
            let mut spent = Value::clone(&budget);
            let (status, reason) = if allowed > 1 {
                ("True", "SufficientPods")
            } else {
                ("False", "InsufficientPods")
            };
            spent["status"]["disruptionsAllowed"] = json!(allowed - 1);
            spent["status"]["disruptedPods"][&key.name] = json!(stamp);
            let condition = json!({
                "type": "DisruptionAllowed", "status": status, "reason": reason, "message": "",
                "observedGeneration": observed, "lastTransitionTime": stamp,
            });
            set_condition(&mut spent["status"], condition);
            let writer = Writer {
                manager: "kube-apiserver",
                operation: Operation::Update,
                subresource: "status",
                api_version: "policy/v1",
                now: &stamp,
                ignored: &["spec"],
                is_named: self.names_owners,
            };
            let owners = ownership::after_update(&kind.schema, &budget, budget.owners(), &mut spent, &writer);
            self.write_owned(budget_key, spent, owners);
        }
        Ok(())
    }

    fn note_eviction(&mut self, key: &Key, pod: &Value) {
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": self.stamp(),
        });
        let mut noted = pod.clone();
        set_condition(&mut noted["status"], condition);
        self.write(key.clone(), noted);
    }
}
