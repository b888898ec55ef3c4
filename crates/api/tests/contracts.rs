//! The JSON documents between the parts of the operator, held against files: what version 1 writes never changes.

use std::{fmt::Debug, path::PathBuf};

use etcd_operator_api::backup::{Compression, Verification};
use etcd_operator_api::contract::{
    self, Arrival, BackupTask, Claim, CommitRecord, CompareTask, Document, DocumentError, FetchProgress,
    FetchTask, Fetched, Fingerprint, Frame, Identity, JobOrder, JobOutcome, JobResult, Kept, KeptDirectory,
    Limits, Listed, ListedMember, Manifest, Mode, Naming, ObjectFacts, Permit, PrepareFailure, Prepared,
    Preparing, RecheckTask, RefusedImage, Report, RestoreIntent, RestoreSecrets, RestoreTerms, Sealing,
    Skipped, Source, StoreOrder, Stored, Task, Verdict, Verified, VerifyTask, mounts,
};
use etcd_operator_api::retention::Keep;
use etcd_operator_api::store::{ServerSideEncryption, StorageType};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

/// The document reads from its file as this value and is written as the file's JSON.
fn check<D: Document + PartialEq + Debug>(name: &str, document: &D) {
    let file = std::fs::read(golden(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let read: D = contract::read(&file).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(&read, document, "{name}");
    let written: serde_json::Value = serde_json::from_slice(&contract::write(document)).expect("JSON");
    let wanted: serde_json::Value = serde_json::from_slice(&file).expect("JSON");
    assert_eq!(written, wanted, "{name}");
}

fn identity() -> Identity {
    Identity {
        version: 1,
        cluster_uid: "7f6f1bb5-cluster".into(),
        cluster_id: Some("cdf818194e3a8c32".into()),
        member: "orders-0".into(),
        member_id: Some("8e9e05c52164694d".into()),
        incarnation: 2,
        fingerprint: Fingerprint([("wwid".to_owned(), "naa.600".to_owned())].into()),
        ran: true,
        starts: 7,
    }
}

#[test]
fn arrival() {
    let arrival = Arrival {
        version: 1,
        member_id: "8e9e05c52164694d".into(),
        index: 4321,
    };
    check("arrival.json", &arrival);
}

#[test]
fn permit() {
    check(
        "permit.json",
        &Permit {
            version: 1,
            pod_uid: "pod-uid".into(),
            process: "a1b2".into(),
            nonce: "0007".into(),
            mode: Mode::Join,
            incarnation: 2,
            cluster_uid: "7f6f1bb5-cluster".into(),
            cluster_id: Some("cdf818194e3a8c32".into()),
            member_id: Some("8e9e05c52164694d".into()),
            initial_cluster: "orders-0=http://orders-0.orders.shop.svc:2380".into(),
            token: "shop/orders/7f6f1bb5/2".into(),
            restore: None,
        },
    );
    check(
        "permit-swap.json",
        &Permit {
            version: 1,
            pod_uid: "pod-uid".into(),
            process: "a1b2".into(),
            nonce: "0007".into(),
            mode: Mode::Swap,
            incarnation: 3,
            cluster_uid: "7f6f1bb5-cluster".into(),
            cluster_id: Some("cdf818194e3a8c32".into()),
            member_id: Some("8e9e05c52164694d".into()),
            initial_cluster: String::new(),
            token: String::new(),
            restore: Some(RestoreTerms {
                uid: "r-uid".into(),
                object_sha256: "bb".into(),
                revision_bump: 1_000_000_000,
                keep_seconds: 86_400,
            }),
        },
    );
}

#[test]
fn report() {
    let report = |verdict| Report {
        version: 1,
        cluster_uid: "7f6f1bb5-cluster".into(),
        pod_uid: "pod-uid".into(),
        process: "a1b2".into(),
        nonce: "0007".into(),
        expected_incarnation: 2,
        verdict,
        detail: "found by the identity beside the data".into(),
        identity: Some(identity()),
        wal_term: Some(4),
        wal_index: Some(90_210),
        wal_client_entries: None,
        wal_cluster_id: None,
        wal_member_id: None,
        members: Vec::new(),
        fingerprint: Fingerprint::default(),
        fetched: None,
        preparing: None,
        refused_image: None,
    };
    check("report.json", &report(Verdict::Moved));
    check(
        "report-prepared.json",
        &report(Verdict::Prepared {
            restore_uid: "r-uid".into(),
            object_sha256: "00ff".into(),
            cluster_id: Some("cdf818194e3a8c32".into()),
            member_id: Some("8e9e05c52164694d".into()),
        }),
    );
    check(
        "report-other-incarnation.json",
        &report(Verdict::OtherIncarnation { found: 1 }),
    );
    check(
        "report-preparing.json",
        &Report {
            fetched: Some("r-uid".into()),
            preparing: Some(Preparing {
                restore_uid: "r-uid".into(),
                failure: Some(PrepareFailure {
                    reason: "NoRoom".into(),
                    message: "no space left on device".into(),
                    retriable: false,
                }),
            }),
            ..report(Verdict::OtherIncarnation { found: 1 })
        },
    );
    check(
        "report-refused-image.json",
        &Report {
            refused_image: Some(RefusedImage {
                found: "3.7.3".into(),
                expected: "3.6".into(),
            }),
            ..report(Verdict::Whole)
        },
    );
    check(
        "report-foreign.json",
        &Report {
            wal_client_entries: Some(true),
            wal_cluster_id: Some("cdf818194e3a8c32".into()),
            wal_member_id: Some("8e9e05c52164694d".into()),
            members: vec![ListedMember {
                id: "8e9e05c52164694d".into(),
                name: "orders-0".into(),
                peer_urls: vec!["http://orders-0.orders.shop.svc:2380".into()],
            }],
            fingerprint: Fingerprint([("source".to_owned(), "nfs4 nas:/orders".to_owned())].into()),
            ..report(Verdict::Foreign)
        },
    );
}

#[test]
fn identity_file() {
    check("identity.json", &identity());
}

#[test]
fn prepared() {
    check(
        "prepared.json",
        &Prepared {
            version: 1,
            restore_uid: "r-uid".into(),
            object_sha256: "00ff".into(),
            incarnation: 3,
            directory: "restored-r-uid".into(),
            cluster_id: Some("cdf818194e3a8c32".into()),
            member_id: Some("8e9e05c52164694d".into()),
        },
    );
}

#[test]
fn what_a_restore_leaves_on_a_volume() {
    check(
        "fetched.json",
        &Fetched {
            version: 1,
            restore_uid: "r-uid".into(),
            object_sha256: "bb".into(),
            snapshot_size: 20_512,
            boot: Some("1f0c1c9e-7c0f-4a6b-9a52-0a6f0c1c9e7c".into()),
        },
    );
    check(
        "fetch-progress.json",
        &FetchProgress {
            version: 1,
            restore_uid: "r-uid".into(),
            pod_uid: "pod-uid".into(),
            bytes: 4_096,
            total: 20_512,
        },
    );
    check(
        "kept.json",
        &Kept {
            version: 1,
            directories: vec![KeptDirectory {
                directory: "kept-2-1".into(),
                restore_uid: "r-uid".into(),
                until: "2026-03-02T03:00:00Z".parse().expect("a time"),
            }],
        },
    );
}

#[test]
fn manifest() {
    check(
        "manifest.json",
        &Manifest {
            version: 1,
            object: "etcd/orders_v48211_2026-03-01-03:00:00".into(),
            owner_uid: "backup-uid".into(),
            run: "2026-03-01T03:00:00Z/backup-uid".into(),
            cluster_id: "cdf818194e3a8c32".into(),
            incarnation: Some(2),
            revision: 48_213,
            etcd_version: "3.6.16".into(),
            member: "orders-1".into(),
            snapshot_size: 20_512,
            snapshot_sha256: "aa".into(),
            object_size: 9_000,
            object_sha256: "bb".into(),
            started_at: "2026-03-01T03:00:00Z".parse().expect("a time"),
            completed_at: "2026-03-01T03:00:04Z".parse().expect("a time"),
            compressed: true,
            sealing: Some(Sealing {
                cipher: "AES-256-GCM".into(),
                key_id: "2026".into(),
                salt: "cc".into(),
            }),
            frames: vec![Frame {
                offset: 0,
                stored: 9_000,
                plain: 20_512,
            }],
            verification: "Checksum".into(),
        },
    );
}

fn object() -> ObjectFacts {
    ObjectFacts {
        size: 9_000,
        sha256: "bb".into(),
        snapshot_size: 20_512,
        snapshot_sha256: "aa".into(),
    }
}

fn order(run: &str, task: Task) -> JobOrder {
    JobOrder {
        version: 1,
        run: run.into(),
        owner_uid: "backup-uid".into(),
        store: StoreOrder {
            kind: StorageType::S3,
            bucket: "my-bucket".into(),
            path: "etcd/orders".into(),
            endpoint: Some("https://minio.example.com:9000".into()),
            path_style: true,
            region: Some("eu-1".into()),
            encryption: Some(ServerSideEncryption::Kms),
            storage_class: Some("STANDARD_IA".into()),
            secret: Some(mounts::STORE_SECRET.into()),
            ca: Some(mounts::STORE_CA.into()),
        },
        task,
    }
}

#[test]
fn job_order() {
    let task = BackupTask {
        source: Source {
            endpoints: vec!["https://orders-client.shop.svc:2379".into()],
            tls: Some(mounts::CLIENT_TLS.into()),
            server_name: Some("orders-client.shop.svc".into()),
            user: Some(mounts::USER.into()),
        },
        cluster_id: Some("cdf818194e3a8c32".into()),
        incarnation: Some(2),
        naming: Naming::Periodic,
        compression: Compression::Zstd,
        keys: Some(mounts::KEYS.into()),
        verification: Verification::Full,
        deadline: "2026-03-01T03:10:00Z".parse().expect("a time"),
        limits: Limits {
            bytes_per_second: 1_000_000,
            grace_seconds: 60,
            growth_bytes: 500_000_000,
        },
        allow_others: true,
    };
    let run = "2026-03-01T03:00:00Z/backup-uid";
    check("job-order-backup.json", &order(run, Task::Backup(Box::new(task))));
    let keep = Keep {
        newest: Some(4),
        max_age_seconds: Some(2_592_000),
        hourly: 0,
        daily: 14,
        weekly: 8,
        zone: Some("Europe/Berlin".to_owned()),
        ..Keep::default()
    };
    check("job-order-prune.json", &order("p", Task::Prune { keep }));
    check("job-order-erase.json", &order("e", Task::Erase));
    let after = Some("etcd/orders_v1_2026-02-01-03:00:00".into());
    check("job-order-list.json", &order("l", Task::List { after }));
    let verify = VerifyTask {
        keys: Some(mounts::KEYS.into()),
        beside: Some(Source {
            endpoints: vec!["http://orders-0.orders.shop.svc:2379".into()],
            ..Source::default()
        }),
        deadline: "2026-03-01T03:10:00Z".parse().expect("a time"),
    };
    check("job-order-verify.json", &order("v", Task::Verify(verify)));
    let recheck = RecheckTask {
        size: 9_000,
        etag: Some("\"5eb63bbb\"".into()),
        has_manifest: true,
        deadline: "2026-03-01T03:10:00Z".parse().expect("a time"),
    };
    check("job-order-recheck.json", &order("r", Task::Recheck(recheck)));
    let fetch = FetchTask {
        restore_uid: "r-uid".into(),
        incarnation: 3,
        cluster_uid: Some("c-uid".into()),
        object: object(),
        keys: Some(mounts::KEYS.into()),
        volume: "/var/etcd".into(),
    };
    check("job-order-fetch.json", &order("f", Task::Fetch(Box::new(fetch))));
    let compare = CompareTask {
        source: Source {
            endpoints: vec!["http://orders-0.orders.shop.svc:2379".into()],
            ..Source::default()
        },
        cluster_id: "cdf818194e3a8c32".into(),
        revision: 1_000_048_213,
        digest: "1:2:00ff".into(),
        deadline: "2026-03-01T03:10:00Z".parse().expect("a time"),
    };
    check(
        "job-order-compare.json",
        &order("c", Task::Compare(Box::new(compare))),
    );
}

#[test]
fn an_order_that_says_little_has_the_usual_limits_and_checks() {
    let order: JobOrder = contract::read(
        br#"{"version":1,"run":"r","ownerUID":"u","store":{"kind":"Local","bucket":"/backups","path":"orders"},
             "task":{"kind":"backup","source":{"endpoints":["http://orders:2379"]},"naming":"OneShot","deadline":"2026-03-01T03:10:00Z"}}"#,
    )
    .expect("an order");
    let Task::Backup(task) = &order.task else {
        panic!("{:?}", order.task);
    };
    assert_eq!(order.task.command(), "backup");
    assert_eq!(task.limits, Limits::default());
    assert_eq!(
        (task.verification, task.compression),
        (Verification::Checksum, Compression::None)
    );
    assert!(!task.allow_others);
}

#[test]
fn commit_record() {
    let record = CommitRecord {
        version: 1,
        uid: "r-uid".into(),
        succeeded: true,
    };
    check("commit-record.json", &record);
}

#[test]
fn claim() {
    check(
        "claim.json",
        &Claim {
            version: 1,
            object: "etcd/orders_v48211_2026-03-01-03:00:00".into(),
            owner_uid: "backup-uid".into(),
            run: "2026-03-01T03:00:00Z/backup-uid".into(),
            until: "2026-03-01T03:10:00Z".parse().expect("a time"),
            replaces: true,
        },
    );
}

#[test]
fn job_result() {
    let result = |run: &str, outcome| JobResult {
        version: 1,
        run: run.into(),
        outcome,
    };
    let stored = JobOutcome::Stored(Box::new(Stored {
        object: "etcd/orders".into(),
        revision: 48_213,
        size: 9_000,
        sha256: "bb".into(),
        etcd_version: "3.6.16".into(),
        cluster_id: "cdf818194e3a8c32".into(),
        member: "orders-1".into(),
        verification: "Full".into(),
        incarnation: Some(2),
        started_at: "2026-03-01T03:00:00Z".parse().expect("a time"),
        completed_at: "2026-03-01T03:00:04Z".parse().expect("a time"),
    }));
    check(
        "job-result-stored.json",
        &result("2026-03-01T03:00:00Z/backup-uid", stored),
    );
    let failed = JobOutcome::Failed {
        reason: "AccessDenied".into(),
        message: "the store refused to write".into(),
        retriable: false,
    };
    check("job-result-failed.json", &result("r", failed));
    let listed = JobOutcome::Listed {
        backups: vec![Listed {
            object: "etcd/orders_v1_2026-02-01-03:00:00".into(),
            incarnation: Some(2),
            revision: 1,
            size: 9_000,
            completed_at: "2026-02-01T03:00:04Z".parse().expect("a time"),
        }],
        others: 3,
        next: Some("etcd/orders_v1_2026-02-01-03:00:00".into()),
    };
    check("job-result-listed.json", &result("l", listed));
    let pruned = JobOutcome::Pruned {
        deleted: 4,
        kept: 7,
        skipped: vec![Skipped {
            object: "etcd/orders_v2_2026-02-02-03:00:00".into(),
            why: "Locked".into(),
        }],
        more_skipped: 1,
    };
    check("job-result-pruned.json", &result("p", pruned));
    let verified = Verified {
        name: "etcd/orders_v48211_2026-03-01-03:00:00".into(),
        object: object(),
        etag: None,
        revision: 48_213,
        digest: "1:2:00ff".into(),
        keys: 2,
        etcd_version: Some("3.6.16".into()),
        cluster_version: Some("3.6.0".into()),
        storage_version: Some("3.6.0".into()),
        auth_enabled: true,
        users: 1,
        roles: 2,
        learners: 1,
        alarms: vec!["NOSPACE".into()],
        has_manifest: true,
        cluster_id: Some("cdf818194e3a8c32".into()),
        incarnation: Some(2),
        completed_at: Some("2026-03-01T03:00:04Z".parse().expect("a time")),
        beside: Some(25_000_000),
    };
    check("job-result-unchanged.json", &result("r", JobOutcome::Unchanged));
    let verified = JobOutcome::Verified(Box::new(verified));
    check("job-result-verified.json", &result("v", verified));
    check(
        "job-result-fetched.json",
        &result("f", JobOutcome::Fetched { bytes: 20_512 }),
    );
    let compared = JobOutcome::Compared {
        revision: 1_000_048_213,
        keys: 2,
        digest: "1:2:00ff".into(),
    };
    check("job-result-compared.json", &result("c", compared));
}

#[test]
fn restore_intent() {
    check(
        "restore-intent.json",
        &RestoreIntent {
            version: 1,
            uid: "r-uid".into(),
            name: "orders".into(),
            store: StoreOrder {
                kind: StorageType::OSS,
                bucket: "bucket".into(),
                path: "etcd/orders".into(),
                secret: Some(mounts::STORE_SECRET.into()),
                ..StoreOrder::default()
            },
            secrets: RestoreSecrets {
                store: Some("aliyun".into()),
                keys: Some("keys".into()),
                ..RestoreSecrets::default()
            },
            object: object(),
            revision: 48_213,
            etcd_version: "3.6.16".into(),
            digest: "1:2:00ff".into(),
            revision_bump: 1_000_000_000,
            keep_previous_seconds: 86_400,
            compared_cluster: Some("cdf818194e3a8c32".into()),
            single_member: false,
        },
    );
}

#[test]
fn a_document_from_the_future_is_an_error_that_names_both_versions() {
    let error =
        contract::read::<Permit>(br#"{"version": 9, "mode": "levitate"}"#).expect_err("from the future");
    assert!(
        matches!(error, DocumentError::Version { found: 9, .. }),
        "{error}"
    );
    assert_eq!(
        error.to_string(),
        "permit has version 9; this operator reads versions 1 to 1"
    );
    for hostile in [
        "",
        "[]",
        "{}",
        r#"{"version": -1}"#,
        r#"{"version": 18446744073709551616}"#,
        r#"{"version": 1}"#,
    ] {
        assert!(contract::read::<Permit>(hostile.as_bytes()).is_err(), "{hostile}");
    }
}

#[test]
fn a_field_that_a_later_minor_version_adds_is_no_error() {
    let mut json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(golden("permit.json")).expect("the file")).expect("JSON");
    json["addedLater"] = true.into();
    assert!(contract::read::<Permit>(json.to_string().as_bytes()).is_ok());
}
