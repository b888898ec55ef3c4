//! Checks handwritten pages: every metric has a row, alerts use existing metrics, and every chart value exists.

use std::collections::BTreeSet;
use std::fs;

use etcd_operator_api::condition::{self, ConditionType};
use etcd_operator_backup::metrics as backup;
use etcd_operator_cluster::metrics as cluster;
use etcd_operator_gen::tree;
use etcd_operator_restore::metrics as restore;
use serde_json::Value;

fn text(path: &str) -> String {
    fs::read_to_string(tree::root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The first string literal after each call of `register`.
fn registered_names(source: &str) -> BTreeSet<String> {
    let calls = source.split("register").skip(1).filter_map(|rest| {
        let rest = rest.strip_prefix('(')?.trim_start().strip_prefix('"')?;
        rest.split('"').next().map(str::to_owned)
    });
    calls.collect()
}

/// The names of all metrics of the manager, without prefix and suffix.
fn metrics() -> BTreeSet<String> {
    let runtime = text("crates/runtime/src/metrics.rs");
    let (runtime, _) = runtime.split_once("#[cfg(test)]").expect("tests at its end");
    let mut names = registered_names(runtime);
    names.extend(cluster::FAMILIES.map(|(name, _, _)| name.to_owned()));
    names.extend(backup::FAMILIES.map(|(name, _, _)| name.to_owned()));
    names.extend(restore::FAMILIES.map(|(name, _, _)| name.to_owned()));
    names.insert(cluster::CONTROLLED_ELSEWHERE.0.to_owned());
    assert!(names.len() > 20 && names.contains("queue_depth"), "{names:?}");
    names
}

#[test]
fn metrics_and_documented_metrics_are_equal() {
    let page = text("docs/operations.md");
    let rows: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `etcd_operator_")?.split('`').next())
        .map(|name| name.trim_end_matches("_total").to_owned())
        .collect();
    assert_eq!(rows, metrics());
    assert_eq!(
        registered_names("register(\"a\", x) register(\n  \"b\", y) register(name)"),
        BTreeSet::from(["a".to_owned(), "b".to_owned()])
    );
}

/// The metric names in an expression.
fn metrics_in(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter_map(|word| word.strip_prefix("etcd_operator_"))
        .map(|name| name.trim_end_matches("_total").trim_end_matches("_bucket"))
        .collect()
}

/// The expressions of the documented alerts.
fn alerts() -> String {
    let page = text("docs/operations.md");
    let (_, section) = page.split_once("\n## Alerts\n").expect("alerts");
    let section = section.split("\n## ").next().unwrap_or_default();
    section.split("```").skip(1).step_by(2).collect()
}

/// What the page about Prometheus and Grafana shows, without its prose.
fn monitoring() -> String {
    let page = text("docs/how-to/monitor.md");
    page.split('`').skip(1).step_by(2).collect::<Vec<_>>().join("\n")
}

/// An alert on a metric that does not exist would never fire.
#[test]
fn every_alert_uses_existing_metrics() {
    let alerts = alerts();
    let used = metrics_in(&alerts);
    let monitoring = monitoring();
    let known = metrics();
    let all = used
        .union(&metrics_in(&monitoring))
        .copied()
        .collect::<BTreeSet<_>>();
    let unknown: Vec<_> = all.iter().filter(|name| !known.contains(**name)).collect();
    assert!(unknown.is_empty(), "no such metrics: {unknown:?}");
    assert!(used.len() > 8 && used.contains("leader"), "{used:?}");
    assert_eq!(
        metrics_in("rate(etcd_operator_a_b_total[5m]) > 0 unless on (x) etcd_operator_c{d=\"e\"}"),
        BTreeSet::from(["a_b", "c"])
    );
}

/// The strings below this key, anywhere in a document.
fn strings<'a>(document: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match document {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str().filter(|_| name == key) {
                    Some(text) => found.push(text),
                    None => strings(value, key, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| strings(item, key, found)),
        _ => {}
    }
}

/// A panel about a metric that does not exist would stay empty.
#[test]
fn the_dashboard_uses_existing_metrics_and_conditions() {
    let text_of_dashboard = text("charts/etcd-operator/dashboards/etcd-operator.json");
    let dashboard: Value = serde_json::from_str(&text_of_dashboard).expect("JSON");
    let mut expressions = Vec::new();
    strings(&dashboard, "expr", &mut expressions);
    assert!(expressions.len() > 25, "{expressions:?}");
    strings(&dashboard["templating"], "query", &mut expressions);
    let expressions = expressions.join("\n");
    let used = metrics_in(&expressions);
    let known = metrics();
    let unknown: Vec<_> = used.iter().filter(|name| !known.contains(**name)).collect();
    assert!(unknown.is_empty(), "no such metrics: {unknown:?}");
    assert!(
        used.contains("cluster_members") && used.contains("reconcile_duration_seconds"),
        "{used:?}"
    );
    let process = text("crates/runtime/src/metrics/process.rs");
    let words = expressions.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    for word in words.filter(|word| word.starts_with("process_")) {
        let family = word.trim_end_matches("_total");
        assert!(process.contains(&format!("\"{family}\"")), "there is no {word}");
    }
    let conditions = condition::ALL.map(ConditionType::as_str);
    let types = condition_types_in(&expressions);
    let unknown: Vec<_> = types.iter().filter(|type_| !conditions.contains(type_)).collect();
    assert!(unknown.is_empty(), "there is no condition {unknown:?}");
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        assert!(ids.insert(panel["id"].as_u64().expect("an ID")), "{panel}");
    }
}

