//! What the operator's roles grant, as runs of scenarios are judged by it.

use etcd_operator_e2e::rights::Ask;
use etcd_operator_e2e::rights::verdict::Terms;
use etcd_operator_gen::rbac::RIGHTS;

/// The one table.
pub fn terms() -> Terms {
    let granted = RIGHTS.iter().flat_map(|right| {
        let resources = right.resources.iter();
        resources.flat_map(|resource| {
            let verbs = right.verbs.iter();
            verbs.map(|verb| Ask::new(verb, resource, right.group))
        })
    });
    Terms {
        granted: granted.collect(),
    }
}
