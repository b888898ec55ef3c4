//! When the pod template moves, and what tells that a member is to be restarted.

use std::collections::BTreeSet;

use etcd_operator_cluster_core::build::{
    BuildInputs, Objects, PendingChange, RestartRequests, StoredTemplates, build, spec_hash,
};
use etcd_operator_cluster_core::{observed_state::kube_objects, trim};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::fixtures::{asks, container, inputs};

/// The objects of a spec over a StatefulSet that was built for another one.
fn over(before: &Value, spec: &Value, change: impl Fn(&mut BuildInputs)) -> (Objects, Objects) {
    let old = asks(before);
    let old = build(&old, &inputs(&old)).expect("objects");
    let desired = asks(spec);
    let mut inputs = BuildInputs {
        stored: Some(StoredTemplates::read(&old.members).into()),
        ..inputs(&desired)
    };
    change(&mut inputs);
    let new = build(&desired, &inputs).expect("objects");
    (old, new)
}

fn hash(spec: &Value) -> String {
    let desired = asks(spec);
    let version = desired.version(None);
    spec_hash(&desired, &version, &RestartRequests::default())
}

#[test]
fn whatever_reaches_a_running_member_changes_the_hash() {
    let claim = json!({"resources": {"requests": {"storage": "1Gi"}}});
    let specs = [
        json!({}),
        json!({"version": "3.5.35"}),
        json!({"image": "mirror/etcd:own", "version": "3.6.16"}),
        json!({"repository": "mirror/etcd"}),
        json!({"imagePullPolicy": "Always"}),
        json!({"imagePullSecrets": [{"name": "a"}]}),
        json!({"pod": {"nodeSelector": {"a": "b"}}}),
        json!({"pod": {"affinity": {"podAffinity": {}}}}),
        json!({"pod": {"antiAffinity": true}}),
        json!({"pod": {"tolerations": [{"operator": "Exists"}]}}),
        json!({"pod": {"topologySpreadConstraints": []}}),
        json!({"pod": {"resources": {"limits": {"memory": "1Gi"}}}}),
        json!({"pod": {"priorityClassName": "high"}}),
        json!({"pod": {"etcdEnv": [{"name": "A", "value": "b"}]}}),
        json!({"pod": {"securityContext": {"runAsUser": 9}}}),
        json!({"pod": {"serviceAccountName": "a"}}),
        json!({"pod": {"terminationGracePeriodSeconds": 5}}),
        json!({"pod": {"ClusterDomain": "a.b"}}),
        json!({"pod": {"persistentVolumeClaimSpec": claim}}),
        json!({"pod": {"patch": {"spec": {"runtimeClassName": "kata"}}}}),
        json!({"pod": {"patch": {"spec": {"priorityClassName": null}}}}),
        json!({"storage": {"medium": "Memory"}}),
        json!({"storage": {"medium": "EmptyDir", "size": "1Gi"}}),
        json!({"etcd": {"quotaBackendBytes": "1Gi"}}),
        json!({"etcd": {"autoCompaction": {"retention": "1h"}}}),
        json!({"etcd": {"autoCompaction": {"mode": "Revision", "retention": "1000"}}}),
        json!({"etcd": {"snapshotCount": 1000}}),
        json!({"etcd": {"heartbeatMs": 50}}),
        json!({"etcd": {"electionMs": 500}}),
        json!({"etcd": {"maxRequestBytes": 4096}}),
        json!({"etcd": {"extraArgs": ["--max-txn-ops=9"]}}),
        json!({"TLS": {"static": {"member": {"peerSecret": "p"}}}}),
        json!({"TLS": {"static": {"member": {"serverSecret": "s"}, "operatorSecret": "o"}}}),
    ];
    let hashes: BTreeSet<_> = specs.iter().map(hash).collect();
    assert_eq!(hashes.len(), specs.len(), "two of the specs have one hash");
}

