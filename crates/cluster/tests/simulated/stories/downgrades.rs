//! Members that are downgraded by one minor version, while clients write.

use etcd_operator_testkit::gate::Side;
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, run};
use serde_json::json;

use super::upgrades::{arrives, ends_well, minors, rolled_out};
use super::{cluster_of, status};
use crate::{MINUTE, SECOND};

/// What etcd says when it does not start on its files, or does not join, for its version.
const REFUSALS: [&str; 3] = ["is not supported", "invalid downgrade", "incompatible with"];

/// The user consents to a downgrade and asks for a lower version.
fn lowers(sim: &Simulation, version: &str) {
    sim.edit("c", |spec| {
        spec["version"] = json!(version);
        spec["updates"]["allowDowngrade"] = json!(true);
    });
}

/// No member was ever started with a version that etcd refuses.
fn refused_nobody(sim: &Simulation) {
    let record = sim.timeline().text();
    let mut lines = record.lines();
    let refused = lines.find(|line| REFUSALS.iter().any(|refusal| line.contains(refusal)));
    assert_eq!(refused, None, "{record}");
}

/// The version in the pod template.
fn template(sim: &Simulation) -> String {
    let set = sim.fake().get_object("apps/v1", "StatefulSet", NAMESPACE, "c");
    let containers = set.map(|set| set["spec"]["template"]["spec"]["containers"].clone());
    let image = containers
        .as_ref()
        .and_then(|containers| containers[0]["image"].as_str());
    let (_, tag) = image.and_then(|image| image.rsplit_once(':')).unwrap_or_default();
    tag.trim_start_matches('v').to_owned()
}

async fn template_is(sim: &Simulation, version: &str) {
    sim.expect("the template has changed", 5 * MINUTE, |sim| {
        template(sim) == version
    })
    .await;
}

fn id_of(sim: &Simulation, number: usize) -> String {
    status(sim)["memberStatus"][number]["id"].to_string()
}

#[test]
fn members_go_down_one_minor_version_and_keep_their_volumes() {
    for (seed, (size, from, to)) in [
        (1, "3.7.3", "3.6.16"),
        (3, "3.7.3", "3.6.16"),
        (3, "3.6.16", "3.5.35"),
        (3, "3.7.1", "3.6.16"),
        (5, "3.6.16", "3.5.35"),
    ]
    .into_iter()
    .enumerate()
    {
        run(40 + u64::try_from(seed).unwrap(), |sim| async move {
            cluster_of(&sim, size, from).await;
            let _writers = sim.write("c", 2, SECOND);
            let claims = super::claims(&sim);
            lowers(&sim, to);
            arrives(&sim, size, to).await;
            assert_eq!(super::claims(&sim), claims);
            refused_nobody(&sim);
            // A new member can join again when etcd has ended the downgrade.
            sim.edit("c", |spec| spec["size"] = json!(size + 1));
            sim.expect("it is whole with one more", 10 * MINUTE, |sim| {
                sim.is_whole("c", size + 1)
            })
            .await;
            ends_well(&sim).await;
        });
    }
}

#[test]
fn a_member_joins_right_after_a_downgrade_whose_consent_is_withdrawn() {
    for seed in 160..166 {
        run(seed, |sim| async move {
            cluster_of(&sim, 3, "3.6.16").await;
            let _writers = sim.write("c", 2, SECOND);
            lowers(&sim, "3.5.35");
            // etcd ends the downgrade some seconds later.
            sim.expect("every member runs the version", 30 * MINUTE, |sim| {
                sim.is_whole("c", 3) && status(sim)["version"] == "3.5.35"
            })
            .await;
            sim.edit("c", |spec| {
                spec["updates"]["allowDowngrade"] = json!(false);
                spec["size"] = json!(4);
            });
            arrives(&sim, 4, "3.5.35").await;
            refused_nobody(&sim);
            ends_well(&sim).await;
        });
    }
}

#[test]
fn without_consent_or_by_two_minor_versions_nothing_is_touched() {
    for (seed, (from, to, allow)) in [
        ("3.7.3", "3.6.16", false),
        ("3.7.3", "3.5.35", true),
        ("3.5.35", "3.4.44", true),
    ]
    .into_iter()
    .enumerate()
    {
        run(50 + u64::try_from(seed).unwrap(), |sim| async move {
            cluster_of(&sim, 3, from).await;
            let before = sim.tally().counts();
            sim.edit("c", |spec| {
                spec["version"] = json!(to);
                spec["updates"]["allowDowngrade"] = json!(allow);
            });
            sim.expect("it is refused", MINUTE, |sim| {
                rolled_out(sim) == ("False".to_owned(), "Blocked".to_owned())
            })
            .await;
            tokio::time::sleep(5 * MINUTE).await;
            let steps = |counts: &std::collections::BTreeMap<String, u64>| {
                ["step EvictPod", "step DeletePod", "step MoveLeader"].map(|step| counts.get(step).copied())
            };
            assert_eq!(steps(&sim.tally().counts()), steps(&before));
            assert!(!sim.timeline().text().contains("EnableDowngrade"));
            assert_eq!(template(&sim), from);
            ends_well(&sim).await;
        });
    }
}

