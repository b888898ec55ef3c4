//! Services, StatefulSet, budget and claims.

use etcd_operator_cluster_core::build::{
    StateAnnotations, budget_voters, build, claim, member_labels, member_name, pod_of_set,
};
use etcd_operator_cluster_core::observed_state::Ordinal;
use etcd_operator_cluster_core::persisted_state::{Phase, Restore};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde::Serialize;
use serde_json::{Value, json};

use crate::fixtures::{asks, command, container, inputs, objects, template};

fn value(object: &impl Serialize) -> Value {
    serde_json::to_value(object).expect("JSON")
}

#[test]
fn every_object_goes_with_its_cluster_and_is_found_by_its_labels() {
    let all = objects(&json!({"size": 3}));
    let budget = all.disruption.expect("a budget");
    for object in [
        value(&all.headless),
        value(&all.client),
        value(&all.members),
        value(&budget),
    ] {
        let metadata = &object["metadata"];
        assert_eq!(metadata["namespace"], "shop");
        assert_eq!(
            metadata["ownerReferences"],
            json!([{"apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
                    "name": "orders", "uid": "cluster-uid", "controller": true}])
        );
        assert_eq!(
            metadata["labels"],
            json!({"app": "etcd", "etcd_cluster": "orders", "app.kubernetes.io/name": "etcd",
                   "app.kubernetes.io/instance": "orders", "app.kubernetes.io/managed-by": "etcd-operator"})
        );
    }
}

#[test]
fn members_find_one_another_before_they_are_ready() {
    let service = value(&objects(&json!({})).headless);
    assert_eq!(service["metadata"]["name"], "orders");
    let spec = &service["spec"];
    assert_eq!(
        (&spec["clusterIP"], &spec["publishNotReadyAddresses"]),
        (&json!("None"), &json!(true))
    );
    assert_eq!(spec["selector"], json!({"app": "etcd", "etcd_cluster": "orders"}));
    let ports: Vec<_> = spec["ports"]
        .as_array()
        .expect("ports")
        .iter()
        .map(|p| (p["name"].as_str(), p["port"].as_u64()))
        .collect();
    assert_eq!(ports, [(Some("client"), Some(2379)), (Some("peer"), Some(2380))]);
}

#[test]
fn clients_are_led_nowhere_before_the_cluster_has_formed() {
    let desired = asks(&json!({}));
    let of = |accepts_clients| {
        let inputs = etcd_operator_cluster_core::build::BuildInputs {
            accepts_clients,
            ..inputs(&desired)
        };
        value(&build(&desired, &inputs).expect("objects").client)
    };
    let (before, after) = (of(false), of(true));
    assert_eq!(after["metadata"]["name"], "orders-client");
    assert_eq!(
        after["spec"]["selector"],
        json!({"app": "etcd", "etcd_cluster": "orders"})
    );
    assert!(after["spec"]["publishNotReadyAddresses"].is_null());
    let pod = template(&json!({"pod": {"labels": {"team": "a"}}}));
    let labels = pod["metadata"]["labels"].as_object().expect("labels");
    let selected = before["spec"]["selector"].as_object().expect("a selector");
    assert!(
        selected.iter().any(|(key, value)| labels.get(key) != Some(value)),
        "{selected:?} selects {labels:?}"
    );
}

#[test]
fn the_service_for_clients_is_published_as_the_user_says() {
    let of = |service: &Value| value(&objects(&json!({"service": service})).client);
    assert_eq!(of(&json!({}))["spec"]["type"], "ClusterIP");
    assert_eq!(of(&json!({"type": "NodePort"}))["spec"]["type"], "NodePort");
    let balanced =
        of(&json!({"type": "LoadBalancer", "loadBalancerClass": "a.b/c", "annotations": {"x": "y"}}));
    assert_eq!(balanced["spec"]["type"], "LoadBalancer");
    assert_eq!(balanced["spec"]["loadBalancerClass"], "a.b/c");
    assert_eq!(balanced["metadata"]["annotations"], json!({"x": "y"}));
}

