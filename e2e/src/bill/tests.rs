//! The bill of our own program, asked of the real Cargo, against what CycloneDX and whoever reads it ask for.

use std::path::Path;

use tokio::process::Command;

use super::*;
use crate::bed_dir::BedDir;
use crate::components::{self, Component};

const PACKAGE: &str = "etcd-operator-manager";
const TARGET: &str = "x86_64-unknown-linux-gnu";

async fn ours() -> (Told, Value) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let told = ask(root, PACKAGE, TARGET).await.unwrap();
    let bill = bill(&told, "etcd-operator").unwrap();
    (told, bill)
}

/// What a bill lacks of what its specification requires, and of the least that bills are asked for.
fn faults(bill: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut must = |holds: bool, what: String| {
        if !holds {
            faults.push(what);
        }
    };
    let text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    must(bill["bomFormat"] == "CycloneDX", "bomFormat".to_owned());
    must(bill["specVersion"] == "1.6", "specVersion".to_owned());
    must(bill["version"].as_u64() >= Some(1), "version".to_owned());
    must(text(&bill["metadata"]["supplier"]["name"]), "supplier".to_owned());

    let empty = Vec::new();
    let main = &bill["metadata"]["component"];
    let components = bill["components"].as_array().unwrap_or(&empty);
    let mut references = BTreeSet::new();
    for component in components.iter().chain([main]) {
        let name = &component["name"];
        for field in ["type", "name", "version", "purl", "bom-ref"] {
            must(text(&component[field]), format!("{name}: {field}"));
        }
        let reference = component["bom-ref"].as_str().unwrap_or_default();
        must(references.insert(reference), format!("{name}: twice"));
        for hash in component["hashes"].as_array().into_iter().flatten() {
            let content = hash["content"].as_str().unwrap_or_default();
            let is_hex = content.len() == 64 && content.chars().all(|c| c.is_ascii_hexdigit());
            must(hash["alg"] == "SHA-256" && is_hex, format!("{name}: {hash}"));
        }
        let expression = component["licenses"][0]["expression"]
            .as_str()
            .unwrap_or_default();
        let is_expression = !expression.is_empty() && !expression.contains(['/', ',']);
        must(is_expression, format!("{name}: licence {expression:?}"));
    }
    let mut from = BTreeSet::new();
    for dependency in bill["dependencies"].as_array().unwrap_or(&empty) {
        let one = dependency["ref"].as_str().unwrap_or_default();
        must(from.insert(one), format!("{one}: depends twice"));
        for other in dependency["dependsOn"].as_array().unwrap_or(&empty) {
            must(
                references.contains(other.as_str().unwrap_or_default()),
                format!("{one}: {other}"),
            );
        }
    }
    must(from == references, "dependencies of some are not told".to_owned());
    faults
}

#[tokio::test]
async fn the_bill_of_the_operator_has_what_its_specification_asks_for() {
    let (_, bill) = ours().await;
    assert_eq!(faults(&bill), [""; 0]);
    let mut broken = bill.clone();
    broken["components"][0]["version"] = "".into();
    broken["components"][1]["hashes"] = json!([{"alg": "SHA-256", "content": "12"}]);
    broken["dependencies"][2]["dependsOn"] = json!(["pkg:cargo/nobody@1.0.0"]);
    assert_eq!(faults(&broken).len(), 3, "{:?}", faults(&broken));
}

/// What those who publish the format say of it, by the schema that they publish.
#[tokio::test]
async fn the_bill_of_the_operator_fits_the_schema_of_its_format() {
    let bed = BedDir::create().unwrap();
    let checker = components::find(Component::BillSchema).await.unwrap();
    let check = async |bill: &Value| {
        let file = bed.write("bill.json", bill.to_string()).unwrap();
        let mut check = Command::new(&checker);
        check.arg(file);
        command::succeed(check, "").await
    };
    let (_, bill) = ours().await;
    assert_eq!(check(&bill).await.unwrap().trim(), "it fits");
    for (place, wrong) in [
        ("/components/0/type", json!("crate")),
        (
            "/components/1/hashes",
            json!([{"alg": "SHA-256", "content": "12"}]),
        ),
        ("/specVersion", json!(1.6)),
        ("/serialNumber", json!("one")),
    ] {
        let mut broken = bill.clone();
        match broken.pointer_mut(place) {
            Some(value) => *value = wrong,
            None => broken[&place[1..]] = wrong,
        }
        assert!(check(&broken).await.is_err(), "{place} passes");
    }
}

#[tokio::test]
async fn what_is_linked_is_on_the_bill_and_what_only_builds_or_tests_is_not() {
    let (told, bill) = ours().await;
    let components = bill["components"].as_array().unwrap();
    let has = |name: &str| components.iter().any(|component| component["name"] == name);
    for name in [
        "tokio",
        "kube-client",
        "ring",
        "zstd-sys",
        "etcd-operator-job",
        "serde_json",
    ] {
        assert!(has(name), "{name}");
    }
    for name in [
        "proptest",
        "rcgen",
        "etcd-operator-testkit",
        "serde_derive",
        "cc",
        "etcd-operator-manager",
    ] {
        assert!(!has(name), "{name}");
    }
    assert_eq!(bill["metadata"]["component"]["name"], "etcd-operator");
    assert_eq!(
        bill["metadata"]["component"]["version"],
        env!("CARGO_PKG_VERSION")
    );
    // What comes from elsewhere is known by its checksum.
    for component in components {
        let name = component["name"].as_str().unwrap();
        assert_eq!(
            component.get("hashes").is_some(),
            !name.starts_with("etcd-operator-"),
            "{name}"
        );
    }
    // The same bytes each time: no time and no number of its own.
    let again = super::bill(&told, "etcd-operator").unwrap();
    assert_eq!(bill.to_string(), again.to_string());
    assert!(!bill.to_string().contains(env!("CARGO_MANIFEST_DIR")));
}

#[test]
fn a_package_that_cargo_does_not_tell_of_is_an_error_and_not_left_out() {
    let told = Told {
        metadata: json!({"packages": [{"id": "a", "name": "a", "version": "1.0.0"}], "resolve": {"nodes": []}}),
        linked: "a v1.0.0\nb v2.0.0\n".to_owned(),
        lock: String::new(),
    };
    let error = bill(&told, "a").unwrap_err().to_string();
    assert!(error.contains("2 packages are linked"), "{error}");
}

#[test]
fn checksums_are_read_from_the_lock_file() {
    let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0+b\"\nsource = \"x\"\nchecksum = \"12\"\n\n\
        [[package]]\nname = \"own\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n]\n";
    assert_eq!(checksums(lock), BTreeMap::from([(("a", "1.0.0+b"), "12")]));
    assert_eq!(reference(("a", "1.0.0+b")), "pkg:cargo/a@1.0.0%2Bb");
}
