//! Minor versions on their way to running members, while clients write.

use std::collections::BTreeSet;

use etcd_operator_testkit::gate::Side;
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, run};
use serde_json::{Value, json};

use super::{cluster_of, status};
use crate::{MINUTE, SECOND};

/// The minor versions that members run, as they say themselves.
pub fn minors(sim: &Simulation) -> BTreeSet<u64> {
    let members = status(sim)["memberStatus"].clone();
    let members = members.as_array().into_iter().flatten();
    let versions = members.filter_map(|member| member["version"].as_str().map(str::to_owned));
    versions
        .filter_map(|version| version.split('.').nth(1)?.parse().ok())
        .collect()
}

fn asks_for(sim: &Simulation, version: &str) {
    sim.edit("c", |spec| spec["version"] = json!(version));
}

pub fn rolled_out(sim: &Simulation) -> (String, String) {
    let conditions = status(sim)["conditions"].clone();
    let mut conditions = conditions.as_array().into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == "RolledOut");
    let text = |field: &str| {
        let text = found.and_then(|found| found[field].as_str());
        text.unwrap_or_default().to_owned()
    };
    (text("status"), text("reason"))
}

fn all_run(sim: &Simulation, size: u8, version: &str) -> bool {
    let generation = sim
        .cluster("c")
        .map(|cluster| cluster["metadata"]["generation"].clone());
    let status = status(sim);
    sim.is_whole("c", size)
        && Some(&status["observedGeneration"]) == generation.as_ref()
        && status["version"] == version
        && rolled_out(sim).0 == "True"
}

/// Every member runs a version, and on the way there no two of them were ever more than one minor version apart.
pub async fn arrives(sim: &Simulation, size: u8, version: &str) -> Vec<u64> {
    let mut seen = Vec::new();
    sim.expect("every member runs the version", 30 * MINUTE, |sim| {
        let now = minors(sim);
        if let (Some(low), Some(high)) = (now.first(), now.last()) {
            assert!(high - low < 2, "{now:?}");
            if seen.last() != Some(low) {
                seen.push(*low);
            }
        }
        all_run(sim, size, version)
    })
    .await;
    seen
}

pub async fn ends_well(sim: &Simulation) {
    assert!(sim.ledger().verify(NAMESPACE, "c").await);
    sim.check();
}

#[test]
fn members_walk_over_minor_versions_one_after_the_other_and_keep_their_volumes() {
    for size in [1, 3] {
        run(u64::from(size), |sim| async move {
            cluster_of(&sim, size, "3.4.44").await;
            let _writers = sim.write("c", 2, SECOND);
            let claims = super::claims(&sim);
            asks_for(&sim, "3.7.3");
            assert_eq!(arrives(&sim, size, "3.7.3").await, [4, 5, 6, 7]);
            assert_eq!(super::claims(&sim), claims);
            let rollout = status(&sim)["rollout"].clone();
            assert_eq!(
                (&rollout["target"], &rollout["reversible"]),
                (&json!("3.7.3"), &json!(false))
            );
            ends_well(&sim).await;
        });
    }
}

#[test]
fn an_operator_that_dies_at_any_call_of_a_walk_goes_on_with_it() {
    for (seed, (call, side)) in ["WriteStatus", "EvictPod", "MoveLeader"]
        .into_iter()
        .flat_map(|call| [(call, Side::Before), (call, Side::After)])
        .enumerate()
    {
        run(10 + u64::try_from(seed).unwrap(), |sim| async move {
            cluster_of(&sim, 3, "3.5.21").await;
            let _writers = sim.write("c", 2, SECOND);
            asks_for(&sim, "3.6.16");
            sim.crash_operator_around(call, side, 20 * SECOND);
            assert_eq!(arrives(&sim, 3, "3.6.16").await, [5, 6]);
            ends_well(&sim).await;
        });
    }
}

#[test]
fn an_upgrade_is_set_back_while_a_member_of_the_lower_version_is_left() {
    run(20, |sim| async move {
        cluster_of(&sim, 3, "3.5.35").await;
        let _writers = sim.write("c", 2, SECOND);
        sim.edit("c", |spec| {
            spec["version"] = json!("3.6.16");
            spec["updates"] = json!({"minReadySeconds": 3600});
        });
        sim.expect("two of three run the new one", 10 * MINUTE, |sim| {
            status(sim)["updatedMembers"] == "2/3" && minors(sim).len() == 2
        })
        .await;
        assert_eq!(status(&sim)["rollout"]["reversible"], true);
        asks_for(&sim, "3.5.35");
        arrives(&sim, 3, "3.5.35").await;
        assert_eq!(status(&sim)["rollout"]["reversible"], Value::Null);
        ends_well(&sim).await;
    });
}

#[test]
fn after_an_upgrade_the_lower_version_is_refused_and_lost_members_are_replaced_all_the_same() {
    run(21, |sim| async move {
        cluster_of(&sim, 3, "3.5.35").await;
        let _writers = sim.write("c", 2, SECOND);
        asks_for(&sim, "3.6.16");
        arrives(&sim, 3, "3.6.16").await;
        asks_for(&sim, "3.5.35");
        sim.expect("it is refused", MINUTE, |sim| {
            rolled_out(sim) == ("False".to_owned(), "Blocked".to_owned())
        })
        .await;
        let id = |sim: &Simulation| status(sim)["memberStatus"][1]["id"].clone();
        let before = id(&sim);
        sim.wipe("c-1");
        sim.expect("it is whole with another member", 15 * MINUTE, |sim| {
            sim.is_whole("c", 3) && id(sim) != before
        })
        .await;
        assert_eq!(minors(&sim), BTreeSet::from([6]));
        ends_well(&sim).await;
    });
}
