//! Tests: which store settings are accepted, and how others are refused.

use super::*;

fn oss(path: &str) -> OssStore {
    OssStore {
        path: Some(path.to_owned()),
        endpoint: Some(String::new()),
        ..OssStore::default()
    }
}

#[test]
fn the_field_of_the_storage_type_is_used_and_empty_strings_are_dropped() {
    let block = oss("bucket/a/b");
    let found = Blocks {
        oss: Some(&block),
        ..Blocks::default()
    }
    .locate(StorageType::OSS, "spec.storageType");
    let path = ObjectPath {
        bucket: "bucket".into(),
        key: "a/b".into(),
    };
    let endpoint = DEFAULT_OSS_ENDPOINT.to_owned();
    assert_eq!(
        found,
        Ok(Location::Oss {
            path,
            secret: None,
            endpoint,
            region: None,
            ca_secret: None
        })
    );
}

#[test]
fn paths_with_a_scheme_or_a_reserved_suffix_are_refused_with_field_and_example() {
    for path in [
        "oss://bucket/key",
        "bucket/key.manifest.json",
        "bucket/key.claim.json",
    ] {
        let (block, volume) = (
            oss(path),
            LocalStore {
                persistent_volume_claim: Some("claim".to_owned()),
                path: Some(path.to_owned()),
            },
        );
        let blocks = [
            (
                StorageType::OSS,
                "spec.oss.path",
                "my-bucket/etcd/orders",
                Blocks {
                    oss: Some(&block),
                    ..Blocks::default()
                },
            ),
            (
                StorageType::Local,
                "spec.local.path",
                "for example: etcd/orders",
                Blocks {
                    local: Some(&volume),
                    ..Blocks::default()
                },
            ),
        ];
        for (kind, field, example, blocks) in blocks {
            let refused = blocks.locate(kind, "spec.storageType").expect_err("refused");
            assert_eq!(refused[0].field, field, "{path}");
            assert!(refused[0].problem.contains(example), "{refused:?}");
        }
    }
}

#[test]
fn missing_surplus_and_incomplete_store_fields_are_refused_by_name() {
    let (good, bad) = (oss("bucket/key"), oss("bucket"));
    let gcs = GcsStore::default();
    let field = |blocks: Blocks<'_>| {
        let refused = blocks
            .locate(StorageType::OSS, "spec.storageType")
            .expect_err("refused");
        refused
            .first()
            .map(|r| (r.field.clone(), r.problem.clone()))
            .expect("one")
    };
    assert!(field(Blocks::default()).1.contains("spec.oss must be set"));
    assert!(
        field(Blocks {
            oss: Some(&good),
            gcs: Some(&gcs),
            ..Blocks::default()
        })
        .1
        .contains("spec.gcs is also set: remove spec.gcs")
    );
    assert!(
        field(Blocks {
            gcs: Some(&gcs),
            ..Blocks::default()
        })
        .1
        .contains("spec.gcs is set: change it to the store of spec.gcs")
    );
    assert_eq!(
        field(Blocks {
            oss: Some(&bad),
            ..Blocks::default()
        })
        .0,
        "spec.oss.path"
    );
}
