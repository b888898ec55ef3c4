//! Checks handwritten manifests: the chart, the deployments and the samples.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use etcd_operator_api::{EtcdBackup, EtcdCluster, EtcdRestore, crd, refusal::Refusal};
use etcd_operator_gen::tree;
use jiff::Timestamp;
use kube::core::cel::Validator;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn text(path: &str) -> String {
    fs::read_to_string(tree::root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All flags that a manifest passes to the manager.
fn flags(manifest: &str) -> BTreeSet<String> {
    let words = manifest.split(|c: char| c.is_whitespace() || "\"'".contains(c));
    words
        .filter_map(|word| word.strip_prefix("--"))
        .map(|flag| flag.split('=').next().unwrap_or_default().to_owned())
        .filter(|flag| !flag.is_empty())
        .collect()
}

/// The flags of the manager, from the fields that clap parses.
fn known_flags() -> BTreeSet<String> {
    text("crates/manager/src/cli.rs")
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(':'))
        .map(|(field, _)| field.replace('_', "-"))
        .collect()
}

#[test]
fn every_flag_in_a_manifest_exists_in_the_manager() {
    let known = known_flags();
    assert!(known.contains("watch-namespaces"), "{known:?}");
    for path in [
        "charts/etcd-operator/templates/deployment.yaml",
        "config/manager/deployment.yaml",
        "config/cluster-wide/kustomization.yaml",
    ] {
        let passed = flags(&text(path));
        assert!(!passed.is_empty(), "{path}");
        let unknown: Vec<_> = passed.difference(&known).collect();
        assert!(unknown.is_empty(), "{path}: {unknown:?}");
    }
    assert!(!known.contains("watch-everything"));
}

#[test]
fn the_chart_version_equals_the_operator_version() {
    let chart = yaml("charts/etcd-operator/Chart.yaml");
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    let image = &yaml("config/manager/deployment.yaml")["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(
        image.as_str(),
        Some(concat!("etcd-operator:", env!("CARGO_PKG_VERSION")))
    );
}

/// Without the permission to watch nodes, the operator would never become ready.
#[test]
fn nodes_are_watched_only_if_permitted() {
    let everywhere = text("config/cluster-wide/kustomization.yaml");
    assert!(everywhere.contains("value: --watch-nodes") && everywhere.contains("- ../rbac/nodes"));
    assert!(!text("config/manager/deployment.yaml").contains("watch-nodes"));
    let condition = "{{- if include \"etcd-operator.watchesNodes\" . }}\n";
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {{ include \"etcd-operator.clusterName\" . }}:nodes\n";
    assert!(text("charts/etcd-operator/templates/roles.yaml").contains(&format!("{condition}{role}")));
    let flag = "        - --watch-nodes\n";
    assert!(text("charts/etcd-operator/templates/deployment.yaml").contains(&format!("{condition}{flag}")));
}

#[test]
fn operator_pods_run_unprivileged() {
    let pod = &yaml("config/manager/deployment.yaml")["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = &pod["containers"][0]["securityContext"];
    assert_eq!(container["allowPrivilegeEscalation"], false);
    assert_eq!(container["readOnlyRootFilesystem"], true);
    assert_eq!(container["capabilities"]["drop"][0], "ALL");
    let values = yaml("charts/etcd-operator/values.yaml");
    assert_eq!(values["podSecurityContext"], pod["securityContext"]);
    assert_eq!(values["securityContext"], *container);
}

#[test]
fn the_operator_receives_its_own_image() {
    let container = &yaml("config/manager/deployment.yaml")["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array().expect("variables");
    let image = variables
        .iter()
        .find(|variable| variable["name"] == "OPERATOR_IMAGE");
    assert_eq!(
        image.map(|variable| &variable["value"]),
        Some(&container["image"])
    );
    let chart = text("charts/etcd-operator/templates/deployment.yaml");
    let from_values = "{{ include \"etcd-operator.image\" . | quote }}";
    assert!(chart.contains(&format!("image: {from_values}")), "{chart}");
    assert!(
        chart.contains(&format!("- name: OPERATOR_IMAGE\n          value: {from_values}")),
        "{chart}"
    );
    let variable = "env = \"OPERATOR_IMAGE\"";
    assert!(text("crates/manager/src/cli.rs").contains(variable));
}

/// Keys of the values that the schema does not contain, and schemas that accept any key.
fn find_unknown_keys(values: &Value, schema: &Value, path: &str, found: &mut Vec<String>) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    // A map of user-defined labels, in which only the labels of the chart are forbidden.
    if properties.values().all(|schema| schema == false) {
        return;
    }
    if schema["additionalProperties"] != false {
        found.push(format!("{path} takes any key"));
    }
    for (key, value) in values.as_object().into_iter().flatten() {
        match properties.get(key) {
            Some(schema) => find_unknown_keys(value, schema, &format!("{path}.{key}"), found),
            None => found.push(format!("{path}.{key}")),
        }
    }
}

fn keys_without_a_comment(values: &str) -> Vec<&str> {
    let lines: Vec<&str> = values.lines().collect();
    // The comment of a list covers its entries.
    let is_key = |line: &str| line.contains(':') && !line.trim_start().starts_with(['#', '-']);
    lines
        .iter()
        .enumerate()
        .filter(|(index, line)| {
            is_key(line) && (*index == 0 || !lines[index - 1].trim_start().starts_with('#'))
        })
        .map(|(_, line)| *line)
        .collect()
}

#[test]
fn every_chart_value_has_a_comment_and_a_schema() {
    let values = text("charts/etcd-operator/values.yaml");
    assert_eq!(keys_without_a_comment(&values), [""; 0]);
    assert_eq!(keys_without_a_comment("# a\na: 1\nb: 2\n- { c: 3 }\n"), ["b: 2"]);

    let schema: Value =
        serde_json::from_str(&text("charts/etcd-operator/values.schema.json")).expect("the schema is JSON");
    let mut found = Vec::new();
    find_unknown_keys(
        &yaml("charts/etcd-operator/values.yaml"),
        &schema,
        "values",
        &mut found,
    );
    assert_eq!(found, [""; 0]);
    find_unknown_keys(
        &serde_json::json!({"scope": {"namespace": "a"}}),
        &schema,
        "values",
        &mut found,
    );
    assert_eq!(found, ["values.scope.namespace"]);
}

/// The problems of a sample: unknown fields, violated admission rules, and refusals of its controller.
fn problems(object: &Value) -> Vec<String> {
    fn validate<K: DeserializeOwned + Serialize>(
        object: &Value,
        check: impl FnOnce(&K) -> Vec<Refusal>,
    ) -> Vec<String> {
        match serde_json::from_value::<K>(object.clone()) {
            Err(error) => vec![error.to_string()],
            Ok(typed) => {
                let mut problems: Vec<_> = check(&typed).iter().map(ToString::to_string).collect();
                let known = serde_json::to_value(&typed).expect("JSON");
                find_unknown_fields(object, &known, "", &mut problems);
                problems
            }
        }
    }
    let kind = object["kind"].as_str().expect("a kind");
    let schema = crd::schema(kind).expect("one of our kinds");
    let mut problems = match Validator::new().validate_with_defaults(&schema, object, None) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.iter().map(|error| error.message.clone()).collect(),
    };
    let now = Timestamp::UNIX_EPOCH;
    problems.extend(match kind {
        "EtcdCluster" => validate(object, |cluster: &EtcdCluster| {
            etcd_operator_cluster_core::build::desired(cluster)
                .err()
                .unwrap_or_default()
        }),
        "EtcdBackup" => validate(object, |backup: &EtcdBackup| {
            etcd_operator_backup::desired::parse_spec(backup, now)
                .err()
                .unwrap_or_default()
        }),
        _ => validate(object, |restore: &EtcdRestore| {
            etcd_operator_restore::desired::desired(restore)
                .err()
                .unwrap_or_default()
        }),
    });
    problems
}

/// Fields of an object that its type does not have.
fn find_unknown_fields(object: &Value, known: &Value, path: &str, found: &mut Vec<String>) {
    for (key, value) in object.as_object().into_iter().flatten() {
        match known.get(key) {
            Some(known) => find_unknown_fields(value, known, &format!("{path}.{key}"), found),
            None => found.push(format!("{path}.{key} is unknown")),
        }
    }
}

#[test]
fn samples_pass_admission_and_controller_validation() {
    let mut seen = Vec::new();
    for entry in fs::read_dir(tree::root().join("config/samples")).expect("samples") {
        let name = entry.expect("a file").file_name().into_string().expect("text");
        let path = format!("config/samples/{name}");
        for document in text(&path).split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document).expect("YAML");
            // The other objects of a sample are Kubernetes objects.
            if object["apiVersion"] != "v1" {
                assert_eq!(problems(&object), [""; 0], "{path}");
            }
        }
        assert!(text(&path).starts_with("# "), "{path} does not say what it is");
        assert!(
            Path::new(&path).extension().is_some_and(|end| end == "yaml"),
            "{path}"
        );
        seen.push(name);
    }
    // One sample per use case and per store.
    for part in [
        "minimal",
        "ephemeral",
        "tls",
        "scheduling",
        "cluster-wide",
        "once",
        "volume",
        "gcs",
        "abs",
        "s3",
    ] {
        assert!(seen.iter().any(|name| name.contains(part)), "{part}: {seen:?}");
    }
}

#[test]
fn a_sample_with_a_typo_or_invalid_value_is_found() {
    let mut sample = yaml("config/samples/etcdcluster.yaml");
    sample["spec"]["sise"] = 3.into();
    assert_eq!(problems(&sample), [".spec.sise is unknown"]);

    let mut sample = yaml("config/samples/etcdcluster.yaml");
    sample["spec"]["size"] = 11.into();
    assert!(
        problems(&sample)
            .iter()
            .any(|text| text.contains("size must be 0 to 9"))
    );
}

/// The test machine may lack a container engine, so the test compares the text of the two ways to build the
/// image.
#[test]
fn the_dockerfile_matches_the_image_built_without_an_engine() {
    let dockerfile = text("Dockerfile");
    let shipped = text("e2e/src/images/shipped.rs");
    let labels: BTreeSet<&str> = shipped
        .split('"')
        .filter(|word| word.starts_with("org.opencontainers.image."))
        .collect();
    let count = dockerfile.matches("org.opencontainers.image.").count();
    assert_eq!(labels.len(), count, "{labels:?}");
    assert!(
        labels.iter().all(|label| dockerfile.contains(label)),
        "{labels:?}"
    );
    for line in [
        "ENTRYPOINT [\"/usr/local/bin/etcd-operator\"]",
        "USER 65532:65532",
        "FROM scratch",
        "/etc/ssl/certs/ca-certificates.crt",
        concat!("ARG VERSION=", env!("CARGO_PKG_VERSION")),
    ] {
        assert!(dockerfile.contains(line), "{line}");
    }
    for line in [
        "nonroot:x:65532:65532:nonroot:/nonexistent:/sbin/nologin",
        "nonroot:x:65532:",
        "hosts: files dns",
        "etc/passwd",
        "etc/group",
        "etc/nsswitch.conf",
    ] {
        assert!(dockerfile.contains(line) && shipped.contains(line), "{line}");
    }
    let toolchain = text("rust-toolchain.toml");
    let channel = toolchain
        .lines()
        .find_map(|line| line.strip_prefix("channel = \""));
    let channel = channel.expect("a channel").trim_end_matches('"');
    assert!(
        dockerfile.contains(&format!("FROM rust:{channel}-slim")),
        "{channel}"
    );
}
