//! What Kubernetes lacks is told together with the field that asks for it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::scene::{Scene, waiting};
use crate::desired::{ClientTls, Image, Storage, Tls};
use crate::observed_state::{Container, StartDelay, Unschedulable, container_end};
use crate::plan::plan;

/// A cluster whose first pod is there and does not start.
fn first() -> Scene {
    let mut scene = Scene::new(3);
    scene.pod(0, "pod-0");
    scene
}

fn told(scene: &Scene) -> String {
    plan(&scene.observed).explanation.blockers[0].to_string()
}

fn found(scene: &mut Scene, why: &str) -> String {
    scene.pod_at(0).unschedulable = Some(Unschedulable::from_scheduler(why));
    told(scene)
}

fn found_waiting(scene: &mut Scene, why: &str) -> String {
    scene.pod_at(0).container = waiting(why);
    told(scene)
}

fn found_delayed(scene: &mut Scene, delay: StartDelay) -> String {
    scene.pod_at(0).container = Container::Waiting(delay);
    told(scene)
}

fn prepared_by(node: &str) -> StartDelay {
    let node = node.to_owned();
    StartDelay::NodePreparing { node }
}

#[test]
fn a_volume_that_cannot_be_had_is_told_by_the_field_that_asks_for_it() {
    let mut scene = first();
    scene.pod_at(0).unschedulable = Some(Unschedulable::from_scheduler(
        "pod has unbound immediate PersistentVolumeClaims",
    ));
    if let Some(claim) = scene.claim_at(0) {
        claim.volume = None;
    }
    assert!(
        told(&scene).contains("storageClassName is not set"),
        "{}",
        told(&scene)
    );
    if let Storage::Persistent { claim, .. } = &mut scene.observed.desired.storage {
        claim.storage_class_name = Some("imaginary".to_owned());
    }
    assert!(
        told(&scene).contains("storageClassName is imaginary"),
        "{}",
        told(&scene)
    );
    assert!(told(&scene).contains("create it again"), "{}", told(&scene));
    if let Some(claim) = scene.claim_at(0) {
        claim.class = Some("of-before".to_owned());
    }
    let said = told(&scene);
    assert!(
        said.contains("was created for the StorageClass of-before")
            && said.ends_with("kubectl delete pvc data-c-0"),
        "{said}"
    );
    scene.pod_at(0).unschedulable = Some(Unschedulable::from_scheduler("Insufficient cpu"));
    assert_eq!(told(&scene), "c-0 finds no node: Insufficient cpu");
}

#[test]
fn what_no_node_has_to_spare_is_told_with_what_is_asked_for() {
    let mut scene = first();
    scene.observed.desired.pod.resources = Some(ResourceRequirements {
        requests: Some(BTreeMap::from([("cpu".to_owned(), Quantity("900".to_owned()))])),
        limits: Some(BTreeMap::from([
            ("cpu".to_owned(), Quantity("1000".to_owned())),
            ("memory".to_owned(), Quantity("1Gi".to_owned())),
        ])),
        ..ResourceRequirements::default()
    });
    let taint = "1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }";
    let said = found(
        &mut scene,
        &format!("0/4 nodes are available: {taint}, 3 Insufficient cpu."),
    );
    assert!(
        said.ends_with("; spec.pod.resources asks for cpu 900, memory 1Gi: ask for less, or add a node with enough to spare"),
        "{said}"
    );
    let said = found(&mut scene, &format!("0/1 nodes are available: {taint}."));
    assert!(
        said.ends_with("; spec.pod.tolerations says which taints are tolerated"),
        "{said}"
    );
}

#[test]
fn only_fields_that_are_set_are_blamed_for_nodes_that_do_not_suit() {
    let why = "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) didn't match pod anti-affinity rules, 1 node(s) didn't match pod topology spread constraints.";
    let fields = [
        "spec.pod.nodeSelector",
        "spec.pod.antiAffinity",
        "spec.pod.topologySpreadConstraints",
    ];
    let unset = "spec.pod.affinity";
    let mut scene = first();
    let said = found(&mut scene, why);
    assert!(!said.contains("spec.pod"), "{said}");
    let pod = &mut scene.observed.desired.pod;
    pod.node_selector.insert("disk".to_owned(), "fast".to_owned());
    pod.one_per_node = true;
    pod.spread = Some(vec![TopologySpreadConstraint::default()]);
    let said = told(&scene);
    assert!(fields.iter().all(|field| said.contains(field)), "{said}");
    assert!(!said.contains(unset), "{said}");
}

