//! How members are, and what keeps them well, on every minor.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_etcd::error::Class;
use etcd_operator_etcd::flags::FirstState;
use etcd_operator_etcd::id::Revision;
use etcd_operator_etcd::policy::Feature;
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_etcd::status::{AlarmKind, Downgrade};
use etcd_operator_etcd::version::Version;

use crate::etcds::{Fleet, LIMIT};

const SLOW: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_full_database_is_seen_emptied_and_its_alarm_ended() -> Result<()> {
    for version in EtcdVersion::ALL {
        let fleet = Fleet::new(version).await?;
        let mut config = fleet.config(0, FirstState::New, &[0]);
        config.tuning.quota = Some(1 << 20);
        let mut process = fleet.start(config)?;
        let client = fleet.serving(0, &mut process).await?;
        assert!(client.alarms().await?.is_empty());

        let value = "x".repeat(100_000);
        until("the database is full", LIMIT, || async {
            let output = fleet.etcdctl(0, &["put", "big", &value]).await?;
            Ok((!output.status.success()).then_some(()))
        })
        .await?;
        let alarms = client.alarms().await?;
        let own = client.status().await?.position.member;
        let alarm = *alarms.first().expect("an alarm");
        assert_eq!(
            (alarms.len(), alarm.member, alarm.kind),
            (1, Some(own), AlarmKind::NoSpace)
        );

        let full = client.status().await?;
        let has_details = Feature::DetailedStatus.is_in(&fleet.number());
        assert!(full.db_size > 1 << 19, "{full:?}");
        assert_eq!(full.db_in_use.is_some(), has_details);
        assert_eq!(
            full.errors.iter().any(|error| error.contains("NOSPACE")),
            has_details
        );
        let quota = Feature::StatusOfStorage.is_in(&fleet.number()).then_some(1 << 20);
        assert_eq!(full.db_quota, quota);

        let newest = full.position.revision.to_string();
        let compacted = fleet.etcdctl(0, &["compaction", "--physical", &newest]).await?;
        assert!(compacted.status.success());
        client.defragment(SLOW).await?;
        let slim = client.status().await?;
        assert!(slim.db_size < full.db_size, "{slim:?}");
        client.disarm(alarm).await?;
        client.disarm(alarm).await?;
        assert!(client.alarms().await?.is_empty());
        assert!(fleet.etcdctl(0, &["put", "small", "x"]).await?.status.success());
    }
    Ok(())
}

/// What the generated messages say of a member, compared with what is known of it. A field whose number differed from
/// etcd's would be empty here, or an answer would not be read at all.
#[tokio::test]
async fn a_status_has_every_field_that_its_minor_sends() -> Result<()> {
    for version in EtcdVersion::ALL {
        let fleet = Fleet::new(version).await?;
        let _processes = fleet.bootstrap(1).await?;
        let number = fleet.number();
        let status = fleet.client(0).await?.status().await?;
        assert!(!status.is_learner, "{version:?}");
        if Feature::DetailedStatus.is_in(&number) {
            let in_use = status.db_in_use.unwrap_or_default();
            assert!(0 < in_use && in_use <= status.db_size, "{version:?}: {status:?}");
            assert!(status.applied.is_some_and(|index| index.0 > 0), "{version:?}");
        }
        if !Feature::StatusOfStorage.is_in(&number) {
            assert_eq!(
                (status.storage_version, status.downgrade, status.db_quota),
                (None, None, None),
                "{version:?}"
            );
            continue;
        }
        assert!(status.db_quota.is_some_and(|bytes| bytes > 0), "{version:?}");
        let own = format!("{}.{}.0", number.major, number.minor);
        until("the version of the files is settled", LIMIT, || async {
            let status = fleet.client(0).await?.status().await?;
            Ok(status.storage_version.filter(|version| *version == own))
        })
        .await?;
        downgrade_is_told(&fleet).await?;
    }
    Ok(())
}

/// `/version` needs no authentication, and is answered without a quorum; and whether there is authentication is told to anybody.
#[tokio::test]
async fn every_minor_tells_the_cluster_version_and_whether_it_authenticates() -> Result<()> {
    for version in EtcdVersion::ALL {
        let fleet = Fleet::new(version).await?;
        let mut processes = fleet.bootstrap(2).await?;
        let decided = Version {
            patch: 0,
            ..fleet.number()
        };
        let client = fleet.client(0).await?;
        until("the cluster version is decided", LIMIT, || async {
            let told = client.cluster_version().await?;
            Ok(told.filter(|told| *told == decided))
        })
        .await?;
        assert!(!client.is_auth_enabled().await?, "{version:?}");
        // The oldest have the role only once it was added; the others refuse that.
        fleet.etcdctl(0, &["role", "add", "root"]).await?;
        for arguments in [
            &["user", "add", "root:correct horse"][..],
            &["user", "grant-role", "root", "root"],
            &["auth", "enable"],
        ] {
            let output = fleet.etcdctl(0, arguments).await?;
            ensure!(output.status.success(), "{version:?} {arguments:?}: {output:?}");
        }
        let refused = client.position().await.expect_err("there is no user");
        assert_eq!(refused.class(), Class::Unauthorised, "{version:?}: {refused}");
        assert_eq!(client.cluster_version().await?, Some(decided.clone()));
        assert!(client.is_auth_enabled().await?, "{version:?}");
        processes[1].kill();
        assert_eq!(client.cluster_version().await?, Some(decided), "{version:?}");
    }
    Ok(())
}

