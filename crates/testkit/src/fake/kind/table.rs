//! The built-in kinds, one row each, in the words of the API server's own tables.

use super::{Kind, ScalePaths};
use crate::fake::schema;

#[derive(Clone, Copy)]
struct Row {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    schema: &'static str,
    flags: &'static [Flag],
    selectable: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flag {
    ClusterScoped,
    Status,
    Scale,
    Generation,
    Conditional,
    CreateOnUpdate,
    DeleteReturnsObject,
}

use Flag::{ClusterScoped, Conditional, CreateOnUpdate, DeleteReturnsObject, Generation, Scale, Status};

const fn row(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    schema: &'static str,
    flags: &'static [Flag],
    selectable: &'static [&'static str],
) -> Row {
    Row {
        group,
        version,
        kind,
        plural,
        schema,
        flags,
        selectable,
    }
}

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.name",
    "involvedObject.uid",
    "reason",
    "type",
    "source",
];

const ROWS: &[Row] = &[
    row(
        "",
        "v1",
        "Namespace",
        "namespaces",
        "Namespace",
        &[ClusterScoped, Status],
        &["status.phase"],
    ),
    row(
        "",
        "v1",
        "Node",
        "nodes",
        "Node",
        &[ClusterScoped, Status],
        &["spec.unschedulable"],
    ),
    row(
        "",
        "v1",
        "Pod",
        "pods",
        "Pod",
        &[Status, Generation, DeleteReturnsObject],
        &[
            "spec.nodeName",
            "status.phase",
            "spec.restartPolicy",
            "spec.serviceAccountName",
            "status.podIP",
        ],
    ),
    row(
        "",
        "v1",
        "Service",
        "services",
        "Service",
        &[Status, DeleteReturnsObject],
        &["spec.clusterIP", "spec.type"],
    ),
    row("", "v1", "ConfigMap", "configmaps", "ConfigMap", &[], &[]),
    row("", "v1", "Secret", "secrets", "Secret", &[], &["type"]),
    row(
        "",
        "v1",
        "Event",
        "events",
        "Event",
        &[CreateOnUpdate],
        EVENT_FIELDS,
    ),
    row(
        "",
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        &[Status, DeleteReturnsObject],
        &[],
    ),
    row(
        "",
        "v1",
        "PersistentVolume",
        "persistentvolumes",
        "PersistentVolume",
        &[ClusterScoped, Status, DeleteReturnsObject],
        &[],
    ),
    row(
        "",
        "v1",
        "ServiceAccount",
        "serviceaccounts",
        "ServiceAccount",
        &[DeleteReturnsObject],
        &[],
    ),
    row(
        "apps",
        "v1",
        "StatefulSet",
        "statefulsets",
        "StatefulSet",
        &[Status, Scale, Generation],
        &[],
    ),
    row(
        "apps",
        "v1",
        "Deployment",
        "deployments",
        "Deployment",
        &[Status, Scale, Generation],
        &[],
    ),
    row(
        "batch",
        "v1",
        "Job",
        "jobs",
        "Job",
        &[Status, Generation],
        &["status.successful"],
    ),
    row(
        "policy",
        "v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        &[Status, Generation, Conditional],
        &[],
    ),
    row(
        "coordination.k8s.io",
        "v1",
        "Lease",
        "leases",
        "Lease",
        &[Conditional, CreateOnUpdate],
        &[],
    ),
    row(
        "events.k8s.io",
        "v1",
        "Event",
        "events",
        "events.Event",
        &[CreateOnUpdate],
        EVENT_FIELDS,
    ),
    row(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        &[ClusterScoped, Status, Generation, Conditional],
        &[],
    ),
];

/// Every built-in kind.
pub(super) fn built_in() -> impl Iterator<Item = Kind> {
    ROWS.iter().map(kind)
}

fn kind(row: &Row) -> Kind {
    let has = |flag: Flag| row.flags.contains(&flag);
    let scale = has(Scale).then(|| ScalePaths {
        spec: ".spec.replicas".to_owned(),
        status: ".status.replicas".to_owned(),
        selector: None,
    });
    let storage = if row.plural == "events" {
        "events".to_owned()
    } else {
        format!("{}/{}", row.group, row.plural)
    };
    Kind {
        group: row.group.to_owned(),
        version: row.version.to_owned(),
        kind: row.kind.to_owned(),
        plural: row.plural.to_owned(),
        singular: row.kind.to_lowercase(),
        short_names: Vec::new(),
        list_kind: format!("{}List", row.kind),
        namespaced: !has(ClusterScoped),
        custom: false,
        schema: schema::built_in(row.schema),
        status: has(Status),
        scale,
        generation: has(Generation),
        unconditional_update: !has(Conditional),
        create_on_update: has(CreateOnUpdate),
        delete_returns_object: has(DeleteReturnsObject),
        selectable: row.selectable.iter().map(|&path| path.to_owned()).collect(),
        storage,
    }
}
