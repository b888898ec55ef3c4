//! Every field that shapes a pod, from the spec to the pod.

use serde_json::{Value, json};

use crate::fixtures::{command, container, template};

/// The value at a pointer of the pod template of this spec.
fn at(spec: &Value, pointer: &str) -> Value {
    template(spec).pointer(pointer).cloned().unwrap_or(Value::Null)
}

/// The fields of the etcd container and of the one before it, for this spec.
fn in_each(spec: &Value, field: &str) -> [Value; 2] {
    let template = template(spec);
    ["etcd", "install"].map(|name| container(&template, name)[field].clone())
}

#[test]
fn labels_are_added_to_the_operators() {
    let labels = at(
        &json!({"pod": {"labels": {"team": "a", "app.kubernetes.io/name": "own"}}}),
        "/metadata/labels",
    );
    assert_eq!(labels["team"], "a");
    assert_eq!(labels["app.kubernetes.io/name"], "own");
    assert_eq!(
        (&labels["app"], &labels["etcd_cluster"]),
        (&json!("etcd"), &json!("orders"))
    );
}

#[test]
fn annotations_stand_beside_the_version() {
    let spec = json!({"version": "v3.6.15", "pod": {"annotations": {"prometheus.io/scrape": "true"}}});
    let annotations = at(&spec, "/metadata/annotations");
    assert_eq!(annotations["prometheus.io/scrape"], "true");
    assert_eq!(annotations["etcd.version"], "3.6.15");
}

#[test]
fn the_node_selector_is_the_users() {
    let spec = json!({"pod": {"nodeSelector": {"disk": "ssd"}}});
    assert_eq!(at(&spec, "/spec/nodeSelector"), json!({"disk": "ssd"}));
    assert_eq!(at(&json!({}), "/spec/nodeSelector"), Value::Null);
}

#[test]
fn affinity_is_the_users_and_wins_over_the_older_form() {
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}});
    let spec = json!({"pod": {"affinity": affinity, "antiAffinity": true}});
    assert_eq!(at(&spec, "/spec/affinity"), affinity);
}

#[test]
fn the_older_form_of_affinity_forbids_two_members_on_a_node() {
    let spec = json!({"pod": {"antiAffinity": true}});
    let term = at(
        &spec,
        "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0",
    );
    assert_eq!(
        term,
        json!({"labelSelector": {"matchLabels": {"etcd_cluster": "orders"}}, "topologyKey": "kubernetes.io/hostname"})
    );
    assert_eq!(
        at(&json!({"pod": {"antiAffinity": false}}), "/spec/affinity"),
        Value::Null
    );
}

#[test]
fn tolerations_are_the_users() {
    let tolerations =
        json!([{"key": "dedicated", "operator": "Equal", "value": "etcd", "effect": "NoSchedule"}]);
    let spec = json!({"pod": {"tolerations": tolerations}});
    assert_eq!(at(&spec, "/spec/tolerations"), tolerations);
}

#[test]
fn members_spread_over_nodes_and_zones_as_far_as_possible_unless_told_otherwise() {
    let members = json!({"matchLabels": {"app": "etcd", "etcd_cluster": "orders"}});
    let constraint = |key: &str, how: &str, about: &Value| json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": how, "labelSelector": about});
    let spread = |spec: &Value| at(spec, "/spec/topologySpreadConstraints");
    assert_eq!(
        spread(&json!({})),
        json!([
            constraint("kubernetes.io/hostname", "ScheduleAnyway", &members),
            constraint("topology.kubernetes.io/zone", "ScheduleAnyway", &members),
        ])
    );
    let rack = json!({"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"});
    let told = |constraints: Value| json!({"pod": {"topologySpreadConstraints": constraints}});
    assert_eq!(
        spread(&told(json!([rack]))),
        json!([constraint("rack", "DoNotSchedule", &members)])
    );
    let others = json!({"matchLabels": {"a": "b"}});
    let own = constraint("rack", "DoNotSchedule", &others);
    assert_eq!(spread(&told(json!([own]))), json!([own]));
    assert_eq!(spread(&told(json!([]))), Value::Null);
}

