//! The pod of a member, as the StatefulSet makes it.

use etcd_operator_api::names::{ANNOTATION_RESTART, ANNOTATION_RESTARTED_AT, ANNOTATION_VERSION};
use etcd_operator_api::{refusal::Refusal, reserved};
use k8s_openapi::{
    api::core::v1::{
        Affinity, LocalObjectReference, PodAffinityTerm, PodAntiAffinity, PodSpec, PodTemplateSpec,
        TopologySpreadConstraint,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};

use super::{
    BuildInputs, container, flags,
    labels::{Map, cluster_labels, selector},
    patch, security,
    spec_hash::{ANNOTATION_SPEC_HASH, spec_hash},
    volumes,
};
use crate::desired::{Desired, Pod};
use etcd_operator_api::names::{ClusterName, LABEL_CLUSTER};

const NODE_KEY: &str = "kubernetes.io/hostname";
const ZONE_KEY: &str = "topology.kubernetes.io/zone";

/// The ServiceAccount that every namespace has.
const DEFAULT_SERVICE_ACCOUNT: &str = "default";
/// Seconds to stop in: enough to hand leadership over and close the files.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// The pod template that the spec asks for, in the version of the inputs, with the user's patch applied last.
pub(super) fn template(desired: &Desired, inputs: &BuildInputs) -> Result<PodTemplateSpec, Vec<Refusal>> {
    let (name, pod) = (&desired.name, &desired.pod);
    let flags = flags::render_arguments(desired, inputs)?;
    let mut labels = cluster_labels(name);
    labels.extend(pod.labels.clone());
    let mut annotations = pod.annotations.clone();
    annotations.insert(ANNOTATION_VERSION.to_owned(), inputs.version.to_string());
    annotations.insert(
        ANNOTATION_SPEC_HASH.to_owned(),
        spec_hash(desired, &inputs.version, &inputs.restart),
    );
    let requests = [
        (ANNOTATION_RESTART, &inputs.restart.annotated),
        (ANNOTATION_RESTARTED_AT, &inputs.restart.by_kubectl),
    ];
    for (key, value) in requests {
        if let Some(value) = value {
            annotations.insert(key.to_owned(), value.clone());
        }
    }
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta {
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        }),
        spec: Some(PodSpec {
            init_containers: Some(vec![container::install(desired, inputs)]),
            containers: vec![container::etcd(desired, inputs, flags)],
            volumes: Some(volumes::volumes(desired)),
            node_selector: non_empty(pod.node_selector.clone()),
            affinity: affinity(name, pod),
            tolerations: (!pod.tolerations.is_empty()).then(|| pod.tolerations.clone()),
            topology_spread_constraints: spread(name, pod),
            priority_class_name: pod.priority_class.clone(),
            // By name, as Kubernetes keeps two fields of it and fills in the one from the other: a name that is taken
            // away from one of them would come back.
            service_account_name: Some(
                pod.service_account
                    .clone()
                    .unwrap_or_else(|| DEFAULT_SERVICE_ACCOUNT.to_owned()),
            ),
            image_pull_secrets: pull_secrets(&desired.pull_secrets),
            security_context: Some(security::pod(pod.security.as_ref())),
            termination_grace_period_seconds: Some(pod.grace_seconds.unwrap_or(DEFAULT_GRACE_SECONDS)),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            ..PodSpec::default()
        }),
    };
    patch::apply_patch(template, pod.patch.as_ref())
}

/// Labels and annotations of the template that a running pod can be given: not those that tell how it was started.
pub(super) fn live_metadata(template: &PodTemplateSpec, namespace: &str) -> ObjectMeta {
    let metadata = template.metadata.clone().unwrap_or_default();
    let mut annotations = metadata.annotations.unwrap_or_default();
    annotations.retain(|key, _| !reserved::annotation(key));
    ObjectMeta {
        namespace: Some(namespace.to_owned()),
        labels: metadata.labels,
        annotations: non_empty(annotations),
        ..ObjectMeta::default()
    }
}

fn non_empty(map: Map) -> Option<Map> {
    (!map.is_empty()).then_some(map)
}

/// The user's affinity, or one member on each node.
fn affinity(name: &ClusterName, pod: &Pod) -> Option<Affinity> {
    if !pod.one_per_node {
        return pod.affinity.clone();
    }
    let same_cluster = LabelSelector {
        match_labels: Some(Map::from([(LABEL_CLUSTER.to_owned(), name.to_string())])),
        ..LabelSelector::default()
    };
    Some(Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            required_during_scheduling_ignored_during_execution: Some(vec![PodAffinityTerm {
                label_selector: Some(same_cluster),
                topology_key: NODE_KEY.to_owned(),
                ..PodAffinityTerm::default()
            }]),
            ..PodAntiAffinity::default()
        }),
        ..Affinity::default()
    })
}

/// The user's topology spread constraints, or a preferred spread over nodes and zones. A constraint without a selector
/// would count no pods: it gets that of the members.
fn spread(name: &ClusterName, pod: &Pod) -> Option<Vec<TopologySpreadConstraint>> {
    let preferred = |key: &str| TopologySpreadConstraint {
        max_skew: 1,
        topology_key: key.to_owned(),
        when_unsatisfiable: "ScheduleAnyway".to_owned(),
        ..TopologySpreadConstraint::default()
    };
    let constraints = pod
        .spread
        .clone()
        .unwrap_or_else(|| vec![preferred(NODE_KEY), preferred(ZONE_KEY)]);
    let with_selector = |constraint: TopologySpreadConstraint| TopologySpreadConstraint {
        label_selector: constraint.label_selector.clone().or_else(|| Some(selector(name))),
        ..constraint
    };
    let constraints: Vec<_> = constraints.into_iter().map(with_selector).collect();
    (!constraints.is_empty()).then_some(constraints)
}

fn pull_secrets(names: &[String]) -> Option<Vec<LocalObjectReference>> {
    let secrets = names
        .iter()
        .map(|name| LocalObjectReference { name: name.clone() });
    (!names.is_empty()).then(|| secrets.collect())
}
