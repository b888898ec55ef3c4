//! The bill of materials of what is shipped: every crate that is linked into a program, as CycloneDX. Pure; what Cargo
//! says is asked for by [`ask`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::command;

/// The version of CycloneDX that is written.
const SPECIFICATION: &str = "1.6";

/// What Cargo says about a program.
#[derive(Clone, Debug)]
pub struct Told {
    /// `cargo metadata`: every package, and what each needs.
    pub metadata: Value,
    /// `cargo tree`: a line `NAME vVERSION` for each package that is linked into it, itself first.
    pub linked: String,
    /// Cargo.lock: the checksums.
    pub lock: String,
}

/// Asks Cargo about a package of the workspace at `root`, as it is built for `target`.
pub async fn ask(root: &Path, package: &str, target: &str) -> Result<Told> {
    let cargo = |arguments: Vec<&str>| {
        let mut cargo = command::cargo();
        cargo.args(arguments).arg("--locked").current_dir(root);
        command::succeed(cargo, "")
    };
    let metadata = cargo(vec![
        "metadata",
        "--format-version=1",
        "--filter-platform",
        target,
    ])
    .await?;
    let linked = [
        &["tree", "--package", package, "--target", target][..],
        &[
            "--edges",
            "normal,no-proc-macro",
            "--prefix",
            "none",
            "--no-dedupe",
            "--format",
            "{p}",
        ],
    ];
    Ok(Told {
        metadata: serde_json::from_str(&metadata).context("`cargo metadata` is not JSON")?,
        linked: cargo(linked.concat()).await?,
        lock: std::fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?,
    })
}

/// A package by name and version, of which there is one in a program.
type Name<'a> = (&'a str, &'a str);

/// The bill of a program.
pub fn bill(told: &Told, program: &str) -> Result<Value> {
    let packages = told.metadata["packages"].as_array().context("no packages")?;
    let named: BTreeMap<&str, &Value> = packages
        .iter()
        .filter_map(|package| Some((package["id"].as_str()?, package)))
        .collect();
    let linked = linked(&told.linked);
    let itself = *linked.first().context("nothing is linked")?;
    let linked: BTreeSet<Name<'_>> = linked.into_iter().collect();
    let checksums = checksums(&told.lock);

    let mut components = Vec::new();
    let mut main = None;
    for package in packages {
        let Some(name) = name(package).filter(|name| linked.contains(name)) else {
            continue;
        };
        let component = component(package, name, checksums.get(&name).copied());
        if name == itself {
            main = Some(component);
        } else {
            components.push((name, component));
        }
    }
    ensure!(
        components.len() + 1 == linked.len(),
        "{} packages are linked, and Cargo tells of {}",
        linked.len(),
        components.len() + 1
    );
    components.sort_by_key(|(name, _)| *name);
    let mut main = main.context("Cargo does not tell of the program itself")?;
    main["type"] = "application".into();
    main["name"] = program.into();

    let nodes = told.metadata["resolve"]["nodes"].as_array().context("no graph")?;
    let mut dependencies = BTreeMap::new();
    for node in nodes {
        let of = |id: &Value| name(named.get(id.as_str()?)?).filter(|name| linked.contains(name));
        let Some(from) = of(&node["id"]) else { continue };
        let needed: BTreeSet<String> = node["deps"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|dependency| is_linked(dependency))
            .filter_map(|dependency| of(&dependency["pkg"]).map(reference))
            .collect();
        dependencies.insert(reference(from), needed);
    }
    let dependencies: Vec<Value> = dependencies
        .into_iter()
        .map(|(from, needed)| json!({"ref": from, "dependsOn": needed}))
        .collect();
    let components: Vec<Value> = components.into_iter().map(|(_, component)| component).collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": {
            "component": main,
            "supplier": {"name": "The etcd-operator authors"},
            "lifecycles": [{"phase": "build"}],
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// The packages in lines of `cargo tree`.
fn linked(lines: &str) -> Vec<Name<'_>> {
    lines
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect()
}

fn name(package: &Value) -> Option<Name<'_>> {
    Some((package["name"].as_str()?, package["version"].as_str()?))
}

/// Whether anything but a build or a test needs it.
fn is_linked(dependency: &Value) -> bool {
    let kinds = dependency["dep_kinds"].as_array();
    kinds.is_none_or(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
}

/// A package URL, which is also how the bill refers to a package.
fn reference((name, version): Name<'_>) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

fn component(package: &Value, name: Name<'_>, checksum: Option<&str>) -> Value {
    let reference = reference(name);
    let mut component = json!({
        "type": "library",
        "bom-ref": reference,
        "name": name.0,
        "version": name.1,
        "scope": "required",
        "purl": reference,
    });
    if let Some(licence) = package["license"].as_str() {
        // Older manifests have a slash for what is written OR today.
        let expression = licence.replace('/', " OR ").replace("  ", " ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    if let Some(description) = package["description"].as_str() {
        component["description"] = description.trim().into();
    }
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
    }
    component
}

/// The checksums in a lock file.
fn checksums(lock: &str) -> BTreeMap<Name<'_>, &str> {
    let mut found = BTreeMap::new();
    for part in lock.split("[[package]]") {
        let get = |key: &str| {
            part.lines().find_map(|line| {
                let rest = line.strip_prefix(key)?;
                rest.strip_prefix(" = \"")?.strip_suffix('"')
            })
        };
        if let (Some(name), Some(version), Some(checksum)) = (get("name"), get("version"), get("checksum")) {
            found.insert((name, version), checksum);
        }
    }
    found
}

#[cfg(test)]
mod tests;
