//! Looks at the verified backup again right before the restore is requested. A prune, a user or a lifecycle rule of the
//! bucket may have deleted or replaced it since, and the members would be stopped for a backup that they cannot download.

use std::time::Duration;

use etcd_operator_api::contract::Verified;

use super::verify::{report_failure, start_verification};
use super::{DesiredJob, JobTask, Outcome, Phase, Plan, Reason, job_name, outcome};
use crate::observed_state::{ObservedRestore, Source};
use crate::persisted_state::PersistedState;

/// How long a look at the backup counts. A safety backup, an operator that is down, or a cluster that is not ready may take
/// longer.
const LOOK_VALIDITY: Duration = Duration::from_mins(1);

/// The Job that checks whether the verified backup still exists unchanged.
pub fn recheck_job(observed: &ObservedRestore, attempt: i64, verified: &Verified) -> DesiredJob {
    let task = JobTask::Recheck {
        size: verified.object.size,
        etag: verified.etag.clone(),
        has_manifest: verified.has_manifest,
    };
    DesiredJob {
        name: job_name(observed, &task, attempt),
        task,
    }
}

/// Plans the recheck of a backup whose verification is too old: the plan creates its Job, waits for it, or reports that the
/// backup is gone. `None` if the last look at the backup is recent enough.
pub fn plan_recheck(
    observed: &ObservedRestore,
    source: &Source,
    state: &PersistedState,
    verify: &DesiredJob,
    recheck: &DesiredJob,
) -> Option<Plan> {
    if is_recent(observed, &verify.name) {
        return None;
    }
    let message = format!(
        "{} is verified. Whether it still exists unchanged is checked before anything is changed.",
        source.object
    );
    let mut plan = Plan::new(state.clone(), Phase::Verifying, Reason::Verifying, message);
    plan.keep_jobs.push(verify.name.clone());
    match outcome(observed, &recheck.name) {
        Outcome::Unchanged if is_recent(observed, &recheck.name) => return None,
        // Without a desired Job the outdated one is deleted, and its deletion wakes the controller.
        Outcome::Unchanged => {}
        Outcome::NotStarted | Outcome::Running(None) => plan.job = Some(recheck.clone()),
        Outcome::Running(Some(why)) => {
            plan.message = format!("The pod of the Job {} does not start: {why}", recheck.name);
            plan.job = Some(recheck.clone());
        }
        Outcome::Failed(failed) => plan = report_failure(observed, source, state.attempt, &failed),
        Outcome::Verified(_) | Outcome::Compared | Outcome::Stored(_) => {
            plan = start_verification(observed, source, state.attempt + 1);
        }
    }
    Some(plan)
}

/// Whether a Job ended so recently that its look at the backup counts.
fn is_recent(observed: &ObservedRestore, job: &str) -> bool {
    let end = observed.job(job).and_then(|job| job.end.as_ref());
    end.is_some_and(|end| {
        let until = end.at.checked_add(LOOK_VALIDITY).unwrap_or(end.at);
        observed.now <= until
    })
}
