//! The reference page of a kind.

use etcd_operator_api::refusal::Unbuilt;
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore, crd};
use etcd_operator_backup as backup;
use etcd_operator_cluster_core::desired;
use etcd_operator_restore as restore;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use schemars::JsonSchema;

use super::field::{self, Field, Fields, Rule};
use super::head;
use super::table::{code, table};
use crate::Files;

/// A field whose type is documented on another page.
struct LinkedField {
    kind: &'static str,
    path: &'static str,
    /// Replaces the type of the field.
    text: &'static str,
    /// Replaces the rules of the field.
    rules: &'static str,
}

const LINKED_FIELDS: &[LinkedField] = &[LinkedField {
    kind: "EtcdRestore",
    path: "spec.clusterTemplate.spec",
    text: "[spec of an EtcdCluster](etcdcluster.md#spec)",
    rules: "The [rules of an EtcdCluster](etcdcluster.md#rules) on its `spec` also apply to `spec.clusterTemplate.spec`.",
}];

/// Generates the pages of all kinds.
pub(super) fn files() -> Files {
    let [cluster, backup, restore] = crd::all();
    [
        page::<EtcdCluster>(&cluster, desired::unimplemented_fields()),
        page::<EtcdBackup>(&backup, backup::desired::unimplemented_fields()),
        page::<EtcdRestore>(&restore, restore::desired::unimplemented_fields()),
    ]
    .into_iter()
    .collect()
}

fn page<K: JsonSchema>(
    crd: &CustomResourceDefinition,
    unimplemented: &[Unbuilt],
) -> (std::path::PathBuf, String) {
    let spec = &crd.spec;
    let version = spec.versions.first().expect("a definition has a version");
    let schema = version
        .schema
        .as_ref()
        .and_then(|schema| serde_json::to_value(&schema.open_api_v3_schema).ok())
        .unwrap_or_default();
    let kind = &spec.names.kind;
    let mut type_names = field::kubernetes_types::<K>();
    let linked_fields: Vec<_> = LINKED_FIELDS.iter().filter(|other| other.kind == kind).collect();
    let texts = linked_fields
        .iter()
        .map(|other| (other.path.to_owned(), other.text.to_owned()));
    type_names.extend(texts);
    let Fields { fields, mut rules } = field::read_schema(&schema, &type_names);
    rules.retain(|rule| linked_fields.iter().all(|other| other.path != rule.path));
    let other_rules = linked_fields
        .iter()
        .fold(String::new(), |all, other| all + "\n" + other.rules + "\n");
    let (status, spec_fields): (Vec<_>, Vec<_>) = fields.iter().partition(|field| is_status(&field.path));
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
                "Types with a group, such as Affinity (core/v1), are Kubernetes types; `kubectl explain {}.spec --recursive` shows their fields. A required field is required if its parent is set.{}\n\n{}",
                spec.names.singular.as_deref().unwrap_or_default(),
                if unimplemented.is_empty() {
                    ""
                } else {
                    UNIMPLEMENTED_NOTE
                },
                fields_table(&spec_fields, unimplemented),
            ),
        ),
        section("Rules", &(rules_table(&rules) + &other_rules)),
        section("Status", &fields_table(&status, &[])),
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
    format!("\n{}", table(&["", ""], &rows))
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
    table(&["column", "from", "shown", "meaning"], &rows)
}

/// Shown if some fields are not implemented.
const UNIMPLEMENTED_NOTE: &str = " Fields that are not implemented are rejected, not ignored: the object gets the condition `Accepted=False` with the reason `NotImplemented` and the name of the field.";

/// The note about a field that is not implemented, or implemented only partly.
fn implementation_note(path: &str, unimplemented: &[Unbuilt]) -> String {
    let is_within = |field: &&Unbuilt| {
        path.strip_prefix(field.path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '{']))
    };
    match unimplemented.iter().find(is_within) {
        None => String::new(),
        Some(Unbuilt {
            harmless: Some(value),
            ..
        }) => format!("only {}", code(value)),
        Some(_) => "not yet".to_owned(),
    }
}

/// Generates the table of fields. Empty columns are omitted.
fn fields_table(fields: &[&Field], unimplemented: &[Unbuilt]) -> String {
    const HEADINGS: [&str; 7] = [
        "field", "type", "built", "required", "default", "allowed", "meaning",
    ];
    let rows = fields.iter().map(|field| {
        let required = if field.required { "yes" } else { "" };
        [
            code(&field.path),
            field.type_.clone(),
            implementation_note(&field.path, unimplemented),
            required.to_owned(),
            code(&field.default),
            field.allowed.clone(),
            field.text.clone(),
        ]
    });
    let rows: Vec<_> = rows.collect();
    let filled: Vec<usize> = (0..HEADINGS.len())
        .filter(|column| rows.iter().any(|row| !row[*column].is_empty()))
        .collect();
    let headings: Vec<&str> = filled.iter().map(|column| HEADINGS[*column]).collect();
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| filled.iter().map(|column| row[*column].clone()).collect())
        .collect();
    table(&headings, &rows)
}

