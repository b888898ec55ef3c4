//! The controller of disruption budgets: how many pods may be evicted now. Only `minAvailable` as a number is modelled.

use serde_json::{Value, json};

use super::api::{Kind, Objects, Write, at, is_ending, name, namespace};
use super::sets::is_ready;

/// Writes what each budget allows.
pub(crate) fn step(objects: &Objects) -> Vec<Write> {
    objects
        .budgets
        .iter()
        .filter_map(|budget| one(budget, objects))
        .collect()
}

fn one(budget: &Value, objects: &Objects) -> Option<Write> {
    let labels = at(budget, "/spec/selector/matchLabels")?.as_object()?;
    let pods: Vec<_> = objects
        .pods
        .iter()
        .filter(|pod| {
            namespace(pod) == namespace(budget)
                && labels
                    .iter()
                    .all(|(key, value)| pod["metadata"]["labels"].get(key) == Some(value))
        })
        .collect();
    let healthy = pods.iter().filter(|pod| is_ready(pod) && !is_ending(pod)).count();
    let wanted = budget["spec"]["minAvailable"].as_u64().unwrap_or(0);
    let healthy = u64::try_from(healthy).unwrap_or(0);
    let status = json!({
        "observedGeneration": budget["metadata"]["generation"],
        "currentHealthy": healthy,
        "desiredHealthy": wanted,
        "expectedPods": pods.len(),
        "disruptionsAllowed": healthy.saturating_sub(wanted),
    });
    let fields = status.as_object()?;
    let is_same = fields
        .iter()
        .all(|(key, value)| budget["status"].get(key) == Some(value));
    (!is_same).then(|| Write::Patch {
        kind: Kind::Budget,
        namespace: namespace(budget).to_owned(),
        name: name(budget).to_owned(),
        is_status: true,
        patch: json!({"status": status}),
    })
}