#[test]
fn a_drain_never_takes_the_quorum_of_those_who_vote_now_or_will() {
    let least = |size: u8, live: usize, is_rolling_out: bool| {
        let desired = asks(&json!({"size": size, "storage": {}}));
        let inputs = etcd_operator_cluster_core::build::BuildInputs {
            budget_voters: budget_voters(live, size.into(), is_rolling_out),
            ..inputs(&desired)
        };
        let budget = build(&desired, &inputs).expect("objects").disruption?;
        let spec = value(&budget)["spec"].clone();
        assert_eq!(spec["unhealthyPodEvictionPolicy"], "IfHealthyBudget");
        assert_eq!(
            spec["selector"]["matchLabels"],
            json!({"app": "etcd", "etcd_cluster": "orders"})
        );
        spec["minAvailable"].as_u64()
    };
    for (size, live, wanted) in [
        (1, 1, None),
        (0, 0, None),
        (0, 3, Some(2)),
        (3, 0, Some(2)),
        (3, 5, Some(3)),
        (5, 3, Some(3)),
        (1, 3, Some(2)),
        (4, 4, Some(3)),
        (9, 9, Some(5)),
    ] {
        assert_eq!(least(size, live, false), wanted, "size {size}, {live} voters");
    }
    for (size, live, wanted) in [(5, 3, Some(2)), (3, 5, Some(3)), (3, 0, Some(2))] {
        assert_eq!(
            least(size, live, true),
            wanted,
            "size {size}, {live} voters are restarted"
        );
    }
}

#[test]
fn the_statefulset_starts_pods_together_restarts_none_and_keeps_claims() {
    let set = value(&objects(&json!({"size": 3, "storage": {}})).members);
    let spec = &set["spec"];
    assert_eq!(spec["replicas"], 3);
    assert_eq!(spec["serviceName"], "orders");
    assert_eq!(spec["podManagementPolicy"], "Parallel");
    assert_eq!(spec["updateStrategy"], json!({"type": "OnDelete"}));
    assert_eq!(
        spec["persistentVolumeClaimRetentionPolicy"],
        json!({"whenDeleted": "Retain", "whenScaled": "Retain"})
    );
    assert_eq!(
        spec["selector"]["matchLabels"],
        json!({"app": "etcd", "etcd_cluster": "orders"})
    );
}

#[test]
fn what_the_statefulset_remembers_is_read_back() {
    let desired = asks(&json!({}));
    let inputs = inputs(&desired);
    let mut inputs = inputs;
    inputs.state_annotations.restore = Some(Restore {
        uid: "r".to_owned(),
        name: "back".to_owned(),
        phase: Phase::Committed,
        since: "2026-03-01T12:00:00Z".parse().expect("a time"),
        committed: true,
        incarnation: 7,
        cluster: "d".parse().ok(),
        previous_incarnation: 6,
        previous_cluster: "c".parse().ok(),
        size: 3,
        previous_size: 3,
        object_sha256: "bb".to_owned(),
        revision_bump: 1_000,
        keep_seconds: 60,
        furthest: None,
        open: false,
        message: None,
    });
    inputs.state_annotations.restored_revision = 1_000_012;
    inputs.state_annotations.earlier_restores = vec!["q".to_owned(), "p".to_owned()];
    inputs.state_annotations.served_spec_hashes = vec!["h2".to_owned(), "h1".to_owned()];
    let built = build(&desired, &inputs).expect("objects");
    let noted = &built.members.metadata.annotations.as_ref().expect("annotations")["etcd.database.coreos.com/members"];
    assert_eq!(noted, "orders-0/aa/claim-0/pvc-1.of-0,orders-2/bb/claim-2/");
    assert_eq!(
        StateAnnotations::read(&built.members),
        Some(inputs.state_annotations)
    );
    assert_eq!(
        StateAnnotations::read(&k8s_openapi::api::apps::v1::StatefulSet::default()),
        None
    );
}

