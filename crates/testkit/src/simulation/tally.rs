//! What an operator did and where it was killed, counted: which steps it took in which flow, and at which side of which
//! call it died. It is how a run shows that it has been everywhere.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use etcd_operator_api::contract::{Permit, read};
use etcd_operator_api::names::{ANNOTATION_PERMIT, ANNOTATION_TAKEN_OVER};
use serde_json::Value;

use crate::Fake;
use crate::fake::{Route, Verb};
use crate::gate::Side;

/// Calls by which an operator changes what is there.
pub const STEPS: [&str; 14] = [
    "TakeOver",
    "Permit Bootstrap",
    "Permit Join",
    "Permit Resume",
    "Permit Adopt",
    "MemberAdd",
    "MemberPromote",
    "MoveLeader",
    "MemberRemove",
    "DeletePod",
    "EvictPod",
    "ForceDeletePod",
    "DeleteClaim",
    "WriteStatus",
];

/// What is done in which flow.
pub const FLOWS: [(&str, &[&str]); 8] = [
    ("Bootstrap", &["WriteStatus", "TakeOver", "Permit Bootstrap"]),
    ("StartOver", &["WriteStatus", "DeletePod"]),
    (
        "Join",
        &[
            "WriteStatus",
            "TakeOver",
            "MemberAdd",
            "Permit Join",
            "MemberPromote",
            "DeletePod",
        ],
    ),
    ("Remove", &["WriteStatus", "MoveLeader", "MemberRemove"]),
    (
        "Replace",
        &[
            "WriteStatus",
            "MoveLeader",
            "MemberRemove",
            "DeleteClaim",
            "DeletePod",
            "ForceDeletePod",
        ],
    ),
    ("Resume", &["WriteStatus", "Permit Resume"]),
    ("Adopt", &["WriteStatus", "Permit Adopt"]),
    ("Discard", &["WriteStatus", "DeleteClaim", "DeletePod"]),
];

/// Calls by which an operator carries out a restore, beside those above.
pub const RESTORE_STEPS: [&str; 2] = ["Permit Prepare", "Permit Swap"];

/// What is done in which part of a restore. Apart from the others, from which faults are drawn where nothing is restored.
pub const RESTORE_FLOWS: [(&str, &[&str]); 7] = [
    ("Restore Stopping", &["WriteStatus", "DeletePod"]),
    ("Restore Preparing", &["WriteStatus"]),
    ("RestorePrepare", &["WriteStatus", "TakeOver", "Permit Prepare"]),
    ("Restore Committed", &["WriteStatus"]),
    ("RestoreSwap", &["WriteStatus", "TakeOver", "Permit Swap"]),
    ("Restore RollingBack", &["WriteStatus", "DeletePod"]),
    ("Restore Serving", &["WriteStatus", "MoveLeader", "DeletePod"]),
];

/// Calls at which to die in a flow.
pub fn calls_of(flow: &str) -> &'static [&'static str] {
    let mut all = FLOWS.iter().chain(&RESTORE_FLOWS);
    let found = all.find(|(known, _)| *known == flow);
    found.map_or(&[], |(_, calls)| calls)
}

/// What is under way when nothing is.
const NOTHING: &str = "-";

/// Counts by name. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Tally(Arc<Mutex<BTreeMap<String, u64>>>);

impl Tally {
    /// Counts one.
    pub fn count(&self, what: impl Into<String>) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(what.into()).or_default() += 1;
    }

    /// Everything that was counted.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes a passing of an operator, and whether it died of it.
    pub(crate) fn passes(&self, fake: &Fake, call: &str, side: Side, dies: bool) {
        let is_step = STEPS.contains(&call) || RESTORE_STEPS.contains(&call);
        if !is_step || (side == Side::Before && !dies) {
            return;
        }
        let flow = flow(fake);
        if dies {
            self.count(format!("crash in {flow} {side:?} {call}"));
        } else {
            self.count(format!("step {call}"));
            self.count(format!("flow {flow}: {call}"));
        }
    }
}

/// What is written down as under way: a step, or else how far a restore is.
pub(super) fn flow(fake: &Fake) -> String {
    let clusters = fake.stored("etcd.database.coreos.com/v1beta2", "EtcdCluster");
    let known = clusters.iter().find_map(|cluster| {
        let status = &cluster["status"];
        let step = status["plan"]["step"]["kind"].as_str().map(str::to_owned);
        let phase = status["restore"]["phase"].as_str();
        step.or_else(|| phase.map(|phase| format!("Restore {phase}")))
    });
    known.unwrap_or_else(|| NOTHING.to_owned())
}

/// The name of a request as a call of an operator.
pub(crate) fn name(route: Option<&Route>, sent: &Value) -> String {
    let Some(route) = route else {
        return "Other".to_owned();
    };
    let annotation = |key: &str| sent["metadata"]["annotations"].get(key).and_then(Value::as_str);
    match (route.plural.as_str(), route.subresource.as_str(), route.verb) {
        ("etcdclusters", "status", verb) if verb.writes() => "WriteStatus".to_owned(),
        ("pods", "", Verb::Delete) if is_forced(sent) => "ForceDeletePod".to_owned(),
        ("pods", "", Verb::Delete) => "DeletePod".to_owned(),
        ("pods", "eviction", Verb::Create) => "EvictPod".to_owned(),
        ("pods", "", Verb::Create) => "DryRunPod".to_owned(),
        ("persistentvolumeclaims", "", Verb::Delete) => "DeleteClaim".to_owned(),
        ("pods", _, verb) if verb.writes() => match annotation(ANNOTATION_PERMIT).map(mode) {
            Some(mode) => format!("Permit {mode}"),
            None if annotation(ANNOTATION_TAKEN_OVER).is_some() => "TakeOver".to_owned(),
            None => "Pod".to_owned(),
        },
        (plural, _, verb) => format!("{verb:?} {plural}"),
    }
}

fn is_forced(sent: &Value) -> bool {
    let options = [sent, &sent["deleteOptions"]];
    options.iter().any(|options| options["gracePeriodSeconds"] == 0)
}

fn mode(permit: &str) -> String {
    let permit: Option<Permit> = read(permit.as_bytes()).ok();
    permit.map_or_else(|| "Unknown".to_owned(), |permit| format!("{:?}", permit.mode))
}
