//! The life of runs: start, retry, queueing, retention and deletion.

use std::time::Duration;

use etcd_operator_api::backup::ActiveRun;
use etcd_operator_api::retention::Keep;

use super::fake_kubernetes::{FakeKubernetes, NO_SLOT, at, desired, failed, pruned, stored, unavailable};
use crate::desired::Trigger;
use crate::observed_state::{JobSlot, ResolvedSource, SourceProblem};
use crate::persisted_state::Task;
use crate::plan::{MissCause, MissedRun, Outcome, Reason};

#[test]
fn a_run_is_persisted_before_its_job_is_created_and_recorded_before_the_job_is_deleted() {
    let mut fake = FakeKubernetes::once();
    let plan = fake.reconcile_at(1);
    assert_eq!((plan.persisted.runs.len(), plan.jobs_to_create.len()), (1, 1));
    assert_eq!(fake.created_jobs, ["nightly-1790000000"]);
    assert_eq!(fake.reconcile_at(2).progress.reason, Reason::BackingUp);
    fake.finish_job(&stored(at(3)));
    let plan = fake.reconcile_at(4);
    assert!(plan.persisted.runs.is_empty() && plan.jobs_to_delete.len() == 1);
    assert_eq!(
        (fake.successes.as_slice(), fake.observed.jobs.len()),
        ([at(0)].as_slice(), 0)
    );
    let plan = fake.reconcile_at(5);
    assert_eq!(
        (plan.progress.reason, plan.jobs_to_create.len()),
        (Reason::Done, 0)
    );
}

#[test]
fn a_failed_one_shot_backup_is_retried_later_or_at_once_after_an_edit() {
    let mut fake = FakeKubernetes::once();
    fake.reconcile_at(1);
    fake.finish_job(&failed("Credentials"));
    let plan = fake.reconcile_at(2);
    assert_eq!(plan.progress.reason, Reason::Retrying);
    assert!(plan.requeue_after <= Duration::from_mins(1));
    assert_eq!(fake.reconcile_at(30).jobs_to_create.len(), 0);
    assert_eq!(fake.reconcile_at(61).jobs_to_create.len(), 1);
    fake.finish_job(&failed("Credentials"));
    fake.reconcile_at(62);
    assert_eq!(fake.reconcile_at(63).jobs_to_create.len(), 0);
    fake.observed.is_edited = true;
    assert_eq!(fake.reconcile_at(64).jobs_to_create.len(), 1);
    fake.observed.is_edited = false;
    fake.finish_job(&stored(at(65)));
    assert_eq!(fake.reconcile_at(66).progress.reason, Reason::Done);
    assert_eq!((fake.failures.len(), fake.successes.len()), (2, 1));
}

#[test]
fn a_one_shot_backup_is_given_up_after_six_failures_until_an_edit_or_a_request() {
    let mut fake = FakeKubernetes::once();
    let mut second = 1 - 3_600;
    for failures in 1..=6 {
        second += 3_600;
        assert_eq!(fake.reconcile_at(second).jobs_to_create.len(), 1, "{failures}");
        fake.finish_job(&failed("Credentials"));
        fake.reconcile_at(second + 1);
    }
    let given_up = fake.reconcile_at(second + 7_200);
    assert_eq!(
        (given_up.progress.reason, given_up.jobs_to_create.len()),
        (Reason::LastRunFailed, 0)
    );
    fake.observed.is_edited = true;
    assert_eq!(fake.reconcile_at(second + 7_201).jobs_to_create.len(), 1);
    fake.observed.is_edited = false;
    fake.finish_job(&failed("Credentials"));
    // The user has acted: what fails now is retried as at first.
    let corrected = fake.reconcile_at(second + 7_202);
    assert_eq!(corrected.progress.reason, Reason::Retrying);
    assert_eq!(corrected.persisted.failures, 1);
    fake.observed.backup_request = Some("again".to_owned());
    assert_eq!(fake.reconcile_at(second + 7_203).jobs_to_create.len(), 1);
}

#[test]
fn a_failure_names_the_field_of_the_spec() {
    let mut fake = FakeKubernetes::once();
    fake.reconcile_at(1);
    fake.finish_job(&failed("Credentials"));
    let plan = fake.reconcile_at(2);
    let Outcome::Failed { reason, message } = &plan.finished_runs[0].outcome else {
        panic!("another end")
    };
    assert_eq!(
        crate::plan::describe_failure(&fake.observed.desired, reason, message),
        "spec.oss.ossSecret (Secret aliyun): Credentials: no"
    );
}