#[test]
fn resources_are_those_of_every_container() {
    let resources =
        json!({"limits": {"cpu": "300m", "memory": "200Mi"}, "requests": {"cpu": "200m", "memory": "100Mi"}});
    let spec = json!({"pod": {"resources": resources}});
    assert_eq!(in_each(&spec, "resources"), [resources.clone(), resources]);
    assert_eq!(in_each(&json!({}), "resources"), [Value::Null, Value::Null]);
}

#[test]
fn the_priority_class_is_the_users() {
    let spec = json!({"pod": {"priorityClassName": "high"}});
    assert_eq!(at(&spec, "/spec/priorityClassName"), "high");
}

#[test]
fn variables_are_those_of_etcd_alone_behind_the_operators() {
    let reference = json!({"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
    let spec = json!({"pod": {"etcdEnv": [{"name": "ETCD_DEBUG", "value": "true"}, reference]}});
    let [etcd, install] = in_each(&spec, "env");
    let names: Vec<_> = etcd
        .as_array()
        .expect("variables")
        .iter()
        .map(|v| v["name"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "POD_NAME",
            "POD_NAMESPACE",
            "POD_UID",
            "POD_IP",
            "ETCD_DEBUG",
            "B"
        ]
        .map(Some)
    );
    assert_eq!(
        etcd[2]["valueFrom"],
        json!({"fieldRef": {"fieldPath": "metadata.uid"}})
    );
    assert_eq!(etcd[5], reference);
    assert_eq!(install, Value::Null);
}

#[test]
fn the_pod_is_nobodys_unless_the_user_says_whose() {
    let context = |security: &Value| {
        at(
            &json!({"pod": {"securityContext": security}}),
            "/spec/securityContext",
        )
    };
    let ours = json!({
        "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
        "fsGroupChangePolicy": "OnRootMismatch", "seccompProfile": {"type": "RuntimeDefault"},
    });
    assert_eq!(at(&json!({}), "/spec/securityContext"), ours);
    let mut own = ours.clone();
    own["runAsUser"] = json!(9000);
    own["fsGroup"] = json!(9000);
    own["supplementalGroups"] = json!([7]);
    assert_eq!(
        context(
            &json!({"runAsNonRoot": true, "runAsUser": 9000, "fsGroup": 9000, "supplementalGroups": [7]})
        ),
        own
    );
    let localhost = json!({"type": "Localhost", "localhostProfile": "p"});
    assert_eq!(
        context(&json!({"seccompProfile": localhost}))["seccompProfile"],
        localhost
    );
    assert_eq!(context(&json!({"runAsUser": 0}))["runAsNonRoot"], false);
}

#[test]
fn containers_have_no_rights_beyond_their_user() {
    let wanted = json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}});
    assert_eq!(in_each(&json!({}), "securityContext"), [wanted.clone(), wanted]);
}

