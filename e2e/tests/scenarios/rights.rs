//! What the operator's roles grant, as runs of scenarios are judged by it.

use etcd_operator_e2e::rights::Ask;
use etcd_operator_e2e::rights::verdict::{self, Terms};
use etcd_operator_gen::rbac::{RIGHTS, SELDOM, Shown};

/// The one table, with what is noted beside it.
pub fn terms() -> Terms {
    let granted = RIGHTS.iter().flat_map(|right| {
        let resources = right.resources.iter();
        resources.flat_map(|resource| {
            let verbs = right.verbs.iter();
            verbs.map(|verb| Ask::new(verb, resource, right.group))
        })
    });
    let seldom = SELDOM.iter().map(|seldom| {
        let shown = match seldom.shown {
            Shown::ByFullRuns => verdict::Seldom::Full,
            Shown::ByChance => verdict::Seldom::Chance,
        };
        (Ask::new(seldom.verb, seldom.resource, seldom.group), shown)
    });
    Terms {
        granted: granted.collect(),
        seldom: seldom.collect(),
    }
}
