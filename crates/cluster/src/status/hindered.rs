//! Who keeps a step from being taken that is decided and safe, for the condition Progressing.

use etcd_operator_api::condition::{self, Condition, ConditionType};
use etcd_operator_api::refusal;

use super::Surroundings;

/// The longest text of the API server that is told.
const LONGEST: usize = 1_000;

/// What the API server refuses of the step that is to be taken, and what to do. While it has not been asked in this pass, what
/// it said last of such a step holds.
pub fn refused(around: &Surroundings<'_>, before: &[Condition]) -> Option<String> {
    let begin = format!("The API server refuses the step {}: ", around.step?);
    if let Some(why) = &around.refused_step {
        let why = refusal::bounded(why, LONGEST);
        return Some(format!(
            "{begin}{why}. Correct the quota or the admission rule that it names, or give the operator the right that is missing; it is tried again."
        ));
    }
    let told = condition::find(before, ConditionType::Progressing)?
        .message
        .as_ref()?;
    told.find(&begin).map(|at| told[at..].to_owned())
}