#[test]
fn etcd_is_started_behind_the_guard_in_the_incarnation_that_is_expected() {
    let words = command(&template(&json!({"version": "3.6.16"})));
    assert_eq!(
        words[..9],
        [
            "/opt/etcd-operator/etcd-operator",
            "member",
            "--cluster-uid=cluster-uid",
            "--incarnation=7",
            "--volume=/var/etcd",
            "--permit=/etc/etcd-operator/permit/permit",
            "--etcd-minor=3.6",
            "--",
            "/usr/local/bin/etcd",
        ]
    );
    for flag in [
        "--name=$(POD_NAME)",
        "--data-dir=/var/etcd/data",
        "--initial-advertise-peer-urls=http://$(POD_NAME).orders.shop.svc:2380",
        "--advertise-client-urls=http://$(POD_NAME).orders.shop.svc:2379",
        "--listen-peer-urls=http://0.0.0.0:2380",
        "--listen-client-urls=http://0.0.0.0:2379",
        "--listen-metrics-urls=http://0.0.0.0:2381",
    ] {
        assert!(
            words.iter().any(|word| word == flag),
            "{flag} is not in {words:?}"
        );
    }
    assert!(
        !words.iter().any(|word| word.contains("initial-cluster")),
        "{words:?}"
    );
}

#[test]
fn the_checks_for_damaged_data_are_on_wherever_the_version_has_them() {
    let checks = |version: &str| {
        let words = command(&template(&json!({"version": version})));
        let is_check = |word: &&String| {
            ["corrupt", "Corrupt", "hash-check"]
                .iter()
                .any(|part| word.contains(part))
        };
        words.iter().filter(is_check).count()
    };
    assert_eq!(
        ["3.2.25", "3.3.27", "3.4.44", "3.5.4", "3.5.35", "3.6.16", "3.7.3"].map(checks),
        [0, 1, 1, 1, 4, 3, 3]
    );
}

#[test]
fn readiness_is_asked_where_the_version_tells_a_learner_from_a_voter() {
    let probe = |version: &str, tls: bool| {
        let secrets = json!({"static": {"member": {"serverSecret": "s"}, "operatorSecret": "o"}});
        let mut spec = json!({"version": version});
        if tls {
            spec["TLS"] = secrets;
        }
        let template = template(&spec);
        let probe = &container(&template, "etcd")["readinessProbe"];
        let http = &probe["httpGet"];
        match (http["path"].as_str(), probe["exec"]["command"].as_array()) {
            (Some(path), None) => format!("{path} on {}", http["port"]),
            (None, Some(command)) => command[1].as_str().expect("a word").to_owned(),
            _ => format!("connection to {}", probe["tcpSocket"]["port"]),
        }
    };
    for (version, wanted) in [
        ("3.7.3", "/readyz on 2381"),
        ("3.6.16", "/readyz on 2381"),
        ("3.5.19", "/readyz on 2381"),
        ("3.5.18", "ready"),
        ("3.4.44", "ready"),
        ("3.3.27", "/health on 2381"),
    ] {
        assert_eq!(
            [probe(version, false), probe(version, true)],
            [wanted; 2],
            "{version}"
        );
    }
    assert_eq!(probe("3.2.25", false), "/health on 2379");
    assert_eq!(probe("3.2.25", true), "connection to 2379");
}

#[test]
fn a_member_that_speaks_tls_is_asked_for_the_name_that_its_certificate_bears() {
    let words = |spec: &Value| {
        let template = template(spec);
        container(&template, "etcd")["readinessProbe"]["exec"]["command"].clone()
    };
    let program = "/opt/etcd-operator/etcd-operator";
    assert_eq!(
        words(&json!({"version": "3.4.44"})),
        json!([program, "ready", "--endpoint=http://127.0.0.1:2379"])
    );
    let secrets = json!({"static": {"member": {"serverSecret": "s"}, "operatorSecret": "o"}});
    assert_eq!(
        words(&json!({"version": "3.4.44", "TLS": secrets})),
        json!([
            program,
            "ready",
            "--endpoint=https://127.0.0.1:2379",
            "--client-ca=/etc/etcdtls/member/server-tls/server-ca.crt",
            "--client-cert=/etc/etcdtls/member/server-tls/server.crt",
            "--client-key=/etc/etcdtls/member/server-tls/server.key",
            "--client-server-name=localhost",
        ])
    );
}

