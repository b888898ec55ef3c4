//! Roles from the table of rights: for kustomize as objects, for the chart as rules its roles include.
//!
//! What is granted stands in [`rbac`](crate::rbac) alone; here is only who gets it, and in which form.

use serde_json::{Value, json};

use crate::rbac::{Place, RIGHTS, Right, Which};
use crate::{Files, yaml};

const NAME: &str = "etcd-operator";
const LEASE_ROLE: &str = "etcd-operator-lease";
const NODES_ROLE: &str = "etcd-operator-nodes";
/// Not the name alone, which other operators of etcd have given to theirs.
const CLUSTER_ROLE: &str = "etcd-operator-cluster-wide";
/// The namespace of a kustomize installation; an overlay may set another one.
const NAMESPACE: &str = "etcd-operator";

/// Roles, bindings and the account in `config/rbac`, and the rules of the chart.
pub fn files() -> Files {
    let watched = rules(Place::Watched, NAME);
    let own = rules(Place::Own, NAME);
    let nodes = [
        role("ClusterRole", NODES_ROLE, &rules(Place::Nodes, NAME)),
        binding("ClusterRoleBinding", NODES_ROLE, "ClusterRole"),
    ];
    let chart = "charts/etcd-operator/templates/rights/_rules.tpl";
    let cluster_wide = [
        role("ClusterRole", CLUSTER_ROLE, &watched),
        binding("ClusterRoleBinding", CLUSTER_ROLE, "ClusterRole"),
    ];
    let one_namespace = [role("Role", NAME, &watched), binding("RoleBinding", NAME, "Role")];
    let always = [
        account(),
        role("Role", LEASE_ROLE, &own),
        binding("RoleBinding", LEASE_ROLE, "Role"),
    ];
    [
        ("config/rbac/always.yaml", yaml::file(&always)),
        ("config/rbac/own_namespace/role.yaml", yaml::file(&one_namespace)),
        (
            "config/rbac/own_namespace/kustomization.yaml",
            kustomization(&["role.yaml"]),
        ),
        ("config/rbac/cluster_wide/role.yaml", yaml::file(&cluster_wide)),
        (
            "config/rbac/cluster_wide/kustomization.yaml",
            kustomization(&["role.yaml"]),
        ),
        ("config/rbac/nodes/role.yaml", yaml::file(&nodes)),
        (
            "config/rbac/nodes/kustomization.yaml",
            kustomization(&["role.yaml"]),
        ),
        ("config/rbac/kustomization.yaml", kustomization(&["always.yaml"])),
        (chart, chart_rules()),
    ]
    .into_iter()
    .map(|(path, text)| (path.into(), text))
    .collect()
}

fn kustomization(resources: &[&str]) -> String {
    yaml::file(&[json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": resources,
    })])
}

fn rules(place: Place, lease: &str) -> Vec<Value> {
    RIGHTS
        .iter()
        .filter(|right| right.place == place)
        .map(|right| rule(right, lease))
        .collect()
}

fn rule(right: &Right, lease: &str) -> Value {
    let Right {
        group,
        resources,
        verbs,
        place: _,
        which,
        part: _,
        why: _,
    } = right;
    let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    match which {
        Which::Any => {}
        Which::TheLease => rule["resourceNames"] = json!([lease]),
    }
    rule
}

fn metadata(kind: &str, name: &str) -> Value {
    let mut metadata = json!({"name": name});
    if !kind.starts_with("Cluster") {
        metadata["namespace"] = NAMESPACE.into();
    }
    metadata["labels"] = json!({"app.kubernetes.io/name": NAME});
    metadata
}

fn account() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata("ServiceAccount", NAME),
    })
}

fn role(kind: &str, name: &str, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata(kind, name),
        "rules": rules,
    })
}

fn binding(kind: &str, name: &str, role: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata(kind, name),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    })
}

/// Named templates, one for each place, each a list of rules.
fn chart_rules() -> String {
    // Replaced in the text, for a template is no YAML before it is rendered.
    const LEASE: &str = "LEASE";
    let templates = [
        (Place::Watched, "watched"),
        (Place::Own, "own"),
        (Place::Nodes, "nodes"),
    ]
    .map(|(place, name)| {
        let rules = yaml::escape_template(&yaml::object(&rules(place, LEASE)))
            .replace(LEASE, "{{ include \"etcd-operator.lease\" . }}");
        format!("{{{{- define \"etcd-operator.rules.{name}\" }}}}\n{rules}{{{{- end }}}}\n")
    });
    let head = "{{- /* Made by `cargo xtask gen`; changes by hand are lost. */}}\n";
    format!("{head}{}", templates.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_grant_what_the_table_says_and_nothing_else() {
        let files = files();
        let read = |path: &str| -> Vec<Value> {
            files[std::path::Path::new(path)]
                .split("---\n")
                .map(|text| serde_saphyr::from_str(text).expect("YAML"))
                .collect()
        };
        for (path, place) in [
            ("config/rbac/own_namespace/role.yaml", Place::Watched),
            ("config/rbac/cluster_wide/role.yaml", Place::Watched),
            ("config/rbac/always.yaml", Place::Own),
            ("config/rbac/nodes/role.yaml", Place::Nodes),
        ] {
            let objects = read(path);
            let granted = objects
                .iter()
                .find(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role")))
                .expect("a role");
            let rows: Vec<_> = RIGHTS.iter().filter(|right| right.place == place).collect();
            let rules = granted["rules"].as_array().expect("rules");
            assert_eq!(rules.len(), rows.len(), "{path}");
            for (rule, row) in rules.iter().zip(rows) {
                assert_eq!(rule["apiGroups"], json!([row.group]));
                assert_eq!(rule["resources"], json!(row.resources));
                assert_eq!(rule["verbs"], json!(row.verbs));
            }
        }
    }

    #[test]
    fn only_the_shared_lease_can_be_read_and_changed() {
        let own = rules(Place::Own, "the-lease");
        let named: Vec<_> = own
            .iter()
            .filter(|rule| rule["verbs"] != json!(["create"]))
            .map(|rule| &rule["resourceNames"])
            .collect();
        assert_eq!(named, [&json!(["the-lease"])]);
        assert!(chart_rules().contains("- {{ include \"etcd-operator.lease\" . }}\n"));
    }
}
