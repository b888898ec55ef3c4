//! The CustomResourceDefinitions, for kustomize and for the chart.

use std::path::PathBuf;

use etcd_operator_api::crd;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;

use crate::{Files, yaml};

/// The definitions in `config/crd` and in the chart.
pub fn files() -> Files {
    let definitions = crd::all();
    let mut files = Files::new();
    let mut names = Vec::new();
    for definition in definitions {
        let name = format!("{}.yaml", definition.metadata.name.as_deref().unwrap_or_default());
        let text = format!("{}{}", yaml::HEADER, yaml::object(&definition));
        files.insert(PathBuf::from("config/crd").join(&name), text);
        files.insert(
            PathBuf::from("charts/etcd-operator/templates/crds").join(&name),
            in_chart(definition),
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

/// Helm installs what lies in `crds/` once and never again, so the chart has templates instead; the annotation keeps
/// the definitions, and with them every cluster, when the release goes.
fn in_chart(mut definition: CustomResourceDefinition) -> String {
    definition
        .metadata
        .annotations
        .get_or_insert_default()
        .insert("helm.sh/resource-policy".to_owned(), "keep".to_owned());
    let body = yaml::escape_template(&yaml::object(&definition));
    format!(
        "{}{{{{- if .Values.crds.install }}}}\n{body}{{{{- end }}}}\n",
        yaml::HEADER
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_read_back_from_yaml_as_they_are() {
        for definition in crd::all() {
            let read: CustomResourceDefinition =
                serde_saphyr::from_str(&yaml::object(&definition)).expect("YAML of a definition");
            assert_eq!(read, definition);
        }
    }

    #[test]
    fn definitions_of_the_chart_outlive_its_release_and_can_be_left_out() {
        let files = files();
        let chart: Vec<_> = files
            .iter()
            .filter(|(path, _)| path.starts_with("charts"))
            .collect();
        assert_eq!(chart.len(), 3);
        for (path, text) in chart {
            assert!(
                text.contains("helm.sh/resource-policy: keep\n"),
                "{}",
                path.display()
            );
            assert_eq!(text.matches("{{-").count(), 2, "{}", path.display());
            assert!(text.contains("{{- if .Values.crds.install }}\n") && text.ends_with("{{- end }}\n"));
        }
    }
}