#[test]
fn an_image_that_is_not_there_is_told_by_the_field_that_names_it() {
    let why = "ImagePullBackOff: Back-off pulling image \"quay.io/coreos/nothing:v3.6.16\"";
    let mut scene = first();
    let said = found_waiting(&mut scene, why);
    assert!(
        said.contains(why) && said.contains("; correct spec.repository and spec.version,"),
        "{said}"
    );
    scene.observed.desired.image = Image::Whole {
        reference: "quay.io/coreos/nothing:v3.6.16".to_owned(),
        version: scene.observed.desired.version(None),
    };
    assert!(
        told(&scene).contains("; correct spec.image, "),
        "{}",
        told(&scene)
    );
    // The operator's own image is no field of this object.
    let said = found_delayed(
        &mut scene,
        StartDelay::from_kubelet(Some("install"), Some("ErrImagePull"), Some("no such host")),
    );
    assert!(
        said.contains("the operator's own") && !said.contains("correct spec"),
        "{said}"
    );
}

#[test]
fn secrets_that_a_pod_mounts_are_named_while_its_node_prepares_it() {
    let mut scene = first();
    let said = found_delayed(&mut scene, prepared_by("node-1"));
    assert_eq!(said, "c-0 is not started yet: node node-1 prepares it");
    scene.observed.desired.tls = Tls {
        peer: Some("c-peer".to_owned()),
        client: Some(ClientTls {
            server: "c-server".to_owned(),
            operator: "c-operator".to_owned(),
        }),
    };
    let said = told(&scene);
    assert!(
        said.ends_with(
            "; it mounts the Secrets of spec.TLS.static.member, and each must exist: c-peer, c-server"
        ),
        "{said}"
    );
}

#[test]
fn what_has_nothing_to_do_with_secrets_that_are_mounted_does_not_name_them() {
    let mut scene = first();
    scene.observed.desired.tls.peer = Some("c-peer".to_owned());
    let said = found_waiting(&mut scene, "RunContainerError: no such user");
    assert_eq!(said, "c-0 is not started yet: RunContainerError: no such user");
    let said = found_delayed(&mut scene, StartDelay::NotScheduled);
    assert_eq!(said, "c-0 is not started yet: no node has it yet");
}

#[test]
fn a_variable_is_blamed_only_for_what_it_names() {
    let mut scene = first();
    scene.observed.desired.pod.env = vec![EnvVar::default()];
    let missing = "CreateContainerConfigError: secret \"tokens\" not found";
    assert!(found_waiting(&mut scene, missing).ends_with("; spec.pod.etcdEnv names it"));
    let root = "CreateContainerConfigError: container has runAsNonRoot and image will run as root";
    let said = found_waiting(&mut scene, root);
    assert!(said.ends_with("run as root"), "{said}");
}

#[test]
fn the_field_is_not_lost_behind_what_a_registry_says_at_length() {
    let mut scene = first();
    let said = found_waiting(&mut scene, &format!("ErrImagePull: {}", "x".repeat(2_000)));
    assert!(said.len() < 450 && said.contains("; correct spec."), "{said}");
}

#[test]
fn the_last_end_of_a_container_is_told_with_the_field_that_it_hangs_on() {
    let mut scene = Scene::formed(3);
    scene.silent(1);
    for (reason, words, wanted) in [
        ("OOMKilled", "", "it was killed for lack of memory (OOMKilled)"),
        (
            "Error",
            "invalid value \"x\" for flag -y",
            "ended with code 2: invalid value \"x\" for flag -y; correct spec.etcd.extraArgs",
        ),
    ] {
        scene.pod_at(1).end = Some(container_end(2, reason, words));
        let told = told(&scene);
        assert!(told.contains(wanted), "{told}");
    }
}
