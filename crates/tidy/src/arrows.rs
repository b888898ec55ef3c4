//! Which of our crates may depend on which: read from `cargo metadata`, compared with one table.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::Finding;

/// The only arrows there are, without dev-dependencies.
pub const ALLOWED: &[(&str, &[&str])] = &[
    ("etcd-operator-api", &[]),
    ("etcd-operator-runtime", &["etcd-operator-api"]),
    ("etcd-operator-etcd", &[]),
    ("etcd-operator-store", &[]),
    (
        "etcd-operator-cluster",
        &["etcd-operator-api", "etcd-operator-etcd", "etcd-operator-runtime"],
    ),
    (
        "etcd-operator-backup",
        &["etcd-operator-api", "etcd-operator-runtime"],
    ),
    (
        "etcd-operator-restore",
        &["etcd-operator-api", "etcd-operator-runtime"],
    ),
    (
        "etcd-operator-member",
        &["etcd-operator-api", "etcd-operator-etcd"],
    ),
    ("etcd-operator-snapshot", &["etcd-operator-api"]),
    (
        "etcd-operator-job",
        &[
            "etcd-operator-api",
            "etcd-operator-etcd",
            "etcd-operator-snapshot",
            "etcd-operator-store",
        ],
    ),
    (
        "etcd-operator-manager",
        &[
            "etcd-operator-api",
            "etcd-operator-backup",
            "etcd-operator-cluster",
            "etcd-operator-etcd",
            "etcd-operator-job",
            "etcd-operator-member",
            "etcd-operator-restore",
            "etcd-operator-runtime",
            "etcd-operator-snapshot",
            "etcd-operator-store",
        ],
    ),
    (
        "etcd-operator-testkit",
        &["etcd-operator-api", "etcd-operator-etcd", "etcd-operator-member"],
    ),
    ("etcd-operator-e2e", &["etcd-operator-store"]),
    (
        "etcd-operator-gen",
        &[
            "etcd-operator-api",
            "etcd-operator-backup",
            "etcd-operator-cluster",
            "etcd-operator-manager",
            "etcd-operator-restore",
        ],
    ),
    ("etcd-operator-tidy", &[]),
    ("xtask", &[]),
];

/// Crates that must not know one another, not even in their tests.
pub const APART: [&str; 3] = [
    "etcd-operator-cluster",
    "etcd-operator-backup",
    "etcd-operator-restore",
];

/// Crates that depend on the standard library alone, tests included.
pub const ALONE: [&str; 1] = ["xtask"];

/// Crates that do no IO: none of these may be among their dependencies.
pub const WITHOUT_IO: [(&str, &[&str]); 2] = [
    (
        "etcd-operator-api",
        &["tokio", "hyper", "reqwest", "axum", "tower"],
    ),
    (
        "etcd-operator-snapshot",
        &["tokio", "hyper", "reqwest", "axum", "tower", "kube"],
    ),
];

/// A dependency as the manifest states it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Dependency {
    name: String,
    is_dev: bool,
}

/// Every arrow that is new, missing or forbidden, given `cargo metadata --no-deps`.
pub fn findings(metadata: &Value) -> Vec<Finding> {
    let crates = read(metadata);
    let allowed: BTreeMap<&str, BTreeSet<&str>> = ALLOWED
        .iter()
        .map(|(name, to)| (*name, to.iter().copied().collect()))
        .collect();
    let mut found = Vec::new();
    let mut add = |name: &str, what: String| found.push(Finding::of_file(name, what));
    for name in allowed.keys().filter(|name| !crates.contains_key(**name)) {
        add(
            name,
            "is in the table of arrows and not in the workspace".to_owned(),
        );
    }
    for (name, dependencies) in &crates {
        let Some(allowed) = allowed.get(name.as_str()) else {
            add(name, "is not in the table of arrows".to_owned());
            continue;
        };
        let ours: BTreeSet<&str> = dependencies
            .iter()
            .filter(|to| !to.is_dev && crates.contains_key(&to.name))
            .map(|to| to.name.as_str())
            .collect();
        for to in ours.difference(allowed) {
            add(name, format!("must not depend on {to}"));
        }
        for to in allowed.difference(&ours) {
            add(
                name,
                format!("no longer depends on {to}: take the arrow out of the table"),
            );
        }
        let is_apart = |to: &Dependency| APART.contains(&name.as_str()) && APART.contains(&to.name.as_str());
        for to in dependencies.iter().filter(|to| to.is_dev && is_apart(to)) {
            add(name, format!("must not know {}, not even in its tests", to.name));
        }
        if ALONE.contains(&name.as_str()) {
            for to in dependencies {
                add(
                    name,
                    format!("must not depend on anything, but does on {}", to.name),
                );
            }
        }
        for (_, io) in WITHOUT_IO.iter().filter(|(pure, _)| pure == name) {
            for to in dependencies.iter().filter(|to| io.contains(&to.name.as_str())) {
                add(name, format!("does no IO and must not depend on {}", to.name));
            }
        }
    }
    found
}

