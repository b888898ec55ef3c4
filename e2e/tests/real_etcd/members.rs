//! Reading and changing members, on every minor, with and without learners.

use anyhow::{Context, Result};
use etcd_operator_e2e::components::EtcdVersion;
use etcd_operator_e2e::deadline::until;
use etcd_operator_etcd::error::{Cause, Class, Error};
use etcd_operator_etcd::flags::FirstState;
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::{Membership, Role, Unknown};
use etcd_operator_etcd::policy::{Feature, connected_to_add};
use etcd_operator_etcd::rejection::Rejection;

use crate::etcds::{Fleet, LIMIT, Process};

/// One of each minor, and the last patches on both sides of a change of rules.
const MINORS: [EtcdVersion; 6] = [
    EtcdVersion::V3_2_25,
    EtcdVersion::V3_3_27,
    EtcdVersion::V3_4_23,
    EtcdVersion::V3_5_35,
    EtcdVersion::V3_6_16,
    EtcdVersion::V3_7_3,
];

fn rejection<T: std::fmt::Debug>(outcome: Result<T, Error>) -> Rejection {
    match outcome {
        Err(error) => error.rejection().cloned().unwrap_or_else(|| panic!("{error}")),
        Ok(done) => panic!("not refused: {done:?}"),
    }
}

/// An ID is made from peer URLs, token and second: added twice within one second, it is the ID that exists.
fn is_there_already(rejection: &Rejection) -> bool {
    matches!(rejection, Rejection::PeerUrlExists | Rejection::MemberExists)
}

