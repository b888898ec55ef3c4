//! Pages that people wrote fit what they are about: every metric has its row, every value of the chart exists, every
//! link leads somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use etcd_operator_api::condition::{self, ConditionType};
use etcd_operator_cluster::metrics::{CONTROLLED_ELSEWHERE, FAMILIES};
use etcd_operator_gen::tree;
use serde_json::Value;

fn text(path: &str) -> String {
    fs::read_to_string(tree::root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The first words in quotes after each call of `register` or `register_computed`.
fn registered(source: &str) -> BTreeSet<String> {
    let calls = source.split("register").skip(1).filter_map(|rest| {
        let rest = rest.strip_prefix("_computed").unwrap_or(rest);
        let rest = rest.strip_prefix('(')?.trim_start().strip_prefix('"')?;
        rest.split('"').next().map(str::to_owned)
    });
    calls.collect()
}

/// The names of all metrics of the manager, without what comes before and after them on the page.
fn metrics() -> BTreeSet<String> {
    let runtime = text("crates/runtime/src/metrics.rs");
    let (runtime, _) = runtime.split_once("#[cfg(test)]").expect("tests at its end");
    let mut names = registered(runtime);
    names.extend(registered(&text("crates/manager/src/run.rs")));
    names.extend(FAMILIES.map(|(name, _, _)| name.to_owned()));
    names.insert(CONTROLLED_ELSEWHERE.0.to_owned());
    assert!(names.len() > 20 && names.contains("queue_depth"), "{names:?}");
    names
}

#[test]
fn every_metric_has_a_row_and_every_row_is_of_a_metric() {
    let page = text("docs/operations.md");
    let rows: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `etcd_operator_")?.split('`').next())
        .map(|name| name.trim_end_matches("_total").to_owned())
        .collect();
    assert_eq!(rows, metrics());
    assert_eq!(
        registered("register(\"a\", x) register_computed(\n  \"b\", y) register(name)"),
        BTreeSet::from(["a".to_owned(), "b".to_owned()])
    );
}

/// The names of metrics in an expression.
fn asked_for(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter_map(|word| word.strip_prefix("etcd_operator_"))
        .map(|name| name.trim_end_matches("_total"))
        .collect()
}

/// The expressions under the heading about alerts.
fn alerts() -> String {
    let page = text("docs/operations.md");
    let (_, section) = page.split_once("\n## Alerts\n").expect("alerts");
    let section = section.split("\n## ").next().unwrap_or_default();
    section.split("```").skip(1).step_by(2).collect()
}

/// A name that nothing tells would make an alert that never comes.
#[test]
fn every_alert_asks_for_metrics_there_are() {
    let alerts = alerts();
    let asked = asked_for(&alerts);
    let known = metrics();
    let unknown: Vec<_> = asked.iter().filter(|name| !known.contains(**name)).collect();
    assert!(unknown.is_empty(), "nothing tells {unknown:?}");
    assert!(asked.len() > 8 && asked.contains("leader"), "{asked:?}");
    assert_eq!(
        asked_for("rate(etcd_operator_a_b_total[5m]) > 0 unless on (x) etcd_operator_c{d=\"e\"}"),
        BTreeSet::from(["a_b", "c"])
    );
}

/// The types of conditions that are asked for, in the order of the page.
fn types_asked_for(expression: &str) -> Vec<&str> {
    let labels = expression.split("type=").skip(1);
    labels
        .filter_map(|rest| rest.trim_start_matches('~').strip_prefix('"')?.split('"').next())
        .flat_map(|types| types.split('|'))
        .collect()
}

/// A type that no condition has would make such an alert as well. Of these none may go without one.
#[test]
fn every_alert_on_a_condition_asks_for_one_there_is_and_what_stops_the_operator_has_one() {
    let alerts = alerts();
    let asked = types_asked_for(&alerts);
    let known = condition::ALL.map(ConditionType::as_str);
    let unknown: Vec<_> = asked.iter().filter(|type_| !known.contains(type_)).collect();
    assert!(unknown.is_empty(), "there is no condition {unknown:?}");
    for type_ in ["Accepted", "Available", "QuorumLost", "DataLost"] {
        assert!(asked.contains(&type_), "no alert asks for {type_}: {asked:?}");
    }
    let refused = alerts.lines().filter(|line| line.contains("type=\"Accepted\""));
    let refused: Vec<_> = refused.collect();
    assert!(
        refused.len() == 1 && refused[0].contains("status=\"False\"}) == 1"),
        "{refused:?}"
    );
    assert_eq!(
        types_asked_for("a{type=~\"B|C\", status=\"True\"} unless d{x=\"y\"} or e{type=\"F\"}"),
        ["B", "C", "F"]
    );
}

/// Relative links of a page, without their anchors.
fn links(page: &str) -> Vec<&str> {
    page.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .map(|link| link.split('#').next().unwrap_or_default())
        .filter(|link| !link.is_empty() && !link.contains("://"))
        .collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    let heads = page.lines().filter(|line| line.starts_with('#'));
    heads
        .map(|head| {
            let words = head.trim_start_matches('#').trim().to_lowercase();
            let kept = words
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.collect::<String>().replace(' ', "-")
        })
        .collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut seen = 0;
    let docs = fs::read_dir(tree::root().join("docs")).expect("pages");
    let pages = docs
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let pages = pages.filter(|name| Path::new(name).extension().is_some_and(|end| end == "md"));
    for path in pages
        .map(|name| format!("docs/{name}"))
        .chain(["README.md".to_owned()])
    {
        let page = text(&path);
        let folder = tree::root().join(&path);
        let folder = folder.parent().expect("a folder");
        for link in links(&page) {
            assert!(folder.join(link).exists(), "{path} links to {link}");
            seen += 1;
        }
        for rest in page.split("](").skip(1) {
            let link = rest.split(')').next().unwrap_or_default();
            if let Some((file, anchor)) = link.split_once('#')
                && !link.contains("://")
            {
                let there = if file.is_empty() {
                    page.clone()
                } else {
                    fs::read_to_string(folder.join(file)).expect("a page")
                };
                assert!(anchors(&there).contains(anchor), "{path} links to {link}");
            }
        }
    }
    assert!(seen > 10, "{seen}");
    assert_eq!(links("a [b](c.md#d), [e](https://f) and [g](#h)"), ["c.md"]);
    assert!(anchors("## Choose the scope\n").contains("choose-the-scope"));
}

/// The schema of a value of the chart, by its path.
fn value<'a>(schema: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(schema, |schema, part| {
        let part = part.split('[').next().unwrap_or(part);
        let schema = schema.get("items").unwrap_or(schema);
        match schema.get("properties") {
            // Where some keys are taken, any other one is.
            Some(properties)
                if properties
                    .as_object()
                    .is_some_and(|all| all.values().all(|one| one == false)) =>
            {
                schema.get("additionalProperties")
            }
            Some(properties) => properties.get(part),
            // What is open there is Kubernetes' own.
            None => Some(schema),
        }
    })
}

#[test]
fn every_value_that_a_page_names_is_one_of_the_chart() {
    let schema: Value = serde_json::from_str(&text("charts/etcd-operator/values.schema.json")).expect("JSON");
    let page = text("docs/install.md");
    let mut seen = 0;
    let words = page.split(|c: char| c.is_whitespace() || "`,:\"".contains(c));
    for word in words.filter(|word| !word.starts_with(['-', '/', '$'])) {
        let Some((path, _)) = word.split_once('=') else {
            continue;
        };
        let is_of_others = path.contains('/') || path == "crds";
        if !is_of_others {
            assert!(value(&schema, path).is_some(), "docs/install.md names {path}");
            seen += 1;
        }
    }
    assert!(seen > 12, "{seen}");
    assert!(value(&schema, "env[0].name").is_some() && value(&schema, "env[0].nam").is_none());
    assert!(value(&schema, "scope.clusterwide").is_none());
}
