//! A restore to its end, back, and withdrawn.

use std::slice;
use std::time::Duration;

use etcd_operator_testkit::etcd::DataDir;
use etcd_operator_testkit::machine::MISREADING_REPOSITORY;
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, run};
use serde_json::json;

use super::asker::KEPT;
use super::{
    Asked, MEMBERS, cluster_id, corrupt, is_asked, is_back, is_back_when_withdrawn, serves, unreachable,
    written,
};
use crate::stories::{cluster_of, plan, status};
use crate::{MINUTE, SECOND};

#[test]
fn a_cluster_serves_the_snapshot_and_nothing_that_came_after() {
    for (seed, version) in [(1, "3.6.16"), (2, "3.7.3")] {
        run(seed, |sim| async move {
            let (asked, _writers) = written(&sim).await;
            sim.edit("c", |spec| spec["version"] = json!(version));
            let before = cluster_id(&sim);
            asked.ask();
            asked.served_by(3).await;
            assert_ne!(cluster_id(&sim), before);
            sim.expect("it is over, and nobody asks any more", MINUTE, |sim| {
                asked.phase() == "Finished" && !is_asked(sim)
            })
            .await;
            for member in MEMBERS {
                let pod = sim.fake().get_object("v1", "Pod", NAMESPACE, member).unwrap();
                assert!(
                    !pod.to_string().contains("\"fetch\""),
                    "{member} has what it fetched by"
                );
            }
            sim.check();
        });
    }
}

#[test]
fn old_data_are_kept_for_as_long_as_was_asked_and_no_longer() {
    run(4, |sim| async move {
        let (asked, _writers) = written(&sim).await;
        let before = cluster_id(&sim);
        asked.ask();
        sim.expect("it is committed", 10 * MINUTE, |_| {
            asked.progress()["committed"] == true
        })
        .await;
        let kept = Duration::try_from(KEPT).unwrap();
        tokio::time::sleep(kept.saturating_sub(MINUTE)).await;
        asked.served_by(3).await;
        for member in MEMBERS {
            let content = sim.snapshot(member).unwrap();
            let owners = content.kept.values().filter_map(DataDir::head);
            let owners: Vec<String> = owners.map(|head| head.cluster.to_string()).collect();
            assert_eq!(owners, *slice::from_ref(&before), "what {member} has kept");
        }
        tokio::time::sleep(5 * MINUTE).await;
        for member in MEMBERS {
            let content = sim.snapshot(member).unwrap();
            assert!(content.kept.is_empty() && content.restored.is_empty(), "{member}");
        }
        assert_eq!(sim.ledger().verify_all(NAMESPACE, "c").await, 3);
        sim.check();
    });
}

#[test]
fn a_backup_that_two_of_three_cannot_have_leaves_the_old_cluster_as_it_was() {
    for others in [["c-0", "c-1"], ["c-1", "c-2"]] {
        run(5, |sim| async move {
            let (asked, _writers) = written(&sim).await;
            let before = cluster_id(&sim);
            for member in others {
                corrupt(&sim, member);
            }
            asked.ask();
            asked.ends("RolledBack").await;
            is_back(&sim, &before).await;
        });
    }
}

#[test]
fn a_store_that_is_away_for_a_while_is_waited_for() {
    run(6, |sim| async move {
        let (asked, _writers) = written(&sim).await;
        for member in MEMBERS {
            unreachable(&sim, member);
        }
        asked.ask();
        tokio::time::sleep(5 * MINUTE).await;
        assert_eq!(asked.phase(), "Preparing");
        for member in MEMBERS {
            sim.machine().set_fetch_trouble(member, None);
        }
        asked.served_by(3).await;
        sim.check();
    });
}

#[test]
fn one_that_is_withdrawn_before_the_commit_leaves_the_old_cluster_as_it_was() {
    for seconds in [0, 2, 5, 9] {
        run(7, |sim| async move {
            let (asked, _writers) = written(&sim).await;
            is_back_when_withdrawn(&sim, &asked, "c-1", seconds).await;
        });
    }
}

#[test]
fn one_that_is_withdrawn_after_the_commit_goes_on_to_its_end() {
    run(8, |sim| async move {
        let (asked, _writers) = written(&sim).await;
        let before = cluster_id(&sim);
        asked.ask();
        sim.expect("it is committed", 10 * MINUTE, |_| {
            asked.progress()["committed"] == true
        })
        .await;
        asked.withdraw();
        sim.expect("it ends", 20 * MINUTE, |sim| {
            asked.phase() == "Finished" && sim.is_whole("c", 3)
        })
        .await;
        assert_ne!(cluster_id(&sim), before);
        let id = cluster_id(&sim).parse().unwrap();
        sim.ledger().expect_restored(NAMESPACE, "c", &asked.snapshot, id);
        assert_eq!(sim.ledger().verify_all(NAMESPACE, "c").await, 3);
        sim.check();
    });
}

