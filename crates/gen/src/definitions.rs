//! Generates the CustomResourceDefinitions for kustomize and for the chart.

use std::path::PathBuf;

use etcd_operator_api::crd;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;

use crate::{Files, yaml};

/// The annotation with the chart version that wrote a CRD. An older chart leaves such a CRD alone.
const CHART_VERSION: &str = "etcd.database.coreos.com/chart-version";

/// Tells Helm never to delete a CRD, and with it every cluster: neither on uninstall nor when an upgrade
/// omits the CRD. Helm reads the annotation from the live object, so the CRDs in `config/` need it as well.
const RESOURCE_POLICY: (&str, &str) = ("helm.sh/resource-policy", "keep");

/// The CRDs in `config/crd` and in the chart.
pub fn files() -> Files {
    let mut definitions = crd::all();
    for definition in &mut definitions {
        annotate(definition, RESOURCE_POLICY);
    }
    let mut files = Files::new();
    let mut names = Vec::new();
    for definition in definitions {
        let name = format!("{}.yaml", definition.metadata.name.as_deref().unwrap_or_default());
        let text = format!("{}{}", yaml::HEADER, yaml::object(&definition));
        files.insert(PathBuf::from("config/crd").join(&name), text);
        files.insert(
            PathBuf::from("charts/etcd-operator/templates/crds").join(&name),
            chart_template(definition),
        );
        names.push(name);
    }
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": names,
    });
    files.insert(
        "config/crd/kustomization.yaml".into(),
        yaml::file(&[kustomization]),
    );
    files
}

fn annotate(definition: &mut CustomResourceDefinition, (key, value): (&str, &str)) {
    let annotations = definition.metadata.annotations.get_or_insert_default();
    annotations.insert(key.to_owned(), value.to_owned());
}

/// Generates a template, because Helm installs CRDs in `crds/` once and never updates them. A template of the
/// chart compares the version recorded in each CRD and decides whether this release may write it.
fn chart_template(mut definition: CustomResourceDefinition) -> String {
    // Replaced in the text: a template is not valid YAML before it is rendered.
    const VERSION: &str = "THE-VERSION-OF-THE-CHART";
    let name = definition.metadata.name.clone().unwrap_or_default();
    annotate(&mut definition, (CHART_VERSION, VERSION));
    let body =
        yaml::escape_template(&yaml::object(&definition)).replace(VERSION, "{{ .Chart.Version | quote }}");
    let condition = format!("include \"etcd-operator.definition\" (dict \"root\" . \"name\" \"{name}\")");
    format!(
        "{}{{{{- if eq ({condition}) \"install\" }}}}\n{body}{{{{- end }}}}\n",
        yaml::HEADER
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_round_trip_through_yaml() {
        for definition in crd::all() {
            let read: CustomResourceDefinition =
                serde_saphyr::from_str(&yaml::object(&definition)).expect("YAML of a definition");
            assert_eq!(read, definition);
        }
    }

    #[test]
    fn chart_definitions_are_kept_versioned_and_optional() {
        let files = files();
        let chart: Vec<_> = files
            .iter()
            .filter(|(path, _)| path.starts_with("charts"))
            .collect();
        assert_eq!(chart.len(), 3);
        let policy = format!("{}: {}\n", RESOURCE_POLICY.0, RESOURCE_POLICY.1);
        let mut crds = files
            .iter()
            .filter(|(_, text)| text.contains("kind: CustomResourceDefinition\n"));
        assert!(crds.all(|(_, text)| text.contains(&policy)));
        let template = std::fs::read_to_string(
            crate::tree::root().join("charts/etcd-operator/templates/_definitions.tpl"),
        )
        .expect("cannot read the template");
        assert!(template.contains(&format!("get $marks \"{CHART_VERSION}\"")));
        for (path, text) in chart {
            let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
            for part in [
                format!("{CHART_VERSION}: {{{{ .Chart.Version | quote }}}}\n"),
                format!(
                    "{{{{- if eq (include \"etcd-operator.definition\" (dict \"root\" . \"name\" \"{name}\")) \"install\" }}}}\n"
                ),
            ] {
                assert!(text.contains(&part), "{}: {part}", path.display());
            }
            assert_eq!(text.matches("{{-").count(), 2, "{}", path.display());
            assert!(text.ends_with("{{- end }}\n"));
            assert!(template.contains(name), "{name} is missing in the template");
        }
    }
}
