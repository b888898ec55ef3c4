//! What the chart makes of the values in `values/`, as it stands in `rendered/`: whoever changes a template sees there
//! what it changes for users. With `UPDATE_RENDERED=1` the files are written anew.

use std::fs;

use anyhow::{Context, Result};
use etcd_operator_e2e::components::Component;
use serde_json::Value;

use crate::helm::{HELMS, NAMESPACE, RELEASE, chart, helm, objects, repository, required_values, template};

/// A file of values by its name, and flags that go with it.
const MATRIX: &[(&str, &[&str])] = &[
    ("defaults", &[]),
    ("namespaces", &[]),
    ("cluster-wide", &[]),
    ("highly-available", &[]),
    ("everything", KNOWN),
    ("extras", &[]),
    ("example", KNOWN),
    ("example-known", KNOWN),
    ("older-chart", KNOWN),
    ("nothing-of-the-cluster", &[]),
];

/// What a Kubernetes says that has the definitions already.
pub const KNOWN: &[&str] = &[
    "--api-versions",
    "etcd.database.coreos.com/v1beta2/EtcdCluster,etcd.database.coreos.com/v1beta2/EtcdBackup",
];

fn values(name: &str) -> String {
    let path = repository("e2e/tests/chart/values").join(format!("{name}.yaml"));
    path.to_string_lossy().into_owned()
}

async fn render(component: Component, name: &str, flags: &[&str]) -> Result<String> {
    let values = values(name);
    let said = template(component, &[&["--values", &values], flags].concat()).await?;
    said.map_err(|complaint| anyhow::anyhow!("{component:?} {name}: {complaint}"))
}

#[tokio::test]
async fn values_render_as_committed_with_either_helm() -> Result<()> {
    let update = std::env::var_os("UPDATE_RENDERED").is_some();
    for (name, flags) in MATRIX {
        let path = repository("e2e/tests/chart/rendered").join(format!("{name}.yaml"));
        let [now, before] = HELMS;
        let rendered = render(now, name, flags).await?;
        if update {
            fs::write(&path, &rendered)?;
        }
        let committed = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        for (component, rendered) in [(now, rendered), (before, render(before, name, flags).await?)] {
            let differs = committed
                .lines()
                .zip(rendered.lines())
                .find(|(one, other)| one != other);
            assert!(
                committed == rendered,
                "{component:?}: {name} renders differently, first {differs:?}; if it is meant, run this test with UPDATE_RENDERED=1"
            );
        }
    }
    Ok(())
}

/// What people read after an install that changes it: a name, a file of values, and flags that go with it.
const TOLD: &[(&str, &str, &[&str])] = &[
    ("defaults", "defaults", &[]),
    ("namespaces", "namespaces", &[]),
    ("cluster-wide", "cluster-wide", &[]),
    (
        "cluster-wide-annotated",
        "cluster-wide",
        &["--set", "scope.requireAnnotation=true"],
    ),
    ("example", "example", &[]),
];

/// What helm would say after an install with these values, on a Kubernetes that knows nothing of us. The one before asks a
/// Kubernetes even so, and is heard where releases live.
async fn said_after(name: &str, flags: &[&str]) -> Result<String> {
    let (chart, values) = (chart(), values(name));
    let chart = chart.to_str().unwrap_or_default();
    let required = required_values();
    let required = required.each_ref().map(String::as_str);
    let install = [
        "install",
        RELEASE,
        chart,
        "--namespace",
        NAMESPACE,
        "--dry-run=client",
    ];
    let said = helm(
        Component::Helm,
        &[&install[..], &required, &["--values", &values], flags].concat(),
    )
    .await?;
    said.map_err(|complaint| anyhow::anyhow!("{name}: {complaint}"))
}

/// Compares the notes in what helm has said with those that are committed under a name.
pub fn told_as_committed(name: &str, said: &str) -> Result<()> {
    let (_, notes) = said.split_once("\nNOTES:\n").context("no notes")?;
    let told = format!("{}\n", notes.trim());
    let path = repository("e2e/tests/chart/notes").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_RENDERED").is_some() {
        fs::write(&path, &told)?;
    }
    let committed = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    assert_eq!(told, committed, "{name}: if it is meant, UPDATE_RENDERED=1");
    Ok(())
}

#[tokio::test]
async fn people_are_told_what_is_committed() -> Result<()> {
    for (name, values, flags) in TOLD {
        told_as_committed(name, &said_after(values, flags).await?)?;
    }
    Ok(())
}

#[tokio::test]
async fn the_dashboard_is_rendered_unchanged() -> Result<()> {
    let chart = chart();
    let [required, path] = required_values();
    let arguments = [
        "template",
        RELEASE,
        chart.to_str().unwrap_or_default(),
        "--kube-version=1.30.0",
        "--show-only=templates/dashboard.yaml",
        "--set=grafanaDashboard.create=true",
        &required,
        &path,
    ];
    let dashboard = fs::read_to_string(chart.join("dashboards/etcd-operator.json"))?;
    for component in HELMS {
        let said = helm(component, &arguments).await?;
        let rendered = objects(&said.map_err(|complaint| anyhow::anyhow!(complaint))?);
        let [map] = &rendered[..] else {
            anyhow::bail!("{rendered:?}");
        };
        assert_eq!(map["data"]["etcd-operator.json"], dashboard, "{component:?}");
        assert_eq!(
            map["metadata"]["labels"]["grafana_dashboard"], "1",
            "{component:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn every_file_of_values_is_in_the_matrix() -> Result<()> {
    let mut listed: Vec<String> = MATRIX.iter().map(|(name, _)| format!("{name}.yaml")).collect();
    listed.sort();
    for folder in ["values", "rendered"] {
        let mut there: Vec<String> = fs::read_dir(repository("e2e/tests/chart").join(folder))?
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        there.sort();
        assert_eq!(there, listed, "{folder}");
    }
    Ok(())
}

#[tokio::test]
async fn names_that_read_as_numbers_stay_names_and_a_label_is_rendered_once() -> Result<()> {
    const NAMES: [&str; 5] = [
        "--set-string",
        "fullnameOverride=true,namespaceOverride=456,serviceAccount.name=7",
        "--set",
        "labels.team=all,podLabels.team=etcd",
        "--set=networkPolicy.create=true",
    ];
    let is_text = |object: &Value, field: &str| object[field].is_null() || object[field].is_string();
    for component in HELMS {
        let said = template(component, &NAMES).await?;
        let text = said.map_err(|complaint| anyhow::anyhow!("{component:?}: {complaint}"))?;
        // A key that is there twice is an error of the parser.
        let objects = objects(&text);
        for object in &objects {
            let metadata = &object["metadata"];
            assert!(
                is_text(metadata, "name") && is_text(metadata, "namespace"),
                "{component:?}: {metadata}"
            );
        }
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
        let pod = &deployment.context("there is a Deployment")?["spec"]["template"];
        assert_eq!(pod["metadata"]["labels"]["team"], "etcd", "{component:?}");
        assert_eq!(pod["spec"]["serviceAccountName"], "7", "{component:?}");
    }
    Ok(())
}

#[tokio::test]
async fn either_helm_finds_nothing_to_complain_about() -> Result<()> {
    let chart = chart();
    let chart = chart.to_str().unwrap_or_default();
    for component in HELMS {
        for (name, _) in MATRIX {
            let values = values(name);
            let said = helm(component, &["lint", "--strict", chart, "--values", &values]).await?;
            assert!(said.is_ok(), "{component:?} {name}: {said:?}");
        }
    }
    Ok(())
}