#[test]
fn nothing_but_a_closed_peer_port_kills_a_member_and_no_start_is_too_long() {
    let template = template(&json!({}));
    let etcd = container(&template, "etcd");
    for probe in ["livenessProbe", "startupProbe"] {
        assert_eq!(etcd[probe]["tcpSocket"], json!({"port": 2380}), "{probe}");
    }
    assert!(etcd["startupProbe"]["failureThreshold"].as_i64() > Some(1_000_000_000));
}

#[test]
fn secrets_with_certificates_are_mounted_where_the_flags_say_and_the_operators_is_not() {
    let secrets =
        json!({"member": {"peerSecret": "peers", "serverSecret": "servers"}, "operatorSecret": "own"});
    let template = template(&json!({"TLS": {"static": secrets}}));
    let etcd = container(&template, "etcd");
    let mounts = etcd["volumeMounts"].as_array().expect("mounts");
    let volumes = template["spec"]["volumes"].as_array().expect("volumes");
    for (secret, path) in [
        ("peers", "/etc/etcdtls/member/peer-tls"),
        ("servers", "/etc/etcdtls/member/server-tls"),
    ] {
        let volume = volumes
            .iter()
            .find(|v| v["secret"]["secretName"] == secret)
            .expect(secret);
        let mount = mounts.iter().find(|m| m["mountPath"] == path).expect(path);
        assert_eq!(
            (&mount["name"], &mount["readOnly"]),
            (&volume["name"], &json!(true))
        );
    }
    assert!(!template.to_string().contains("\"own\""), "{template}");
    let words = command(&template);
    for flag in [
        "--client-ca=/etc/etcdtls/member/server-tls/server-ca.crt",
        "--client-cert=/etc/etcdtls/member/server-tls/server.crt",
        "--client-key=/etc/etcdtls/member/server-tls/server.key",
        "--cert-file=/etc/etcdtls/member/server-tls/server.crt",
        "--key-file=/etc/etcdtls/member/server-tls/server.key",
        "--trusted-ca-file=/etc/etcdtls/member/server-tls/server-ca.crt",
        "--client-cert-auth=true",
        "--peer-cert-file=/etc/etcdtls/member/peer-tls/peer.crt",
        "--peer-key-file=/etc/etcdtls/member/peer-tls/peer.key",
        "--peer-trusted-ca-file=/etc/etcdtls/member/peer-tls/peer-ca.crt",
        "--peer-client-cert-auth=true",
        "--advertise-client-urls=https://$(POD_NAME).orders.shop.svc:2379",
        "--initial-advertise-peer-urls=https://$(POD_NAME).orders.shop.svc:2380",
        "--listen-metrics-urls=http://0.0.0.0:2381",
    ] {
        assert!(
            words.iter().any(|word| word == flag),
            "{flag} is not in {words:?}"
        );
    }
}

#[test]
fn a_permit_arrives_as_a_file_of_a_directory_and_data_lies_apart_from_tools() {
    let template = template(&json!({"storage": {"medium": "Memory", "size": "1Gi"}}));
    let volumes = &template["spec"]["volumes"];
    assert_eq!(
        volumes[0],
        json!({"name": "data", "emptyDir": {"medium": "Memory", "sizeLimit": "1073741824"}})
    );
    assert_eq!(
        volumes[2]["downwardAPI"]["items"],
        json!([{"path": "permit", "fieldRef": {"fieldPath": "metadata.annotations['etcd.database.coreos.com/permit']"}}])
    );
    let mounts = &container(&template, "etcd")["volumeMounts"];
    assert_eq!(mounts[0], json!({"name": "data", "mountPath": "/var/etcd"}));
    assert_eq!(
        mounts[2],
        json!({"name": "permit", "mountPath": "/etc/etcd-operator/permit", "readOnly": true})
    );
    let install = container(&template, "install");
    assert_eq!(install["image"], "registry/operator:9");
    assert_eq!(
        install["volumeMounts"],
        json!([{"name": "tools", "mountPath": "/opt/etcd-operator"}])
    );
}

