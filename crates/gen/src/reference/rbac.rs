//! The reference page of the operator's permissions.

use super::head;
use super::table::{code, table};
use crate::rbac::{Permission, RIGHTS, Scope, Selector};

/// Generates the page.
pub(super) fn page() -> String {
    let rows = |scope: Scope| -> Vec<[String; 5]> {
        RIGHTS
            .iter()
            .filter(|permission| permission.scope == scope)
            .map(row)
            .collect()
    };
    let headings = ["group", "resources", "verbs", "needed by", "why"];
    format!(
        "{}
The operator needs exactly these permissions. `config/rbac` and the chart grant them; all are generated from the same table.

## In watched namespaces

Granted by a Role in each watched namespace, or with `--cluster-wide` by a ClusterRole.

{}
## In the namespace of the operator

{}
## If nodes are watched

Granted with `--watch-nodes` by a ClusterRole, because nodes are cluster-scoped. In the chart, `nodes.watch` enables it; the default is the value of `scope.clusterWide`. Without this permission, the operator replaces a member of a lost node only after Kubernetes has marked its pod for deletion.

{}",
        head("Permissions of the operator"),
        table(&headings, &rows(Scope::Watched)),
        table(&headings, &rows(Scope::Own)),
        table(&headings, &rows(Scope::Nodes)),
    )
}

fn row(permission: &Permission) -> [String; 5] {
    let list = |words: &[&str]| words.iter().map(|word| code(word)).collect::<Vec<_>>().join(", ");
    let narrowed = match permission.selector {
        Selector::Any => "",
        Selector::OwnLease => ", only the lease named by `--lease-name`",
    };
    [
        if permission.group.is_empty() {
            "core".to_owned()
        } else {
            code(permission.group)
        },
        format!("{}{narrowed}", list(permission.resources)),
        list(permission.verbs),
        permission.part.to_owned(),
        permission.why.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_permission_is_on_the_page_with_its_reason() {
        let page = page();
        for permission in RIGHTS {
            assert!(page.contains(permission.why), "{permission:?}");
        }
    }
}