#[test]
fn after_a_lost_result_the_job_is_created_again_under_the_same_name() {
    for is_complete in [true, false] {
        let mut fake = FakeKubernetes::once();
        fake.reconcile_at(1);
        fake.reconcile_at(2);
        fake.lose_result(is_complete);
        fake.reconcile_at(3);
        fake.reconcile_at(4);
        fake.reconcile_at(5);
        assert_eq!(fake.created_jobs.len(), 2, "{is_complete}");
        assert_eq!(fake.created_jobs[0], fake.created_jobs[1]);
        fake.finish_job(&stored(at(6)));
        fake.reconcile_at(7);
        assert_eq!(
            (fake.successes.as_slice(), fake.failures.len()),
            ([at(0)].as_slice(), 0)
        );
    }
}

#[test]
fn a_run_whose_job_is_deleted_repeatedly_fails() {
    let mut fake = FakeKubernetes::every(3_600);
    for second in 1..40 {
        fake.reconcile_at(second);
        fake.reconcile_at(second);
        fake.observed.jobs.clear();
        fake.observed.pods.clear();
    }
    assert_eq!(fake.created_jobs.len(), 3);
    assert_eq!(fake.failures, [(at(0), "ResultLost".to_owned())]);
}

#[test]
fn a_pod_that_never_started_is_the_reported_failure() {
    let mut fake = FakeKubernetes::once();
    fake.reconcile_at(1);
    fake.observed.pods[0].has_started = false;
    fake.observed.pods[0].waiting_reason = Some("ErrImagePull: no such image".to_owned());
    let plan = fake.reconcile_at(2);
    assert!(
        plan.progress.message.contains("ErrImagePull"),
        "{}",
        plan.progress.message
    );
    fake.lose_result(false);
    let plan = fake.reconcile_at(130);
    let Outcome::Failed { reason, message } = &plan.finished_runs[0].outcome else {
        panic!("another end")
    };
    assert_eq!(reason, "NotStarted");
    assert_eq!(
        message,
        "Job nightly-1790000000 left no result: DeadlineExceeded: too late; ErrImagePull: no such image"
    );
}

#[test]
fn a_job_that_the_api_server_rejects_is_retried_until_the_timeout_of_its_run() {
    let mut fake = FakeKubernetes::every(3_600);
    fake.observed.now = at(1);
    let plan = fake.reconcile_calls(2);
    fake.observed
        .persisted
        .set_job_rejected(&plan.jobs_to_create[0], "exceeded quota".to_owned());
    fake.observed.now = at(50);
    let plan = fake.reconcile_calls(2);
    assert_eq!(plan.jobs_to_create.len(), 1);
    assert_eq!(
        plan.progress.message,
        "The API server rejects Job nightly-1790000000: exceeded quota. The operator retries until the run times out."
    );
    fake.observed.now = at(70);
    fake.reconcile_calls(2);
    assert_eq!(fake.failures, [(at(0), "JobRefused".to_owned())]);
}

#[test]
fn failed_tries_are_reported_and_a_corrected_spec_replaces_their_job() {
    let mut fake = FakeKubernetes::once();
    fake.reconcile_at(1);
    fake.reconcile_at(2);
    fake.fail_pod("Unreachable");
    let plan = fake.reconcile_at(3);
    assert_eq!(
        plan.progress.message,
        "Job nightly-1790000000 makes a backup. Tries that failed so far: 1; Kubernetes retries. The last one: \
         spec.oss.endpoint: Unreachable: no"
    );
    assert!(plan.jobs_to_delete.is_empty() && plan.finished_runs.is_empty());

    // A crash prevents the delete; the next reconcile repeats it.
    fake.observed.generation = 2;
    fake.observed.now = at(4);
    assert_eq!(fake.reconcile_calls(1).jobs_to_delete.len(), 1);
    assert_eq!(fake.reconcile_calls(2).jobs_to_delete.len(), 1);
    fake.reconcile_at(5);
    fake.reconcile_at(6);
    assert_eq!(fake.created_jobs.len(), 2);
    assert_eq!(fake.observed.persisted.runs[0].attempt, 1);
    let since = fake.observed.persisted.runs[0].started_at;
    assert!(since >= Some(at(4)), "its timeout starts anew: {since:?}");
    assert!(fake.reconcile_at(7).jobs_to_delete.is_empty());
    fake.succeed_job();
    fake.reconcile_at(8);
    assert_eq!((fake.successes.len(), fake.failures.len()), (1, 0));
}

