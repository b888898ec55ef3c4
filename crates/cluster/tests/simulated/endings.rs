//! What becomes of a cluster in the end: it sleeps, is left alone, is made again on what was kept, loses a node or its
//! data, and each time the operator may die of it in the middle.

use std::collections::BTreeSet;

use etcd_operator_api::names::{ANNOTATION_ADOPT, ANNOTATION_DISCARD};
use etcd_operator_testkit::chance::Chance;
use etcd_operator_testkit::gate::Side;
use etcd_operator_testkit::ledger::Promise;
use etcd_operator_testkit::simulation::{NAMESPACE, Simulation, calls_of};
use serde_json::{Value, json};

use crate::fate::{Ending, Fate};
use crate::leads::Lead;
use crate::weather::{NAME, PATIENCE, converges, is_latched, status};
use crate::{MINUTE, SECOND, coverage};

/// What a person does in the end. Whether the data of before must still be there.
pub async fn end(
    sim: &Simulation,
    fate: &Fate,
    (size, object): (u8, Value),
    chance: &mut Chance,
    has_backup: bool,
) -> bool {
    match fate.ending {
        Ending::Nothing => {}
        Ending::Sleep => {
            if size == 3 && chance.one_in(2) {
                lose_the_first(sim).await;
            }
            sim.edit(NAME, |spec| spec["size"] = json!(0));
            let sleeps = sim.until(PATIENCE, |sim| sim.members(NAME).is_empty()).await;
            if !sleeps {
                sim.ledger()
                    .accuse(Promise::S9, "it does not fall asleep".to_owned());
            }
            tokio::time::sleep(MINUTE).await;
            sim.edit(NAME, |spec| spec["size"] = json!(size));
            converges(sim, size, "after its sleep").await;
        }
        Ending::Alone => {
            sim.kill_operator();
            let before = pods(sim);
            for name in sim.members(NAME) {
                sim.fake().delete_object("v1", "Pod", NAMESPACE, &name);
            }
            // Those that are still to hear of it are whole for a moment.
            let are_others = |sim: &Simulation| pods(sim).is_disjoint(&before);
            let returns = sim
                .until(PATIENCE, |sim| are_others(sim) && sim.is_whole(NAME, size))
                .await;
            if !returns {
                sim.ledger().accuse(
                    Promise::S5,
                    "the members do not come back without the operator".to_owned(),
                );
            }
            sim.start_operator();
        }
        Ending::Adopt | Ending::Discard => {
            if !sim.ledger().verify(NAMESPACE, NAME).await {
                sim.ledger()
                    .accuse(Promise::S9, "nobody answers a read before the end".to_owned());
            }
            return again(sim, fate, size, object, chance).await;
        }
        Ending::Bury => bury(sim, size, chance).await,
        Ending::Ruin => {
            ruin(sim, size, chance, has_backup).await;
            return false;
        }
    }
    true
}

/// The UIDs of its pods.
fn pods(sim: &Simulation) -> BTreeSet<String> {
    let members = sim.members(NAME).into_iter();
    let pods = members.filter_map(|name| sim.fake().get_object("v1", "Pod", NAMESPACE, &name));
    pods.filter_map(|pod| pod["metadata"]["uid"].as_str().map(str::to_owned))
        .collect()
}

/// Lies in wait for the operator in a flow, most of the times.
pub fn ambush(sim: &Simulation, flow: &str, chance: &mut Chance) {
    if chance.one_in(5) {
        return;
    }
    let call = chance.pick(calls_of(flow)).copied().unwrap_or("WriteStatus");
    let side = if chance.one_in(2) {
        Side::Before
    } else {
        Side::After
    };
    sim.timeline()
        .note("faults", format_args!("lie in wait {side:?} {call}"));
    sim.crash_operator_around(call, side, 3 * SECOND);
}

/// The first of three members loses its data, and those who fall asleep next are the others.
async fn lose_the_first(sim: &Simulation) {
    sim.wipe(&format!("{NAME}-0"));
    let votes = |member: &&Value| member["role"] == "voter";
    let are_two = |sim: &Simulation| {
        let status = status(sim);
        let members = status["memberStatus"].as_array();
        members.is_some_and(|members| members.iter().filter(votes).count() == 2)
    };
    if sim.until(5 * MINUTE, are_two).await {
        sim.tally().count("fault TwoFallAsleep");
    }
}

