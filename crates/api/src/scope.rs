//! Which objects an installation of the operator looks after.
//!
//! The ancestor's rule: a cluster-wide operator serves only clusters annotated `scope: clusterwide`, a namespaced one
//! leaves every cluster alone that carries the annotation. Two installations thus never fight over one cluster.

use std::{collections::BTreeMap, fmt};

use crate::EtcdCluster;
use crate::names::{ANNOTATION_SCOPE, SCOPE_CLUSTERWIDE};

/// Which objects an installation looks after, among those it can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeRule {
    /// An installation for named namespaces: everything there but what is annotated for a cluster-wide one.
    Namespaced,
    /// An installation for all namespaces: what is annotated for it.
    ClusterWide,
    /// An installation for all namespaces that needs no annotation.
    Everything,
}

/// Why an object is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotServed {
    /// What the annotation would have to be, in words.
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

/// The installation that `controlledBy` of a cluster names, if it is another one than ours.
pub fn another<'a>(controlled_by: Option<&'a str>, installation: &str) -> Option<&'a str> {
    controlled_by.filter(|by| !by.is_empty() && *by != installation)
}

/// The installation that looks after this cluster, and so after its backups and restores, if it is another one than ours.
pub fn elsewhere<'a>(cluster: &'a EtcdCluster, installation: &str) -> Option<&'a str> {
    another(cluster.status.as_ref()?.controlled_by.as_deref(), installation)
}

impl ScopeRule {
    /// Whether a cluster with these annotations is looked after; the reason if not.
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
                "the annotation {ANNOTATION_SCOPE}: {value} leaves this object to a cluster-wide operator, and this one looks after namespaces; remove the annotation to have this one serve it"
            ),
            (Self::ClusterWide, found) => format!(
                "a cluster-wide operator serves objects annotated {ANNOTATION_SCOPE}: {SCOPE_CLUSTERWIDE}, and this one has {}; add the annotation, or run the operator with --require-scope-annotation=false",
                found.map_or_else(|| "none".to_owned(), |v| format!("'{v}'"))
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
    fn the_reason_tells_what_to_do() {
        let why = ScopeRule::ClusterWide.serves(None).expect_err("not served").why;
        assert!(
            why.contains("etcd.database.coreos.com/scope: clusterwide") && why.contains("has none"),
            "{why}"
        );
    }
}