/// Asks again while etcd asks for patience: members must have been connected for five seconds before a change.
async fn patiently<T, F, Fut>(what: &str, ask: F) -> Result<T>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<T, Error>>,
{
    until(what, LIMIT, || async {
        match ask().await {
            Ok(done) => Ok(Some(done)),
            Err(error) if error.class() == Class::Waiting => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

async fn three(version: EtcdVersion) -> Result<(Fleet, Vec<Process>, u8)> {
    cluster(version, 3).await
}

/// A cluster, with the ordinal of its leader.
async fn cluster(version: EtcdVersion, size: u8) -> Result<(Fleet, Vec<Process>, u8)> {
    let fleet = Fleet::new(version).await?;
    let processes = fleet.bootstrap(size).await?;
    let known = fleet.known(0).await?;
    let leader = known.leader.context("no leader")?;
    let leader = (0..size)
        .find(|&ordinal| {
            known
                .at(&fleet.peer_url(ordinal))
                .is_some_and(|member| member.id == leader)
        })
        .context("the leader is no member")?;
    Ok((fleet, processes, leader))
}

#[tokio::test]
async fn every_member_of_every_minor_reads_the_same_members() -> Result<()> {
    for version in MINORS {
        let (fleet, _processes, _) = three(version).await?;
        let first = fleet.known(0).await?;
        assert_eq!(
            (first.voters().count(), first.learners().count(), first.quorum()),
            (3, 0, 2)
        );
        for ordinal in 0..3 {
            let known = fleet.known(ordinal).await?;
            assert_eq!((known.cluster, &known.members), (first.cluster, &first.members));
            let reader = known.at(&fleet.peer_url(ordinal)).context("not a member")?;
            assert_eq!(known.reader, reader.id, "{version:?}");
            assert_eq!(reader.name.as_deref(), Some(format!("c-{ordinal}").as_str()));
            assert_eq!(reader.client_urls, [fleet.client_url(ordinal)]);
            assert_eq!(known.version, fleet.number());
            assert!(known.raft_index.0 > 0 && known.term.0 > 0);
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_minority_knows_nothing_although_it_would_still_show_a_list() -> Result<()> {
    for version in MINORS {
        let (fleet, mut processes, _) = three(version).await?;
        processes.truncate(1);
        let client = fleet.client(0).await?;
        let why = match client.membership().await {
            Membership::Unknown(Unknown::Failed(error)) => error,
            other => panic!("{version:?}: {other:?}"),
        };
        assert_eq!((why.call, why.class()), ("Range", Class::Transient), "{why}");
        assert_eq!(
            client.status().await?.version,
            fleet.number(),
            "it still says how it is"
        );
        client.local_position().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_learner_joins_is_refused_until_it_is_in_sync_and_then_votes() -> Result<()> {
    for version in MINORS
        .into_iter()
        .filter(|version| *version >= EtcdVersion::V3_4_23)
    {
        let fleet = Fleet::new(version).await?;
        let _first = fleet.bootstrap(1).await?;
        let leader = fleet.client(0).await?;
        let url = [fleet.peer_url(1)];
        let added = patiently("a learner is added", || leader.add_learner(&url)).await?;
        assert_eq!(
            (added.member.role, added.member.has_started()),
            (Role::Learner, false)
        );
        let id = added.member.id;

        let known = fleet.known(0).await?;
        assert_eq!(known.at(&url[0]).map(|member| member.id), Some(id));
        assert_eq!(
            (known.voters().count(), known.learners().count(), known.quorum()),
            (1, 1, 1)
        );

        assert!(is_there_already(&rejection(leader.add_learner(&url).await)));
        let another = [fleet.peer_url(2)];
        assert_eq!(
            rejection(leader.add_learner(&another).await),
            Rejection::TooManyLearners
        );
        assert_eq!(rejection(leader.promote(id).await), Rejection::LearnerNotReady);
        assert_eq!(
            rejection(leader.promote(known.reader).await),
            Rejection::NotALearner
        );

        let _second = fleet.start(fleet.config(1, FirstState::Existing, &[0, 1]))?;
        let learner = until("the learner answers", LIMIT, || async {
            let Ok(client) = fleet.client(1).await else {
                return Ok(None);
            };
            Ok(client.status().await.is_ok().then_some(client))
        })
        .await?;
        assert!(learner.status().await?.is_learner);
        assert!(matches!(
            learner.membership().await,
            Membership::Unknown(Unknown::ReaderIsLearner(_))
        ));
        assert_eq!(rejection(learner.position().await), Rejection::NotForLearners);
        let members = patiently("the learner is promoted", || leader.promote(id)).await?;
        assert_eq!(members[&id].role, Role::Voter);
        assert_eq!(fleet.known(0).await?.quorum(), 2);
        // It hears of its own vote a moment later, and until then is no reader.
        until("the new voter reads", LIMIT, || async {
            Ok(fleet.known(1).await.ok().filter(|known| known.quorum() == 2))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_version_without_learners_is_never_asked_for_one() -> Result<()> {
    for version in [EtcdVersion::V3_2_25, EtcdVersion::V3_3_27] {
        let fleet = Fleet::new(version).await?;
        let _process = fleet.bootstrap(1).await?;
        let client = fleet.client(0).await?;
        let url = [fleet.peer_url(1)];
        let error = client.add_learner(&url).await.expect_err("a refusal");
        assert!(matches!(error.cause, Cause::Unsupported { .. }), "{error}");
        assert_eq!(
            (error.class(), error.may_have_been_done()),
            (Class::Unsupported, false)
        );
        assert_eq!(fleet.known(0).await?.members.len(), 1, "{version:?}");
        let own = fleet.known(0).await?.reader;
        assert_eq!(rejection(client.promote(own).await), Rejection::Unsupported);
    }
    Ok(())
}

#[tokio::test]
async fn a_voter_is_added_takes_another_address_and_is_removed() -> Result<()> {
    for version in MINORS {
        let fleet = Fleet::new(version).await?;
        let _process = fleet.bootstrap(1).await?;
        let client = fleet.client(0).await?;
        let added = patiently("a voter is added", || async {
            client.add_voter(&[fleet.peer_url(1)]).await
        })
        .await?;
        assert_eq!(
            (added.member.role, added.member.has_started()),
            (Role::Voter, false)
        );
        // Two voters, one of which never started: nothing can be agreed until it does.
        let mut second = fleet.start(fleet.config(1, FirstState::Existing, &[0, 1]))?;
        fleet.serving(1, &mut second).await?;

        let existing = patiently("the same address is refused", || async {
            match client.add_voter(&[fleet.peer_url(1)]).await {
                Err(error) if error.rejection().is_some_and(is_there_already) => Ok(()),
                other => other.map(|added| panic!("{added:?}")),
            }
        });
        existing.await?;
        let nobody = MemberId::new(7).context("an ID")?;
        assert_eq!(rejection(client.remove(nobody).await), Rejection::MemberNotFound);
        let member = fleet.known(0).await?.members[&added.member.id].clone();
        let moved = [fleet.peer_url(9)];
        let members = client.update(&member, &moved).await?;
        assert!(
            members.is_empty() || members[&member.id].is_at(&moved[0]),
            "{version:?}"
        );
        assert!(fleet.known(0).await?.at(&moved[0]).is_some());
        client.update(&member, &member.peer_urls).await?;
        patiently("the voter is removed", || client.remove(member.id)).await?;
        assert_eq!(
            rejection(client.remove(member.id).await),
            Rejection::MemberNotFound
        );
        let known = fleet.known(0).await?;
        assert_eq!((known.members.len(), known.quorum()), (1, 1));
    }
    Ok(())
}

#[tokio::test]
async fn while_a_voter_is_down_a_member_is_added_only_where_enough_others_are_connected() -> Result<()> {
    for (version, size) in [
        (EtcdVersion::V3_2_25, 3),
        (EtcdVersion::V3_4_23, 3),
        (EtcdVersion::V3_5_21, 5),
        (EtcdVersion::V3_5_35, 3),
        (EtcdVersion::V3_5_35, 5),
        (EtcdVersion::V3_6_16, 3),
        (EtcdVersion::V3_6_16, 5),
        (EtcdVersion::V3_7_3, 5),
    ] {
        let (fleet, mut processes, leader) = cluster(version, size).await?;
        let down = (leader + 1) % size;
        let lost = fleet
            .known(leader)
            .await?
            .at(&fleet.peer_url(down))
            .context("gone")?
            .id;
        let client = fleet.client(leader).await?;
        drop(processes.remove(usize::from(down)));
        let url = [fleet.peer_url(9)];
        let add = || async {
            if Feature::Learners.is_in(&fleet.number()) {
                client.add_learner(&url).await
            } else {
                client.add_voter(&url).await
            }
        };
        let voters = usize::from(size);
        if voters > connected_to_add(&fleet.number(), voters) {
            let added = patiently("a learner is added", add).await?;
            patiently("the learner is removed", || client.remove(added.member.id)).await?;
        } else {
            let refused = rejection(add().await);
            assert_eq!(refused, Rejection::Unhealthy, "{version:?} with {size}");
        }
        patiently("the lost voter is removed", || client.remove(lost)).await?;
        assert!(!fleet.known(leader).await?.members.contains_key(&lost));
    }
    Ok(())
}

#[tokio::test]
async fn leadership_is_moved_by_the_leader_alone() -> Result<()> {
    for version in MINORS {
        let (fleet, _processes, leader) = three(version).await?;
        let follower = (leader + 1) % 3;
        let known = fleet.known(leader).await?;
        let to = known.at(&fleet.peer_url(follower)).context("gone")?.id;
        let from = fleet.client(leader).await?;
        if !Feature::MoveLeader.is_in(&fleet.number()) {
            assert_eq!(rejection(from.move_leader(to).await), Rejection::Unsupported);
            continue;
        }
        let elsewhere = fleet.client(follower).await?;
        assert_eq!(rejection(elsewhere.move_leader(to).await), Rejection::NotLeader);
        from.move_leader(to).await?;
        until("it leads", LIMIT, || async {
            let known = fleet.known(leader).await.ok();
            Ok(known.filter(|known| known.leader == Some(to)))
        })
        .await?;
    }
    Ok(())
}
