//! Random faults between any two calls: each due time runs at most once and is recorded once.

use proptest::prelude::*;

use super::fake_kubernetes::{FakeKubernetes, NO_SLOT, at, failed, unavailable};
use crate::observed_state::{JobSlot, ResolvedSource, SourceProblem};
use crate::persisted_state::Task;

/// A step of a random history.
#[derive(Clone, Debug)]
enum Step {
    /// The operator reconciles and crashes after this number of calls.
    Reconcile(usize),
    /// Time passes, or the clock is set back a little.
    Wait(i64),
    /// The Job that was created last succeeds.
    Succeed,
    /// The Job that was created last fails.
    Fail,
    /// The Job that was created last completes (`true`) or fails, and its result is lost.
    LoseResult(bool),
    /// A user deletes all Jobs, and their pods as well (`true`).
    DeleteJobs(bool),
    /// A user requests a backup by annotation.
    Request,
    /// A user suspends the backup, or resumes it.
    Suspend(bool),
    /// The etcd cluster becomes available, or unavailable.
    SetSource(bool),
    /// A Job slot becomes free, or none is free.
    SetJobSlot(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_usize..4).prop_map(Step::Reconcile),
        4 => (-5_i64..90).prop_map(Step::Wait),
        4 => Just(Step::Succeed),
        1 => Just(Step::Fail),
        1 => any::<bool>().prop_map(Step::LoseResult),
        1 => any::<bool>().prop_map(Step::DeleteJobs),
        1 => Just(Step::Request),
        1 => any::<bool>().prop_map(Step::Suspend),
        1 => any::<bool>().prop_map(Step::SetSource),
        2 => any::<bool>().prop_map(Step::SetJobSlot),
    ]
}

fn run_steps(steps: &[Step], has_retention: bool) -> FakeKubernetes {
    let mut fake = FakeKubernetes::every(60);
    fake.observed.desired.retention.newest = has_retention.then_some(3);
    let (mut second, mut requests) = (0, 0);
    for step in steps {
        let is_running = fake
            .observed
            .jobs
            .last()
            .is_some_and(|job| job.terminal_condition.is_none());
        match step {
            Step::Reconcile(calls) => {
                let before = fake.observed.persisted.clone();
                let plan = fake.reconcile_calls(*calls);
                let backups = plan.persisted.runs.iter().filter(|run| run.task == Task::Backup);
                assert!(backups.count() <= 1, "two backups at once");
                assert!(plan.jobs_to_create.iter().all(|run| run.started_at.is_some()));
                let new = plan
                    .persisted
                    .runs
                    .iter()
                    .filter(|run| !before.runs.iter().any(|old| old.due == run.due));
                for run in new.filter(|run| run.task == Task::Backup) {
                    let is_requested = fake.observed.backup_request != before.handled_request;
                    assert!(!fake.observed.desired.is_suspended || is_requested);
                    assert!(fake.observed.source.is_ok());
                    assert!(!fake.successes.contains(&run.due), "{} again", run.due);
                }
            }
            Step::Wait(seconds) => {
                second = (second + seconds).max(0);
                fake.observed.now = at(second);
            }
            Step::Succeed if is_running => fake.succeed_job(),
            Step::Fail if is_running => fake.finish_job(&failed("Unreachable")),
            Step::LoseResult(is_complete) if is_running => fake.lose_result(*is_complete),
            Step::DeleteJobs(pods) => {
                fake.observed.jobs.clear();
                if *pods {
                    fake.observed.pods.clear();
                }
            }
            Step::Request => {
                requests += 1;
                fake.observed.backup_request = Some(requests.to_string());
            }
            Step::Suspend(is_suspended) => fake.observed.desired.is_suspended = *is_suspended,
            Step::SetSource(is_available) => {
                fake.observed.source = if *is_available {
                    Ok(ResolvedSource::default())
                } else {
                    unavailable(SourceProblem::NotFound)
                };
            }
            Step::SetJobSlot(is_free) => {
                fake.observed.job_slot = if *is_free { JobSlot::Granted } else { NO_SLOT }
            }
            Step::Succeed | Step::Fail | Step::LoseResult(_) => {}
        }
    }
    fake
}

proptest! {
    #[test]
    fn each_run_is_recorded_once_despite_crashes_and_lost_results(
        steps in prop::collection::vec(step(), 1..150),
        has_retention in any::<bool>(),
    ) {
        let mut fake = run_steps(&steps, has_retention);
        let mut once = fake.successes.clone();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), fake.successes.len(), "recorded twice");
        // Without further faults the schedule continues with good backups.
        fake.observed.desired.is_suspended = false;
        fake.observed.source = Ok(ResolvedSource::default());
        fake.observed.job_slot = JobSlot::Granted;
        fake.observed.pods.retain(|pod| !pod.is_active || fake.observed.jobs.iter().any(|job| job.uid == pod.job_uid));
        let from = fake.observed.now.as_second() - super::fake_kubernetes::START;
        let before = fake.successes.len();
        for second in 1..400 {
            fake.reconcile_at(from + second);
            if fake.observed.jobs.last().is_some_and(|job| job.terminal_condition.is_none()) {
                fake.succeed_job();
            }
        }
        prop_assert!(fake.successes.len() > before + 3, "{} then {}", before, fake.successes.len());
    }

    #[test]
    fn repeated_reconciles_reach_a_fixed_point(steps in prop::collection::vec(step(), 1..80)) {
        let mut fake = run_steps(&steps, true);
        for _ in 0..12 {
            fake.reconcile_calls(3);
        }
        let plan = fake.plan();
        prop_assert_eq!(&plan.persisted, &fake.observed.persisted);
        prop_assert!(plan.finished_runs.is_empty() && plan.jobs_to_create.is_empty() && plan.jobs_to_delete.is_empty());
    }
}
