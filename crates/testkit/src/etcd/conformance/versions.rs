//! Versions: what members agree on, and which versions start on that.

use std::time::Duration;

use etcd_operator_etcd::flags::FirstState;
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_etcd::version::Version;

use super::Bed;

/// The cluster version of members that all run this version.
fn agreed(version: &Version) -> Version {
    Version {
        patch: 0,
        pre: String::new(),
        ..version.clone()
    }
}

async fn cluster_version(bed: &dyn Bed, number: u8) -> Option<Version> {
    bed.patiently("the cluster version is told", || async {
        bed.dial(number).await?.cluster_version().await
    })
    .await
}

async fn agrees(bed: &dyn Bed, number: u8, version: &Version) {
    bed.eventually("the members agree on the cluster version", || async {
        (cluster_version(bed, number).await == Some(agreed(version))).then_some(())
    })
    .await;
}

/// Replaces the program of a member that runs.
async fn replace(bed: &dyn Bed, number: u8, version: &Version) {
    bed.kill(number);
    bed.start_on(number, version, None);
    bed.serving(number).await;
}

pub(super) async fn the_cluster_version_is_that_of_members_that_all_answer(bed: &dyn Bed) {
    let founders = || Some(bed.first(FirstState::New, &[0, 1, 2]));
    bed.start(0, founders());
    bed.start(1, founders());
    bed.serving(0).await;
    agrees(bed, 0, &"3.0.0".parse().expect("a version")).await;
    bed.start(2, founders());
    for number in 0..3 {
        bed.serving(number).await;
        agrees(bed, number, &bed.version()).await;
    }
    bed.kill(1);
    bed.kill(2);
    assert_eq!(cluster_version(bed, 0).await, Some(agreed(&bed.version())));
}

pub(super) async fn a_minor_upgrade_can_be_reversed_until_the_last_member_runs_it(bed: &dyn Bed) {
    let (own, next) = (bed.version(), bed.next_minor());
    bed.bootstrap(3).await;
    agrees(bed, 0, &own).await;
    replace(bed, 0, &next).await;
    replace(bed, 1, &next).await;
    bed.write(1, "key", "value").await;
    // The leader's monitor compares the versions more than once meanwhile.
    tokio::time::sleep(Duration::from_secs(9)).await;
    for number in 0..3 {
        assert_eq!(cluster_version(bed, number).await, Some(agreed(&own)), "{number}");
    }
    replace(bed, 0, &own).await;
    assert_eq!(bed.get(0, "key").await.as_deref(), Some("value"));
    replace(bed, 0, &next).await;
    replace(bed, 2, &next).await;
    for number in 0..3 {
        agrees(bed, number, &next).await;
    }
    bed.kill(0);
    bed.start(0, None);
    // 3.6 panics where the cluster version is still in the log alone; others end with an error.
    assert_ne!(bed.ends(0).await, 0, "it is older than the cluster version");
    bed.start_on(0, &next, None);
    bed.serving(0).await;
    assert_eq!(bed.get(0, "key").await.as_deref(), Some("value"));
}

pub(super) async fn a_join_on_an_older_minor_fails(bed: &dyn Bed) {
    let next = bed.next_minor();
    bed.start_on(0, &next, Some(bed.first(FirstState::New, &[0])));
    bed.serving(0).await;
    agrees(bed, 0, &next).await;
    bed.settle().await;
    let port = bed.dial(0).await.expect("it serves");
    let url = [bed.peer_url(1)];
    bed.patiently("a voter is added", || port.add_voter(&url)).await;
    let join = || Some(bed.first(FirstState::Existing, &[0, 1]));
    bed.start(1, join());
    // 3.6 panics on the log of 3.7; others end with an error.
    assert_ne!(bed.ends(1).await, 0, "it is older than the cluster version");
    bed.start_on(1, &next, join());
    bed.serving(1).await;
}

pub(super) async fn a_version_two_minors_above_panics_on_the_log(bed: &dyn Bed) {
    bed.bootstrap(1).await;
    agrees(bed, 0, &bed.version()).await;
    bed.kill(0);
    bed.start_on(0, &"3.7.3".parse().expect("a version"), None);
    assert_eq!(bed.ends(0).await, 2, "it cannot read an entry of the log");
    replace(bed, 0, &bed.next_minor()).await;
}

pub(super) async fn a_version_two_minors_above_needs_a_snapshot_of_the_log(bed: &dyn Bed) {
    bed.bootstrap(1).await;
    agrees(bed, 0, &bed.version()).await;
    let (next, last) = (bed.next_minor(), "3.7.3".parse().expect("a version"));
    replace(bed, 0, &next).await;
    agrees(bed, 0, &next).await;
    bed.kill(0);
    bed.start_on(0, &last, None);
    assert_eq!(
        bed.ends(0).await,
        2,
        "it reads the log from before the member between"
    );
    replace(bed, 0, &next).await;
    bed.write(0, "key", "value").await;
    let port = bed.dial(0).await.expect("it serves");
    for _ in 0..11 {
        assert!(
            port.write_log_entries(1_000).await.is_ok(),
            "the log takes entries"
        );
    }
    replace(bed, 0, &last).await;
    agrees(bed, 0, &last).await;
    assert_eq!(bed.get(0, "key").await.as_deref(), Some("value"));
}

pub(super) async fn members_are_downgraded_by_request(bed: &dyn Bed) {
    let (own, next) = (bed.version(), bed.next_minor());
    for number in 0..3 {
        bed.start_on(number, &next, Some(bed.first(FirstState::New, &[0, 1, 2])));
    }
    for number in 0..3 {
        bed.serving(number).await;
        agrees(bed, number, &next).await;
    }
    bed.write(0, "key", "value").await;
    let port = bed.dial(0).await.expect("it serves");
    assert_eq!(
        port.cancel_downgrade().await.map_err(|error| error.to_string()),
        Ok(()),
        "none is enabled"
    );
    bed.patiently("it can be downgraded", || port.validate_downgrade(&own))
        .await;
    bed.patiently("the downgrade is enabled", || port.enable_downgrade(&own))
        .await;
    let refused = port.validate_downgrade(&own).await.expect_err("it is enabled");
    assert_eq!(refused.rejection(), Some(&Rejection::DowngradeEnabled));
    for number in 0..3 {
        agrees(bed, number, &own).await;
        bed.eventually("the files are lowered", || async {
            let status = bed.dial(number).await.ok()?.status().await.ok()?;
            (status.storage_version == Some(agreed(&own).to_string())).then_some(())
        })
        .await;
    }
    // What is told is on the disk a moment later.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for number in 0..3 {
        replace(bed, number, &own).await;
        agrees(bed, number, &own).await;
    }
    assert_eq!(bed.get(2, "key").await.as_deref(), Some("value"));
}
