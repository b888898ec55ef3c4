//! Runs whose pod never reports its end: its node is lost, or an injected container goes on.

use super::fake_kubernetes::{FakeKubernetes, at, failed, pruned, stored};
use crate::observed_state::TerminalCondition;
use crate::persisted_state::Task;
use crate::plan::Outcome;

/// A started backup of every ten minutes, with a timeout of one minute. Its pod has to end by `second`.
fn with_deleted_pod(second: i64) -> FakeKubernetes {
    let mut fake = FakeKubernetes::every(600);
    fake.reconcile_at(1);
    fake.reconcile_at(2);
    fake.observed.pods[0].deleted_at = Some(at(second));
    fake
}

fn deadline_exceeded() -> TerminalCondition {
    TerminalCondition {
        is_complete: false,
        reason: "DeadlineExceeded".to_owned(),
        message: "too late".to_owned(),
    }
}

/// Kubernetes 1.31 and newer set `FailureTarget` at the deadline, and `Failed` once the pod has ended.
#[test]
fn the_run_on_a_lost_node_fails_a_minute_after_its_pod_had_to_end_and_the_next_backup_starts() {
    let mut fake = with_deleted_pod(170);
    fake.observed.jobs[0].failure_target = Some(deadline_exceeded());
    for second in [125, 171, 229] {
        let plan = fake.reconcile_at(second);
        assert!(
            plan.finished_runs.is_empty() && plan.jobs_to_delete.is_empty(),
            "{plan:?}"
        );
    }
    let pod = fake.observed.pods[0].clone();
    let plan = fake.reconcile_at(230);
    let Outcome::Failed { reason, message } = &plan.finished_runs[0].outcome else {
        panic!("{:?}", plan.finished_runs)
    };
    assert_eq!(reason, "PodLost");
    assert_eq!(
        message,
        "Job nightly-1790000000 left no result: DeadlineExceeded: too late; its pod was deleted, but has not ended: its \
         node may be gone"
    );
    assert!(fake.observed.jobs.is_empty());
    // The pod stays as long as the object of its node.
    fake.observed.pods.push(pod);
    assert!(fake.reconcile_at(231).jobs_to_create.is_empty());
    assert_eq!(fake.reconcile_at(600).jobs_to_create[0].due, at(600));
}

#[test]
fn a_pod_may_report_its_result_within_its_grace_period() {
    for (outcome, successes, failures) in [(stored(at(150)), 1, 0), (failed("Deadline"), 0, 1)] {
        let mut fake = with_deleted_pod(170);
        fake.observed.jobs[0].failure_target = Some(deadline_exceeded());
        assert!(fake.reconcile_at(125).finished_runs.is_empty());
        fake.finish_job(&outcome);
        fake.reconcile_at(150);
        assert_eq!((fake.successes.len(), fake.failures.len()), (successes, failures));
    }
}

#[test]
fn the_failure_of_an_earlier_pod_explains_a_run_whose_last_pod_is_lost() {
    let mut fake = FakeKubernetes::every(600);
    fake.reconcile_at(1);
    fake.reconcile_at(2);
    fake.fail_pod("NoMember");
    fake.observed.pods[1].deleted_at = Some(at(170));
    fake.observed.jobs[0].failure_target = Some(deadline_exceeded());
    fake.reconcile_at(171);
    assert_eq!(fake.failures, []);
    fake.reconcile_at(230);
    assert_eq!(fake.failures, [(at(0), "NoMember".to_owned())]);
}

/// Kubernetes 1.30 sets `Failed` at the deadline, whatever becomes of the pod.
#[test]
fn a_failed_job_with_a_lost_pod_is_not_created_again() {
    let mut fake = with_deleted_pod(60);
    fake.observed.jobs[0].terminal_condition = Some(deadline_exceeded());
    fake.reconcile_at(125);
    assert_eq!(fake.failures, [(at(0), "PodLost".to_owned())]);
}

#[test]
fn a_run_whose_job_was_deleted_waits_for_its_pod_and_fails_after_its_deadline_if_the_pod_is_lost() {
    let mut fake = with_deleted_pod(50);
    fake.observed.jobs.clear();
    // Until the deadline and a minute of grace the process may still store its backup.
    for second in [51, 111, 121] {
        let plan = fake.reconcile_at(second);
        assert!(
            plan.finished_runs.is_empty() && plan.jobs_to_create.is_empty(),
            "{plan:?}"
        );
    }
    assert!(fake.reconcile_at(122).jobs_to_create.is_empty());
    assert_eq!(fake.failures, [(at(0), "PodLost".to_owned())]);
    assert_eq!(fake.reconcile_at(600).jobs_to_create[0].due, at(600));
}

