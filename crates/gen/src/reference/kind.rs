//! The page of one kind.

use etcd_operator_api::refusal::Unbuilt;
use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore, crd};
use etcd_operator_backup as backup;
use etcd_operator_cluster as cluster;
use etcd_operator_restore as restore;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use schemars::JsonSchema;

use super::field::{self, Field, Fields, Rule};
use super::head;
use super::table::{code, table};
use crate::Files;

/// A field whose type has a page of its own.
struct Elsewhere {
    kind: &'static str,
    path: &'static str,
    /// What stands there instead.
    text: &'static str,
    /// What stands instead of its rules.
    rules: &'static str,
}

const ON_OTHER_PAGES: &[Elsewhere] = &[Elsewhere {
    kind: "EtcdRestore",
    path: "spec.clusterTemplate.spec",
    text: "[spec of an EtcdCluster](etcdcluster.md#spec)",
    rules: "The [rules of an EtcdCluster](etcdcluster.md#rules) on its `spec` hold for `spec.clusterTemplate.spec` as well.",
}];

/// The pages of all kinds.
pub(super) fn files() -> Files {
    let [cluster, backup, restore] = crd::all();
    [
        page::<EtcdCluster>(&cluster, cluster::desired::unimplemented_fields()),
        page::<EtcdBackup>(&backup, backup::desired::not_built()),
        page::<EtcdRestore>(&restore, restore::desired::not_built()),
    ]
    .into_iter()
    .collect()
}

fn page<K: JsonSchema>(
    crd: &CustomResourceDefinition,
    not_built: &[Unbuilt],
) -> (std::path::PathBuf, String) {
    let spec = &crd.spec;
    let version = spec.versions.first().expect("a definition has a version");
    let schema = version
        .schema
        .as_ref()
        .and_then(|schema| serde_json::to_value(&schema.open_api_v3_schema).ok())
        .unwrap_or_default();
    let kind = &spec.names.kind;
    let mut named = field::named::<K>();
    let elsewhere: Vec<_> = ON_OTHER_PAGES.iter().filter(|other| other.kind == kind).collect();
    let texts = elsewhere
        .iter()
        .map(|other| (other.path.to_owned(), other.text.to_owned()));
    named.extend(texts);
    let Fields { fields, mut rules } = field::read(&schema, &named);
    rules.retain(|rule| elsewhere.iter().all(|other| other.path != rule.path));
    let other_rules = elsewhere
        .iter()
        .fold(String::new(), |all, other| all + "\n" + other.rules + "\n");
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
                "Types with a group, such as Affinity (core/v1), are Kubernetes' own; `kubectl explain {}.spec --recursive` shows what is in them. A required field is required within what it is in.{}\n\n{}",
                spec.names.singular.as_deref().unwrap_or_default(),
                if not_built.is_empty() { "" } else { NOT_BUILT },
                fields_table(&wanted, not_built),
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

/// Said where some fields are not built yet.
const NOT_BUILT: &str = " What is not built yet is refused, not ignored: the object gets the condition `Accepted=False` with the reason `NotImplemented` and the name of the field.";

/// Whether a field is built, if there is more to say than yes.
fn built(path: &str, not_built: &[Unbuilt]) -> String {
    let is_within = |field: &&Unbuilt| {
        path.strip_prefix(field.path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '{']))
    };
    match not_built.iter().find(is_within) {
        None => String::new(),
        Some(Unbuilt {
            harmless: Some(value),
            ..
        }) => format!("only {}", code(value)),
        Some(_) => "not yet".to_owned(),
    }
}

/// Columns in which nothing stands are left out.
fn fields_table(fields: &[&Field], not_built: &[Unbuilt]) -> String {
    const HEADINGS: [&str; 7] = [
        "field", "type", "built", "required", "default", "allowed", "meaning",
    ];
    let rows = fields.iter().map(|field| {
        let required = if field.required { "yes" } else { "" };
        [
            code(&field.path),
            field.type_.clone(),
            built(&field.path, not_built),
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
        assert!(row(&page, "spec.size").starts_with("| `spec.size` | integer |  |  | `3` |  | How many"));
        assert!(row(&page, "spec.storage.medium").contains(
            "| string |  |  | `\"PersistentVolume\"` | `PersistentVolume`, `EmptyDir`, `Memory` |"
        ));
        assert!(row(&page, "spec.pod.affinity").contains("| Affinity (core/v1) |"));
        assert!(!page.contains("nodeAffinity"));
    }

    #[test]
    fn a_field_that_must_be_there_is_marked() {
        let page = page_of("etcdbackup");
        assert!(row(&page, "spec.storageType").contains("| string | yes |"));
        assert!(row(&page, "spec.etcdCluster.name").contains("| string | yes |"));
        assert!(row(&page, "spec.schedule").contains("| string |  |"));
    }

    #[test]
    fn a_field_that_is_refused_for_lack_of_its_feature_is_marked_with_all_below_it() {
        let fields = [
            Unbuilt::field("spec.auth"),
            Unbuilt::unless("spec.compression", "None"),
        ];
        assert_eq!(built("spec.auth", &fields), "not yet");
        assert_eq!(built("spec.auth.rootSecret", &fields), "not yet");
        assert_eq!(built("spec.authority", &fields), "");
        assert_eq!(built("spec.compression", &fields), "only `None`");
        for (kind, not_built) in [
            ("etcdcluster", cluster::desired::unimplemented_fields()),
            ("etcdbackup", backup::desired::not_built()),
            ("etcdrestore", restore::desired::not_built()),
        ] {
            let page = page_of(kind);
            for field in not_built {
                let marked = row(&page, field.path);
                assert!(
                    marked.contains("| not yet |") || marked.contains("| only `"),
                    "{marked}"
                );
            }
            assert_eq!(page.contains("`NotImplemented`"), !not_built.is_empty());
        }
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
    fn a_template_of_a_cluster_is_not_repeated_and_has_the_rules_that_the_page_says_it_has() {
        let page = page_of("etcdrestore");
        assert!(
            row(&page, "spec.clusterTemplate.spec")
                .contains("| [spec of an EtcdCluster](etcdcluster.md#spec) |")
        );
        assert!(!page.contains("`spec.clusterTemplate.spec.size`"));
        let [Elsewhere { path, rules, .. }] = ON_OTHER_PAGES else {
            panic!("a rule of another page is not looked at here")
        };
        assert!(page.contains(rules) && !page.contains(&format!("| `{path}` | always")));

        let rules = |kind: &str, below: &str| {
            let schema = crd::schema(kind).expect("a schema");
            let part = below
                .split('.')
                .fold(&schema, |schema, name| &schema["properties"][name]);
            let Fields { rules, .. } = field::read(part, &std::collections::BTreeMap::new());
            rules
        };
        let of_clusters = rules("EtcdCluster", "spec");
        assert!(of_clusters.len() > 30, "{}", of_clusters.len());
        assert_eq!(rules("EtcdRestore", path), of_clusters);
    }
}
