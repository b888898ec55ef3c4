//! Texts of the status: how long they are at most, and what several parts of it share.

use etcd_operator_api::refusal;
use etcd_operator_api::severity::Severity;

use crate::blocker;
use crate::plan::Plan;

/// Most words in a list of the status.
pub const MAX_ITEMS: usize = 16;
/// The longest text in such a list.
pub const MAX_CHARS: usize = 512;

/// An Event about a change of the status: its severity, its reason and its text.
pub type Transition = (Severity, &'static str, String);

/// The text, cut after so many characters and ended as a sentence. The full stop, or ` …` after a cut, is not counted.
pub fn sentence(words: &str, max_chars: usize) -> String {
    let words = refusal::bounded(words.trim_end_matches([':', ' ']), max_chars);
    let end = if words.ends_with(['.', '…']) { "" } else { "." };
    format!("{words}{end}")
}

/// The texts of the plan's blockers. Members with the same problem share one.
pub fn blocked_by(plan: &Plan) -> Vec<String> {
    blocker::describe_all(&plan.explanation.blockers, MAX_ITEMS, MAX_CHARS)
}