#[test]
fn an_edit_does_not_interrupt_a_first_try() {
    let mut fake = FakeKubernetes::once();
    fake.reconcile_at(1);
    fake.reconcile_at(2);
    fake.observed.generation = 2;
    fake.observed.is_edited = true;
    assert!(fake.reconcile_at(3).jobs_to_delete.is_empty());
    assert_eq!(fake.created_jobs.len(), 1);
}

#[test]
fn no_job_is_created_while_a_pod_of_the_same_run_still_runs() {
    let mut fake = FakeKubernetes::once();
    fake.reconcile_at(1);
    fake.reconcile_at(2);
    fake.observed.jobs.clear();
    fake.reconcile_at(3);
    fake.reconcile_at(4);
    assert_eq!(fake.created_jobs.len(), 1);
    fake.observed.pods.clear();
    fake.reconcile_at(5);
    fake.reconcile_at(6);
    assert_eq!(fake.created_jobs.len(), 2);
}

#[test]
fn no_backup_starts_beside_another_or_while_suspended_and_a_due_one_starts_afterwards() {
    let mut fake = FakeKubernetes::every(60);
    fake.reconcile_at(1);
    assert_eq!(fake.reconcile_at(61).jobs_to_create.len(), 0);
    fake.finish_job(&stored(at(62)));
    fake.observed.desired.is_suspended = true;
    let plan = fake.reconcile_at(63);
    assert_eq!(
        (plan.jobs_to_create.len(), plan.progress.reason),
        (0, Reason::Suspended)
    );
    fake.observed.desired.is_suspended = false;
    assert_eq!(fake.reconcile_at(64).jobs_to_create.len(), 1);
    assert_eq!(fake.created_jobs.len(), 2);
}

#[test]
fn a_due_run_waits_for_a_job_slot_however_long_that_takes() {
    let mut fake = FakeKubernetes::every(60);
    fake.observed.job_slot = NO_SLOT;
    for second in [1, 100, 1_000] {
        let plan = fake.reconcile_at(second);
        assert_eq!(
            (plan.progress.reason, plan.queued_since),
            (Reason::Queued, Some(at(0)))
        );
        assert!(plan.jobs_to_create.is_empty());
        // The next free slot wakes it. Thousands of waiting runs must not be reconciled every few seconds.
        assert!(plan.requeue_after > Duration::from_secs(5));
    }
    fake.observed.job_slot = JobSlot::Granted;
    assert_eq!(fake.reconcile_at(1_001).jobs_to_create[0].due, at(0));
}

#[test]
fn a_deleted_object_says_so_while_its_erase_run_waits_for_a_job_slot() {
    let mut fake = FakeKubernetes::every(600);
    fake.reconcile_at(1);
    fake.succeed_job();
    fake.reconcile_at(2);
    fake.observed.desired.deletes_backups = true;
    fake.observed.deleted_at = Some(at(5));
    fake.observed.job_slot = NO_SLOT;
    let plan = fake.reconcile_at(6);
    assert!(plan.jobs_to_create.is_empty() && plan.progress.is_blocked);
    assert_eq!(
        (plan.progress.reason, plan.progress.message.as_str()),
        (
            Reason::Erasing,
            "The Job that deletes the stored backups waits for a free Job slot (at most 8 at once). Runs that come first take the \
             free slots."
        )
    );
}

#[test]
fn a_due_run_waits_for_its_cluster_until_the_starting_deadline() {
    let mut fake = FakeKubernetes::every(600);
    fake.observed.source = unavailable(SourceProblem::NotFormed);
    let plan = fake.reconcile_at(1);
    assert_eq!(plan.progress.reason, Reason::WaitsForCluster);
    let plan = fake.reconcile_at(400);
    let unavailable = fake.observed.source.clone().expect_err("unavailable");
    let missed = MissedRun {
        due: at(0),
        cause: MissCause::Source(unavailable),
    };
    assert_eq!(
        missed.to_string(),
        format!(
            "The backup due at {} was skipped: EtcdCluster orders has not formed yet",
            at(0)
        )
    );
    assert_eq!(plan.missed, Some(missed));
    assert_eq!(fake.reconcile_at(401).missed, None);
    fake.observed.source = Ok(ResolvedSource::default());
    assert_eq!(fake.reconcile_at(600).jobs_to_create.len(), 1);
}

