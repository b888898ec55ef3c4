//! Why a cluster is in its phase, in a sentence or two, as `kubectl get` shows it: of all that stands in the way what a person
//! has to know first.

use etcd_operator_api::condition::Condition;
use etcd_operator_api::refusal;

use super::{Surroundings, findings, hindered, news};
use crate::plan::{Plan, Reason, Situation, cause};

/// The longest text about what is in the way.
const LONGEST: usize = 512;

/// Why a cluster is in its phase.
pub fn reason(
    situation: &Situation<'_>,
    plan: &Plan,
    around: &Surroundings<'_>,
    before: &[Condition],
) -> String {
    if let Some(first) = around.refusals.iter().min() {
        return first.to_string();
    }
    let text = findings::in_short(situation, plan, around);
    let reason = plan.why.reason;
    if hindered::by_definitions(reason, around) {
        return text;
    }
    if let Some(refused) = hindered::refused(around, before) {
        return refused;
    }
    let cause = cause(&plan.why.blocked_by);
    match (reason, cause) {
        // What is blocked comes before whom it waits for.
        (Reason::Blocked, Some(cause)) => format!("{text} {}", sentence(cause)),
        (
            Reason::Bootstrapping
            | Reason::Scaling
            | Reason::Recovering
            | Reason::Restoring
            | Reason::Waiting,
            Some(cause),
        ) => sentence(cause),
        // Who has not come yet cannot come then.
        (Reason::Bootstrapping | Reason::Waiting, None) if !plan.memory.has_formed() => {
            refused_objects(around, before).unwrap_or(text)
        }
        _ => text,
    }
}

/// What the API server refuses to have made.
fn refused_objects(around: &Surroundings<'_>, before: &[Condition]) -> Option<String> {
    let refused = match &around.refused {
        Some(refused) => (!refused.is_empty()).then(|| refused.join("; ")),
        None => news::refused(before),
    };
    refused.map(|refused| sentence(&format!("The API server refuses what is needed: {refused}")))
}

fn sentence(words: &str) -> String {
    let words = refusal::bounded(words.trim_end_matches([':', ' ']), LONGEST);
    let end = if words.ends_with(['.', '…']) { "" } else { "." };
    format!("{words}{end}")
}