#[test]
fn a_claim_gets_labels_an_owner_only_if_it_is_to_go_with_the_cluster_and_never_shrinks() {
    let kept = |storage: &Value, has: &str| {
        let desired = asks(&json!({"storage": storage}));
        let stored: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {"name": "data-orders-1"}, "spec": {"resources": {"requests": {"storage": has}}}
        }))
        .expect("a claim");
        value(&claim(&desired, &inputs(&desired), &stored).expect("claims are asked for"))
    };
    let retained = kept(&json!({"size": "2Gi", "labels": {"backup": "nightly"}}), "1Gi");
    assert_eq!(retained["metadata"]["name"], "data-orders-1");
    assert_eq!(retained["metadata"]["labels"]["backup"], "nightly");
    assert_eq!(retained["metadata"]["labels"]["etcd_cluster"], "orders");
    assert!(retained["metadata"]["ownerReferences"].is_null());
    let size = |claim: &Value| claim["spec"]["resources"]["requests"]["storage"].clone();
    assert_eq!(size(&retained), "2Gi");
    assert_eq!(size(&kept(&json!({"size": "1024Mi"}), "1Gi")), "1Gi");
    assert_eq!(size(&kept(&json!({"size": "1Gi"}), "5Gi")), "5Gi");
    let owner = &kept(&json!({"retention": "Delete"}), "8Gi")["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"], &owner["controller"]),
        (&json!("EtcdCluster"), &json!("cluster-uid"), &Value::Null)
    );
    let ephemeral = asks(&json!({}));
    let stored = PersistentVolumeClaim::default();
    assert_eq!(claim(&ephemeral, &inputs(&ephemeral), &stored), None);
}

#[test]
fn the_claims_of_the_older_operators_manifests_get_what_they_leave_out() {
    let spec = json!({"pod": {"persistentVolumeClaimSpec": {"storageClassName": "slow"}}});
    let set = value(&objects(&spec).members);
    let claim = &set["spec"]["volumeClaimTemplates"][0];
    assert_eq!(claim["metadata"]["name"], "data");
    assert_eq!(
        claim["spec"],
        json!({"storageClassName": "slow", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Gi"}}})
    );
}

#[test]
fn members_pods_and_claims_are_named_after_the_cluster() {
    let name = asks(&json!({})).name;
    assert_eq!(member_name(&name, 2), "orders-2");
    let ordinal = Ordinal::new(2).expect("an ordinal");
    assert_eq!(ordinal.claim(&name), "data-orders-2");
    assert_eq!(
        member_labels(&name, 2).get("etcd_node").map(String::as_str),
        Some("orders-2")
    );
}

#[test]
fn the_pod_of_a_set_is_the_one_that_its_controller_makes() {
    let all = objects(&json!({"size": 3, "storage": {"size": "1Gi"}}));
    let pod = value(&pod_of_set(&all.members, "set-uid", 2));
    let metadata = &pod["metadata"];
    assert_eq!(
        (&metadata["name"], &metadata["namespace"]),
        (&json!("orders-2"), &json!("shop"))
    );
    assert_eq!(
        metadata["ownerReferences"],
        json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "orders", "uid": "set-uid", "controller": true}])
    );
    let template = value(&all.members.spec.template);
    let mut labels = template["metadata"]["labels"].clone();
    labels["statefulset.kubernetes.io/pod-name"] = json!("orders-2");
    labels["apps.kubernetes.io/pod-index"] = json!("2");
    assert_eq!(metadata["labels"], labels);
    assert_eq!(metadata["annotations"], template["metadata"]["annotations"]);
    let spec = &pod["spec"];
    assert_eq!(
        (&spec["hostname"], &spec["subdomain"]),
        (&json!("orders-2"), &json!("orders"))
    );
    assert_eq!(spec["containers"], template["spec"]["containers"]);
    let volumes = spec["volumes"].as_array().expect("volumes");
    let data: Vec<_> = volumes.iter().filter(|volume| volume["name"] == "data").collect();
    assert_eq!(
        data,
        [&json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-orders-2"}})]
    );
}