#[test]
fn a_request_makes_one_backup_although_the_schedule_is_suspended() {
    let mut fake = FakeKubernetes::every(60);
    fake.reconcile_at(1);
    fake.reconcile_at(2);
    fake.succeed_job();
    fake.observed.desired.is_suspended = true;
    fake.reconcile_at(100);
    assert_eq!(fake.created_jobs.len(), 1);
    fake.observed.backup_request = Some("now".to_owned());
    fake.observed.job_slot = NO_SLOT;
    fake.reconcile_at(101);
    fake.observed.job_slot = JobSlot::Granted;
    fake.reconcile_at(102);
    fake.reconcile_at(103);
    fake.succeed_job();
    fake.reconcile_at(104);
    assert_eq!((fake.created_jobs.len(), fake.successes.len()), (2, 2));
    assert_eq!(fake.reconcile_at(500).progress.reason, Reason::Suspended);
    assert_eq!(fake.created_jobs.len(), 2);
}

#[test]
fn a_queued_run_satisfies_a_request_made_while_suspended() {
    let mut fake = FakeKubernetes::every(60);
    fake.observed.job_slot = NO_SLOT;
    fake.reconcile_at(1);
    fake.observed.desired.is_suspended = true;
    fake.observed.job_slot = JobSlot::Granted;
    fake.reconcile_at(2);
    assert!(fake.created_jobs.is_empty());
    fake.observed.backup_request = Some("now".to_owned());
    fake.reconcile_at(3);
    fake.reconcile_at(4);
    fake.succeed_job();
    fake.reconcile_at(5);
    fake.reconcile_at(6);
    assert_eq!((fake.created_jobs.len(), fake.successes.len()), (1, 1));
}

#[test]
fn each_request_makes_one_backup_and_a_request_during_a_run_makes_one_after_it() {
    let mut fake = FakeKubernetes::every(3_600);
    fake.reconcile_at(0);
    fake.reconcile_at(1);
    fake.observed.backup_request = Some("a".to_owned());
    assert_eq!(fake.reconcile_at(2).jobs_to_create.len(), 0);
    fake.finish_job(&stored(at(3)));
    assert_eq!(fake.reconcile_at(4).jobs_to_create.len(), 1);
    fake.finish_job(&stored(at(5)));
    for second in 6..10 {
        assert_eq!(fake.reconcile_at(second).jobs_to_create.len(), 0);
    }
    fake.observed.backup_request = Some("b".to_owned());
    assert_eq!(fake.reconcile_at(10).jobs_to_create.len(), 1);
    assert_eq!(fake.created_jobs.len(), 3);
}

#[test]
fn a_good_backup_is_followed_by_a_prune_run_if_retention_is_bounded() {
    let mut fake = FakeKubernetes::every(3_600);
    fake.observed.desired.retention = Keep {
        newest: Some(4),
        ..Keep::default()
    };
    fake.reconcile_at(0);
    fake.finish_job(&stored(at(1)));
    let plan = fake.reconcile_at(2);
    assert_eq!(
        plan.jobs_to_create.iter().map(|run| run.task).collect::<Vec<_>>(),
        [Task::Prune]
    );
    fake.finish_job(&pruned());
    let plan = fake.reconcile_at(3);
    assert!(plan.persisted.runs.is_empty() && fake.observed.jobs.is_empty());
}

#[test]
fn a_due_backup_does_not_wait_for_a_prune_run() {
    let mut fake = FakeKubernetes::every(60);
    fake.observed.desired.retention.newest = Some(1);
    fake.reconcile_at(0);
    fake.finish_job(&stored(at(1)));
    fake.reconcile_at(2);
    let plan = fake.reconcile_at(60);
    assert_eq!(
        plan.jobs_to_create.iter().map(|run| run.task).collect::<Vec<_>>(),
        [Task::Backup]
    );
}