#[test]
fn an_operator_that_dies_at_any_call_of_a_downgrade_goes_on_with_it() {
    let calls = [
        "WriteStatus",
        "Version",
        "DowngradeValidate",
        "DowngradeEnable",
        "MoveLeader",
        "EvictPod",
    ];
    for (seed, (call, side)) in calls
        .into_iter()
        .flat_map(|call| [(call, Side::Before), (call, Side::After)])
        .enumerate()
    {
        run(60 + u64::try_from(seed).unwrap(), |sim| async move {
            cluster_of(&sim, 3, "3.7.3").await;
            let _writers = sim.write("c", 2, SECOND);
            lowers(&sim, "3.6.16");
            sim.crash_operator_around(call, side, 20 * SECOND);
            assert_eq!(arrives(&sim, 3, "3.6.16").await, [7, 6], "{call} {side:?}");
            assert!(sim.starts() > 1, "{call} {side:?}");
            refused_nobody(&sim);
            ends_well(&sim).await;
        });
    }
}

#[test]
fn editing_back_before_a_member_runs_the_lower_version_cancels_the_downgrade() {
    for (seed, (is_moved, side)) in [
        (false, None),
        (true, None),
        (false, Some(Side::Before)),
        (false, Some(Side::After)),
        (true, Some(Side::Before)),
        (true, Some(Side::After)),
    ]
    .into_iter()
    .enumerate()
    {
        run(80 + u64::try_from(seed).unwrap(), |sim| async move {
            cluster_of(&sim, 3, "3.7.3").await;
            let _writers = sim.write("c", 2, SECOND);
            lowers(&sim, "3.6.16");
            if is_moved {
                template_is(&sim, "3.6.16").await;
            } else {
                sim.expect("a downgrade is enabled", MINUTE, |sim| {
                    sim.timeline().text().contains("EnableDowngrade")
                })
                .await;
            }
            sim.edit("c", |spec| spec["version"] = json!("3.7.3"));
            if let Some(side) = side {
                sim.crash_operator_around("DowngradeCancel", side, 20 * SECOND);
            }
            sim.expect("it is canceled", 5 * MINUTE, |sim| {
                sim.timeline().text().contains("CancelDowngrade")
            })
            .await;
            arrives(&sim, 3, "3.7.3").await;
            assert_eq!(template(&sim), "3.7.3");
            refused_nobody(&sim);
            // It can be asked for again.
            lowers(&sim, "3.6.16");
            arrives(&sim, 3, "3.6.16").await;
            refused_nobody(&sim);
            ends_well(&sim).await;
        });
    }
}

#[test]
fn a_downgrade_is_canceled_half_way_and_the_members_return() {
    run(90, |sim| async move {
        cluster_of(&sim, 3, "3.6.16").await;
        let _writers = sim.write("c", 2, SECOND);
        lowers(&sim, "3.5.35");
        sim.expect("two minor versions run", 10 * MINUTE, |sim| {
            minors(sim).len() == 2
        })
        .await;
        sim.edit("c", |spec| spec["version"] = json!("3.6.16"));
        arrives(&sim, 3, "3.6.16").await;
        refused_nobody(&sim);
        ends_well(&sim).await;
    });
}

#[test]
fn members_join_at_every_stage_of_a_downgrade() {
    for seed in 100..108 {
        run(seed, |sim| async move {
            cluster_of(&sim, 3, "3.7.3").await;
            let _writers = sim.write("c", 2, SECOND);
            lowers(&sim, "3.6.16");
            tokio::time::sleep(2 * SECOND * u32::try_from(seed - 100).unwrap()).await;
            sim.edit("c", |spec| spec["size"] = json!(5));
            arrives(&sim, 5, "3.6.16").await;
            refused_nobody(&sim);
            ends_well(&sim).await;
        });
    }
}

#[test]
fn a_member_is_lost_at_every_stage_of_a_downgrade_and_replaced() {
    for seed in 120..128 {
        run(seed, |sim| async move {
            cluster_of(&sim, 3, "3.7.3").await;
            let _writers = sim.write("c", 2, SECOND);
            let before = id_of(&sim, 1);
            lowers(&sim, "3.6.16");
            tokio::time::sleep(2 * SECOND * u32::try_from(seed - 120).unwrap()).await;
            sim.expect("it runs", MINUTE, |sim| {
                sim.pod("c-1").is_some_and(|pod| pod.process.is_some())
            })
            .await;
            sim.wipe("c-1");
            sim.expect("it is replaced", 15 * MINUTE, |sim| {
                id_of(sim, 1) != before && sim.is_whole("c", 3)
            })
            .await;
            arrives(&sim, 3, "3.6.16").await;
            ends_well(&sim).await;
        });
    }
}

#[test]
fn a_member_that_is_killed_when_the_template_has_just_changed_comes_back() {
    for seed in 140..142 {
        run(seed, |sim| async move {
            cluster_of(&sim, 3, "3.7.3").await;
            let _writers = sim.write("c", 2, SECOND);
            lowers(&sim, "3.6.16");
            template_is(&sim, "3.6.16").await;
            sim.kill("c-1");
            arrives(&sim, 3, "3.6.16").await;
            ends_well(&sim).await;
        });
    }
}

#[test]
fn a_downgrade_that_was_canceled_by_hand_is_enabled_again() {
    run(150, |sim| async move {
        cluster_of(&sim, 3, "3.7.3").await;
        let _writers = sim.write("c", 2, SECOND);
        lowers(&sim, "3.6.16");
        template_is(&sim, "3.6.16").await;
        sim.cancel_downgrade_by_hand("c").await;
        arrives(&sim, 3, "3.6.16").await;
        ends_well(&sim).await;
    });
}
