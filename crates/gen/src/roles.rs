//! Generates roles from the table of permissions: objects for kustomize, and rules that the chart includes in
//! its roles.
//!
//! [`rbac`](crate::rbac) defines the permissions; this module only formats and binds them.

use serde_json::{Value, json};

use crate::rbac::{Permission, RIGHTS, Scope, Selector};
use crate::{Files, yaml};

const NAME: &str = "etcd-operator";
const LEASE_ROLE: &str = "etcd-operator-lease";
const NODES_ROLE: &str = "etcd-operator-nodes";
/// Differs from the plain name, which other etcd operators use for their ClusterRole.
const CLUSTER_ROLE: &str = "etcd-operator-cluster-wide";
/// The namespace of a kustomize installation. An overlay may change it.
const NAMESPACE: &str = "etcd-operator";

/// The roles, bindings and service account in `config/rbac`, and the rules of the chart.
pub fn files() -> Files {
    let watched = rules(Scope::Watched, NAME);
    let own = rules(Scope::Own, NAME);
    let nodes = [
        role("ClusterRole", NODES_ROLE, &rules(Scope::Nodes, NAME)),
        binding("ClusterRoleBinding", NODES_ROLE, "ClusterRole"),
    ];
    let chart = "charts/etcd-operator/templates/rights/_rules.tpl";
    let cluster_wide = [
        role("ClusterRole", CLUSTER_ROLE, &watched),
        binding("ClusterRoleBinding", CLUSTER_ROLE, "ClusterRole"),
    ];
    let one_namespace = [role("Role", NAME, &watched), binding("RoleBinding", NAME, "Role")];
    let always = [
        service_account(),
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

fn rules(scope: Scope, lease: &str) -> Vec<Value> {
    RIGHTS
        .iter()
        .filter(|permission| permission.scope == scope)
        .map(|permission| rule(permission, lease))
        .collect()
}

fn rule(permission: &Permission, lease: &str) -> Value {
    let Permission {
        group,
        resources,
        verbs,
        scope: _,
        selector,
        part: _,
        why: _,
    } = permission;
    let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    match selector {
        Selector::Any => {}
        Selector::OwnLease => rule["resourceNames"] = json!([lease]),
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

fn service_account() -> Value {
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

/// Named templates, one list of rules per scope.
fn chart_rules() -> String {
    // Replaced in the text: a template is not valid YAML before it is rendered.
    const LEASE: &str = "LEASE";
    let templates = [
        (Scope::Watched, "watched"),
        (Scope::Own, "own"),
        (Scope::Nodes, "nodes"),
    ]
    .map(|(scope, name)| {
        let rules = yaml::escape_template(&yaml::object(&rules(scope, LEASE)))
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
    fn roles_grant_exactly_the_permissions_of_the_table() {
        let files = files();
        let read = |path: &str| -> Vec<Value> {
            files[std::path::Path::new(path)]
                .split("---\n")
                .map(|text| serde_saphyr::from_str(text).expect("YAML"))
                .collect()
        };
        for (path, scope) in [
            ("config/rbac/own_namespace/role.yaml", Scope::Watched),
            ("config/rbac/cluster_wide/role.yaml", Scope::Watched),
            ("config/rbac/always.yaml", Scope::Own),
            ("config/rbac/nodes/role.yaml", Scope::Nodes),
        ] {
            let objects = read(path);
            let granted = objects
                .iter()
                .find(|object| object["kind"].as_str().is_some_and(|kind| kind.ends_with("Role")))
                .expect("a role");
            let rows: Vec<_> = RIGHTS
                .iter()
                .filter(|permission| permission.scope == scope)
                .collect();
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
    fn only_the_own_lease_can_be_read_and_updated() {
        let own = rules(Scope::Own, "the-lease");
        let named: Vec<_> = own
            .iter()
            .filter(|rule| rule["verbs"] != json!(["create"]))
            .map(|rule| &rule["resourceNames"])
            .collect();
        assert_eq!(named, [&json!(["the-lease"])]);
        assert!(chart_rules().contains("- {{ include \"etcd-operator.lease\" . }}\n"));
    }
}
