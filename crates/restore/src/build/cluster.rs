//! Builds an `EtcdCluster` from a template. It has no owner reference, because it must outlive its first restore.

use etcd_operator_api::EtcdCluster;
use etcd_operator_api::cluster::BootstrapSpec;
use etcd_operator_api::names::{ANNOTATION_MADE_BY, ANNOTATION_SCOPE};
use etcd_operator_api::restore::ClusterTemplate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use etcd_operator_runtime::key::ObjectKey;

/// Builds the cluster of a template for the restore with UID `restore_uid`. The cluster waits for a restore instead of
/// starting empty. It inherits the scope annotation of the restore.
pub fn cluster(
    template: &ClusterTemplate,
    key: &ObjectKey,
    restore_uid: &str,
    scope: Option<&str>,
) -> EtcdCluster {
    let mut annotations = template.annotations.clone().unwrap_or_default();
    annotations.insert(ANNOTATION_MADE_BY.to_owned(), restore_uid.to_owned());
    if let Some(scope) = scope {
        // The installation that serves the restore must also serve its cluster.
        let cluster_scope = annotations.entry(ANNOTATION_SCOPE.to_owned());
        cluster_scope.or_insert_with(|| scope.to_owned());
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
