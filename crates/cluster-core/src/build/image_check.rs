//! The Job that starts the etcd image of a changed template with `etcd --version`, before any member gets the template. Its pod is
//! the members' without what makes a member of it: most of what admits and places those admits and places it.

use std::collections::BTreeMap;

use etcd_operator_api::names::{
    ANNOTATION_IMAGE_CHECK, APP_IMAGE_CHECK_VALUE, ClusterName, LABEL_APP, LABEL_MANAGED_BY, MANAGED_BY,
};
use etcd_operator_api::{hash, reserved};
use etcd_operator_etcd_types::version::{Minor, Version};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{
    Affinity, Container, EmptyDirVolumeSource, NodeSelectorRequirement, NodeSelectorTerm, PodSpec,
    PodTemplateSpec, PreferredSchedulingTerm, ResourceRequirements, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde_json::json;

use super::labels::{ETCD, ETCD_MINOR, INSTALL, Map, string_map};
use super::template::live_metadata;
use super::volumes::{self, PROGRAM, TOOLS};

/// How long the Job may take in all; then another one takes its place.
const DEADLINE_SECONDS: i64 = 600;
/// How long the Job stays after it has ended.
const TTL_SECONDS: i32 = 600;
/// How many pods, or starts of the container, may fail: more than there is time for.
const MAX_FAILURES: i32 = 1000;
/// At most this much of the cluster's name is in that of the Job, which has at most 63 characters.
const MAX_NAME_CHARS: usize = 46;

/// The Job for the pod template of this StatefulSet; none if that names no minor version.
///
/// Its container is started until it succeeds, so that the pod tells at any time what is known of the image. A cluster has one such
/// Job, whose annotation tells what it is for. Its pod goes to one of these nodes, where members run, if it can: elsewhere, another
/// architecture or registry could make a good image fail.
pub fn image_check_job<'a>(
    cluster: &ClusterName,
    members: &StatefulSet,
    version: &Version,
    nodes: impl IntoIterator<Item = &'a str>,
) -> Option<Job> {
    let template = &members.spec.template;
    let namespace = members.metadata.namespace.clone()?;
    let members_pod = template.spec.as_ref()?;
    let mut pod = check_pod(members_pod.clone(), version)?;
    let own_labels = labels();
    let live = live_metadata(template, &namespace);
    let pod_labels = pod_labels(live.labels.unwrap_or_default(), members_pod.affinity.as_ref());
    let annotations = live.annotations;
    // Another image, version, pull secret or placement is another Job.
    let content = hash::hash(&json!({"pod": pod, "annotations": annotations, "labels": pod_labels}));
    prefer_nodes(&mut pod, nodes);
    let prefix: String = cluster.as_str().chars().take(MAX_NAME_CHARS).collect();
    Some(Job {
        metadata: ObjectMeta {
            name: Some(format!(
                "{prefix}-image-{}",
                &hash::hash(&json!(cluster.as_str()))[..8]
            )),
            namespace: Some(namespace),
            labels: Some(own_labels),
            annotations: Some(string_map([(ANNOTATION_IMAGE_CHECK, &*content)])),
            owner_references: members.metadata.owner_references.clone(),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            backoff_limit: Some(MAX_FAILURES),
            active_deadline_seconds: Some(DEADLINE_SECONDS),
            ttl_seconds_after_finished: Some(TTL_SECONDS),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(pod_labels),
                    annotations,
                    ..ObjectMeta::default()
                }),
                spec: Some(pod),
            },
            ..JobSpec::default()
        }),
        status: None,
    })
}

/// The user's labels, which policies may demand, without those by which the members' Services and budget select pods, and without one
/// for each anti-affinity by which the members would keep the pod off their nodes.
fn pod_labels(mut members: Map, affinity: Option<&Affinity>) -> Map {
    members.retain(|key, _| !reserved::label(key) && !key.starts_with("app.kubernetes.io/"));
    let own = labels();
    members.extend(own.clone());
    let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let terms = apart.and_then(|apart| apart.required_during_scheduling_ignored_during_execution.as_ref());
    for selector in terms
        .into_iter()
        .flatten()
        .filter_map(|term| term.label_selector.as_ref())
    {
        let demanded = demanded_keys(selector).find(|key| !own.contains_key(*key));
        if let Some(key) = demanded.filter(|_| selects(selector, &members)) {
            members.remove(key);
        }
    }
    members
}