#[test]
fn what_no_member_needs_a_restart_for_leaves_the_hash_alone() {
    let claim = |storage: &Value| hash(&json!({"storage": storage}));
    let plain = hash(&json!({}));
    for spec in [
        json!({"size": 5}),
        json!({"paused": true}),
        json!({"version": "3.6.16"}),
        json!({"repository": "quay.io/coreos/etcd"}),
        json!({"pod": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}),
        json!({"pod": {"busyboxImage": "b", "DNSTimeoutInSecond": 3}}),
        json!({"pod": {"patch": {"metadata": {"labels": {"a": "b"}}}}}),
        json!({"service": {"type": "NodePort", "annotations": {"a": "b"}}}),
    ] {
        assert_eq!(hash(&spec), plain, "{spec}");
    }
    assert_eq!(
        claim(&json!({"size": "1Gi"})),
        claim(&json!({"size": "2Gi", "retention": "Delete"}))
    );
}

#[test]
fn the_hash_is_the_same_for_all_time() {
    // Stored in clusters: another value would restart every member once.
    assert_eq!(hash(&json!({"size": 3, "version": "3.2.25"})), "a00db72c64354b5d");
}

#[test]
fn a_changed_template_waits_for_its_gate_and_then_moves() {
    let (before, after) = (json!({"version": "3.5.35"}), json!({"version": "3.6.16"}));
    let (old, new) = over(&before, &after, |_| {});
    let version = vec!["version".to_owned()];
    assert_eq!(new.pending, Some(PendingChange::Spec(version)));
    assert_eq!(new.members, old.members);
    let (old, new) = over(&before, &after, |inputs| inputs.may_update_template = true);
    assert_eq!(new.pending, None);
    assert_ne!(new.members.spec.template, old.members.spec.template);
}

#[test]
fn each_pending_setting_is_named() {
    let quantity = json!({"cpu": "1", "memory": "2Gi"});
    for (spec, settings) in [
        (json!({"version": "3.6.15"}), vec!["version"]),
        (json!({"image": "example.com/etcd:v3.6.16"}), vec!["image"]),
        (
            json!({"pod": {"resources": {"requests": quantity}}}),
            vec!["pod.resources"],
        ),
        (
            json!({"pod": {"etcdEnv": [{"name": "A", "value": "b"}]}}),
            vec!["pod.etcdEnv"],
        ),
        (
            json!({"etcd": {"heartbeatMs": 200, "electionMs": 2000}}),
            vec!["--election-timeout", "--heartbeat-interval"],
        ),
        (
            json!({"pod": {"tolerations": [{"key": "a", "operator": "Exists"}], "priorityClassName": "high"}}),
            vec!["pod.tolerations", "pod.priorityClassName"],
        ),
        (
            json!({"pod": {"patch": {"spec": {"hostNetwork": true}}}}),
            vec!["pod.patch or another pod setting"],
        ),
    ] {
        let (_, new) = over(&json!({"version": "3.6.16"}), &with_version(spec.clone()), |_| {});
        let settings = settings.into_iter().map(str::to_owned).collect();
        assert_eq!(new.pending, Some(PendingChange::Spec(settings)), "{spec}");
    }
}

/// The spec with a version, unless it names one or an image.
fn with_version(mut spec: Value) -> Value {
    if spec.get("image").is_none() && spec.get("version").is_none() {
        spec["version"] = json!("3.6.16");
    }
    spec
}

#[test]
fn a_set_that_was_deleted_while_a_change_was_pending_is_made_as_it_was() {
    let (before, after) = (
        json!({"version": "3.5.35", "storage": {"size": "1Gi"}}),
        json!({"version": "3.6.16", "storage": {"size": "1Gi"}}),
    );
    let (old, _) = over(&before, &after, |_| {});
    let kept = StoredTemplates::read(&old.members).text();
    let (_, new) = over(&before, &after, |inputs| {
        inputs.stored = Some(StoredTemplates::parse(&kept).expect("a template").into());
    });
    let version = vec!["version".to_owned()];
    assert_eq!(new.pending, Some(PendingChange::Spec(version)));
    assert_eq!(new.members, old.members);
    assert_eq!(StoredTemplates::parse("no template"), None);
}

