//! How a life comes to each refusal: the little stories in which a part of what is there is hidden, held back or lost.

use etcd_operator_etcd::membership::Role;
use etcd_operator_etcd::rejection::Rejection;
use etcd_operator_etcd::url::PeerUrl;
use etcd_operator_testkit::etcd::{CallFault, Calls};
use etcd_operator_testkit::simulation::{Fault, NAMESPACE, OPERATOR, Simulation};
use serde_json::{Value, json};

use crate::weather::NAME;
use crate::{MINUTE, SECOND, coverage};

/// The member of the first place.
pub(super) fn first() -> String {
    format!("{NAME}-0")
}

/// Waits until the operator says so.
pub(super) async fn said(sim: &Simulation, refusal: &str) {
    let words = coverage::words(refusal);
    let says = |cluster: &Value| coverage::says(&cluster["status"], words);
    sim.until(2 * MINUTE, |sim| sim.look(NAME, says) == Some(true))
        .await;
}

/// Whoever is led goes on alone.
fn let_go(sim: &Simulation) {
    sim.etcds().mend_all();
    sim.etcds().clear_faults();
}

pub(super) async fn ask_for_less(sim: &Simulation, size: u8) {
    sim.machine().set_too_large(NAMESPACE, &first(), true);
    sim.until(MINUTE, |sim| sim.members(NAME).len() == usize::from(size))
        .await;
    sim.edit(NAME, |spec| {
        spec["pod"] = json!({"resources": {"requests": {"cpu": "100m"}}});
    });
    said(sim, "spec changed before the start").await;
    sim.machine().set_too_large(NAMESPACE, &first(), false);
}

pub(super) async fn write_unseen(sim: &Simulation, size: u8) {
    let blind = Calls {
        caller: Some(OPERATOR.to_owned()),
        ..Calls::of("Connect")
    };
    sim.etcds().fault(blind, CallFault::LoseRequest, u32::MAX);
    let all = (usize::from(size), usize::from(size));
    sim.until(MINUTE, |sim| sim.voters(NAME) == all).await;
    let writers = sim.write(NAME, 2, SECOND);
    tokio::time::sleep(10 * SECOND).await;
    drop(writers);
    // What is lost now a person gives up later, or nobody has to who finds that nothing was written.
    sim.ledger().give_up_clusters();
    for number in 0..=size / 2 {
        sim.wipe(&format!("{NAME}-{number}"));
    }
    sim.etcds().clear_faults();
}

/// No learner gets its vote before it is let go: etcd says that it has not caught up.
fn hold_learners_back(sim: &Simulation) {
    let refusal = CallFault::Refuse(Rejection::LearnerNotReady);
    sim.etcds().fault(Calls::of("MemberPromote"), refusal, u32::MAX);
}

/// The user wants two members more, and the first of them is added and gets no vote.
async fn grow(sim: &Simulation, size: u8) -> Option<String> {
    hold_learners_back(sim);
    sim.edit(NAME, |spec| spec["size"] = json!(size + 2));
    sim.until(MINUTE, |sim| learner(sim).is_some()).await;
    learner(sim).map(|learner| learner.name)
}

/// The same, once it does its part.
async fn grow_until_it_is_up(sim: &Simulation, size: u8) -> Option<String> {
    let learner = grow(sim, size).await?;
    sim.until(MINUTE, is_learner_up).await.then_some(learner)
}

/// A member without a vote.
struct Learner {
    name: String,
    /// Whether it does its part.
    is_up: bool,
}

/// The member without a vote.
fn learner(sim: &Simulation) -> Option<Learner> {
    let end = format!(".{NAME}.{NAMESPACE}.svc");
    sim.etcds().truth(|truth| {
        truth.clusters().into_iter().find_map(|id| {
            let members = truth.members(id).into_values();
            let mut learners = members.filter(|member| member.role == Role::Learner);
            learners.find_map(|learner| {
                let mut hosts = learner.peer_urls.iter().map(PeerUrl::host);
                let name = hosts.find_map(|host| host.strip_suffix(&end))?.to_owned();
                Some(Learner {
                    name,
                    is_up: truth.up_since(id, learner.id).is_some(),
                })
            })
        })
    })
}

fn is_learner_up(sim: &Simulation) -> bool {
    learner(sim).is_some_and(|learner| learner.is_up)
}

/// Nobody who is not well any more leaves before the others can decide, and nobody comes before the last one is finished.
pub(super) async fn regret(sim: &Simulation, size: u8, is_started: bool) {
    let Some(learner) = grow(sim, size).await else {
        return let_go(sim);
    };
    if is_started {
        sim.until(MINUTE, is_learner_up).await;
    } else {
        sim.etcds().part(OPERATOR, &learner);
    }
    sim.wipe(&format!("{NAME}-1"));
    // It has reported by then, and what was begun goes first.
    tokio::time::sleep(10 * SECOND).await;
    sim.edit(NAME, |spec| spec["size"] = json!(size));
    let is_out = |sim: &Simulation| sim.voters(NAME).1 == usize::from(size) - 1;
    sim.until(MINUTE, is_out).await;
    sim.etcds().part(OPERATOR, &first());
    let refusal = if is_started {
        "a learner is unfinished"
    } else {
        "a member has not started"
    };
    said(sim, refusal).await;
    let_go(sim);
}