fn selects(selector: &LabelSelector, labels: &Map) -> bool {
    let mut equal = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    equal.all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|expression| {
            let value = labels.get(&expression.key);
            let is_listed =
                value.is_some_and(|value| expression.values.iter().flatten().any(|one| one == value));
            match &*expression.operator {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

/// The labels that a pod must have to be selected.
fn demanded_keys(selector: &LabelSelector) -> impl Iterator<Item = &String> {
    let labels = selector.match_labels.iter().flat_map(BTreeMap::keys);
    let expressions = selector.match_expressions.iter().flatten();
    let demanding = expressions.filter(|expression| matches!(&*expression.operator, "In" | "Exists"));
    labels.chain(demanding.map(|expression| &expression.key))
}

/// Asks the scheduler for one of these nodes, if one of them takes the pod.
fn prefer_nodes<'a>(pod: &mut PodSpec, nodes: impl IntoIterator<Item = &'a str>) {
    let terms = nodes.into_iter().map(|node| PreferredSchedulingTerm {
        weight: 100,
        preference: NodeSelectorTerm {
            match_fields: Some(vec![NodeSelectorRequirement {
                key: "metadata.name".to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![node.to_owned()]),
            }]),
            match_expressions: None,
        },
    });
    let terms: Vec<_> = terms.collect();
    if !terms.is_empty() {
        let affinity = pod.affinity.get_or_insert_default();
        let affinity = affinity.node_affinity.get_or_insert_default();
        let preferred = &mut affinity.preferred_during_scheduling_ignored_during_execution;
        preferred.get_or_insert_default().extend(terms);
    }
}

fn labels() -> Map {
    string_map([(LABEL_APP, APP_IMAGE_CHECK_VALUE), (LABEL_MANAGED_BY, MANAGED_BY)])
}

fn check_pod(members: PodSpec, version: &Version) -> Option<PodSpec> {
    let minor = Minor::of(version)?;
    let find = |containers: &[Container], name: &str| containers.iter().find(|c| c.name == name).cloned();
    let etcd = find(&members.containers, ETCD)?;
    let install = find(members.init_containers.as_deref().unwrap_or_default(), INSTALL)?;
    let check = vec![
        PROGRAM.to_owned(),
        "check-image".to_owned(),
        format!("{ETCD_MINOR}{minor}"),
        "/usr/local/bin/etcd".to_owned(),
    ];
    let mut mount = volumes::tools();
    let install = only(
        install,
        ["etcd-operator", "install", TOOLS].map(str::to_owned).to_vec(),
        mount.clone(),
    );
    mount.read_only = Some(true);
    let etcd = only(etcd, check, mount);
    Some(PodSpec {
        restart_policy: Some("OnFailure".to_owned()),
        init_containers: Some(vec![install]),
        containers: vec![etcd],
        volumes: Some(vec![Volume {
            name: "tools".to_owned(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        }]),
        affinity: node_affinity(members.affinity.as_ref()),
        topology_spread_constraints: None,
        termination_grace_period_seconds: None,
        ..members
    })
}

/// The affinity of members to nodes, without that to one another.
fn node_affinity(members: Option<&Affinity>) -> Option<Affinity> {
    let node_affinity = members?.node_affinity.clone()?;
    Some(Affinity {
        node_affinity: Some(node_affinity),
        ..Affinity::default()
    })
}

/// A container with another command and one mount, without probes, ports, variables and lifecycle.
fn only(
    container: Container,
    command: Vec<String>,
    mount: k8s_openapi::api::core::v1::VolumeMount,
) -> Container {
    Container {
        name: container.name,
        image: container.image,
        image_pull_policy: container.image_pull_policy,
        command: Some(command),
        resources: Some(resources()),
        volume_mounts: Some(vec![mount]),
        security_context: container.security_context,
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// With limits, for the ResourceQuotas that ask for them, in a ratio that a LimitRange allows.
fn resources() -> ResourceRequirements {
    let quantities = |cpu: &str, memory: &str| {
        [("cpu", cpu), ("memory", memory)]
            .map(|(name, quantity)| (name.to_owned(), Quantity(quantity.to_owned())))
            .into()
    };
    ResourceRequirements {
        requests: Some(quantities("50m", "64Mi")),
        limits: Some(quantities("200m", "256Mi")),
        ..ResourceRequirements::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use etcd_operator_api::EtcdCluster;
    use etcd_operator_api::cluster::DefaultRepository;
    use etcd_operator_api::names::LABEL_CLUSTER;
    use serde_json::Value;

    use super::*;
    use crate::build::{BuildInputs, FetchContainer, RestartRequests, StateAnnotations, build, desired};

    /// The Job for a cluster with this image.
    fn job_for(image: &str) -> Job {
        job_near(image, &[])
    }

    /// The same, for nodes where members run.
    fn job_near(image: &str, nodes: &[&str]) -> Job {
        let object: EtcdCluster = serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
            "metadata": {"name": "c", "namespace": "ns"},
            "spec": {
                "size": 3, "version": "3.6.16", "image": image, "storage": {"size": "1Gi"},
                "imagePullSecrets": [{"name": "registry"}],
                "TLS": {"static": {"member": {"peerSecret": "peer", "serverSecret": "server"}, "operatorSecret": "client"}},
                "pod": {
                    "nodeSelector": {"disk": "fast"},
                    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"apart": "b"}}},
                    ]}},
                    "tolerations": [{"key": "etcd", "operator": "Exists"}],
                    "serviceAccountName": "members", "labels": {"team": "a", "apart": "b"}, "annotations": {"sidecar": "no"},
                    "resources": {"requests": {"memory": "8Gi"}},
                    "etcdEnv": [{"name": "A", "value": "b"}],
                },
            },
        }))
        .expect("a cluster");
        let desired = desired(&object).expect("a valid spec");
        let inputs = BuildInputs {
            namespace: "ns".to_owned(),
            cluster_uid: "uid".to_owned(),
            state_annotations: StateAnnotations {
                incarnation: 1,
                cluster_id: None,
                voters: BTreeSet::new(),
                members: BTreeMap::new(),
                restore: None,
                restored_revision: 0,
                earlier_restores: Vec::new(),
                served_spec_hashes: Vec::new(),
            },
            replicas: 3,
            accepts_clients: true,
            version: "3.6.16".parse().expect("a version"),
            operator_image: "operator:1".parse().expect("an image"),
            default_repository: DefaultRepository::default(),
            budget_voters: 3,
            stored: None,
            may_update_template: true,
            snapshot_count: None,
            restart: RestartRequests::default(),
            fetch_container: FetchContainer::Absent,
            is_restoring: false,
        };
        let objects = build(&desired, &inputs).expect("objects");
        image_check_job(
            &desired.name,
            &objects.members,
            &inputs.version,
            nodes.iter().copied(),
        )
        .expect("a Job")
    }

    #[test]
    fn the_pod_of_the_job_is_a_members_without_what_makes_a_member_of_it() {
        let job = serde_json::to_value(job_for("mirror/etcd:3.6.16")).expect("JSON");
        let template = &job["spec"]["template"];
        let spec = &template["spec"];
        for (field, value) in [
            ("nodeSelector", json!({"disk": "fast"})),
            ("serviceAccountName", json!("members")),
            ("imagePullSecrets", json!([{"name": "registry"}])),
            ("restartPolicy", json!("OnFailure")),
            ("automountServiceAccountToken", json!(false)),
            ("volumes", json!([{"name": "tools", "emptyDir": {}}])),
        ] {
            assert_eq!(spec[field], value, "{field}");
        }
        assert_eq!(spec["tolerations"][0]["key"], "etcd");
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
        assert!(spec.get("affinity").is_none() && spec.get("topologySpreadConstraints").is_none());
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]}
        ]}}, "podAntiAffinity": {}});
        let members: Affinity = serde_json::from_value(affinity.clone()).expect("an affinity");
        let kept = serde_json::to_value(node_affinity(Some(&members))).expect("JSON");
        assert_eq!(kept, json!({"nodeAffinity": affinity["nodeAffinity"]}));
        let check = &spec["containers"][0];
        assert_eq!(check["image"], "mirror/etcd:3.6.16");
        assert_eq!(
            check["command"],
            json!([PROGRAM, "check-image", "--etcd-minor=3.6", "/usr/local/bin/etcd"])
        );
        assert_eq!(check["securityContext"]["readOnlyRootFilesystem"], true);
        for container in [check, &spec["initContainers"][0]] {
            assert_eq!(container["resources"]["requests"]["memory"], "64Mi");
            assert!(container.get("env").is_none() && container.get("readinessProbe").is_none());
            assert_eq!(container["volumeMounts"].as_array().map(Vec::len), Some(1));
        }
        // Neither members' Services and budget nor their affinity select it.
        let labels = template["metadata"]["labels"].as_object().expect("labels");
        assert!(!labels.contains_key(LABEL_CLUSTER) && !labels.contains_key("app.kubernetes.io/name"));
        assert_eq!(labels["team"], "a", "policies may demand the user's");
        assert!(
            !labels.contains_key("apart"),
            "members would keep it off their nodes"
        );
        assert_eq!(template["metadata"]["annotations"], json!({"sidecar": "no"}));
        assert_eq!(
            (
                &job["spec"]["activeDeadlineSeconds"],
                &job["spec"]["ttlSecondsAfterFinished"]
            ),
            (&json!(600), &json!(600))
        );
        assert_eq!(job["metadata"]["ownerReferences"][0]["uid"], "uid");
    }

    #[test]
    fn only_the_labels_by_which_members_would_keep_the_pod_away_are_left_out() {
        let kept = |required: &[Value]| {
            let term = |selector| json!({"topologyKey": "node", "labelSelector": selector});
            let required: Vec<_> = required.iter().map(term).collect();
            let affinity: Affinity = serde_json::from_value(json!({"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": required,
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": term(&json!({"matchLabels": {"team": "a"}}))}
                ],
            }}))
            .expect("an affinity");
            let user = string_map([("team", "a"), ("apart", "b"), ("tier", "c"), (LABEL_CLUSTER, "c")]);
            let mut kept = pod_labels(user, Some(&affinity));
            assert_eq!(
                (kept.remove(LABEL_APP), kept.remove(LABEL_MANAGED_BY)),
                (
                    Some(APP_IMAGE_CHECK_VALUE.to_owned()),
                    Some(MANAGED_BY.to_owned())
                )
            );
            kept.into_keys().collect::<Vec<_>>().join(" ")
        };
        let by = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        let labels = |labels: Value| json!({"matchLabels": labels});
        for (required, expected) in [
            (vec![by("apart", "In", &["b"])], "team tier"),
            (
                vec![by("apart", "Exists", &[]), by("tier", "Exists", &[])],
                "team",
            ),
            (vec![labels(json!({"apart": "b", "tier": "c"}))], "team tier"),
            (
                vec![labels(json!({"apart": "b", LABEL_MANAGED_BY: MANAGED_BY}))],
                "team tier",
            ),
            // Without the label these would select it.
            (vec![by("apart", "NotIn", &["x"])], "apart team tier"),
            (vec![by("apart", "DoesNotExist", &[])], "apart team tier"),
            // They do not select it.
            (vec![by("apart", "In", &["x"])], "apart team tier"),
            (
                vec![labels(json!({"apart": "b", LABEL_CLUSTER: "c"}))],
                "apart team tier",
            ),
        ] {
            assert_eq!(kept(&required), expected, "{required:?}");
        }
    }

    #[test]
    fn another_image_is_another_job_of_the_same_name() {
        let metadata = |image| job_for(image).metadata;
        let [first, again, other] =
            ["mirror/etcd:3.6.16", "mirror/etcd:3.6.16", "other/etcd:3.6.16"].map(metadata);
        assert_eq!(first, again);
        assert_eq!(first.name, other.name);
        assert_ne!(first.annotations, other.annotations);
    }

    #[test]
    fn its_pod_prefers_the_nodes_of_members_and_is_the_same_job_on_any_of_them() {
        let job = job_near("mirror/etcd:3.6.16", &["n1", "n2"]);
        assert_eq!(job.metadata, job_for("mirror/etcd:3.6.16").metadata);
        let affinity = job.spec.and_then(|spec| spec.template.spec?.affinity);
        let term = |node: &str| {
            let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
            json!({"weight": 100, "preference": {"matchFields": [field]}})
        };
        assert_eq!(
            serde_json::to_value(affinity).expect("JSON"),
            json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term("n1"), term("n2")]}})
        );
    }
}