/// A node never comes back.
async fn bury(sim: &Simulation, size: u8, chance: &mut Chance) {
    let members = sim.members(NAME);
    let Some(node) = chance
        .pick(&members)
        .and_then(|member| sim.pod(member))
        .map(|pod| pod.node)
    else {
        return;
    };
    if size < 3 {
        return;
    }
    sim.machine().lose(&node);
    tokio::time::sleep(6 * MINUTE).await;
    ambush(sim, "Replace", chance);
    converges(sim, size, "after it lost a node").await;
}

/// Most members lose their data, or all: that is said, and nothing is begun anew.
async fn ruin(sim: &Simulation, size: u8, chance: &mut Chance, has_backup: bool) {
    // Who is on the way out takes nothing along.
    sim.until(MINUTE, |sim| sim.members(NAME).len() == usize::from(size))
        .await;
    let members = sim.members(NAME);
    let spared = usize::from(chance.one_in(2) && members.len() > 1);
    if !has_backup {
        sim.ledger().forgive_losses();
    }
    for member in members.iter().skip(spared) {
        sim.wipe(member);
    }
    let words = if spared == 0 {
        "no data are left"
    } else {
        "no quorum can come back by itself"
    };
    // A container that ended often is started again after five minutes at the latest.
    let is_said = sim
        .until(6 * MINUTE, |sim| coverage::says(&status(sim), words))
        .await;
    if !is_said {
        let plan = status(sim)["plan"].to_string();
        sim.ledger()
            .accuse(Promise::S9, format!("it is not said that data are lost: {plan}"));
    }
}

/// Deletes the cluster and makes it again under its name, with its volumes still there.
async fn again(sim: &Simulation, fate: &Fate, size: u8, mut object: Value, chance: &mut Chance) -> bool {
    let is_adopted = fate.ending == Ending::Adopt;
    let copy = fate.lead.and_then(|lead| lead.copies(sim));
    // An older version could not read what was kept.
    if let Some(cluster) = sim.cluster(NAME) {
        object["spec"]["version"] = cluster["spec"]["version"].clone();
    }
    sim.delete(NAME);
    sim.until(PATIENCE, |sim| sim.members(NAME).is_empty()).await;
    if let Some(lead) = fate.lead {
        lead.keeps(sim, copy);
    }
    let claims = sim.fake().list_objects("v1", "PersistentVolumeClaim", NAMESPACE);
    let uids: Vec<&str> = claims
        .iter()
        .filter_map(|claim| claim["metadata"]["uid"].as_str())
        .collect();
    let uids = uids.join(",");
    object["spec"]["size"] = json!(size);
    let is_early = fate.lead == Some(Lead::AdoptEarly);
    if is_early {
        object["metadata"]["annotations"] = json!({ANNOTATION_ADOPT: uids});
    }
    sim.create_with(object);
    if !is_early {
        tokio::time::sleep(2 * MINUTE).await;
        if is_latched(sim) {
            sim.ledger().accuse(
                Promise::S3,
                "kept volumes are taken over without consent".to_owned(),
            );
        }
    }
    if let Some(lead) = fate.lead {
        lead.consents(sim).await;
    }
    let (annotation, flow) = if is_adopted {
        (ANNOTATION_ADOPT, "Adopt")
    } else {
        (ANNOTATION_DISCARD, "Discard")
    };
    let is_late = chance.one_in(3);
    ambush(sim, flow, chance);
    sim.annotate(NAME, annotation, &uids);
    // One of them is late now and then.
    if let Some(late) = chance.pick(&sim.members(NAME)).filter(|_| is_late) {
        sim.machine().set_too_large(NAMESPACE, late, true);
        sim.fake().delete_object("v1", "Pod", NAMESPACE, late);
        tokio::time::sleep(chance.between(5 * SECOND, MINUTE)).await;
        sim.machine().set_too_large(NAMESPACE, late, false);
    }
    converges(sim, size, "after a person's consent").await;
    is_adopted
}
