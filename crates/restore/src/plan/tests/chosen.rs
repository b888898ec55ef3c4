//! Which backup is meant, among those that an EtcdBackup tells of.

use etcd_operator_api::EtcdBackup;

use super::*;

pub fn nightly(history: &Value) -> EtcdBackup {
    serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdBackup", "metadata": {"name": "nightly"},
        "spec": {
            "etcdCluster": {"name": "orders"}, "storageType": "S3", "s3": {"path": "bucket/etcd/orders"},
            "encryption": {"secretRef": {"name": "keys"}},
        },
        "status": {"succeeded": true, "history": history},
    }))
    .expect("a backup")
}

#[test]
fn the_backup_that_is_meant_is_the_newest_not_after_the_point() {
    let backup = nightly(&json!([
        {"object": "o3", "revision": 300, "startedAt": "2026-03-03T03:00:00Z", "duration": "1m700ms"},
        {"object": "o2", "revision": 200, "startedAt": "2026-03-02T03:00:00Z", "duration": "1m"},
        {"object": "o1", "revision": 100, "startedAt": "2026-03-01T03:00:00Z", "duration": "1m"},
    ]));
    let time = |text: &str| At::Time(text.parse().expect("a time"));
    for (at, wanted) in [
        (At::Latest, Ok("o3")),
        (At::Revision(250), Ok("o2")),
        (At::Revision(200), Ok("o2")),
        (time("2026-03-03T03:00:59Z"), Ok("o2")),
        // As it is told, to the second, although it was finished a part of one later.
        (time("2026-03-03T03:01:00Z"), Ok("o3")),
        (time("9999-12-30T00:00:00Z"), Ok("o3")),
        (At::Revision(99), Err("not above 99")),
        (time("2026-02-01T00:00:00Z"), Err("of 3 backups")),
    ] {
        let name = "nightly".to_owned();
        let found = choose(&From::Backup { name, at }, Some(&backup), "orders", None);
        match (found, wanted) {
            (Ok(source), Ok(object)) => {
                assert_eq!(source.object, object, "{at:?}");
                assert_eq!(source.keys.as_deref(), Some("keys"));
            }
            (Err(why), Err(words)) => assert!(why.contains(words), "{why}"),
            (found, _) => panic!("{at:?}: {found:?}"),
        }
    }
    let name = "nightly".to_owned();
    let latest = From::Backup { name, at: At::Latest };
    let chosen = choose(&latest, Some(&backup), "orders", Some("o1")).expect("a source");
    assert_eq!(
        chosen.object, "o1",
        "what was verified is not exchanged meanwhile"
    );
    assert!(choose(&latest, None, "orders", None).is_err());
}

/// At the place that the spec names by now, something else may bear its name.
#[test]
fn a_backup_that_lies_where_the_spec_no_longer_says_is_not_looked_for_at_the_place_of_now() {
    let name = "nightly".to_owned();
    let latest = From::Backup { name, at: At::Latest };
    for (place, is_found) in [
        ("s3://bucket/etcd/orders", true),
        ("s3://other/etcd/orders", false),
        ("s3://bucket/etcd/orders at minio:9000", false),
    ] {
        let backup =
            nightly(&json!([{"object": "o", "startedAt": "2026-03-03T03:00:00Z", "location": place}]));
        match choose(&latest, Some(&backup), "orders", None) {
            Ok(source) => assert!(is_found, "{source:?}"),
            Err(why) => assert!(
                !is_found && why.contains(place) && why.contains("backupStorageType"),
                "{why}"
            ),
        }
    }
}

#[test]
fn an_object_is_named_by_its_whole_key() {
    let path = ObjectPath {
        bucket: "bucket".to_owned(),
        key: "etcd/v1".to_owned(),
    };
    let found = choose(&asks().from, None, "orders", None).expect("a source");
    let Location::S3 { path: of, .. } = found.location else {
        panic!("another store")
    };
    assert_eq!((of, found.object.as_str()), (path, "etcd/v1"));
}
