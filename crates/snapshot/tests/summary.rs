//! Tests of the summary: the exact text for users and the JSON for programs.

mod support;

use etcd_operator_snapshot::content::audit::audit;
use etcd_operator_snapshot::content::live_keys::find_live_keys;
use etcd_operator_snapshot::content::quick_look::quick_look;
use etcd_operator_snapshot::database::Database;
use etcd_operator_snapshot::stream::StreamVerifier;
use etcd_operator_snapshot::summary::Summary;
use support::{DamagedFile, bytes};

fn whole(bytes: &[u8]) -> Summary {
    let mut check = StreamVerifier::default();
    check.push(bytes);
    let mut database = Database::open(bytes).expect("open");
    let audit = audit(&mut database).expect("a walk");
    let live = find_live_keys(&mut database, None, audit.records).expect("keys");
    Summary::from_audit(&database, audit)
        .with_keys(live)
        .with_verified_stream(&check.finish().expect("a right hash"))
}

#[test]
fn the_text_starts_with_the_most_important_facts() {
    let text = whole(&bytes("3.6-full")).to_string();
    // Addresses, IDs and hashes differ with each corpus.
    let words: Vec<&str> = text.lines().map(|line| line[..14].trim()).collect();
    assert_eq!(
        words,
        [
            "file",
            "sha256",
            "revision",
            "compacted at",
            "cluster",
            "storage",
            "raft",
            "member",
            "member",
            "removed",
            "auth",
            "leases",
            "keys",
            "digest",
            "prefix",
            "prefix",
            "prefix",
            "prefix",
            "etcd's hash",
            "entries",
            "check",
        ],
        "{text}"
    );
    for line in [
        "revision      11\n",
        "compacted at  6\n",
        "cluster       3.6.0\n",
        "storage       3.6.0\n",
        " learner not started http://127.0.0.1:9\n",
        " voter m http://",
        "removed       1 members\n",
        "auth          enabled, 2 users, 2 roles\n",
        "leases        1\n",
        "keys          253, ",
        "prefix        /registry/pods/ 89 keys, 3.1 KiB, and ",
        "no damage\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
}

#[test]
fn damage_and_alarms_are_shown() {
    let mut damaged = DamagedFile::new("3.5-nospace");
    let member = damaged.root("members");
    damaged.put(member + 8, [1, 0]);
    let mut database = Database::open(&damaged.bytes[..]).expect("open");
    let audit = audit(&mut database).expect("a walk");
    let text = Summary::from_audit(&database, audit).to_string();
    assert!(text.contains("alarm         NOSPACE of member "), "{text}");
    assert!(text.contains("damaged (1 findings)"), "{text}");
    assert!(
        text.contains("damage        bucket \"members\": is an invalid inline bucket"),
        "{text}"
    );
    assert!(text.contains("sha256        not verified"), "{text}");
}

#[test]
fn the_json_has_the_same_content() {
    let json = serde_json::to_value(whole(&bytes("3.6-full"))).expect("JSON");
    assert_eq!(json["version"], 1);
    assert_eq!(json["revision"], 11);
    assert_eq!(json["isSnapshot"], true);
    assert_eq!(json["facts"]["versions"]["storage"], "3.6.0");
    assert_eq!(
        json["facts"]["roster"]["members"][0]["peerURLs"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    assert_eq!(json["facts"]["auth"]["enabled"], true);
    assert_eq!(json["keys"]["keys"], 253);
    assert!(
        json["keys"]["digest"]
            .as_str()
            .is_some_and(|digest| digest.starts_with("1:253:"))
    );
    assert_eq!(json["walk"]["damage"], serde_json::json!([]));
    let bytes = bytes("3.6-full");
    let mut database = Database::open(&bytes[..]).expect("open");
    let look = quick_look(&mut database).expect("look");
    let short = serde_json::to_value(Summary::from_quick_look(&database, look)).expect("JSON");
    assert!(short.get("walk").is_none() && short.get("keys").is_none() && short.get("sha256").is_none());
}