/// The documented alerts, each in one line without its comment.
fn documented_alerts() -> BTreeSet<String> {
    let mut all = Vec::<String>::new();
    for line in alerts().lines().filter(|line| !line.trim().is_empty()) {
        let expression = line.split(" # ").next().unwrap_or_default();
        match all.last_mut().filter(|_| line.starts_with(' ')) {
            Some(last) => *last = format!("{last} {}", expression.trim()),
            None => all.push(expression.trim().to_owned()),
        }
    }
    all.into_iter().collect()
}

#[test]
fn alerts_of_the_chart_are_the_documented_ones() {
    let rules: Value =
        serde_saphyr::from_str(&text("charts/etcd-operator/alerts/etcd-operator.yaml")).expect("YAML");
    let rules = rules["groups"][0]["rules"].as_array().expect("rules");
    let mut names = BTreeSet::new();
    let mut expressions = BTreeSet::new();
    for rule in rules {
        assert!(names.insert(rule["alert"].as_str().expect("a name")), "{rule}");
        expressions.insert(rule["expr"].as_str().expect("an expression").to_owned());
        assert!(rule["annotations"]["summary"].is_string(), "{rule}");
        let severity = rule["labels"]["severity"].as_str();
        assert!(["critical", "warning"].map(Some).contains(&severity), "{rule}");
    }
    assert_eq!(expressions, documented_alerts());
}

/// The condition types in an expression, in order.
fn condition_types_in(expression: &str) -> Vec<&str> {
    let labels = expression.split("type=").skip(1);
    labels
        .filter_map(|rest| rest.trim_start_matches('~').strip_prefix('"')?.split('"').next())
        .flat_map(|types| types.split('|'))
        .collect()
}

/// An alert on a condition type that does not exist would never fire. The critical conditions, and
/// Stalled of a restore, must have alerts.
#[test]
fn alerts_use_existing_conditions_and_cover_the_critical_ones() {
    let alerts = alerts();
    let used = condition_types_in(&alerts);
    let monitoring = monitoring();
    let known = condition::ALL.map(ConditionType::as_str);
    let all = used.iter().copied().chain(condition_types_in(&monitoring));
    let unknown: Vec<_> = all.filter(|type_| !known.contains(type_)).collect();
    assert!(unknown.is_empty(), "there is no condition {unknown:?}");
    for type_ in ["Accepted", "Available", "QuorumLost", "DataLost", "Stalled"] {
        assert!(used.contains(&type_), "no alert uses {type_}: {used:?}");
    }
    let refused = alerts.lines().filter(|line| line.contains("type=\"Accepted\""));
    let refused: Vec<_> = refused.collect();
    assert!(
        refused.len() == 1 && refused[0].contains("status=\"False\"}) == 1"),
        "{refused:?}"
    );
    assert_eq!(
        condition_types_in("a{type=~\"B|C\", status=\"True\"} unless d{x=\"y\"} or e{type=\"F\"}"),
        ["B", "C", "F"]
    );
}

/// The schema of a chart value, by path.
fn value_schema<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(schema, |schema, part| {
        let part = part.split('[').next().unwrap_or(part);
        let schema = schema.get("items").unwrap_or(schema);
        match schema.get("properties") {
            // A map that forbids some keys accepts all others.
            Some(properties)
                if properties
                    .as_object()
                    .is_some_and(|all| all.values().all(|one| one == false)) =>
            {
                schema.get("additionalProperties")
            }
            Some(properties) => properties.get(part),
            // An open schema is that of a Kubernetes type.
            None => Some(schema),
        }
    })
}

#[test]
fn every_documented_chart_value_exists() {
    let schema: Value = serde_json::from_str(&text("charts/etcd-operator/values.schema.json")).expect("JSON");
    let mut seen = 0;
    for path_of_page in [
        "docs/install.md",
        "docs/how-to/air-gapped.md",
        "docs/how-to/several-installations.md",
    ] {
        let page = text(path_of_page);
        let words = page.split(|c: char| c.is_whitespace() || "`,:\"".contains(c));
        for word in words.filter(|word| !word.starts_with(['-', '/', '$'])) {
            let Some((path, _)) = word.split_once('=') else {
                continue;
            };
            let is_foreign = path.contains('/') || path == "crds";
            if !is_foreign {
                assert!(
                    value_schema(&schema, path).is_some(),
                    "{path_of_page} names {path}"
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 12, "{seen}");
    assert!(value_schema(&schema, "env[0].name").is_some() && value_schema(&schema, "env[0].nam").is_none());
    assert!(value_schema(&schema, "scope.clusterwide").is_none());
}
