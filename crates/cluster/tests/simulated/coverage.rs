//! Where a long search must have been: every step, every reason for which nothing is done, and every place in every flow
//! at which an operator can die.

use std::collections::BTreeMap;

use etcd_operator_testkit::gate::Side;
use etcd_operator_testkit::simulation::{FLOWS, RESTORE_FLOWS, RESTORE_STEPS, STEPS, Simulation};
use serde_json::Value;

use crate::weather::About;

/// How often a long search must have been everywhere.
const OFTEN: u64 = 100;
/// The same with restores, of which a life has one or two.
const OFTEN_ABOUT_RESTORES: u64 = 10;

/// By what of its words each refusal and each wait is known, and how it is called here.
const REFUSALS: [(&str, &str); 38] = [
    ("only voter", "is the only voter"),
    (
        "voter is not well",
        "does not answer as a voter that is caught up",
    ),
    ("too few would be left", "voters would be well, and"),
    ("a member has not started", "has not started yet"),
    ("a learner is unfinished", "is still a learner"),
    ("a lower one is not well", "must be well again first"),
    ("no vote: too few voters", "voters are well"),
    ("no vote: it has not all data", "the learner receives the data"),
    ("no vote: it does not answer", "waiting for the learner to answer"),
    (
        "the new voter does not answer",
        "waiting for the new voter to answer",
    ),
    ("a learner in the way", "stands in the way of others"),
    ("too many replacements", "a person must find out why"),
    ("not all report", "members to report an empty disk"),
    ("a disk that is not empty", "found a disk that is not empty"),
    (
        "a volume of before",
        "has a volume that is older than this EtcdCluster",
    ),
    (
        "lost before it formed",
        "lost their disks before the cluster formed",
    ),
    ("clients may have written", "may hold what clients wrote before"),
    (
        "spec changed before the start",
        "changed before anything was started",
    ),
    ("kept volumes unreported", "to report what is on the kept volumes"),
    ("kept volumes are too few", "which is no quorum: none is started"),
    ("a copy of a kept volume", "found a copy and not the volume"),
    ("a quorum without data", "no quorum can come back by itself"),
    ("no data", "no data are left"),
    ("nobody is reached", "No member can be reached from here"),
    (
        "members are unknown",
        "Waiting for a voter to say who the members are",
    ),
    ("a volume cannot be read", "cannot read its volume"),
    (
        "another member's data",
        "found data of another cluster on its volume",
    ),
    ("no node", "finds no node"),
    ("a pod goes", "is being deleted"),
    ("a claim is held", "held by"),
    ("a pod ended", "has ended with code"),
    ("another operator began", "takes over what another one began"),
    ("an unknown member", "is at no place of this cluster"),
    ("paused", "The cluster is paused"),
    ("nobody to replace", "Nothing is replaced; correct it"),
    (
        "data that nobody has read",
        "its data go with its pod: it may hold",
    ),
    (
        "a lower one is missing",
        "stays until a member of a lower place can be brought in",
    ),
    ("another one joins first", "another one joins before"),
];

/// The words by which a refusal is known that is called so here.
pub fn words(refusal: &str) -> &'static str {
    let mut all = REFUSALS.iter();
    let known = all.find(|(name, _)| *name == refusal);
    known
        .unwrap_or_else(|| panic!("no refusal is called {refusal}"))
        .1
}

/// Counts what the operator writes into statuses.
pub fn watch(sim: &Simulation) {
    let tally = sim.tally().clone();
    sim.read_statuses(move |status| {
        let plan = status["plan"].to_string();
        for (name, words) in REFUSALS {
            if plan.contains(words) {
                tally.count(format!("refusal: {name}"));
            }
        }
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let progress = conditions.filter(|condition| condition["type"] == "Progressing");
        for reason in progress.filter_map(|condition| condition["reason"].as_str()) {
            tally.count(format!("reason: {reason}"));
        }
    });
}

/// What a plan can be about, as conditions have it.
const REASONS: [&str; 11] = [
    "Converged",
    "Paused",
    "Hibernated",
    "Bootstrapping",
    "Scaling",
    "Recovering",
    "Waiting",
    "Blocked",
    "QuorumLost",
    "DataLost",
    "MembersUnreachable",
];

/// What becomes of restores, and where they come by.
const RESTORES: [&str; 12] = [
    "restore: Succeeded",
    "restore: RolledBack",
    "restore: withdrawn before its commit",
    "restore: withdrawn after its commit",
    "restore: takes the place of",
    "restore phase: Stopping",
    "restore phase: Preparing",
    "restore phase: Committed",
    "restore phase: RollingBack",
    "restore phase: RolledBack",
    "restore phase: Serving",
    "restore phase: Finished",
];

/// Everything that must be counted.
fn wanted(about: About) -> Vec<String> {
    match about {
        About::Usual => {
            let refusals = REFUSALS.iter().map(|(name, _)| format!("refusal: {name}"));
            let reasons = REASONS.iter().map(|reason| format!("reason: {reason}"));
            let all = steps(&STEPS).chain(refusals).chain(reasons);
            all.chain(crashes(&FLOWS)).collect()
        }
        About::Restores => {
            let all = steps(&RESTORE_STEPS).chain(RESTORES.map(str::to_owned));
            all.chain(crashes(&RESTORE_FLOWS)).collect()
        }
    }
}

fn steps(steps: &'static [&str]) -> impl Iterator<Item = String> {
    steps.iter().map(|step| format!("step {step}"))
}

fn crashes(flows: &'static [(&str, &[&str])]) -> impl Iterator<Item = String> {
    flows.iter().flat_map(|(flow, calls)| {
        let sides = [Side::Before, Side::After];
        let cells = calls.iter().flat_map(move |call| sides.map(|side| (*call, side)));
        cells.map(move |(call, side)| format!("crash in {flow} {side:?} {call}"))
    })
}

/// What was not counted as often as it should be, with how often it was.
pub fn missing(about: About, counts: &BTreeMap<String, u64>) -> Vec<String> {
    let often = match about {
        About::Usual => OFTEN,
        About::Restores => OFTEN_ABOUT_RESTORES,
    };
    let count = |what: &String| counts.get(what).copied().unwrap_or(0);
    let missing = wanted(about).into_iter().filter(|what| count(what) < often);
    missing.map(|what| format!("{what}: {}", count(&what))).collect()
}

/// Whether the status tells of something.
pub fn says(status: &Value, words: &str) -> bool {
    status["plan"].to_string().contains(words)
}
