//! What the rendered objects are, whatever the values: of fields that Kubernetes knows, without privileges, apart from
//! other releases.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};
use etcd_operator_cluster_core::build::desired;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::helm::{NAMESPACE, RELEASE, objects, repository};

/// The objects of every rendered set of values.
fn all() -> Result<Vec<(String, Value)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(repository("e2e/tests/chart/rendered"))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let found = objects(&fs::read_to_string(entry.path())?);
        assert!(!found.is_empty(), "{name} renders nothing");
        all.extend(found.into_iter().map(|object| (name.clone(), object)));
    }
    assert!(all.len() > 30, "{} objects", all.len());
    Ok(all)
}

/// Fields that the type of an object does not have.
fn unknown<K: DeserializeOwned + Serialize>(object: &Value) -> Result<Vec<String>> {
    fn compare(given: &Value, known: &Value, path: &str, found: &mut Vec<String>) {
        match (given, known) {
            (Value::Object(given), Value::Object(known)) => {
                for (key, value) in given {
                    match known.get(key) {
                        Some(known) => compare(value, known, &format!("{path}.{key}"), found),
                        // Empty is the same as absent.
                        None if value.is_null() || *value == serde_json::json!({}) => {}
                        None => found.push(format!("{path}.{key}")),
                    }
                }
            }
            (Value::Array(given), Value::Array(known)) => {
                for (given, known) in given.iter().zip(known) {
                    compare(given, known, path, found);
                }
            }
            _ => {}
        }
    }
    let typed: K = serde_json::from_value(object.clone()).with_context(|| object.to_string())?;
    let mut found = Vec::new();
    compare(object, &serde_json::to_value(&typed)?, "", &mut found);
    Ok(found)
}

#[test]
fn every_field_is_one_that_kubernetes_knows() -> Result<()> {
    let mut kinds = BTreeSet::new();
    for (name, object) in all()? {
        let kind = object["kind"].as_str().context("a kind")?.to_owned();
        let unknown = match kind.as_str() {
            "Deployment" => unknown::<Deployment>(&object)?,
            "Pod" => unknown::<Pod>(&object)?,
            "PodDisruptionBudget" => unknown::<PodDisruptionBudget>(&object)?,
            "ConfigMap" => unknown::<ConfigMap>(&object)?,
            "NetworkPolicy" => unknown::<NetworkPolicy>(&object)?,
            "ServiceAccount" => unknown::<ServiceAccount>(&object)?,
            "Role" => unknown::<Role>(&object)?,
            "RoleBinding" => unknown::<RoleBinding>(&object)?,
            "ClusterRole" => unknown::<ClusterRole>(&object)?,
            "ClusterRoleBinding" => unknown::<ClusterRoleBinding>(&object)?,
            "EtcdCluster" => unknown::<etcd_operator_api::EtcdCluster>(&object)?,
            "EtcdBackup" => unknown::<etcd_operator_api::EtcdBackup>(&object)?,
            // Another project's, whose types are not here.
            "PodMonitor" | "PrometheusRule" => Vec::new(),
            other => panic!("{name}: a {other}"),
        };
        assert_eq!(unknown, [""; 0], "{name}: {kind}");
        kinds.insert(kind);
    }
    assert_eq!(kinds.len(), 14, "{kinds:?}");
    Ok(())
}

#[test]
fn pods_run_under_the_restricted_profile() -> Result<()> {
    let mut seen = 0;
    for (name, object) in all()? {
        let pod = match object["kind"].as_str() {
            Some("Deployment") => &object["spec"]["template"]["spec"],
            Some("Pod") => &object["spec"],
            _ => continue,
        };
        seen += 1;
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault",
            "{name}"
        );
        for list in ["containers", "initContainers"] {
            for container in pod[list].as_array().into_iter().flatten() {
                let context = &container["securityContext"];
                assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
                assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
                assert_eq!(context["capabilities"]["drop"][0], "ALL", "{name}");
                assert!(container["resources"]["limits"]["memory"].is_string(), "{name}");
            }
        }
    }
    assert!(seen > 9, "{seen}");
    Ok(())
}

/// What scrapes finds the manager, whatever is rendered with it: its pods by their labels, the port by its name, and
/// nothing in the monitor but what its own definition has had since it is stable.
#[test]
fn a_pod_monitor_finds_the_manager_that_it_is_rendered_with() -> Result<()> {
    let all = all()?;
    let mut seen = 0;
    for (name, monitor) in all.iter().filter(|(_, object)| object["kind"] == "PodMonitor") {
        let (_, deployment) = all
            .iter()
            .find(|(other, object)| other == name && object["kind"] == "Deployment")
            .context("a monitor of nothing")?;
        assert_eq!(monitor["apiVersion"], "monitoring.coreos.com/v1", "{name}");
        // Without a list of namespaces it looks in its own.
        assert_eq!(
            monitor["metadata"]["namespace"], deployment["metadata"]["namespace"],
            "{name}"
        );
        let pod = &deployment["spec"]["template"];
        let wanted = monitor["spec"]["selector"]["matchLabels"].as_object();
        let wanted = wanted.filter(|labels| !labels.is_empty()).context("it selects")?;
        for (key, value) in wanted {
            assert_eq!(pod["metadata"]["labels"][key], *value, "{name}: {key}");
        }
        assert_eq!(
            monitor["spec"].as_object().map(serde_json::Map::len),
            Some(2),
            "{name}"
        );
        let endpoints = monitor["spec"]["podMetricsEndpoints"].as_array();
        for endpoint in endpoints.context("it scrapes")? {
            let known = ["port", "path", "honorLabels", "interval", "scrapeTimeout"];
            let fields = endpoint.as_object().context("an endpoint")?;
            assert!(
                fields.keys().all(|key| known.contains(&key.as_str())),
                "{name}: {endpoint}"
            );
            assert_eq!(endpoint["path"], "/metrics", "{name}");
            let ports = pod["spec"]["containers"][0]["ports"].as_array();
            let is_there =
                ports.is_some_and(|ports| ports.iter().any(|port| port["name"] == endpoint["port"]));
            assert!(is_there, "{name}: {endpoint}");
            seen += 1;
        }
    }
    assert!(seen > 0, "nothing is scraped");
    Ok(())
}

/// Everything says where it is, so that nothing lands in whatever namespace is current; and what has none is named after
/// the release and its namespace, so that two releases never share it.
#[test]
fn objects_are_in_a_namespace_or_named_after_one() -> Result<()> {
    for (name, object) in all()? {
        let own = object["metadata"]["name"].as_str().context("a name")?;
        if object["kind"]
            .as_str()
            .is_some_and(|kind| kind.starts_with("Cluster"))
        {
            assert!(
                own.starts_with(&format!("{NAMESPACE}:{RELEASE}")),
                "{name}: {own}"
            );
            assert!(
                ["cluster-wide.yaml", "extras.yaml", "older-chart.yaml"].contains(&name.as_str()),
                "{name}: {own}"
            );
        } else {
            assert!(object["metadata"]["namespace"].is_string(), "{name}: {own}");
        }
    }
    Ok(())
}

#[test]
fn examples_are_accepted_by_their_controller() -> Result<()> {
    let mut seen = 0;
    for (name, object) in all()? {
        if object["kind"] == "EtcdCluster" {
            let cluster: etcd_operator_api::EtcdCluster = serde_json::from_value(object)?;
            assert!(desired(&cluster).is_ok(), "{name}: {:?}", desired(&cluster).err());
            seen += 1;
        }
    }
    assert!(seen >= 3, "{seen}");
    Ok(())
}