async fn downgrade_is_told(fleet: &Fleet) -> Result<()> {
    let number = fleet.number();
    let version = |minor| Version {
        minor,
        patch: 0,
        ..number.clone()
    };
    let (older, too_old) = (version(number.minor - 1), version(number.minor - 2));
    let member = fleet.client(0).await?;
    assert_eq!(member.status().await?.downgrade, Some(Downgrade::Disabled));
    let refused = member
        .validate_downgrade(&too_old)
        .await
        .expect_err("two minor versions");
    assert_eq!(refused.rejection(), Some(&Rejection::BadDowngradeTarget));
    member.validate_downgrade(&older).await?;
    assert_eq!(member.status().await?.downgrade, Some(Downgrade::Disabled));
    member.enable_downgrade(&older).await?;
    let refused = member.enable_downgrade(&older).await.expect_err("it is enabled");
    assert_eq!(refused.rejection(), Some(&Rejection::DowngradeEnabled));
    assert_eq!(
        member.status().await?.downgrade,
        Some(Downgrade::Enabled { target: Some(older) })
    );
    member.cancel_downgrade().await?;
    assert_eq!(member.status().await?.downgrade, Some(Downgrade::Disabled));
    Ok(())
}

#[tokio::test]
async fn members_have_one_hash_at_one_revision_and_positions_follow_writes() -> Result<()> {
    for version in EtcdVersion::ALL {
        let fleet = Fleet::new(version).await?;
        let _processes = fleet.bootstrap(3).await?;
        let before = fleet.client(0).await?.position().await?;
        assert!(fleet.etcdctl(0, &["put", "key", "value"]).await?.status.success());
        let written = Revision(before.revision.0 + 1);
        let mut hashes = Vec::new();
        for ordinal in 0..3 {
            let client = fleet.client(ordinal).await?;
            let position = client.position().await?;
            assert_eq!((position.revision, position.cluster), (written, before.cluster));
            let hash = client.hash_keys(Some(written), SLOW).await;
            if !Feature::HashKv.is_in(&fleet.number()) {
                let error = hash.expect_err("a refusal");
                assert_eq!(error.rejection(), Some(&Rejection::Unsupported), "{version:?}");
                continue;
            }
            let hash = hash?;
            assert_eq!(hash.position.member, position.member);
            let says_revision = Feature::HashRevision.is_in(&fleet.number());
            assert_eq!(hash.revision, says_revision.then_some(written), "{version:?}");
            hashes.push((hash.hash, hash.compacted));
            let future = client.hash_keys(Some(Revision(1000)), SLOW).await;
            let future = future.expect_err("a refusal");
            assert_eq!(future.rejection(), Some(&Rejection::FutureRevision));
        }
        hashes.dedup();
        assert!(hashes.len() <= 1, "{version:?}: {hashes:?}");
    }
    Ok(())
}

/// What the operator relies on before etcd 3.7: after so many entries a member has a snapshot of its log, and no key has changed.
#[tokio::test]
async fn entries_that_change_nothing_lead_to_a_snapshot_of_the_log() -> Result<()> {
    const COUNT: u64 = 200;
    for version in [EtcdVersion::V3_5_35, EtcdVersion::V3_6_16, EtcdVersion::V3_7_3] {
        let fleet = Fleet::new(version).await?;
        let mut config = fleet.config(0, FirstState::New, &[0]);
        config.tuning.snapshot_count = Some(COUNT);
        let snapshots = Path::new(&config.data_dir).join("member/snap");
        let mut process = fleet.start(config)?;
        let client = fleet.serving(0, &mut process).await?;
        let has_snapshot = || -> Result<bool> {
            let mut files = fs::read_dir(&snapshots)?;
            Ok(files
                .any(|file| file.is_ok_and(|file| file.path().extension().is_some_and(|end| end == "snap"))))
        };
        assert!(!has_snapshot()?, "{version:?}");
        let before = client.status().await?;
        client.write_log_entries(COUNT + 1).await?;
        let after = client.status().await?;
        assert_eq!(after.position.revision, before.position.revision, "{version:?}");
        assert!(
            after.raft_index.0 > before.raft_index.0 + COUNT,
            "{version:?}: {before:?} became {after:?}"
        );
        until("the snapshot is on the disk", LIMIT, || async {
            Ok(has_snapshot()?.then_some(()))
        })
        .await?;
    }
    Ok(())
}
