//! Restoring in place with a real etcd: beside the old data, then in their place, or not at all.

use std::fs;

use anyhow::{Context, Result, ensure};
use etcd_operator_api::contract::{Mode, Permit, Report, RestoreTerms, Verdict};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_member::download::{self, Wanted};
use etcd_operator_member::volume::Volume;

use crate::pods::{LIMIT, Pod, permit};

const RESTORE: &str = "restore-1";
const OBJECT: &str = "00ff";

/// One of each minor.
const MINORS: [EtcdVersion; 6] = [
    EtcdVersion::V3_2_25,
    EtcdVersion::V3_3_27,
    EtcdVersion::V3_4_23,
    EtcdVersion::V3_5_35,
    EtcdVersion::V3_6_16,
    EtcdVersion::V3_7_3,
];

/// A permit of the restore.
fn restoring(report: &Report, mode: Mode, pod: &Pod) -> Permit {
    Permit {
        token: "restore-1/2".to_owned(),
        restore: Some(RestoreTerms {
            uid: RESTORE.to_owned(),
            object_sha256: OBJECT.to_owned(),
            revision_bump: 0,
            keep_seconds: 3600,
        }),
        ..permit(report, mode, &[pod.entry()])
    }
}

/// A member with a key that a snapshot has and one that it has not; it has stopped, and the snapshot is on its volume.
async fn stopped(version: EtcdVersion) -> Result<Pod> {
    let mut pod = Pod::new("c-0", version)?;
    pod.bootstrap().await?;
    pod.put("before", "there").await?;
    let file = pod.bed.path().join("snapshot.db");
    let saved = pod
        .etcdctl(&["snapshot", "save", &file.display().to_string()])
        .await?;
    ensure!(saved.status.success(), "{saved:?}");
    pod.put("after", "there").await?;
    pod.stop(LIMIT).await?;
    let volume = Volume::at(pod.volume());
    let wanted = Wanted {
        restore_uid: RESTORE.to_owned(),
        incarnation: 2,
        object_sha256: OBJECT.to_owned(),
        snapshot_size: fs::metadata(&file)?.len(),
        cluster_uid: None,
    };
    download::begin(&volume, &wanted)?;
    fs::copy(&file, volume.snapshot())?;
    download::end(&volume, &wanted)?;
    Ok(pod)
}

fn is_prepared(report: &Report) -> bool {
    matches!(&report.verdict, Verdict::Prepared { restore_uid, .. } if restore_uid == RESTORE)
}

/// The same member in a pod of the next incarnation, with what was restored beside its data.
async fn prepared(pod: &mut Pod) -> Result<Report> {
    pod.incarnation = 2;
    pod.start().await?;
    let report = pod.reported("it waits", |_| true).await?;
    ensure!(
        report.verdict == Verdict::OtherIncarnation { found: 1 },
        "{report:?}"
    );
    ensure!(report.fetched.as_deref() == Some(RESTORE), "{report:?}");
    let permit = restoring(&report, Mode::Prepare, pod);
    pod.permit(&permit)?;
    pod.reported("it is restored beside the data", is_prepared).await
}

#[tokio::test]
async fn what_was_there_goes_when_its_time_is_over_while_the_member_serves() -> Result<()> {
    let mut pod = stopped(MINORS[0]).await?;
    let report = prepared(&mut pod).await.with_context(|| pod.logged())?;
    let Verdict::Prepared {
        cluster_id,
        member_id,
        ..
    } = report.verdict.clone()
    else {
        unreachable!("it was waited for");
    };
    let mut swap = restoring(&report, Mode::Swap, &pod);
    (swap.cluster_id, swap.member_id) = (cluster_id, member_id);
    swap.restore = swap.restore.map(|terms| RestoreTerms {
        keep_seconds: 5,
        ..terms
    });
    pod.permit(&swap)?;
    pod.serving().await?;
    until("what was set aside is gone", LIMIT, || {
        let names = pod.names();
        async move { Ok((names? == ["data", "operator"]).then_some(())) }
    })
    .await?;
    ensure!(pod.get("before").await? == "there");
    Ok(())
}

