//! The table of permissions of the operator. The roles, the chart and the reference page are generated from
//! it.
//!
//! A permission is added together with the code that needs it. There are no wildcards.

/// Where a permission is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// In every watched namespace, or cluster-wide.
    Watched,
    /// In the namespace of the operator.
    Own,
    /// Cluster-wide, and only if the operator watches nodes.
    Nodes,
}

/// Which objects of a resource a permission covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selector {
    /// All objects.
    Any,
    /// The leader election lease of this operator. RBAC cannot restrict `create` by name.
    OwnLease,
}

/// One row of the table: verbs on resources, with the reason.
#[derive(Clone, Copy, Debug)]
pub struct Permission {
    /// The API group. Empty for the core group.
    pub group: &'static str,
    /// The resources, with their subresource.
    pub resources: &'static [&'static str],
    /// The verbs.
    pub verbs: &'static [&'static str],
    /// Where it is granted.
    pub scope: Scope,
    /// Which objects it covers.
    pub selector: Selector,
    /// The part of the operator that needs it.
    pub part: &'static str,
    /// The reason, as a sentence.
    pub why: &'static str,
}

/// The part that runs members.
const CLUSTER: &str = "cluster controller";
/// The part that makes backups.
const BACKUP: &str = "backup controller";
/// The part that requests restores.
const RESTORE: &str = "restore controller";
/// For objects that the operator creates, updates and deletes.
const MANAGE: &[&str] = &["get", "list", "watch", "create", "patch", "delete"];
/// For objects that the operator creates and updates. They are garbage-collected with their owner.
const MANAGE_WITHOUT_DELETE: &[&str] = &["get", "list", "watch", "create", "patch"];
/// For objects that other controllers create, and the operator updates and deletes.
const MAINTAIN: &[&str] = &["get", "list", "watch", "patch", "delete"];

