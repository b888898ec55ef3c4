//! The page about what the operator may do.

use super::head;
use super::table::{code, table};
use crate::rbac::{Place, RIGHTS, Right, Which};

/// The page.
pub(super) fn page() -> String {
    let rows = |place: Place| -> Vec<[String; 5]> {
        RIGHTS
            .iter()
            .filter(|right| right.place == place)
            .map(row)
            .collect()
    };
    let headings = ["group", "resources", "verbs", "needed by", "why"];
    format!(
        "{}
The operator needs these rights and no others. They are granted by `config/rbac` and by the chart, which are made from the same table.

## Where objects are watched

In each watched namespace by a Role; with `--cluster-wide` everywhere by a ClusterRole.

{}
## In the operator's own namespace

{}
## Where nodes are watched

With `--watch-nodes`, by a ClusterRole, as nodes are in no namespace. The chart grants it by `nodes.watch`, which follows `scope.clusterWide` unless it is set. Without it a member is given up only once Kubernetes has marked its pod for deletion.

{}",
        head("Rights of the operator"),
        table(&headings, &rows(Place::Watched)),
        table(&headings, &rows(Place::Own)),
        table(&headings, &rows(Place::Nodes)),
    )
}

fn row(right: &Right) -> [String; 5] {
    let list = |words: &[&str]| words.iter().map(|word| code(word)).collect::<Vec<_>>().join(", ");
    let narrowed = match right.which {
        Which::Any => "",
        Which::TheLease => ", only the one named by `--lease-name`",
    };
    [
        if right.group.is_empty() {
            "core".to_owned()
        } else {
            code(right.group)
        },
        format!("{}{narrowed}", list(right.resources)),
        list(right.verbs),
        right.part.to_owned(),
        right.why.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_right_is_on_the_page_with_its_reason() {
        let page = page();
        for right in RIGHTS {
            assert!(page.contains(right.why), "{right:?}");
        }
    }
}