#[test]
fn another_operator_alone_moves_no_template_but_comes_with_the_next_change() {
    let newer =
        |inputs: &mut BuildInputs| inputs.operator_image = "registry/operator:10".parse().expect("an image");
    let (old, new) = over(&json!({}), &json!({}), newer);
    assert_eq!(
        (new.pending, &new.members),
        (Some(PendingChange::Operator), &old.members)
    );
    let (_, new) = over(&json!({}), &json!({"version": "3.6.15"}), |inputs| {
        newer(inputs);
        inputs.may_update_template = true;
    });
    let stored = StoredTemplates::read(&new.members);
    assert_eq!(new.pending, None);
    assert_eq!(
        stored.operator_image().map(ToString::to_string).as_deref(),
        Some("registry/operator:10")
    );
    assert_eq!(stored.version(), Some("3.6.15"));
}

#[test]
fn the_check_of_the_version_comes_to_a_template_from_before_it_with_the_next_change() {
    let text = |objects: &Objects| serde_json::to_string(&objects.members.spec.template).expect("JSON");
    let (running, next) = (json!({"version": "3.6.16"}), json!({"version": "3.7.3"}));
    let (checked, unchanged) = over(&running, &running, |_| {});
    assert_eq!(text(&unchanged), text(&checked));
    let before = text(&checked).replace("\"--etcd-minor=3.6\",", "");
    assert_ne!(before, text(&checked));
    let from_before = |inputs: &mut BuildInputs| {
        inputs.stored = Some(StoredTemplates::parse(&before).expect("a template").into());
        inputs.may_update_template = true;
    };
    let (_, unchanged) = over(&running, &running, from_before);
    assert_eq!(
        (unchanged.pending.as_ref(), text(&unchanged)),
        (None, before.clone())
    );
    let (_, changed) = over(&running, &next, from_before);
    assert!(
        text(&changed).contains("\"--etcd-minor=3.7\""),
        "{}",
        text(&changed)
    );
}

fn etcd_image(objects: &Objects) -> String {
    let pod = serde_json::to_value(&objects.members.spec.template).expect("JSON");
    let image = &container(&pod, "etcd")["image"];
    image.as_str().unwrap_or_default().to_owned()
}

fn mirrored(inputs: &mut BuildInputs) {
    inputs.default_repository = "mirror.example.com/etcd".parse().expect("a repository");
}

#[test]
fn another_default_repository_alone_moves_no_template_but_comes_with_the_next_change() {
    let (before, after) = (json!({"version": "3.5.35"}), json!({"version": "3.6.16"}));
    let (old, new) = over(&before, &before, mirrored);
    assert_eq!(etcd_image(&old), "quay.io/coreos/etcd:v3.5.35");
    assert_eq!(
        (new.pending, &new.members),
        (Some(PendingChange::Operator), &old.members)
    );
    // Nor may it move where the gate is open for nothing, or a change still waits for the gate.
    let (old, new) = over(&before, &before, |inputs| {
        mirrored(inputs);
        inputs.may_update_template = true;
    });
    assert_eq!(new.members, old.members);
    let (old, new) = over(&before, &after, mirrored);
    assert_eq!(new.members, old.members);
    // Also each version on the way comes from the mirror.
    for on_the_way in ["3.6.16", "3.6.15"] {
        let (_, new) = over(&before, &after, |inputs| {
            mirrored(inputs);
            inputs.version = on_the_way.parse().expect("a version");
            inputs.may_update_template = true;
        });
        assert_eq!(new.pending, None);
        assert_eq!(etcd_image(&new), format!("mirror.example.com/etcd:v{on_the_way}"));
    }
}

#[test]
fn a_default_repository_that_is_taken_back_moves_no_template_either() {
    let desired = asks(&json!({"version": "3.6.16"}));
    let mut with_mirror = inputs(&desired);
    mirrored(&mut with_mirror);
    let old = build(&desired, &with_mirror).expect("objects");
    assert_eq!(etcd_image(&old), "mirror.example.com/etcd:v3.6.16");
    let again = BuildInputs {
        stored: Some(StoredTemplates::read(&old.members).into()),
        ..with_mirror.clone()
    };
    let again = build(&desired, &again).expect("objects");
    assert_eq!((again.pending, &again.members), (None, &old.members));
    let without = BuildInputs {
        stored: Some(StoredTemplates::read(&old.members).into()),
        ..inputs(&desired)
    };
    assert_eq!(build(&desired, &without).expect("objects").members, old.members);
}

