//! The CustomResourceDefinitions, for kustomize and for the chart.

use std::path::PathBuf;

use etcd_operator_api::crd;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::json;

use crate::{Files, yaml};

/// Tells which version of the chart wrote a definition, so that an older one leaves it alone.
const CHART_VERSION: &str = "etcd.database.coreos.com/chart-version";

/// Tells helm to delete a definition never, and with it every cluster: not when the release goes, and not when an upgrade
/// leaves out what an earlier one wrote. Helm reads it from the object that is there, so whoever replaces that by what lies
/// in `config/` must bring it as well.
const KEPT: (&str, &str) = ("helm.sh/resource-policy", "keep");

/// The definitions in `config/crd` and in the chart.
pub fn files() -> Files {
    let mut definitions = crd::all();
    for definition in &mut definitions {
        annotate(definition, KEPT);
    }
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

fn annotate(definition: &mut CustomResourceDefinition, (key, value): (&str, &str)) {
    let annotations = definition.metadata.annotations.get_or_insert_default();
    annotations.insert(key.to_owned(), value.to_owned());
}

/// Helm installs what lies in `crds/` once and never again, so the chart has templates instead. Whether a definition is
/// this release's to write is found out by a template of the chart, which compares the version that is written into each.
fn in_chart(mut definition: CustomResourceDefinition) -> String {
    // Replaced in the text, for a template is no YAML before it is rendered.
    const VERSION: &str = "THE-VERSION-OF-THE-CHART";
    let name = definition.metadata.name.clone().unwrap_or_default();
    annotate(&mut definition, (CHART_VERSION, VERSION));
    let body =
        yaml::escape_template(&yaml::object(&definition)).replace(VERSION, "{{ .Chart.Version | quote }}");
    let asked = format!("include \"etcd-operator.definition\" (dict \"root\" . \"name\" \"{name}\")");
    format!(
        "{}{{{{- if eq ({asked}) \"install\" }}}}\n{body}{{{{- end }}}}\n",
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
    fn definitions_of_the_chart_outlive_its_release_say_their_version_and_can_be_left_out() {
        let files = files();
        let chart: Vec<_> = files
            .iter()
            .filter(|(path, _)| path.starts_with("charts"))
            .collect();
        assert_eq!(chart.len(), 3);
        let kept = format!("{}: {}\n", KEPT.0, KEPT.1);
        let mut crds = files
            .iter()
            .filter(|(_, text)| text.contains("kind: CustomResourceDefinition\n"));
        assert!(crds.all(|(_, text)| text.contains(&kept)));
        let asked = std::fs::read_to_string(
            crate::tree::root().join("charts/etcd-operator/templates/_definitions.tpl"),
        )
        .expect("what the definitions ask");
        assert!(asked.contains(&format!("get $marks \"{CHART_VERSION}\"")));
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
            assert!(asked.contains(name), "{name} is not told of by the notes");
        }
    }
}