#[test]
fn a_cluster_can_be_restored_again_after_it_was_and_after_it_was_rolled_back() {
    run(9, |sim| async move {
        let (first, _writers) = written(&sim).await;
        for member in ["c-1", "c-2"] {
            corrupt(&sim, member);
        }
        first.ask();
        first.ends("RolledBack").await;
        for member in ["c-1", "c-2"] {
            sim.machine().set_fetch_trouble(member, None);
        }
        tokio::time::sleep(MINUTE).await;
        let incarnation = |sim: &Simulation| status(sim)["incarnation"].as_i64().unwrap_or_default();
        let before = incarnation(&sim);
        for name in ["second", "third"] {
            let again = Asked::with(&sim, name, first.snapshot.clone());
            again.ask();
            again.served_by(3).await;
            tokio::time::sleep(MINUTE).await;
        }
        assert!(
            incarnation(&sim) >= before + 3,
            "an incarnation was used twice: {}",
            incarnation(&sim)
        );
        sim.check();
    });
}

/// Nobody runs any more who could tell what clients have seen, and the same backup lies far behind that.
#[test]
fn the_next_restore_goes_beyond_the_last_one_where_status_and_data_were_lost() {
    run(12, |sim| async move {
        let (first, writers) = written(&sim).await;
        first.ask();
        first.served_by(3).await;
        tokio::time::sleep(MINUTE).await;
        drop(writers);
        sim.lose_status("c");
        sim.expect("it is found again", MINUTE, |sim| {
            status(sim)["clusterID"].is_string()
        })
        .await;
        for member in MEMBERS {
            sim.wipe(member);
        }
        sim.expect("that is said", 6 * MINUTE, |sim| {
            plan(sim).contains("no data are left")
        })
        .await;
        let again = Asked::with(&sim, "again", first.snapshot.clone());
        again.ask();
        again.served_by(3).await;
        sim.check();
    });
}

#[test]
fn a_single_member_and_a_cluster_that_sleeps_are_restored_as_well() {
    run(10, |sim| async move {
        cluster_of(&sim, 1, "3.6.16").await;
        let writers = sim.write("c", 2, SECOND);
        tokio::time::sleep(10 * SECOND).await;
        let asked = Asked::of(&sim, "back");
        tokio::time::sleep(10 * SECOND).await;
        asked.ask();
        asked.served_by(1).await;
        let again = Asked::of(&sim, "again");
        drop(writers);
        sim.edit("c", |spec| spec["size"] = json!(0));
        sim.expect("it sleeps", 3 * MINUTE, |sim| sim.members("c").is_empty())
            .await;
        again.ask();
        sim.expect("it begins", MINUTE, |_| !again.phase().is_empty())
            .await;
        sim.edit("c", |spec| spec["size"] = json!(1));
        again.served_by(1).await;
        assert!(!plan(&sim).is_empty());
        sim.check();
    });
}

#[test]
fn a_member_that_was_not_prepared_in_time_joins_the_others_later() {
    run(11, |sim| async move {
        let (asked, _writers) = written(&sim).await;
        let before = cluster_id(&sim);
        unreachable(&sim, "c-2");
        asked.ask();
        tokio::time::sleep(9 * MINUTE).await;
        assert_ne!(asked.progress()["committed"], true, "a quorum is not enough yet");
        sim.expect("a quorum is enough", 3 * MINUTE, |_| {
            asked.progress()["committed"] == true
        })
        .await;
        asked.served_by(3).await;
        assert!(serves(&sim, "c-2").is_some_and(|id| id != before));
        sim.check();
    });
}

#[test]
fn one_during_a_stuck_rollout_starts_on_the_last_template_that_served() {
    run(21, |sim| async move {
        let (asked, _writers) = written(&sim).await;
        sim.edit("c", |spec| spec["repository"] = json!(MISREADING_REPOSITORY));
        sim.expect("a member is stuck with the change", 5 * MINUTE, |sim| {
            let blockers = status(sim)["plan"]["blockers"].clone();
            let mut blockers = blockers.as_array().into_iter().flatten();
            blockers.any(|blocker| blocker["reason"] == "TemplateNotServed")
        })
        .await;
        asked.ask();
        sim.expect("it is committed", 10 * MINUTE, |_| {
            asked.progress()["committed"] == true
        })
        .await;
        // What is still asked for would be rolled out again.
        sim.edit("c", |spec| {
            spec.as_object_mut().unwrap().remove("repository");
        });
        asked.served_by(3).await;
        sim.check();
    });
}
