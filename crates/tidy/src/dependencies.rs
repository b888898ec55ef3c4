//! Checks the dependencies between the crates of the workspace: compares `cargo metadata` with a table.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::Finding;

/// The allowed dependencies of each crate, without dev-dependencies.
pub const ALLOWED: &[(&str, &[&str])] = &[
    ("etcd-operator-api", &[]),
    ("etcd-operator-runtime", &["etcd-operator-api"]),
    ("etcd-operator-etcd", &["etcd-operator-etcd-types"]),
    ("etcd-operator-etcd-types", &[]),
    ("etcd-operator-store", &[]),
    (
        "etcd-operator-cluster",
        &[
            "etcd-operator-api",
            "etcd-operator-cluster-core",
            "etcd-operator-etcd",
            "etcd-operator-runtime",
        ],
    ),
    (
        "etcd-operator-cluster-core",
        &["etcd-operator-api", "etcd-operator-etcd-types"],
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
            "etcd-operator-cluster-core",
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
            "etcd-operator-cluster-core",
            "etcd-operator-etcd",
            "etcd-operator-manager",
            "etcd-operator-restore",
        ],
    ),
    ("etcd-operator-tidy", &[]),
    ("xtask", &[]),
];

/// Crates that must not depend on one another, not even in tests.
pub const INDEPENDENT: [&str; 3] = [
    "etcd-operator-cluster",
    "etcd-operator-backup",
    "etcd-operator-restore",
];

/// Crates that depend only on the standard library, also in tests.
pub const STANDARD_LIBRARY_ONLY: [&str; 1] = ["xtask"];

/// Crates that do no IO, with the dependencies they must not have.
pub const WITHOUT_IO: [(&str, &[&str]); 4] = [
    (
        "etcd-operator-api",
        &["tokio", "hyper", "reqwest", "axum", "tower"],
    ),
    (
        "etcd-operator-etcd-types",
        &["tokio", "hyper", "tonic", "etcd-client", "rustls", "kube"],
    ),
    (
        "etcd-operator-cluster-core",
        &["tokio", "hyper", "tonic", "tracing", "futures", "kube"],
    ),
    (
        "etcd-operator-snapshot",
        &["tokio", "hyper", "reqwest", "axum", "tower", "kube"],
    ),
];

/// A dependency in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Dependency {
    name: String,
    is_dev: bool,
}

/// Reports every new, missing or forbidden dependency, given the output of `cargo metadata --no-deps`.
pub fn findings(metadata: &Value) -> Vec<Finding> {
    let crates = parse_metadata(metadata);
    let allowed: BTreeMap<&str, BTreeSet<&str>> = ALLOWED
        .iter()
        .map(|(name, to)| (*name, to.iter().copied().collect()))
        .collect();
    let mut found = Vec::new();
    let mut add = |name: &str, what: String| found.push(Finding::for_file(name, what));
    for name in allowed.keys().filter(|name| !crates.contains_key(**name)) {
        add(
            name,
            "is in the table of dependencies but not in the workspace".to_owned(),
        );
    }
    for (name, dependencies) in &crates {
        let Some(allowed) = allowed.get(name.as_str()) else {
            add(name, "is not in the table of dependencies".to_owned());
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
                format!("no longer depends on {to}: remove it from the table"),
            );
        }
        let is_independent =
            |to: &Dependency| INDEPENDENT.contains(&name.as_str()) && INDEPENDENT.contains(&to.name.as_str());
        for to in dependencies.iter().filter(|to| to.is_dev && is_independent(to)) {
            add(name, format!("must not depend on {}, not even in tests", to.name));
        }
        if STANDARD_LIBRARY_ONLY.contains(&name.as_str()) {
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

fn parse_metadata(metadata: &Value) -> BTreeMap<String, BTreeSet<Dependency>> {
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

    /// Metadata of a workspace with exactly the allowed dependencies.
    fn allowed_metadata() -> Value {
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

    fn findings_with(from: &str, to: &str, kind: &Value) -> Vec<String> {
        let mut metadata = allowed_metadata();
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
    fn the_allowed_dependencies_are_accepted() {
        assert_eq!(findings(&allowed_metadata()), []);
        assert_eq!(findings_with("etcd-operator-api", "serde", &Value::Null), [""; 0]);
        assert_eq!(
            findings_with("etcd-operator-runtime", "etcd-operator-testkit", &json!("dev")),
            [""; 0]
        );
    }

    #[test]
    fn a_new_dependency_is_found() {
        assert_eq!(
            findings_with("etcd-operator-api", "etcd-operator-runtime", &Value::Null),
            ["etcd-operator-api: must not depend on etcd-operator-runtime"]
        );
        assert_eq!(
            findings_with("etcd-operator-runtime", "etcd-operator-cluster", &json!("build")),
            ["etcd-operator-runtime: must not depend on etcd-operator-cluster"]
        );
    }

    #[test]
    fn dependencies_between_controllers_are_found_even_in_tests() {
        for kind in [Value::Null, json!("dev")] {
            assert_eq!(
                findings_with("etcd-operator-backup", "etcd-operator-cluster", &kind).len(),
                1,
                "{kind}"
            );
        }
    }

    #[test]
    fn dependencies_of_xtask_and_io_crates_of_the_api_are_found() {
        assert_eq!(findings_with("xtask", "anyhow", &Value::Null).len(), 1);
        assert_eq!(findings_with("xtask", "proptest", &json!("dev")).len(), 1);
        assert_eq!(findings_with("etcd-operator-api", "tokio", &Value::Null).len(), 1);
    }

    #[test]
    fn new_and_removed_crates_and_removed_dependencies_are_found() {
        let mut metadata = allowed_metadata();
        metadata["packages"][0]["name"] = json!("etcd-operator-new");
        let lines: Vec<_> = findings(&metadata).iter().map(ToString::to_string).collect();
        assert!(
            lines.contains(&"etcd-operator-new: is not in the table of dependencies".to_owned()),
            "{lines:?}"
        );
        assert!(lines[0].contains("not in the workspace"), "{lines:?}");
        assert!(
            lines.iter().any(|line| line.contains("no longer depends on")),
            "{lines:?}"
        );
    }
}
