//! The page of one kind.

use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore, crd};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use schemars::JsonSchema;

use super::field::{self, Field, Fields, Rule};
use super::head;
use super::table::{code, table};
use crate::Files;

/// Fields whose type has a page of its own: kind, path, and what stands there instead.
const ON_OTHER_PAGES: &[(&str, &str, &str)] = &[(
    "EtcdRestore",
    "spec.clusterTemplate.spec",
    "[spec of an EtcdCluster](etcdcluster.md#spec)",
)];

/// The pages of all kinds.
pub(super) fn files() -> Files {
    let [cluster, backup, restore] = crd::all();
    [
        page::<EtcdCluster>(&cluster),
        page::<EtcdBackup>(&backup),
        page::<EtcdRestore>(&restore),
    ]
    .into_iter()
    .collect()
}

fn page<K: JsonSchema>(crd: &CustomResourceDefinition) -> (std::path::PathBuf, String) {
    let spec = &crd.spec;
    let version = spec.versions.first().expect("a definition has a version");
    let schema = version
        .schema
        .as_ref()
        .and_then(|schema| serde_json::to_value(&schema.open_api_v3_schema).ok())
        .unwrap_or_default();
    let kind = &spec.names.kind;
    let mut named = field::named::<K>();
    named.extend(
        ON_OTHER_PAGES
            .iter()
            .filter(|(on, ..)| on == kind)
            .map(|(_, path, text)| ((*path).to_owned(), (*text).to_owned())),
    );
    let Fields { fields, rules } = field::read(&schema, &named);
    let (status, wanted): (Vec<_>, Vec<_>) = fields.iter().partition(|field| is_status(&field.path));
    let parts = [
        format!(
            "{}\n{}\n",
            head(kind),
            schema["description"].as_str().unwrap_or_default()
        ),
        names(crd, version),
        section("Columns of `kubectl get`", &columns(version)),
        section(
            "Spec",
            &format!(
                "Types with a group, such as Affinity (core/v1), are Kubernetes' own; `kubectl explain {}.spec --recursive` shows what is in them.\n\n{}",
                spec.names.singular.as_deref().unwrap_or_default(),
                fields_table(&wanted),
            ),
        ),
        section("Rules", &rules_table(&rules)),
        section("Status", &fields_table(&status)),
    ];
    let path = format!("docs/reference/{}.md", kind.to_lowercase());
    (path.into(), parts.concat())
}

fn is_status(path: &str) -> bool {
    path == "status" || path.starts_with("status.")
}

fn section(title: &str, body: &str) -> String {
    if body.is_empty() {
        String::new()
    } else {
        format!("\n## {title}\n\n{body}")
    }
}

fn names(crd: &CustomResourceDefinition, version: &CustomResourceDefinitionVersion) -> String {
    let names = &crd.spec.names;
    let list = |texts: Option<&Vec<String>>| {
        let quoted: Vec<String> = texts.into_iter().flatten().map(|text| code(text)).collect();
        quoted.join(", ")
    };
    let mut subresources = Vec::new();
    if let Some(found) = &version.subresources {
        if found.status.is_some() {
            subresources.push("`status`".to_owned());
        }
        if let Some(scale) = &found.scale {
            subresources.push(format!(
                "`scale` (reads {} and {}, selects pods by {})",
                code(&scale.spec_replicas_path),
                code(&scale.status_replicas_path),
                code(scale.label_selector_path.as_deref().unwrap_or_default()),
            ));
        }
    }
    let rows = [
        [
            "apiVersion".to_owned(),
            code(&format!("{}/{}", crd.spec.group, version.name)),
        ],
        ["kind".to_owned(), code(&names.kind)],
        ["short names".to_owned(), list(names.short_names.as_ref())],
        ["categories".to_owned(), list(names.categories.as_ref())],
        ["scope".to_owned(), crd.spec.scope.clone()],
        ["subresources".to_owned(), subresources.join(", ")],
    ];
    format!("\n{}", table(["", ""], &rows))
}

fn columns(version: &CustomResourceDefinitionVersion) -> String {
    let rows: Vec<[String; 4]> = version
        .additional_printer_columns
        .iter()
        .flatten()
        .map(|column| {
            let wide = column.priority.unwrap_or_default() > 0;
            [
                column.name.to_uppercase(),
                code(&column.json_path),
                if wide {
                    "with `-o wide`".to_owned()
                } else {
                    "always".to_owned()
                },
                column.description.clone().unwrap_or_default(),
            ]
        })
        .collect();
    table(["column", "from", "shown", "meaning"], &rows)
}

fn fields_table(fields: &[&Field]) -> String {
    let has_defaults = fields.iter().any(|field| !field.default.is_empty());
    let text = |field: &Field| {
        [
            code(&field.path),
            field.type_.clone(),
            code(&field.default),
            field.allowed.clone(),
            field.text.clone(),
        ]
    };
    if has_defaults {
        let rows: Vec<_> = fields.iter().map(|field| text(field)).collect();
        return table(["field", "type", "default", "allowed", "meaning"], &rows);
    }
    let rows: Vec<_> = fields
        .iter()
        .map(|field| {
            let [path, type_, _, allowed, meaning] = text(field);
            [path, type_, allowed, meaning]
        })
        .collect();
    table(["field", "type", "allowed", "meaning"], &rows)
}

fn rules_table(rules: &[Rule]) -> String {
    let rows: Vec<[String; 3]> = rules
        .iter()
        .map(|rule| {
            let when = if rule.on_change { "on change" } else { "always" };
            let place = match rule.path.as_str() {
                whole @ "the object" => whole.to_owned(),
                path => code(path),
            };
            [place, when.to_owned(), rule.message.clone()]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "The API server refuses an object that breaks one of these, with the message of the rule.\n\n{}",
        table(["on", "checked", "message"], &rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(kind: &str) -> String {
        files()[std::path::Path::new(&format!("docs/reference/{kind}.md"))].clone()
    }

    #[test]
    fn a_page_has_type_default_bounds_and_meaning_of_a_field() {
        let page = page_of("etcdcluster");
        let row = page
            .lines()
            .find(|line| line.starts_with("| `spec.size` |"))
            .expect("a row");
        assert!(row.contains("| integer | `3` |"), "{row}");
        assert!(page.contains("| `spec.storage.medium` | string | `\"PersistentVolume\"` | `PersistentVolume`, `EmptyDir`, `Memory` |"));
        assert!(page.contains("| `spec.pod.affinity` | Affinity (core/v1) |"));
        assert!(!page.contains("nodeAffinity"));
    }

    #[test]
    fn messages_of_rules_are_on_the_page_and_the_status_is_apart() {
        let page = page_of("etcdbackup");
        assert!(page.contains("timeZone needs a schedule"), "{page}");
        let (before, status) = page.split_once("\n## Status\n").expect("a part about the status");
        assert!(before.contains("`spec.schedule`") && !before.contains("| `status."));
        assert!(status.contains("| `status.lastSuccess") && !status.contains("| `spec."));
    }

    #[test]
    fn a_template_of_a_cluster_is_not_repeated() {
        let page = page_of("etcdrestore");
        assert!(
            page.contains("| `spec.clusterTemplate.spec` | [spec of an EtcdCluster](etcdcluster.md#spec) |")
        );
        assert!(!page.contains("`spec.clusterTemplate.spec.size`"));
    }
}
