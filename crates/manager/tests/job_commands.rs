//! The backup commands as processes: arguments, output and exit codes.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use etcd_operator_api::contract::{self, JobOutcome, JobResult, ORDER_VARIABLE};
use serde_json::json;

/// A directory that is deleted on drop.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("job-commands-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn operator(arguments: &[&str], order: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_etcd-operator"));
    command.args(arguments).env_remove(ORDER_VARIABLE);
    if let Some(order) = order {
        command.env(ORDER_VARIABLE, order);
    }
    command.output().expect("it runs")
}

/// The exit code of a command with an order, and its result.
fn run_order(command: &str, order: &serde_json::Value) -> (Option<i32>, JobResult) {
    let folder = TempDir::new();
    let result = folder.path("result");
    let output = operator(&[command, "--result", &result], Some(&order.to_string()));
    let bytes = std::fs::read(&result).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let read = contract::read(&bytes).expect("a result");
    (output.status.code(), read)
}

fn order(bucket: &str, task: &serde_json::Value) -> serde_json::Value {
    json!({
        "version": 1, "run": "r", "ownerUID": "u",
        "store": {"kind": "Local", "bucket": bucket, "path": "etcd/orders"},
        "task": task,
    })
}

fn backup(endpoint: &str) -> serde_json::Value {
    json!({
        "kind": "backup", "naming": "OneShot", "deadline": "2999-01-01T00:00:00Z",
        "source": {"endpoints": [endpoint]},
    })
}

#[test]
fn an_order_in_the_environment_is_run_and_its_result_written() {
    let store = TempDir::new();
    let bucket = store.0.display().to_string();
    let (code, result) = run_order("list", &order(&bucket, &json!({"kind": "list"})));
    assert_eq!((code, result.run.as_str()), (Some(0), "r"));
    assert!(
        matches!(&result.outcome, JobOutcome::Listed { backups, .. } if backups.is_empty()),
        "{result:?}"
    );
    for task in [json!({"kind": "prune"}), json!({"kind": "erase"})] {
        let (code, result) = run_order("prune", &order(&bucket, &task));
        assert_eq!(code, Some(0));
        assert!(
            matches!(result.outcome, JobOutcome::Pruned { deleted: 0, .. }),
            "{result:?}"
        );
    }
}

#[test]
fn the_exit_code_tells_whether_a_retry_may_help() {
    let store = TempDir::new();
    let bucket = store.0.display().to_string();
    let missing = store.path("no/such/directory");
    for (expected_code, reason, order) in [
        (1, "NoMember", order(&bucket, &backup("http://127.0.0.1:1"))),
        (2, "BadOrder", order(&bucket, &backup("127.0.0.1:1"))),
        (2, "BadOrder", order(&bucket, &backup("https://127.0.0.1:1"))),
        (2, "BadOrder", order(&bucket, &json!({"kind": "list"}))),
        (2, "BadOrder", json!({"version": 9})),
        (3, "NoBucket", order(&missing, &backup("http://127.0.0.1:1"))),
    ] {
        let (code, result) = run_order("backup", &order);
        let JobOutcome::Failed {
            reason: found,
            message,
            ..
        } = &result.outcome
        else {
            panic!("{result:?}");
        };
        assert_eq!((code, found.as_str()), (Some(expected_code), reason), "{message}");
    }
}

#[test]
fn flags_are_validated_first() {
    for (arguments, fragment) in [
        (&["backup"][..], "--to"),
        (&["backup", "--to", "s3://b/k"], "--endpoint"),
        (
            &[
                "backup",
                "--endpoint",
                "http://127.0.0.1:1",
                "--to",
                "/no/such/place/x",
            ],
            "mkdir -p /no/such/place",
        ),
        (&["list"], "URL"),
        (&["fetch", "s3://b/k"], "FILE"),
        (&["prune"], "ETCD_OPERATOR_ORDER"),
    ] {
        let output = operator(arguments, None);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(fragment), "{arguments:?}: {message}");
    }
}

