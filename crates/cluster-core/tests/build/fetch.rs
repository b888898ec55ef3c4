//! What a restore adds to the pods for its time, and that nothing else comes with it.

use etcd_operator_api::cluster::DefaultRepository;
use etcd_operator_api::contract::{
    self, JobOrder, ORDER_VARIABLE, ObjectFacts, RestoreIntent, RestoreSecrets, StoreOrder, Task, mounts,
};
use etcd_operator_cluster_core::build::{BuildInputs, FetchContainer, Objects, StoredTemplates, build};
use serde_json::{Value, json};

use crate::fixtures::{asks, inputs};

fn spec_hash() -> RestoreIntent {
    RestoreIntent {
        version: 1,
        uid: "r".to_owned(),
        name: "back".to_owned(),
        store: StoreOrder {
            path: "etcd/$(HOME)".to_owned(),
            secret: Some(mounts::STORE_SECRET.to_owned()),
            ..StoreOrder::default()
        },
        secrets: RestoreSecrets {
            store: Some("aws".to_owned()),
            keys: Some("keys".to_owned()),
            claim: Some("backups".to_owned()),
            ca: None,
        },
        object: ObjectFacts::default(),
        revision: 40,
        etcd_version: "3.6.16".to_owned(),
        digest: "1:2:00".to_owned(),
        revision_bump: 1_000,
        keep_previous_seconds: 60,
        compared_cluster: None,
        single_member: false,
    }
}

/// The objects while a restore stands, over a StatefulSet that was built for another spec by an older operator.
fn restoring(before: &Value, spec: &Value, fetch_container: FetchContainer) -> (Objects, Objects) {
    let old = asks(before);
    let old = BuildInputs {
        default_repository: DefaultRepository::default(),
        operator_image: "registry/operator:8".parse().expect("an image"),
        ..inputs(&old)
    };
    let old = build(&asks(before), &old).expect("objects");
    let new = over(&old, spec, fetch_container);
    (old, new)
}

fn over(old: &Objects, spec: &Value, fetch_container: FetchContainer) -> Objects {
    over_with(old, spec, fetch_container, false)
}

fn over_with(
    old: &Objects,
    spec: &Value,
    fetch_container: FetchContainer,
    may_update_template: bool,
) -> Objects {
    let desired = asks(spec);
    let mut inputs = BuildInputs {
        stored: Some(StoredTemplates::read(&old.members).into()),
        fetch_container,
        is_restoring: true,
        may_update_template,
        accepts_clients: false,
        ..inputs(&desired)
    };
    inputs.state_annotations.incarnation = 8;
    build(&desired, &inputs).expect("objects")
}

fn pod(objects: &Objects) -> Value {
    serde_json::to_value(&objects.members.spec.template.spec).expect("JSON")
}

fn names(list: &Value) -> Vec<&str> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|one| one["name"].as_str()).collect()
}

#[test]
fn one_container_brings_the_object_and_it_alone_has_the_credentials() {
    let with = FetchContainer::Required(Box::new(spec_hash()));
    let (_, new) = restoring(&json!({}), &json!({}), with);
    let pod = pod(&new);
    assert_eq!(names(&pod["initContainers"]), ["install", "fetch"]);
    let fetch = &pod["initContainers"][1];
    assert_eq!(fetch["command"], json!(["etcd-operator", "fetch"]));
    assert_eq!(
        names(&fetch["volumeMounts"]),
        ["restore-store", "restore-keys", "restore-backups", "data"]
    );
    assert_eq!(fetch["securityContext"]["readOnlyRootFilesystem"], true);
    for container in [&pod["initContainers"][0], &pod["containers"][0]] {
        let mounted = names(&container["volumeMounts"]);
        assert!(
            mounted.iter().all(|name| !name.starts_with("restore-")),
            "{mounted:?}"
        );
    }
    let volumes = pod["volumes"].as_array().expect("volumes");
    let secrets = volumes.iter().filter(|volume| volume["secret"].is_object());
    for volume in secrets {
        assert_eq!(volume["secret"]["optional"], true, "{volume}");
    }
    let variables = fetch["env"].as_array().expect("variables");
    assert!(
        variables
            .iter()
            .all(|variable| variable["valueFrom"]["secretKeyRef"].is_null())
    );
    assert_eq!(variables[0]["name"], ORDER_VARIABLE);
    let text = variables[0]["value"].as_str().expect("an order");
    assert!(text.contains("$$(HOME)"), "a text of the spec is no variable");
    let order: JobOrder = contract::read(text.as_bytes()).expect("an order");
    let Task::Fetch(task) = order.task else {
        panic!("another task")
    };
    assert_eq!((task.incarnation, task.restore_uid.as_str()), (8, "r"));
    assert_eq!(task.volume, "/var/etcd");
}

#[test]
fn no_change_of_the_spec_comes_along_and_what_guards_disks_is_the_present_one() {
    let with = FetchContainer::Required(Box::new(spec_hash()));
    let (old, new) = restoring(&json!({"version": "3.5.35"}), &json!({"version": "3.6.16"}), with);
    let (old, mut new) = (pod(&old), pod(&new));
    let etcd = &new["containers"][0];
    assert!(etcd["image"].as_str().expect("an image").ends_with(":v3.5.35"));
    let command = etcd["command"].as_array().expect("a command");
    assert!(command.contains(&json!("--incarnation=8")), "{command:?}");
    assert_eq!(new["initContainers"][0]["image"], "registry/operator:9");

    // But for what was looked at above it is the pod of before.
    new["initContainers"] = old["initContainers"].clone();
    new["containers"][0]["command"] = old["containers"][0]["command"].clone();
    let volumes = new["volumes"].as_array_mut().expect("volumes");
    volumes.retain(|volume| {
        !volume["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("restore-"))
    });
    assert_eq!(new, old);
}

#[test]
fn a_corrected_spec_comes_along_where_the_plan_says_so_and_the_backup_is_still_fetched() {
    let with = FetchContainer::Required(Box::new(spec_hash()));
    let (old, _) = restoring(&json!({"repository": "gone"}), &json!({}), FetchContainer::Absent);
    let pod = pod(&over_with(&old, &json!({"repository": "corrected"}), with, true));
    let image = pod["containers"][0]["image"].as_str().expect("an image");
    assert!(image.starts_with("corrected:"), "{image}");
    assert_eq!(names(&pod["initContainers"]), ["install", "fetch"]);
}

#[test]
fn what_was_added_stays_where_nobody_asks_any_more_and_goes_when_it_is_over() {
    let with = FetchContainer::Required(Box::new(spec_hash()));
    let (_, first) = restoring(&json!({}), &json!({}), with);
    let kept = over(&first, &json!({}), FetchContainer::Unchanged);
    assert_eq!(names(&pod(&kept)["initContainers"]), ["install", "fetch"]);
    let gone = over(&kept, &json!({}), FetchContainer::Absent);
    let pod = pod(&gone);
    assert_eq!(names(&pod["initContainers"]), ["install"]);
    let volumes = names(&pod["volumes"]).join(" ");
    assert!(!volumes.contains("restore-"), "{volumes}");
}

#[test]
fn no_client_is_sent_to_a_member_meanwhile() {
    let (_, new) = restoring(&json!({}), &json!({}), FetchContainer::Unchanged);
    let spec = serde_json::to_value(&new.client.spec).expect("JSON");
    assert_eq!(spec["selector"]["etcd.database.coreos.com/serves"], "not-yet");
}
