//! Which objects an installation of the operator serves.
//!
//! The rule of the older operator: a cluster-wide operator serves only clusters annotated `scope: clusterwide`, and a
//! namespaced one ignores every cluster with that annotation. Two installations thus never act on the same cluster.

use std::{collections::BTreeMap, fmt};

use crate::EtcdCluster;
use crate::names::{ANNOTATION_SCOPE, SCOPE_CLUSTERWIDE};

/// Which of the visible objects an installation serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeRule {
    /// For named namespaces: all objects without the scope annotation.
    Namespaced,
    /// For all namespaces: only objects annotated for a cluster-wide operator.
    ClusterWide,
    /// For all namespaces: all objects, whatever their annotation.
    Everything,
}

/// An object is not served by this installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotServed {
    /// Why, and what to change, as text.
    pub why: String,
}

impl fmt::Display for ScopeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespaced => write!(f, "objects without the annotation {ANNOTATION_SCOPE}"),
            Self::ClusterWide => write!(f, "objects annotated {ANNOTATION_SCOPE}: {SCOPE_CLUSTERWIDE}"),
            Self::Everything => f.write_str("all objects"),
        }
    }
}

/// The installation that `controlledBy` names, if it is another one than `installation`.
pub fn another<'a>(controlled_by: Option<&'a str>, installation: &str) -> Option<&'a str> {
    controlled_by.filter(|by| !by.is_empty() && *by != installation)
}

/// The installation that controls this cluster and its backups and restores, if it is another one than `installation`.
pub fn elsewhere<'a>(cluster: &'a EtcdCluster, installation: &str) -> Option<&'a str> {
    another(cluster.status.as_ref()?.controlled_by.as_deref(), installation)
}

impl ScopeRule {
    /// Checks whether the operator serves a cluster with these annotations; the reason if not.
    pub fn serves(self, annotations: Option<&BTreeMap<String, String>>) -> Result<(), NotServed> {
        let value = annotations
            .and_then(|a| a.get(ANNOTATION_SCOPE))
            .map(String::as_str);
        let why = match (self, value) {
            (Self::Everything, _)
            | (Self::Namespaced, None)
            | (Self::ClusterWide, Some(SCOPE_CLUSTERWIDE)) => {
                return Ok(());
            }
            (Self::Namespaced, Some(value)) => format!(
                "the annotation {ANNOTATION_SCOPE}: {value} assigns this object to a cluster-wide operator, but this operator is namespaced; to have this one serve it, remove the annotation"
            ),
            (Self::ClusterWide, found) => format!(
                "this cluster-wide operator serves only objects annotated {ANNOTATION_SCOPE}: {SCOPE_CLUSTERWIDE}, but this object has {}; add the annotation, or run the operator with --require-scope-annotation=false",
                found.map_or_else(|| "none".to_owned(), |v| format!("the value '{v}'"))
            ),
        };
        Err(NotServed { why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cluster_is_served_by_one_kind_of_installation() {
        let annotated = |value: &str| BTreeMap::from([(ANNOTATION_SCOPE.to_owned(), value.to_owned())]);
        let table = [
            (None, true, false),
            (Some(annotated("clusterwide")), false, true),
            (Some(annotated("something")), false, false),
            (Some(annotated("")), false, false),
        ];
        for (annotations, namespaced, clusterwide) in table {
            let serves = |rule: ScopeRule| rule.serves(annotations.as_ref()).is_ok();
            assert_eq!(serves(ScopeRule::Namespaced), namespaced, "{annotations:?}");
            assert_eq!(serves(ScopeRule::ClusterWide), clusterwide, "{annotations:?}");
            assert!(serves(ScopeRule::Everything), "{annotations:?}");
        }
    }

    #[test]
    fn the_reason_says_what_to_change() {
        let why = ScopeRule::ClusterWide.serves(None).expect_err("not served").why;
        assert!(
            why.contains("etcd.database.coreos.com/scope: clusterwide") && why.contains("has none"),
            "{why}"
        );
    }
}