#[test]
fn failures_by_hand_name_flags_instead_of_spec_fields() {
    let folder = TempDir::new();
    let (to, empty) = (folder.path("orders"), folder.path("empty"));
    std::fs::create_dir(&empty).expect("a directory");
    let nowhere = folder.path("no/such/x");
    for (arguments, fragment) in [
        (
            vec![
                "backup",
                "--endpoint",
                "http://root:hunter2@127.0.0.1:1",
                "--to",
                &to,
            ],
            "--endpoint",
        ),
        (
            vec!["backup", "--endpoint", "https://127.0.0.1:1", "--to", &to],
            "--client-tls must name a directory",
        ),
        (
            vec![
                "backup",
                "--endpoint",
                "http://127.0.0.1:1",
                "--to",
                &to,
                "--keys",
                &empty,
            ],
            "the directory is missing or empty",
        ),
        (
            vec!["fetch", "s3://b/k", &to, "--store-endpoint", "ftp://a"],
            "--store-endpoint must begin with",
        ),
        (
            vec![
                "list",
                "gs://b/k",
                "--store-endpoint",
                "https://a",
                "--store-secret",
                &empty,
            ],
            "the directory is missing or empty",
        ),
        (vec!["inspect", "abs://b/k"], "--store-secret must be set"),
        (vec!["list", &nowhere], "look at the path"),
    ] {
        let output = operator(&arguments, None);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        // A backtrace follows if RUST_BACKTRACE is set.
        let message = message
            .split("Stack backtrace")
            .next()
            .unwrap_or_default()
            .to_owned();
        assert!(
            !output.status.success() && message.contains(fragment),
            "{arguments:?}: {message}"
        );
        for field in [
            "etcdEndpoints",
            "clientTLSSecret",
            "spec.",
            "s3.",
            "gcs.",
            "abs.",
            "local.",
            "Secret is",
            "hunter2",
        ] {
            assert!(!message.contains(field), "{field}: {message}");
        }
    }
}

#[test]
fn a_snapshot_is_inspected_and_fetched_without_kubernetes() {
    let folder = TempDir::new();
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../snapshot/corpus/3.6-full.db.zst");
    let snapshot = zstd::decode_all(std::fs::read(corpus).expect("the corpus").as_slice()).expect("unpacks");
    let (file, copy) = (folder.path("etcd.db"), folder.path("copy.db"));
    std::fs::write(&file, &snapshot).expect("written");
    let output = operator(&["inspect", &file], None);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && text.contains("revision      11"),
        "{output:?}"
    );
    let output = operator(&["inspect", "--full", "--json", &file], None);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&json["revision"], &json["walk"]["damage"]),
        (&json!(11), &json!([]))
    );
    let cut = folder.path("cut.db");
    std::fs::write(&cut, &snapshot[..snapshot.len() / 2]).expect("written");
    let scratch = folder.path("scratch");
    std::fs::create_dir(&scratch).expect("made");
    for (what, is_good) in [(&file, true), (&cut, false)] {
        // The file URL makes the command treat the file as a stored backup.
        let url = format!("file://{what}");
        let output = operator(&["inspect", "--full", "--scratch", &scratch, &url], None);
        assert_eq!(output.status.success(), is_good, "{output:?}");
        let left = std::fs::read_dir(&scratch).expect("a folder").count();
        assert_eq!(left, 0, "temporary files remain: {what}");
    }
    let output = operator(&["fetch", &file, &copy], None);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read(&copy).expect("a file"), snapshot);
    let output = operator(&["fetch", &file, &copy], None);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && message.contains("--force"),
        "{message}"
    );
    let output = operator(&["fetch", "--force", &file, &copy], None);
    assert!(output.status.success(), "{output:?}");
    let bare = folder.path("bare.db");
    std::fs::write(&bare, &snapshot[..snapshot.len() - 32]).expect("written");
    let out = folder.path("bare-copy.db");
    let output = operator(&["fetch", &bare, &out], None);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && message.contains("--without-hash"),
        "{message}"
    );
    let output = operator(&["fetch", "--without-hash", &bare, &out], None);
    let message = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && message.contains("no hash"),
        "{output:?}"
    );
    let directory = folder.0.display().to_string();
    let output = operator(&["list", &directory], None);
    let message = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(message.contains("etcd.db"), "{message}");
    let mut broken = snapshot;
    broken[5000] ^= 1;
    std::fs::write(&file, &broken).expect("written");
    let output = operator(&["fetch", &file, &folder.path("never.db")], None);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!folder.0.join("never.db").exists());
}

