//! What is kept of a StatefulSet in memory, where cluster-core's `trim` says that of the other objects.
//!
//! As a struct, the spec of its pod template needs more memory than all its other fields, while an annotation has the
//! template as text, as the operator applied it. So it is left out where it says nothing else than that text.

use std::sync::Arc;

use etcd_operator_cluster_core::build::applied_template;
use etcd_operator_runtime::drift;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::PodTemplateSpec;

use crate::observe::has_controller;

/// Keeps of a StatefulSet all that an apply compares with, and up to which generation its controller has seen it. An apply
/// compares with what [`with_template`] returns.
pub fn set(set: &mut StatefulSet) {
    set.metadata.managed_fields = None;
    set.status = set.status.take().map(|status| StatefulSetStatus {
        observed_generation: status.observed_generation,
        ..StatefulSetStatus::default()
    });
    // Without a controller, the command in the template tells whose it is.
    if has_controller(set) && is_template_as_applied(set) {
        set.spec.template.spec = None;
    }
}

/// Whether the stored pods have all that the operator applied, with at most defaults and fields of others besides.
fn is_template_as_applied(set: &StatefulSet) -> bool {
    let json = |template: &PodTemplateSpec| serde_json::to_value(&template.spec).ok();
    let applied = applied_template(set).and_then(|applied| json(&applied));
    let stored = json(&set.spec.template);
    stored
        .zip(applied)
        .is_some_and(|(stored, applied)| drift::contains(&stored, &applied))
}

/// The StatefulSet with the spec of its pod template, which [`set`] may have left out.
pub fn with_template(set: Arc<StatefulSet>) -> Arc<StatefulSet> {
    if set.spec.template.spec.is_some() {
        return set;
    }
    let spec = applied_template(&set).and_then(|applied| applied.spec);
    let mut full = Arc::unwrap_or_clone(set);
    full.spec.template.spec = spec;
    Arc::new(full)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    type Change = fn(&mut Value);

    /// A StatefulSet as it is stored, and as it is kept.
    fn stored_and_kept(change: impl FnOnce(&mut Value)) -> (StatefulSet, StatefulSet) {
        let applied = json!({"metadata": {}, "spec": {
            "containers": [{"name": "etcd", "image": "etcd:3.6", "command": ["member", "--cluster-uid=u"]}],
        }});
        let mut stored = json!({
            "metadata": {
                "name": "c", "uid": "s",
                "annotations": {"etcd.database.coreos.com/template": applied.to_string()},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "EtcdCluster", "name": "c", "uid": "u", "controller": true},
                ],
            },
            "spec": {"selector": {}, "serviceName": "c", "template": applied},
            "status": {"replicas": 3, "observedGeneration": 2},
        });
        // As the API server does it.
        stored["spec"]["template"]["spec"]["dnsPolicy"] = json!("ClusterFirst");
        change(&mut stored);
        let stored: StatefulSet = serde_json::from_value(stored).unwrap();
        let mut kept = stored.clone();
        set(&mut kept);
        (stored, kept)
    }

    #[test]
    fn a_template_that_is_as_applied_is_kept_once_and_any_other_one_as_it_is() {
        let (_, kept) = stored_and_kept(|_| {});
        assert_eq!(kept.spec.template.spec, None);
        let template = |set: &StatefulSet| set.spec.template.spec.clone();
        let command = |set: &StatefulSet| template(set).unwrap().containers[0].command.clone();
        assert_eq!(
            command(&with_template(kept.into())).unwrap()[1],
            "--cluster-uid=u"
        );

        let changes: [(&str, Change); 4] = [
            ("another client changed it", |set| {
                set["spec"]["template"]["spec"]["containers"][0]["image"] = json!("etcd:3.5");
            }),
            ("another client removed a field", |set| {
                set["spec"]["template"]["spec"]["containers"][0]["command"] = Value::Null;
            }),
            ("the annotation is missing", |set| {
                set["metadata"]["annotations"] = Value::Null;
            }),
            ("its owner is unknown but by the command", |set| {
                set["metadata"]["ownerReferences"] = Value::Null;
            }),
        ];
        for (what, change) in changes {
            let (stored, kept) = stored_and_kept(change);
            assert!(kept.spec.template.spec.is_some(), "{what}");
            assert_eq!(template(&kept), template(&stored), "{what}");
            assert_eq!(template(&with_template(kept.into())), template(&stored), "{what}");
        }
    }
}
