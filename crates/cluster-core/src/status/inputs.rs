//! What the status tells besides the plan.

use etcd_operator_api::refusal::Refusal;

use super::backups::BackupFreshness;
use crate::build::PendingChange;

/// What the status reports besides the plan: refusals, conflicts, templates and backups.
#[derive(Clone, Debug)]
pub struct StatusInputs<'a> {
    /// This installation.
    pub installation: &'a str,
    /// What of the spec is refused: then it is looked on, and nothing is done.
    pub refusals: &'a [Refusal],
    /// Objects of needed names that are somebody else's.
    pub conflicts: Vec<String>,
    /// Whether the API server was asked for them: the copies hold only objects with labels.
    pub has_checked_names: bool,
    /// What the API server refuses to have changed at objects that are there; none while it was not asked.
    pub refused: Option<Vec<String>>,
    /// Whether the definitions that are there drop the plan.
    pub drops_plans: bool,
    /// The step that is to be taken, in one word.
    pub step: Option<&'static str>,
    /// The API server's refusal of it; none while it was not called.
    pub refused_step: Option<String>,
    /// Why the pod template is not the desired one.
    pub pending: Option<PendingChange>,
    /// The pod template that runs, while another one is asked for.
    pub applied_template: Option<String>,
    /// The last pod template with which a voter was healthy, while the current one is not known to be such.
    pub last_served_template: Option<String>,
    /// What is said of its backups.
    pub backups: Vec<BackupFreshness>,
}