/// Size of a fake database; it is followed by the hash that etcd would append.
const PAGES: usize = 1024;
const PAGES_SHA256: &str = "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef";
const OBJECT_SHA256: &str = "4872bea7d9d801277dbc214e088704c1fb3e8251f016899664b0e7702250319a";

fn fetching(volume: &str, size: usize) -> serde_json::Value {
    json!({
        "kind": "fetch", "restoreUID": "restore-1", "incarnation": 2, "volume": volume,
        "object": {
            "size": size, "sha256": OBJECT_SHA256, "snapshotSize": PAGES + 32, "snapshotSha256": PAGES_SHA256,
        },
    })
}

#[test]
fn a_backup_is_downloaded_to_a_volume_once_and_then_needs_no_store() {
    let (store, volume) = (TempDir::new(), TempDir::new());
    std::fs::create_dir(store.path("etcd")).expect("a directory");
    let digits = PAGES_SHA256.as_bytes().chunks(2);
    let hash = digits.map(|two| u8::from_str_radix(&String::from_utf8_lossy(two), 16).expect("a digit"));
    let object: Vec<u8> = std::iter::repeat_n(0, PAGES).chain(hash).collect();
    std::fs::write(store.path("etcd/orders"), &object).expect("written");
    let root = volume.0.display().to_string();
    let bucket = store.0.display().to_string();
    // The stored object has another size than the verified one.
    let (code, result) = run_order("fetch", &order(&bucket, &fetching(&root, 7)));
    let JobOutcome::Failed { reason, message, .. } = result.outcome else {
        panic!("{:?}", result.outcome);
    };
    assert_eq!(
        (code, reason.as_str()),
        (Some(3), "VerificationFailed"),
        "{message}"
    );
    assert!(message.contains("1056") && message.contains('7'), "{message}");
    assert!(!volume.0.join("operator/fetched.json").exists());

    // The stored object has the same size and snapshot but another hash.
    let mut other = fetching(&root, object.len());
    other["object"]["sha256"] = json!("0".repeat(64));
    let (code, result) = run_order("fetch", &order(&bucket, &other));
    let JobOutcome::Failed { reason, message, .. } = result.outcome else {
        panic!("{:?}", result.outcome);
    };
    assert_eq!((code, reason.as_str()), (Some(3), "VerificationFailed"));
    assert!(message.contains(OBJECT_SHA256), "{message}");
    assert!(!volume.0.join("restore/snapshot.db").exists());

    let whole = order(&bucket, &fetching(&root, object.len()));
    let fetched = JobOutcome::Fetched { bytes: 1056 };
    let (code, result) = run_order("fetch", &whole);
    assert_eq!((code, &result.outcome), (Some(0), &fetched));
    let there = std::fs::read(volume.path("restore/snapshot.db")).expect("the snapshot");
    assert_eq!(there, object);
    drop(store);
    let (code, result) = run_order("fetch", &whole);
    assert_eq!((code, &result.outcome), (Some(0), &fetched), "already downloaded");
}

#[test]
fn restore_commands_require_an_order() {
    for (command, fragment) in [("verify", "--order"), ("compare", "--order"), ("fetch", "URL")] {
        let output = operator(&[command], None);
        assert_eq!(output.status.code(), Some(2), "{command}: {output:?}");
        let message = [output.stdout, output.stderr].concat();
        let message = String::from_utf8_lossy(&message);
        assert!(message.contains(fragment), "{command}: {message}");
    }
    let (code, result) = run_order("verify", &order("/nowhere", &json!({"kind": "erase"})));
    assert_eq!(code, Some(2), "{:?}", result.outcome);
}