/// All permissions of the operator.
pub const RIGHTS: &[Permission] = &[
    Permission {
        group: etcd_operator_api::GROUP,
        resources: &["etcdclusters", "etcdbackups", "etcdrestores"],
        verbs: &["get", "list", "watch"],
        scope: Scope::Watched,
        selector: Selector::Any,
        part: "shared informers",
        why: "The operator watches the objects it manages.",
    },
    Permission {
        group: etcd_operator_api::GROUP,
        resources: &["etcdclusters/status", "etcdbackups/status", "etcdrestores/status"],
        verbs: &["patch"],
        scope: Scope::Watched,
        selector: Selector::Any,
        part: "every controller",
        why: "Each controller updates the status of its own kind.",
    },
    Permission {
        group: "",
        resources: &["services"],
        verbs: MANAGE_WITHOUT_DELETE,
        scope: Scope::Watched,
        selector: Selector::Any,
        part: CLUSTER,
        why: "Members discover one another through a Service, and clients reach them through another.",
    },
    Permission {
        group: "apps",
        resources: &["statefulsets"],
        verbs: MANAGE_WITHOUT_DELETE,
        scope: Scope::Watched,
        selector: Selector::Any,
        part: CLUSTER,
        why: "Members run in the pods of a StatefulSet.",
    },
    Permission {
        group: "policy",
        resources: &["poddisruptionbudgets"],
        verbs: MANAGE,
        scope: Scope::Watched,
        selector: Selector::Any,
        part: CLUSTER,
        why: "Evictions never break quorum.",
    },
    Permission {
        group: "",
        resources: &["pods"],
        verbs: MAINTAIN,
        scope: Scope::Watched,
        selector: Selector::Any,
        part: CLUSTER,
        why: "The operator watches members, permits them to start, and replaces them. It lists the pod of a Job that tries an etcd image.",
    },
    Permission {
        group: "",
        resources: &["pods"],
        verbs: &["create"],
        scope: Scope::Watched,
        selector: Selector::Any,
        part: CLUSTER,
        why: "Before the operator restarts members with a changed pod template, it asks the API server in a dry run whether it accepts the changed pods. Kubernetes has no right for dry runs alone. The operator creates no pod itself.",
    },
    Permission {
        group: "",
        resources: &["pods/eviction"],
        verbs: &["create"],
        scope: Scope::Watched,
        selector: Selector::Any,
        part: CLUSTER,
        why: "Members are restarted by eviction, so that PodDisruptionBudgets are respected.",
    },
    Permission {
        group: "",
        resources: &["persistentvolumeclaims"],
        verbs: MAINTAIN,
        scope: Scope::Watched,
        selector: Selector::Any,
        part: CLUSTER,
        why: "The operator labels and expands volumes, and deletes them after their member was removed from the cluster.",
    },
    Permission {
        group: "",
        resources: &["secrets"],
        verbs: &["get"],
        scope: Scope::Watched,
        selector: Selector::Any,
        part: CLUSTER,
        why: "The operator connects to members with TLS with the certificate in the Secret that the spec names, and checks that members accept their own certificate from one another.",
    },
    Permission {
        group: "batch",
        resources: &["jobs"],
        verbs: MANAGE,
        scope: Scope::Watched,
        selector: Selector::Any,
        part: BACKUP,
        why: "Jobs make, prune, delete and verify backups, in the namespace of their EtcdBackup or EtcdRestore and with its Secrets. Before members are restarted with another etcd image, the cluster controller tries it in a Job.",
    },
    Permission {
        group: etcd_operator_api::GROUP,
        resources: &["etcdbackups"],
        verbs: &["patch"],
        scope: Scope::Watched,
        selector: Selector::Any,
        part: BACKUP,
        why: "A finalizer protects an EtcdBackup whose stored backups are deleted with it. The finalizer of the older operator is removed. Before a newer minor version, the cluster controller requests a backup with an annotation.",
    },
    Permission {
        group: etcd_operator_api::GROUP,
        resources: &["etcdclusters"],
        verbs: &["create", "patch"],
        scope: Scope::Watched,
        selector: Selector::Any,
        part: RESTORE,
        why: "The restore controller requests a verified restore with an annotation on the EtcdCluster, whose controller executes it. If the EtcdCluster does not exist, it is created from `spec.clusterTemplate`.",
    },
    Permission {
        group: etcd_operator_api::GROUP,
        resources: &["etcdrestores"],
        verbs: &["patch"],
        scope: Scope::Watched,
        selector: Selector::Any,
        part: RESTORE,
        why: "An annotation on the EtcdRestore records that it was committed, so that it is not carried out again if its status is lost.",
    },
    Permission {
        group: "events.k8s.io",
        resources: &["events"],
        verbs: &["create", "patch"],
        scope: Scope::Watched,
        selector: Selector::Any,
        part: "events",
        why: "The operator emits Events about its objects, and updates their count.",
    },
    Permission {
        group: "",
        resources: &["nodes"],
        verbs: &["list", "watch"],
        scope: Scope::Nodes,
        selector: Selector::Any,
        part: CLUSTER,
        why: "The operator replaces a member whose node is lost, even if its pod is never deleted.",
    },
    Permission {
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["create"],
        scope: Scope::Own,
        selector: Selector::Any,
        part: "leader election",
        why: "The first manager creates the lease.",
    },
    Permission {
        group: "coordination.k8s.io",
        resources: &["leases"],
        verbs: &["get", "update"],
        scope: Scope::Own,
        selector: Selector::OwnLease,
        part: "leader election",
        why: "Managers elect a leader through the lease.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN_VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];

    #[test]
    fn no_permission_has_wildcards_and_each_has_a_reason() {
        for permission in RIGHTS {
            assert!(!permission.group.contains('*'), "{permission:?}");
            assert!(
                !permission.resources.is_empty() && !permission.verbs.is_empty(),
                "{permission:?}"
            );
            for resource in permission.resources {
                assert!(!resource.is_empty() && !resource.contains('*'), "{permission:?}");
            }
            for verb in permission.verbs {
                assert!(KNOWN_VERBS.contains(verb), "{permission:?}");
            }
            assert!(
                permission.why.contains(' ') && permission.why.ends_with('.'),
                "{permission:?}"
            );
            assert!(!permission.part.is_empty(), "{permission:?}");
        }
    }

    #[test]
    fn no_two_rows_grant_the_same_permission() {
        let mut seen = std::collections::BTreeSet::new();
        for permission in RIGHTS {
            for resource in permission.resources {
                for verb in permission.verbs {
                    assert!(
                        seen.insert((permission.scope, permission.group, resource, verb)),
                        "{permission:?}"
                    );
                }
            }
        }
    }
}