#[test]
fn a_backup_that_finishes_during_a_prune_run_is_followed_by_another_prune_run() {
    let mut fake = FakeKubernetes::every(60);
    fake.observed.desired.retention.newest = Some(1);
    fake.reconcile_at(0);
    fake.finish_job(&stored(at(1)));
    fake.reconcile_at(2);
    fake.reconcile_at(60);
    fake.finish_job(&stored(at(61)));
    // The running prune listed the store before the second backup was there. Suspension keeps other runs from starting.
    fake.observed.desired.is_suspended = true;
    let plan = fake.reconcile_at(62);
    assert!(
        plan.jobs_to_create.is_empty(),
        "two prune runs at once: {:?}",
        plan.jobs_to_create
    );
    fake.finish_job(&pruned());
    let plan = fake.reconcile_at(63);
    assert_eq!(
        plan.jobs_to_create.iter().map(|run| run.task).collect::<Vec<_>>(),
        [Task::Prune]
    );
    fake.finish_job(&pruned());
    assert!(fake.reconcile_at(64).persisted.runs.is_empty());
}

#[test]
fn stored_backups_are_erased_with_the_object_once_no_pod_writes() {
    let mut fake = FakeKubernetes::every(3_600);
    fake.observed.desired.deletes_backups = true;
    fake.reconcile_at(0);
    fake.reconcile_at(1);
    fake.observed.deleted_at = Some(at(2));
    let plan = fake.plan();
    assert!(!plan.removes_finalizer && plan.jobs_to_create.is_empty() && plan.jobs_to_delete.len() == 1);
    fake.observed.jobs.clear();
    assert!(
        fake.reconcile_at(3).jobs_to_create.is_empty(),
        "its pod still runs"
    );
    fake.observed.pods.clear();
    assert_eq!(fake.reconcile_at(4).jobs_to_create[0].task, Task::Erase);
    fake.finish_job(&failed("Credentials"));
    let plan = fake.reconcile_at(5);
    assert!(
        !plan.removes_finalizer && plan.progress.message.contains("spec.oss.ossSecret"),
        "{}",
        plan.progress.message
    );
    assert!(fake.reconcile_at(6).jobs_to_create.is_empty());
    assert_eq!(fake.reconcile_at(70).jobs_to_create[0].task, Task::Erase);
    fake.finish_job(&pruned());
    assert!(fake.reconcile_at(71).removes_finalizer);
}

#[test]
fn an_object_without_backups_or_with_retained_ones_is_released_at_once() {
    let mut fake = FakeKubernetes::every(3_600);
    fake.observed.desired.deletes_backups = true;
    fake.observed.deleted_at = Some(at(0));
    assert!(fake.plan().removes_finalizer);
    let mut fake = FakeKubernetes::every(3_600);
    fake.reconcile_at(0);
    fake.observed.deleted_at = Some(at(1));
    assert!(fake.plan().removes_finalizer);
}

#[test]
fn freshness_has_a_deadline_by_the_schedule_and_none_after_a_one_shot_backup() {
    let mut fake = FakeKubernetes::every(600);
    // Due at once, plus half a period of tolerance, plus the timeout of one minute.
    assert_eq!(fake.reconcile_at(0).fresh_until, Some(at(360)));
    fake.finish_job(&stored(at(10)));
    assert_eq!(fake.reconcile_at(11).fresh_until, Some(at(10 + 600 + 360)));
    let mut fake = FakeKubernetes::new(desired(Trigger::Once));
    fake.reconcile_at(0);
    fake.finish_job(&stored(at(10)));
    assert_eq!(fake.reconcile_at(11).fresh_until, None);
}

#[test]
fn a_job_of_an_unknown_task_is_deleted_only_with_the_object() {
    let mut fake = FakeKubernetes::once();
    fake.reconcile_at(1);
    fake.succeed_job();
    fake.reconcile_at(2);
    fake.reconcile_at(3);
    let newer = ActiveRun {
        job: fake.created_jobs[0].clone(),
        task: "Verify".to_owned(),
        ..ActiveRun::default()
    };
    fake.create_job(newer.job.clone());
    let deletions = |fake: &mut FakeKubernetes, second| fake.reconcile_at(second).jobs_to_delete.len();
    fake.observed.persisted.unknown_runs = vec![newer];
    assert_eq!(deletions(&mut fake, 4), 0);
    assert_eq!(fake.observed.persisted.unknown_runs.len(), 1);
    fake.observed.deleted_at = Some(at(5));
    assert_eq!(deletions(&mut fake, 5), 1);
}