pub(super) async fn hide_voter(sim: &Simulation) {
    sim.etcds().part(OPERATOR, &first());
    sim.wipe(&format!("{NAME}-1"));
    said(sim, "too few would be left").await;
    let_go(sim);
}

pub(super) async fn hide_lower(sim: &Simulation) {
    sim.etcds().part(OPERATOR, &first());
    sim.edit(NAME, |spec| spec["size"] = json!(1));
    said(sim, "a lower one is not well").await;
    let_go(sim);
}

pub(super) async fn empty_again(sim: &Simulation) {
    hold_learners_back(sim);
    let member = format!("{NAME}-1");
    sim.wipe(&member);
    for _ in 0..2 {
        // Whoever has not been heard of may begin again as if it never had.
        let before = promotions(sim);
        let is_known = |sim: &Simulation| is_learner_up(sim) && promotions(sim) > before;
        if !sim.until(2 * MINUTE, is_known).await {
            return let_go(sim);
        }
        sim.wipe(&member);
    }
    said(sim, "too many replacements").await;
    let_go(sim);
    // Whoever has found out why changes something.
    sim.edit(NAME, |spec| spec["recovery"] = json!({"replaceAfter": "4m"}));
}

/// How often the operator has asked for a vote.
fn promotions(sim: &Simulation) -> u64 {
    let counts = sim.tally().counts();
    counts.get("step MemberPromote").copied().unwrap_or(0)
}

pub(super) async fn deafen_learner(sim: &Simulation, size: u8) {
    let before = promotions(sim);
    if let Some(learner) = grow_until_it_is_up(sim, size).await {
        // Who hears nothing from the start does not know that it learns.
        sim.until(MINUTE, |sim| promotions(sim) > before).await;
        for number in 0..size {
            sim.etcds().cut(&format!("{NAME}-{number}"), &learner);
        }
        said(sim, "no vote: it has not all data").await;
        // Whoever asks for its vote now gets it, for etcd has not noticed yet.
        sim.etcds().clear_faults();
        let votes = |sim: &Simulation| sim.voters(NAME).1 > usize::from(size);
        sim.until(15 * SECOND, votes).await;
    }
    let_go(sim);
}

pub(super) async fn hide_voters(sim: &Simulation, size: u8) {
    if grow_until_it_is_up(sim, size).await.is_some() {
        for number in 0..=size / 2 {
            sim.etcds().part(OPERATOR, &format!("{NAME}-{number}"));
        }
        said(sim, "no vote: too few voters").await;
    }
    let_go(sim);
}

pub(super) async fn hide_new_voter(sim: &Simulation, size: u8) {
    sim.edit(NAME, |spec| spec["size"] = json!(size + 2));
    sim.until(MINUTE, |sim| learner(sim).is_some()).await;
    let Some(Learner { name: new, .. }) = learner(sim) else {
        return;
    };
    let votes = |sim: &Simulation| sim.voters(NAME).1 == usize::from(size) + 1;
    if sim.until(MINUTE, votes).await {
        sim.etcds().part(OPERATOR, &new);
        said(sim, "the new voter does not answer").await;
    }
    let_go(sim);
}

pub(super) async fn evict_learner(sim: &Simulation, size: u8) {
    if let Some(learner) = grow_until_it_is_up(sim, size).await {
        sim.machine().set_too_large(NAMESPACE, &learner, true);
        sim.fake().delete_object("v1", "Pod", NAMESPACE, &learner);
        said(sim, "a learner in the way").await;
        sim.machine().set_too_large(NAMESPACE, &learner, false);
    }
    let_go(sim);
}

/// The second of three leaves, as its pod finds no node, and the third stays in its stead until it can come again.
pub(super) async fn lack_lower(sim: &Simulation, size: u8) {
    let lower = format!("{NAME}-1");
    sim.machine().set_too_large(NAMESPACE, &lower, true);
    sim.fake().delete_object("v1", "Pod", NAMESPACE, &lower);
    let is_missed = |sim: &Simulation| sim.voters(NAME).0 < usize::from(size);
    sim.until(MINUTE, is_missed).await;
    sim.edit(NAME, |spec| {
        spec["size"] = json!(size - 1);
        spec["recovery"] = json!({"replaceAfter": "30s"});
    });
    said(sim, "a lower one is missing").await;
    sim.edit(NAME, |spec| spec["recovery"] = json!({"replaceAfter": "5m"}));
    sim.machine().set_too_large(NAMESPACE, &lower, false);
}

pub(super) async fn replace_before_joins(sim: &Simulation, size: u8) {
    let new: Vec<String> = (size..size + 2)
        .map(|number| format!("{NAME}-{number}"))
        .collect();
    for pod in &new {
        sim.machine().set_too_large(NAMESPACE, pod, true);
    }
    sim.edit(NAME, |spec| spec["size"] = json!(size + 2));
    sim.until(MINUTE, |sim| sim.members(NAME).len() == usize::from(size) + 2)
        .await;
    sim.inject(NAME, &Fault::GiveUp(format!("{NAME}-1")));
    said(sim, "another one joins first").await;
    for pod in &new {
        sim.machine().set_too_large(NAMESPACE, pod, false);
    }
}
