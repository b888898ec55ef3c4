//! All objects of six clusters, whole: whatever a change does to them is seen in the files it changes.

use std::path::{Path, PathBuf};

use etcd_operator_api::EtcdCluster;
use etcd_operator_cluster_core::build::{StateAnnotations, build, desired};
use serde_json::{Value, json};

use crate::fixtures::inputs;

const NAMES: [&str; 6] = [
    "seed",
    "persistent",
    "memory",
    "static-tls",
    "image-3.4",
    "everything",
];
/// Where the StatefulSet keeps its template, which stands in the file once already.
const TEMPLATE: &str = "/2/metadata/annotations/etcd.database.coreos.com~1template";

fn file(name: &str, end: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/canonical");
    folder.join(format!("{name}.{end}"))
}

fn objects(name: &str) -> Value {
    let text = std::fs::read_to_string(file(name, "yaml")).expect(name);
    let cluster: EtcdCluster = serde_saphyr::from_str(&text).expect(name);
    let desired = desired(&cluster).unwrap_or_else(|refused| panic!("{name}: {refused:?}"));
    let mut inputs = inputs(&desired);
    inputs.state_annotations = StateAnnotations {
        incarnation: 1,
        cluster_id: None,
        voters: <_>::default(),
        members: <_>::default(),
        restore: None,
        restored_revision: 0,
        earlier_restores: Vec::new(),
        served_spec_hashes: Vec::new(),
    };
    let built = build(&desired, &inputs).expect(name);
    let mut all = json!([built.headless, built.client, built.members, built.disruption]);
    let remembered = all
        .pointer_mut(TEMPLATE)
        .expect("the template is remembered")
        .take();
    let remembered: Value = serde_json::from_str(remembered.as_str().expect("text")).expect("JSON");
    assert_eq!(remembered, all[2]["spec"]["template"], "{name}");
    all
}

#[test]
fn the_objects_of_six_clusters_are_those_of_their_files() {
    let changed: Vec<_> = NAMES
        .into_iter()
        .filter(|name| {
            let built = objects(name);
            let stored = std::fs::read_to_string(file(name, "json")).unwrap_or_default();
            let is_same = serde_json::from_str::<Value>(&stored).is_ok_and(|stored| stored == built);
            if !is_same {
                let text = serde_json::to_string_pretty(&built).expect("JSON");
                let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.json"));
                std::fs::write(&path, text + "\n").expect("a file");
                println!("built: {}", path.display());
            }
            !is_same
        })
        .collect();
    assert!(
        changed.is_empty(),
        "{changed:?} are built differently: compare what was built with tests/canonical, and put it there if it is meant"
    );
}

#[test]
fn nothing_runs_as_root_or_holds_a_credential_of_kubernetes() {
    for name in NAMES {
        let pod = &objects(name)[2]["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false, "{name}");
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        assert!(!pod.to_string().contains("everything-operator"), "{name}");
        assert!(!pod.to_string().contains("etcd-client-tls"), "{name}");
    }
}