#[test]
fn a_claim_in_the_older_form_is_the_statefulsets() {
    let claim = json!({"accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "fast"});
    let spec = json!({"pod": {"persistentVolumeClaimSpec": claim}});
    let set = serde_json::to_value(crate::fixtures::objects(&spec).members).expect("JSON");
    assert_eq!(set["spec"]["volumeClaimTemplates"][0]["spec"], claim);
    let volumes = at(&spec, "/spec/volumes");
    assert!(
        volumes
            .as_array()
            .expect("volumes")
            .iter()
            .all(|volume| volume["name"] != "data")
    );
    let template = template(&spec);
    assert_eq!(
        container(&template, "etcd")["volumeMounts"][0],
        json!({"name": "data", "mountPath": "/var/etcd"})
    );
}

#[test]
fn the_service_account_is_the_users_and_no_token_comes_with_it() {
    let spec = json!({"pod": {"serviceAccountName": "etcd"}});
    assert_eq!(at(&spec, "/spec/serviceAccountName"), "etcd");
    assert_eq!(at(&spec, "/spec/automountServiceAccountToken"), false);
    // Said and not left out: what is left out stays as it was when the user takes his own away.
    assert_eq!(at(&json!({}), "/spec/serviceAccountName"), "default");
}

#[test]
fn services_of_the_namespace_are_not_turned_into_variables() {
    assert_eq!(at(&json!({}), "/spec/enableServiceLinks"), false);
}

#[test]
fn a_member_has_thirty_seconds_to_stop_or_what_the_user_gives() {
    assert_eq!(at(&json!({}), "/spec/terminationGracePeriodSeconds"), 30);
    let spec = json!({"pod": {"terminationGracePeriodSeconds": 0}});
    assert_eq!(at(&spec, "/spec/terminationGracePeriodSeconds"), 0);
}

#[test]
fn fields_of_the_older_operator_that_are_not_needed_change_nothing() {
    let spec = json!({"pod": {"busyboxImage": "busybox:1", "DNSTimeoutInSecond": 10}});
    assert_eq!(template(&spec), template(&json!({})));
}

#[test]
fn the_dns_domain_ends_addresses_however_it_is_written() {
    for domain in [".cluster.local", "cluster.local", "cluster.local."] {
        let words = command(&template(&json!({"pod": {"ClusterDomain": domain}})));
        for flag in [
            "--initial-advertise-peer-urls=http://$(POD_NAME).orders.shop.svc.cluster.local:2380",
            "--advertise-client-urls=http://$(POD_NAME).orders.shop.svc.cluster.local:2379",
        ] {
            assert!(
                words.iter().any(|word| word == flag),
                "{domain}: {flag} is not in {words:?}"
            );
        }
    }
}

#[test]
fn the_image_is_a_tagged_repository_or_the_whole_reference() {
    let image = |spec: &Value| in_each(spec, "image")[0].clone();
    assert_eq!(image(&json!({})), "quay.io/coreos/etcd:v3.6.16");
    assert_eq!(
        image(&json!({"version": "v3.2.25", "repository": "mirror:5000/etcd"})),
        "mirror:5000/etcd:v3.2.25"
    );
    assert_eq!(
        image(&json!({"image": "cnych/etcd:v3.4.13"})),
        "cnych/etcd:v3.4.13"
    );
}

#[test]
fn the_pull_policy_is_for_etcds_image_and_the_secrets_are_for_all() {
    let spec = json!({"imagePullPolicy": "Always", "imagePullSecrets": [{"name": "a"}, {"name": "b"}]});
    assert_eq!(in_each(&spec, "imagePullPolicy"), [json!("Always"), Value::Null]);
    assert_eq!(
        at(&spec, "/spec/imagePullSecrets"),
        json!([{"name": "a"}, {"name": "b"}])
    );
}

#[test]
fn settings_of_etcd_are_its_flags() {
    let spec = json!({"etcd": {
        "quotaBackendBytes": "4Gi", "snapshotCount": 1000, "heartbeatMs": 50, "electionMs": 500,
        "maxRequestBytes": 4096, "autoCompaction": {"retention": "90m"},
        "extraArgs": ["--max-txn-ops=256", "--logger=zap", "--experimental-compaction-batch-limit=9"],
    }});
    let words = command(&template(&spec));
    for flag in [
        "--quota-backend-bytes=4294967296",
        "--snapshot-count=1000",
        "--heartbeat-interval=50",
        "--election-timeout=500",
        "--max-request-bytes=4096",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=5400s",
        "--max-txn-ops=256",
        "--logger=zap",
        "--compaction-batch-limit=9",
    ] {
        assert_eq!(
            words.iter().filter(|word| *word == flag).count(),
            1,
            "{flag} in {words:?}"
        );
    }
}