#[test]
fn a_new_cluster_takes_the_default_repository_unless_its_spec_names_an_image() {
    for (spec, image) in [
        (json!({"version": "3.6.16"}), "mirror.example.com/etcd:v3.6.16"),
        (
            json!({"version": "3.6.16", "repository": "quay.io/coreos/etcd"}),
            "quay.io/coreos/etcd:v3.6.16",
        ),
        (
            json!({"version": "3.6.16", "repository": "own/etcd"}),
            "own/etcd:v3.6.16",
        ),
        (json!({"image": "own/etcd:v3.6.16"}), "own/etcd:v3.6.16"),
    ] {
        let desired = asks(&spec);
        let mut inputs = inputs(&desired);
        mirrored(&mut inputs);
        let objects = build(&desired, &inputs).expect("objects");
        assert_eq!(etcd_image(&objects), image, "{spec}");
        let stored = StoredTemplates::read(&objects.members);
        assert_eq!(stored.spec_hash(), Some(hash(&spec).as_str()), "{spec}");
    }
}

#[test]
fn a_held_template_takes_the_incarnation_and_the_labels_but_nothing_else() {
    let spec = json!({"version": "3.6.16", "pod": {"labels": {"team": "a"}}});
    let (old, new) = over(&json!({"version": "3.5.35"}), &spec, |inputs| {
        inputs.state_annotations.incarnation = 8;
    });
    let words = |objects: &Objects| {
        let spec = objects.members.spec.template.spec.clone().expect("a pod");
        spec.containers[0].command.clone().expect("a command")
    };
    let changed: Vec<_> = words(&old)
        .into_iter()
        .zip(words(&new))
        .filter(|(before, after)| before != after)
        .collect();
    assert_eq!(
        changed,
        [("--incarnation=7".to_owned(), "--incarnation=8".to_owned())]
    );
    let metadata = new.members.spec.template.metadata.clone().expect("metadata");
    let labels = metadata.labels.expect("labels");
    assert_eq!(labels.get("team").map(String::as_str), Some("a"));
    assert_eq!(StoredTemplates::read(&new.members).version(), Some("3.5.35"));
    assert_eq!(
        StoredTemplates::read(&new.members).spec_hash(),
        StoredTemplates::read(&old.members).spec_hash()
    );
}

#[test]
fn what_others_did_to_the_stored_template_is_put_back_while_a_change_waits() {
    let before = asks(&json!({"version": "3.5.35"}));
    let old = build(&before, &inputs(&before)).expect("objects").members;
    let mut tampered = old.clone();
    let pod = tampered.spec.template.spec.as_mut().expect("a pod");
    pod.containers[0].image = Some("other/etcd:v3.7.0".to_owned());
    let desired = asks(&json!({"version": "3.6.16"}));
    let held = BuildInputs {
        stored: Some(StoredTemplates::read(&tampered).into()),
        ..inputs(&desired)
    };
    assert_eq!(build(&desired, &held).expect("objects").members, old);
}

#[test]
fn a_statefulset_that_remembers_nothing_is_taken_as_it_stands() {
    let desired = asks(&json!({"version": "3.5.35"}));
    let mut set = build(&desired, &inputs(&desired)).expect("objects").members;
    let remembered = StoredTemplates::read(&set);
    set.metadata.annotations = None;
    assert_eq!(StoredTemplates::read(&set), remembered);
    set.spec.template.metadata = None;
    assert_eq!(
        (
            StoredTemplates::read(&set).version(),
            StoredTemplates::read(&set).spec_hash()
        ),
        (None, None)
    );
}

#[test]
fn claims_that_are_stored_stay_as_they_are() {
    let (old, new) = over(
        &json!({"storage": {"size": "1Gi"}}),
        &json!({"storage": {"size": "2Gi", "labels": {"a": "b"}}}),
        |_| {},
    );
    assert_eq!(
        new.members.spec.volume_claim_templates,
        old.members.spec.volume_claim_templates
    );
}

