//! The one table of what the operator may do. Roles, the chart and the page about rights are made from it.
//!
//! Nothing is granted for later: a right comes with the code that needs it. No `*` anywhere.

/// Where a right holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In every namespace whose objects the operator looks after; in all of them when it is cluster-wide.
    Watched,
    /// In the namespace the operator runs in.
    Own,
    /// In no namespace, and only where the operator is told to watch nodes.
    Nodes,
}

/// Which objects of a resource a right is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Any of them.
    Any,
    /// The lease the managers share. A right to create cannot be narrowed by name.
    TheLease,
}

/// One row: some verbs on some resources, and the reason.
#[derive(Clone, Copy, Debug)]
pub struct Right {
    /// The API group; empty for the core of Kubernetes.
    pub group: &'static str,
    /// The resources, with their subresource.
    pub resources: &'static [&'static str],
    /// What may be done with them.
    pub verbs: &'static [&'static str],
    /// Where.
    pub place: Place,
    /// With which of them.
    pub which: Which,
    /// The part of the operator that needs it.
    pub part: &'static str,
    /// Why, in a sentence.
    pub why: &'static str,
}

/// The part that runs members.
const CLUSTER: &str = "cluster controller";
/// The part that has backups made.
const BACKUP: &str = "backup controller";
/// The part that asks for restores.
const RESTORE: &str = "restore controller";
/// What is made, kept as it should be, and taken away.
const MAKE: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
/// The same, where it goes with its owner and is never taken away.
const BRING: &[&str] = &["get", "list", "watch", "create", "patch"];
/// What others make, and is looked after here.
const KEEP: &[&str] = &["get", "list", "watch", "patch", "delete"];

/// Every right of the operator.
pub const RIGHTS: &[Right] = &[
    Right {
        group: etcd_operator_api::GROUP,
        resources: &["etcdclusters", "etcdbackups", "etcdrestores"],
        verbs: &["get", "list", "watch"],
        place: Place::Watched,
        which: Which::Any,
        part: "shared informers",
        why: "The operator follows the objects it looks after.",
    },
    Right {
        group: etcd_operator_api::GROUP,
        resources: &["etcdclusters/status", "etcdbackups/status", "etcdrestores/status"],
        verbs: &["patch"],
        place: Place::Watched,
        which: Which::Any,
        part: "every controller",
        why: "Each controller reports what it found in the status of its own kind.",
    },
    Right {
        group: "",
        resources: &["services"],
        verbs: BRING,
        place: Place::Watched,
        which: Which::Any,
        part: CLUSTER,
        why: "Members find one another by a Service, and clients find them by another.",
    },
    Right {
        group: "apps",
        resources: &["statefulsets"],
        verbs: BRING,
        place: Place::Watched,
        which: Which::Any,
        part: CLUSTER,
        why: "Members run in the pods of a StatefulSet.",
    },
    Right {
        group: "policy",
        resources: &["poddisruptionbudgets"],
        verbs: MAKE,
        place: Place::Watched,
        which: Which::Any,
        part: CLUSTER,
        why: "Evictions never take the quorum.",
    },
    Right {
        group: "",
        resources: &["pods"],
        verbs: KEEP,
        place: Place::Watched,
        which: Which::Any,
        part: CLUSTER,
        why: "Members are followed, permitted to start and replaced.",
    },
    Right {
        group: "",
        resources: &["persistentvolumeclaims"],
        verbs: KEEP,
        place: Place::Watched,
        which: Which::Any,
        part: CLUSTER,
        why: "Volumes are labelled, grown, and deleted once their member is out of the cluster.",
    },
    Right {
        group: "",
        resources: &["secrets"],
        verbs: &["get"],
        place: Place::Watched,
        which: Which::Any,
        part: CLUSTER,
        why: "Members with TLS are reached by the certificate in the Secret that the spec names.",
    },
    Right {
        group: "batch",
        resources: &["jobs"],
        verbs: MAKE,
        place: Place::Watched,
        which: Which::Any,
        part: BACKUP,
        why: "Backups are made, pruned, deleted and verified by Jobs, in the namespace of their EtcdBackup or EtcdRestore and with its Secrets.",
    },
    Right {
        group: etcd_operator_api::GROUP,
        resources: &["etcdbackups"],
        verbs: &["patch"],
        place: Place::Watched,
        which: Which::Any,
        part: BACKUP,
        why: "A finalizer holds an EtcdBackup whose stored backups are deleted with it; that of the older operator is removed.",
    },
    Right {
        group: etcd_operator_api::GROUP,
        resources: &["etcdclusters"],
        verbs: &["create", "patch"],
        place: Place::Watched,
        which: Which::Any,
        part: RESTORE,
        why: "A verified restore is asked for by an annotation on its EtcdCluster, whose own controller carries it out; where there is none, `spec.clusterTemplate` makes one.",
    },
    Right {
        group: "events.k8s.io",
        resources: &["events"],
        verbs: &["create", "patch"],
        place: Place::Watched,
        which: Which::Any,
        part: "events",
        why: "What happens to an object is told beside it, and counted on when it happens again.",
    },
    Right {
        group: "",
        resources: &["nodes"],
        verbs: &["list", "watch"],
        place: Place::Nodes,
        which: Which::Any,
        part: CLUSTER,
        why: "A member whose node is gone is given up, even where nothing deletes its pod.",
    },
    Right {
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["create"],
        place: Place::Own,
        which: Which::Any,
        part: "leader election",
        why: "The first manager makes the lease.",
    },
    Right {
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["get", "update"],
        place: Place::Own,
        which: Which::TheLease,
        part: "leader election",
        why: "Managers agree through one lease on which of them writes.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN_VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

    #[test]
    fn no_right_is_wild_and_each_says_why() {
        for right in RIGHTS {
            assert!(!right.group.contains('*'), "{right:?}");
            assert!(
                !right.resources.is_empty() && !right.verbs.is_empty(),
                "{right:?}"
            );
            for resource in right.resources {
                assert!(!resource.is_empty() && !resource.contains('*'), "{right:?}");
            }
            for verb in right.verbs {
                assert!(KNOWN_VERBS.contains(verb), "{right:?}");
            }
            assert!(right.why.contains(' ') && right.why.ends_with('.'), "{right:?}");
            assert!(!right.part.is_empty(), "{right:?}");
        }
    }

    #[test]
    fn no_two_rows_grant_the_same() {
        let mut seen = std::collections::BTreeSet::new();
        for right in RIGHTS {
            for resource in right.resources {
                for verb in right.verbs {
                    assert!(
                        seen.insert((right.place, right.group, resource, verb)),
                        "{right:?}"
                    );
                }
            }
        }
    }
}