fn read(metadata: &Value) -> BTreeMap<String, BTreeSet<Dependency>> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .map(|package| {
            let dependencies = package["dependencies"].as_array().into_iter().flatten();
            let dependencies = dependencies.map(|to| Dependency {
                name: text(&to["name"]),
                is_dev: to["kind"] == "dev",
            });
            (text(&package["name"]), dependencies.collect())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Metadata of a workspace with exactly the allowed arrows.
    fn fine() -> Value {
        let packages: Vec<Value> = ALLOWED
            .iter()
            .map(|(name, to)| {
                let dependencies: Vec<Value> =
                    to.iter().map(|to| json!({"name": to, "kind": null})).collect();
                json!({"name": name, "dependencies": dependencies})
            })
            .collect();
        json!({ "packages": packages })
    }

    fn with(from: &str, to: &str, kind: &Value) -> Vec<String> {
        let mut metadata = fine();
        let packages = metadata["packages"].as_array_mut().expect("packages");
        let package = packages
            .iter_mut()
            .find(|package| package["name"] == from)
            .expect("the crate");
        let list = package["dependencies"].as_array_mut().expect("dependencies");
        list.push(json!({"name": to, "kind": kind}));
        findings(&metadata).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_allowed_arrows_are_allowed() {
        assert_eq!(findings(&fine()), []);
        assert_eq!(with("etcd-operator-api", "serde", &Value::Null), [""; 0]);
        assert_eq!(
            with("etcd-operator-runtime", "etcd-operator-testkit", &json!("dev")),
            [""; 0]
        );
    }

    #[test]
    fn a_new_arrow_is_found() {
        assert_eq!(
            with("etcd-operator-api", "etcd-operator-runtime", &Value::Null),
            ["etcd-operator-api: must not depend on etcd-operator-runtime"]
        );
        assert_eq!(
            with("etcd-operator-runtime", "etcd-operator-cluster", &json!("build")),
            ["etcd-operator-runtime: must not depend on etcd-operator-cluster"]
        );
    }

    #[test]
    fn controllers_that_know_one_another_are_found_even_in_tests() {
        for kind in [Value::Null, json!("dev")] {
            assert_eq!(
                with("etcd-operator-backup", "etcd-operator-cluster", &kind).len(),
                1,
                "{kind}"
            );
        }
    }

    #[test]
    fn any_dependency_of_xtask_and_io_of_the_api_are_found() {
        assert_eq!(with("xtask", "anyhow", &Value::Null).len(), 1);
        assert_eq!(with("xtask", "proptest", &json!("dev")).len(), 1);
        assert_eq!(with("etcd-operator-api", "tokio", &Value::Null).len(), 1);
    }

    #[test]
    fn a_crate_that_is_new_or_gone_and_an_arrow_that_is_gone_are_found() {
        let mut metadata = fine();
        metadata["packages"][0]["name"] = json!("etcd-operator-new");
        let lines: Vec<_> = findings(&metadata).iter().map(ToString::to_string).collect();
        assert!(
            lines.contains(&"etcd-operator-new: is not in the table of arrows".to_owned()),
            "{lines:?}"
        );
        assert!(lines[0].contains("not in the workspace"), "{lines:?}");
        assert!(
            lines.iter().any(|line| line.contains("no longer depends on")),
            "{lines:?}"
        );
    }
}