#[tokio::test]
async fn what_every_minor_restores_is_put_in_place_and_what_was_there_is_kept() -> Result<()> {
    for version in MINORS {
        let mut pod = stopped(version).await?;
        let report = prepared(&mut pod).await.with_context(|| pod.logged())?;
        let Verdict::Prepared {
            cluster_id,
            member_id,
            ..
        } = report.verdict.clone()
        else {
            unreachable!("it was waited for");
        };
        ensure!(
            pod.names()? == ["data", "operator", "restored-restore-1"],
            "{:?}",
            pod.names()
        );
        ensure!(
            report.preparing.is_none() && report.fetched.is_none(),
            "{report:?}"
        );
        // Another restore's permit is refused in words.
        let mut other = restoring(&report, Mode::Swap, &pod);
        (other.cluster_id, other.member_id) = (cluster_id.clone(), member_id.clone());
        other.restore = Some(RestoreTerms {
            uid: "restore-2".to_owned(),
            object_sha256: OBJECT.to_owned(),
            ..RestoreTerms::default()
        });
        pod.permit(&other)?;
        let refused = |report: &Report| report.detail.contains("it is for restore restore-2");
        let report = pod.reported("it refuses another restore", refused).await?;
        let mut swap = restoring(&report, Mode::Swap, &pod);
        (swap.cluster_id, swap.member_id) = (cluster_id.clone(), member_id);
        pod.permit(&swap)?;
        let client = pod.serving().await?;
        let position = client.status().await?.position;
        ensure!(
            Some(position.cluster.to_string()) == cluster_id,
            "{version:?}: {position:?}"
        );
        ensure!(pod.get("before").await? == "there", "{version:?}");
        ensure!(pod.get("after").await?.is_empty(), "{version:?}");
        ensure!(
            pod.names()? == ["data", "kept-1-1", "operator"],
            "{:?}",
            pod.names()
        );
        ensure!(pod.identity()?.incarnation == 2);
        // A permit that was used starts nothing again, and needs not: the disk is whole.
        pod.stop(LIMIT).await?;
        pod.start().await?;
        pod.serving().await?;
        ensure!(pod.get("before").await? == "there", "{version:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_restore_that_is_given_up_leaves_the_old_data_and_nothing_else() -> Result<()> {
    let mut pod = stopped(EtcdVersion::V3_6_16).await?;
    prepared(&mut pod).await?;
    pod.stop(LIMIT).await?;
    pod.incarnation = 1;
    pod.start().await?;
    pod.serving().await?;
    ensure!(pod.get("after").await? == "there");
    ensure!(pod.names()? == ["data", "operator"], "{:?}", pod.names());
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_restored_is_told_and_touches_nothing() -> Result<()> {
    let mut pod = stopped(EtcdVersion::V3_6_16).await?;
    // A snapshot that changed on the disk: etcd's own program finds it.
    let snapshot = Volume::at(pod.volume()).snapshot();
    let mut bytes = fs::read(&snapshot)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&snapshot, bytes)?;
    pod.incarnation = 2;
    pod.start().await?;
    let report = pod.reported("it waits", |_| true).await?;
    pod.permit(&restoring(&report, Mode::Prepare, &pod))?;
    let has_failed = |report: &Report| {
        let failure = report
            .preparing
            .as_ref()
            .and_then(|preparing| preparing.failure.as_ref());
        failure.is_some_and(|failure| failure.reason == "ToolFailed" && !failure.retriable)
    };
    let report = pod.reported("it tells why not", has_failed).await?;
    ensure!(
        report.verdict == Verdict::OtherIncarnation { found: 1 },
        "{report:?}"
    );
    ensure!(
        pod.names()? == ["data", "operator", "restore"],
        "{:?}",
        pod.names()
    );
    pod.stop(LIMIT).await?;
    pod.incarnation = 1;
    pod.start().await?;
    pod.serving().await?;
    ensure!(pod.get("after").await? == "there");
    Ok(())
}
