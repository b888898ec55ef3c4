//! Joining: by whom a member is let in, and when it is not, on versions with and without learners, with and without
//! TLS.

use std::fs;

use anyhow::{Context, Result};
use etcd_operator_api::contract::{Mode, Permit, Report, Verdict};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_e2e::pki::Authority;
use etcd_operator_etcd::client::Added;
use etcd_operator_etcd::error::Class;
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::policy::Feature;
use etcd_operator_etcd::port::Port;
use etcd_operator_etcd::rejection::Rejection;

use crate::pods::{Files, LIMIT, Pod, permit};

/// Gives the second member a place beside the first.
async fn place(client: &dyn Port, pod: &Pod) -> Result<Added> {
    let url = [pod.peer_url().parse()?];
    until("the member has a place", LIMIT, || async {
        let added = if Feature::Learners.is_in(&pod.number()) {
            client.add_learner(&url).await
        } else {
            client.add_voter(&url).await
        };
        match added {
            Ok(added) => Ok(Some(added)),
            Err(error) if error.class() == Class::Waiting => Ok(None),
            // An ID is made from URL, token and second: within one second it is that of the member removed before.
            Err(error) if error.rejection() == Some(&Rejection::MemberNotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

fn join(report: &Report, added: &Added, members: &[&Pod]) -> Permit {
    let members: Vec<String> = members.iter().map(|pod| pod.entry()).collect();
    Permit {
        cluster_id: Some(added.position.cluster.to_string()),
        member_id: Some(added.member.id.to_string()),
        ..permit(report, Mode::Join, &members)
    }
}

async fn promote(client: &dyn Port, learner: MemberId) -> Result<()> {
    until("the learner is promoted", LIMIT, || async {
        match client.promote(learner).await {
            Ok(_) => Ok(Some(())),
            Err(error) if error.class() == Class::Waiting => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

/// A member joins, is no longer let in once it has started, and is a voter that is ready in the end.
async fn play(mut first: Pod, mut second: Pod) -> Result<()> {
    let version = first.version;
    let leader = first.bootstrap().await?;
    first.put("key", "value").await?;
    second.start().await?;
    let waiting = second.reported("it waits", |_| true).await?;
    let nobody = Added {
        member: etcd_operator_etcd::membership::Member {
            id: MemberId::new(7).context("an ID")?,
            name: None,
            peer_urls: Vec::new(),
            client_urls: Vec::new(),
            role: etcd_operator_etcd::membership::Role::Learner,
        },
        position: leader.position().await?,
    };
    second.permit(&join(&waiting, &nobody, &[&first, &second]))?;
    let words = "member 7 is not among the members";
    second
        .reported(words, |report| report.detail.contains(words))
        .await?;
    assert_eq!(second.names()?, [""; 0], "{version:?}");

    let added = place(leader.as_ref(), &second).await?;
    let report = second.reported("it waits", |_| true).await?;
    second.permit(&join(&report, &added, &[&first, &second]))?;
    let has_learners = Feature::Learners.is_in(&second.number());
    if has_learners {
        until("the learner answers", LIMIT, || async {
            Ok(second.report().await?.is_none().then_some(()))
        })
        .await?;
        promote(leader.as_ref(), added.member.id).await?;
    }
    second.serving().await?;
    assert!(second.ready().await?, "{version:?}");
    let identity = second.identity()?;
    assert_eq!(
        identity.member_id,
        Some(added.member.id.to_string()),
        "{version:?}"
    );
    assert_eq!(
        identity.cluster_id,
        Some(added.position.cluster.to_string()),
        "{version:?}"
    );

    second.kill();
    second.wipe()?;
    second.start().await?;
    let report = second
        .reported("it waits", |report| report.process != waiting.process)
        .await?;
    assert_eq!(report.verdict, Verdict::Empty);
    second.permit(&join(&report, &added, &[&first, &second]))?;
    // With its voter gone the pair has no quorum, and nobody can tell; without learners its own list must do.
    let words = if has_learners {
        "the permit waits"
    } else {
        "has started before"
    };
    second
        .reported(words, |report| report.detail.contains(words))
        .await?;
    assert!(!second.is_etcd()? && second.names()?.is_empty(), "{version:?}");
    Ok(())
}

#[tokio::test]
async fn on_every_version_a_member_joins_once_and_never_again_on_an_empty_disk() -> Result<()> {
    for version in EtcdVersion::ALL {
        let first = Pod::new("c-0", version)?;
        let second = Pod::beside(&first, "c-1")?;
        play(first, second).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_learner_that_started_is_not_let_in_again_and_is_not_ready() -> Result<()> {
    for version in [EtcdVersion::V3_4_23, EtcdVersion::V3_7_3] {
        let mut first = Pod::new("c-0", version)?;
        let mut second = Pod::beside(&first, "c-1")?;
        let leader = first.bootstrap().await?;
        let added = place(leader.as_ref(), &second).await?;
        second.start().await?;
        let report = second.reported("it waits", |_| true).await?;
        second.permit(&join(&report, &added, &[&first, &second]))?;
        until("the learner has started", LIMIT, || async {
            let members = leader.membership().await;
            let started = members
                .known()
                .and_then(|known| known.members.get(&added.member.id).cloned());
            Ok(started.filter(etcd_operator_etcd::membership::Member::has_started))
        })
        .await?;
        assert!(!second.ready().await?, "{version:?}: a learner");
        assert!(first.ready().await?, "{version:?}: a voter");
        second.kill();
        second.wipe()?;
        second.start().await?;
        let again = second
            .reported("it waits", |again| again.process != report.process)
            .await?;
        second.permit(&join(&again, &added, &[&first, &second]))?;
        let words = "has started before";
        second
            .reported(words, |report| report.detail.contains(words))
            .await?;
        assert!(second.names()?.is_empty(), "{version:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_a_failed_join_left_is_set_aside_for_the_next() -> Result<()> {
    let version = EtcdVersion::V3_5_21;
    let mut first = Pod::new("c-0", version)?;
    let mut second = Pod::beside(&first, "c-1")?;
    let leader = first.bootstrap().await?;
    let added = place(leader.as_ref(), &second).await?;
    second.start().await?;
    let report = second.reported("it waits", |_| true).await?;
    second.permit(&join(&report, &added, &[&first, &second]))?;
    until("it became etcd", LIMIT, || async {
        Ok(second.is_etcd()?.then_some(()))
    })
    .await?;
    second.kill();
    // As if it had been killed before its log was there.
    let wal = second.volume().join("data/member/wal");
    if wal.exists() {
        fs::remove_dir_all(wal)?;
    }
    fs::create_dir_all(second.volume().join("data/member/snap"))?;
    leader.remove(added.member.id).await?;
    let added = place(leader.as_ref(), &second).await?;
    second.start().await?;
    let again = second
        .reported("it waits", |again| again.process != report.process)
        .await?;
    assert_eq!(again.verdict, Verdict::Unborn, "{}", again.detail);
    second.permit(&join(&again, &added, &[&first, &second]))?;
    promote(leader.as_ref(), added.member.id).await?;
    second.serving().await?;
    assert_eq!(second.names()?, ["data", "kept-1-1", "operator"]);
    Ok(())
}

fn certificates(pod: &Pod) -> Result<Files> {
    let authority = Authority::new()?;
    let own = authority.peer("member", &["127.0.0.1", "127.0.0.2"])?;
    Ok(Files {
        authority: pod.bed.write("ca.pem", authority.certificate())?,
        certificate: pod.bed.write("own.pem", own.certificate)?,
        key: pod.bed.write("own.key", own.key)?,
    })
}

#[tokio::test]
async fn peers_that_show_and_want_certificates_are_asked_with_them() -> Result<()> {
    let version = EtcdVersion::V3_6_16;
    let mut first = Pod::new("c-0", version)?;
    first.tls = Some(certificates(&first)?);
    let mut second = Pod::beside(&first, "c-1")?;
    let leader = first.bootstrap().await?;
    let added = place(leader.as_ref(), &second).await?;
    second.start().await?;
    let report = second.reported("it waits", |_| true).await?;
    second.permit(&join(&report, &added, &[&first, &second]))?;
    promote(leader.as_ref(), added.member.id).await?;
    second.serving().await?;
    assert!(second.ready().await?);
    Ok(())
}
