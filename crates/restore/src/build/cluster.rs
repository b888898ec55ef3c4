//! The `EtcdCluster` that is made from a template. It has no owner: it outlives the restore that brings its first data.

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::cluster::BootstrapSpec;
use etcd_operator_api::names::{ANNOTATION_MADE_BY, ANNOTATION_SCOPE};
use etcd_operator_api::restore::ClusterTemplate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use etcd_operator_runtime::key::ObjectKey;

/// The cluster of this template, made by the restore of this UID, which may have a scope. It waits for a restore instead of
/// starting empty.
pub fn cluster(
    template: &ClusterTemplate,
    key: &ObjectKey,
    made_by: &str,
    scope: Option<&str>,
) -> EtcdCluster {
    let mut annotations = template.annotations.clone().unwrap_or_default();
    annotations.insert(ANNOTATION_MADE_BY.to_owned(), made_by.to_owned());
    if let Some(scope) = scope {
        // Whoever looks after the restore is to look after its cluster.
        let scope_of_cluster = annotations.entry(ANNOTATION_SCOPE.to_owned());
        scope_of_cluster.or_insert_with(|| scope.to_owned());
    }
    let mut spec = template.spec.clone();
    spec.bootstrap = Some(BootstrapSpec { await_restore: true });
    EtcdCluster {
        metadata: ObjectMeta {
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            labels: template.labels.clone(),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    }
}