#[test]
fn a_running_pod_is_given_labels_and_annotations_that_say_nothing_about_its_start() {
    let desired = asks(&json!({"pod": {"labels": {"team": "a"}, "annotations": {"note": "b"}}}));
    let pod = build(&desired, &inputs(&desired))
        .expect("objects")
        .live_metadata
        .of_pod("orders-1");
    let metadata = serde_json::to_value(&pod.metadata).expect("JSON");
    assert_eq!(metadata["name"], "orders-1");
    assert_eq!(metadata["namespace"], "shop");
    assert_eq!(metadata["labels"]["etcd_node"], "orders-1");
    assert_eq!(metadata["labels"]["team"], "a");
    assert_eq!(metadata["annotations"], json!({"note": "b"}));
    assert_eq!(pod.spec, None);
}

#[test]
fn whether_members_speak_tls_is_told_by_the_template_they_are_made_from() {
    let plain = json!({});
    let secure = json!({"TLS": {"static": {
        "member": {"peerSecret": "p", "serverSecret": "s"}, "operatorSecret": "o",
    }}});
    for (before, after, is_secure) in [(&plain, &secure, false), (&secure, &plain, true)] {
        let (old, held) = over(before, after, |_| {});
        for objects in [old, held] {
            let stored = StoredTemplates::read(&objects.members);
            assert_eq!(stored.has_secure_peers(), is_secure);
            assert_eq!(stored.has_secure_clients(), is_secure);
        }
    }
}

#[test]
fn before_a_cluster_forms_one_look_tells_that_a_member_is_ready_and_afterwards_two_whatever_waits() {
    let looks = |objects: &Objects| {
        let template = serde_json::to_value(&objects.members.spec.template).expect("JSON");
        let probe = &container(&template, "etcd")["readinessProbe"];
        (
            probe["httpGet"]["path"].clone(),
            probe["successThreshold"].clone(),
        )
    };
    let forming = |inputs: &mut BuildInputs| inputs.state_annotations.cluster_id = None;
    let with = |spec: &Value, stored: Option<&Objects>, change: &dyn Fn(&mut BuildInputs)| {
        let desired = asks(spec);
        let mut inputs = BuildInputs {
            stored: stored.map(|objects| StoredTemplates::read(&objects.members).into()),
            ..inputs(&desired)
        };
        change(&mut inputs);
        build(&desired, &inputs).expect("objects")
    };
    // As a pod of it is known that came through an informer.
    let is_seen_to_look_once = |objects: &Objects| {
        let mut pod = Pod {
            spec: objects.members.spec.template.spec.clone(),
            ..Pod::default()
        };
        pod.metadata.uid = Some("pod".to_owned());
        pod.metadata.resource_version = Some("1".to_owned());
        trim::pod(&mut pod);
        kube_objects::read_pod(&pod, None)
            .expect("a pod")
            .has_single_success_probe
    };
    let plain = json!({});
    let before = with(&plain, None, &forming);
    assert_eq!(looks(&before), (json!("/readyz"), Value::Null));
    let after = with(&plain, Some(&before), &|_| {});
    assert_eq!(looks(&after), (json!("/readyz"), json!(2)));
    assert_eq!(after.pending, None);
    assert!(is_seen_to_look_once(&before) && !is_seen_to_look_once(&after));
    // What waits for its gate keeps the rest of the template, and so does what another operator would change.
    let changed = json!({"pod": {"nodeSelector": {"a": "b"}}});
    let held = with(&changed, Some(&before), &|_| {});
    assert_eq!(
        (held.pending.clone(), looks(&held).1),
        (
            Some(PendingChange::Spec(vec!["pod.nodeSelector".to_owned()])),
            json!(2)
        )
    );
    let by_another = with(&plain, Some(&before), &|inputs| {
        inputs.operator_image = "registry/operator:10".parse().expect("an image");
    });
    assert_eq!(
        (by_another.pending.clone(), looks(&by_another).1),
        (Some(PendingChange::Operator), json!(2))
    );
    // Whoever wants more looks has them, and a restore begins anew.
    let patient = json!({"pod": {"patch": {"spec": {"containers": [{"name": "etcd", "readinessProbe": {"successThreshold": 4}}]}}}});
    assert_eq!(looks(&with(&patient, None, &forming)).1, json!(4));
    assert_eq!(looks(&with(&plain, Some(&after), &forming)).1, Value::Null);
    assert_eq!(
        looks(&with(&json!({"version": "3.3.27"}), None, &|_| {})).1,
        Value::Null
    );
}