/// An `EtcdBackup` that was deleted while its backup ran, on a node that does not answer since. Its pod has to end by second 50.
fn deleted_with_its_backup() -> FakeKubernetes {
    let mut fake = with_deleted_pod(50);
    fake.observed.desired.deletes_backups = true;
    fake.observed.deleted_at = Some(at(5));
    // Deleted in the foreground: it stays as long as its pod.
    fake.observed.jobs[0].is_being_deleted = true;
    fake.observed.jobs[0].failure_target = Some(deadline_exceeded());
    fake
}

/// A backup that the pod completes after the erase run would stay in the store for good.
#[test]
fn an_erase_run_waits_for_a_lost_pod_until_the_deadline_of_the_pod_has_passed() {
    let mut fake = deleted_with_its_backup();
    let message = |fake: &mut FakeKubernetes, second| {
        let plan = fake.reconcile_at(second);
        assert!(
            plan.jobs_to_create.is_empty() && !plan.removes_finalizer,
            "{plan:?}"
        );
        plan.progress.message
    };
    assert_eq!(
        message(&mut fake, 6),
        "The object is deleted as soon as no Job runs and its backups are deleted."
    );
    let end = at(301);
    assert_eq!(fake.observed.pods[0].ends_by, Some(end));
    for second in [110, 300] {
        assert_eq!(
            message(&mut fake, second),
            format!(
                "Job nightly-1790000000 was deleted, but its pod has not ended: its node may be gone. The stored backups \
                 are deleted once the pod is gone, or at {end}, after the pod's own deadline."
            )
        );
    }
    assert_eq!(fake.reconcile_at(301).jobs_to_create[0].task, Task::Erase);
    fake.finish_job(&pruned());
    assert!(
        fake.reconcile_at(302).removes_finalizer,
        "the lost pod is still there"
    );
    assert_eq!(fake.observed.pods[0].termination, None);
}

/// Its pod may be created in the moment in which the Job is deleted.
#[test]
fn an_erase_run_waits_for_the_job_of_a_backup_that_has_no_pod() {
    let mut fake = with_deleted_pod(50);
    fake.observed.desired.deletes_backups = true;
    fake.observed.deleted_at = Some(at(5));
    fake.observed.pods.clear();
    let plan = fake.reconcile_at(6);
    assert_eq!(plan.jobs_to_delete.len(), 1, "{plan:?}");
    assert!(
        plan.jobs_to_create.is_empty() && !plan.removes_finalizer,
        "{plan:?}"
    );
    // The Job is gone.
    assert_eq!(fake.reconcile_at(7).jobs_to_create[0].task, Task::Erase);
}

#[test]
fn an_erase_run_waits_for_a_lost_pod_without_a_deadline_until_it_is_gone() {
    let mut fake = deleted_with_its_backup();
    fake.observed.pods[0].ends_by = None;
    let plan = fake.reconcile_at(86_400);
    assert!(plan.jobs_to_create.is_empty(), "{plan:?}");
    assert!(
        plan.progress
            .message
            .ends_with("The stored backups are deleted once the pod is gone."),
        "{}",
        plan.progress.message
    );
    fake.observed.pods.clear();
    assert_eq!(fake.reconcile_at(86_401).jobs_to_create[0].task, Task::Erase);
}

#[test]
fn a_success_ends_the_run_although_an_injected_container_goes_on() {
    let mut fake = FakeKubernetes::every(600);
    fake.reconcile_at(1);
    fake.reconcile_at(2);
    for (outcome, successes) in [(failed("Unreachable"), 0), (stored(at(4)), 1)] {
        fake.finish_job(&outcome);
        fake.observed.jobs[0].terminal_condition = None;
        fake.observed.pods[0].is_active = true;
        fake.reconcile_at(5);
        // Kubernetes may try again after a failure.
        assert_eq!((fake.successes.len(), fake.failures.len()), (successes, 0));
    }
    assert!(fake.observed.jobs.is_empty(), "the pod goes with its Job");
}