fn rules_table(rules: &[Rule]) -> String {
    let rows: Vec<[String; 3]> = rules
        .iter()
        .map(|rule| {
            let when = if rule.on_change { "on change" } else { "always" };
            let location = match rule.path.as_str() {
                whole @ "the object" => whole.to_owned(),
                path => code(path),
            };
            [location, when.to_owned(), rule.message.clone()]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "The API server rejects an object that violates one of these rules, with the message of the rule.\n\n{}",
        table(&["on", "checked", "message"], &rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(kind: &str) -> String {
        files()[std::path::Path::new(&format!("docs/reference/{kind}.md"))].clone()
    }

    fn row<'a>(page: &'a str, field: &str) -> &'a str {
        let start = format!("| `{field}` |");
        page.lines().find(|line| line.starts_with(&start)).expect("a row")
    }

    #[test]
    fn a_page_has_type_default_bounds_and_meaning_of_a_field() {
        let page = page_of("etcdcluster");
        assert!(page.contains("| field | type | built | required | default | allowed | meaning |"));
        assert!(
            row(&page, "spec.size").starts_with("| `spec.size` | integer |  |  | `3` |  | Number of members")
        );
        assert!(row(&page, "spec.storage.medium").contains(
            "| string |  |  | `\"PersistentVolume\"` | `PersistentVolume`, `EmptyDir`, `Memory` |"
        ));
        assert!(row(&page, "spec.pod.affinity").contains("| Affinity (core/v1) |"));
        assert!(!page.contains("nodeAffinity"));
    }

    #[test]
    fn required_fields_are_marked() {
        let page = page_of("etcdbackup");
        assert!(row(&page, "spec.storageType").contains("| string | yes |"));
        assert!(row(&page, "spec.etcdCluster.name").contains("| string | yes |"));
        assert!(row(&page, "spec.schedule").contains("| string |  |"));
    }

    #[test]
    fn unimplemented_fields_are_marked_with_all_fields_below() {
        let fields = [
            Unbuilt::field("spec.auth"),
            Unbuilt::unless("spec.compression", "None"),
        ];
        assert_eq!(implementation_note("spec.auth", &fields), "not yet");
        assert_eq!(implementation_note("spec.auth.rootSecret", &fields), "not yet");
        assert_eq!(implementation_note("spec.authority", &fields), "");
        assert_eq!(implementation_note("spec.compression", &fields), "only `None`");
        for (kind, unimplemented) in [
            ("etcdcluster", desired::unimplemented_fields()),
            ("etcdbackup", backup::desired::unimplemented_fields()),
            ("etcdrestore", restore::desired::unimplemented_fields()),
        ] {
            let page = page_of(kind);
            for field in unimplemented {
                let marked = row(&page, field.path);
                assert!(
                    marked.contains("| not yet |") || marked.contains("| only `"),
                    "{marked}"
                );
            }
            // `kubectl explain` says the same as the reference.
            let says_refused = page
                .lines()
                .filter(|line| line.contains(" is refused. |"))
                .count();
            assert_eq!(says_refused, unimplemented.len(), "{kind}");
            for field in unimplemented {
                let text = row(&page, field.path);
                assert!(text.ends_with(" is refused. |"), "{text}");
            }
            assert_eq!(page.contains("`NotImplemented`"), !unimplemented.is_empty());
        }
    }

    #[test]
    fn rule_messages_and_a_separate_status_are_on_the_page() {
        let page = page_of("etcdbackup");
        assert!(page.contains("timeZone needs a schedule"), "{page}");
        let (before, status) = page.split_once("\n## Status\n").expect("a part about the status");
        assert!(before.contains("`spec.schedule`") && !before.contains("| `status."));
        assert!(status.contains("| `status.lastSuccess") && !status.contains("| `spec."));
    }

    #[test]
    fn the_cluster_template_is_linked_and_has_the_same_rules() {
        let page = page_of("etcdrestore");
        assert!(
            row(&page, "spec.clusterTemplate.spec")
                .contains("| [spec of an EtcdCluster](etcdcluster.md#spec) |")
        );
        assert!(!page.contains("`spec.clusterTemplate.spec.size`"));
        let [LinkedField { path, rules, .. }] = LINKED_FIELDS else {
            panic!("a rule of another page is not looked at here")
        };
        assert!(page.contains(rules) && !page.contains(&format!("| `{path}` | always")));

        let rules = |kind: &str, below: &str| {
            let schema = crd::schema(kind).expect("a schema");
            let part = below
                .split('.')
                .fold(&schema, |schema, name| &schema["properties"][name]);
            let Fields { rules, .. } = field::read_schema(part, &std::collections::BTreeMap::new());
            rules
        };
        let of_clusters = rules("EtcdCluster", "spec");
        assert!(of_clusters.len() > 30, "{}", of_clusters.len());
        assert_eq!(rules("EtcdRestore", path), of_clusters);
    }
}
