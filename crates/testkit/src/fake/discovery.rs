//! What the server says about itself: version, health, groups and resources. Aggregated discovery is not spoken.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::kind::{Kind, Kinds};
use super::request::Reply;
use super::status_error::Failure;

fn verbs(kind: &Kind) -> Value {
    let _ = kind;
    json!([
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch"
    ])
}

fn resources(kinds: &Kinds, group: &str, version: &str) -> Vec<Value> {
    let mut out = Vec::new();
    for kind in kinds
        .all()
        .filter(|kind| kind.group == group && kind.version == version)
    {
        let mut entry = json!({
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": verbs(kind),
        });
        if !kind.short_names.is_empty() {
            entry["shortNames"] = json!(kind.short_names);
        }
        out.push(entry);
        if kind.status {
            out.push(json!({
                "name": format!("{}/status", kind.plural),
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": kind.kind,
                "verbs": ["get", "patch", "update"],
            }));
        }
        if kind.scale.is_some() {
            out.push(json!({
                "name": format!("{}/scale", kind.plural),
                "singularName": "",
                "namespaced": kind.namespaced,
                "group": "autoscaling",
                "version": "v1",
                "kind": "Scale",
                "verbs": ["get", "patch", "update"],
            }));
        }
    }
    out
}

fn group(name: &str, versions: &BTreeSet<&str>) -> Value {
    let list: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "versions": list, "preferredVersion": list.first()})
}

/// Answers a path that names no resource.
pub(crate) fn answer(kinds: &Kinds, path: &[String]) -> Result<Reply, Failure> {
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for kind in kinds.all() {
        groups.entry(&kind.group).or_default().insert(&kind.version);
    }
    let list = |name: &str, version: &str| {
        let found = resources(kinds, name, version);
        let api_version = if name.is_empty() {
            version.to_owned()
        } else {
            format!("{name}/{version}")
        };
        if found.is_empty() {
            return Err(Failure::no_such_path());
        }
        Ok(Reply::ok(json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": found,
        })))
    };
    let words: Vec<&str> = path.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["version"] => Ok(Reply::ok(json!({
            "major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "linux/amd64",
        }))),
        ["healthz" | "readyz" | "livez"] => Ok(Reply::ok(json!("ok"))),
        ["api"] => Ok(Reply::ok(json!({
            "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [],
        }))),
        ["apis"] => {
            let named: Vec<Value> = groups
                .iter()
                .filter(|(name, _)| !name.is_empty())
                .map(|(name, versions)| group(name, versions))
                .collect();
            Ok(Reply::ok(
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": named}),
            ))
        }
        ["api", version] => list("", version),
        ["apis", name] => {
            let versions = groups.get(name).ok_or_else(Failure::no_such_path)?;
            let mut found = group(name, versions);
            found["kind"] = json!("APIGroup");
            found["apiVersion"] = json!("v1");
            Ok(Reply::ok(found))
        }
        ["apis", name, version] => list(name, version),
        _ => Err(Failure::no_such_path()),
    }
}
