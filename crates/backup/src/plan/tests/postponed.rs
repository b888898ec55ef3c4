//! Persisted runs that cannot continue because a restore of their cluster has begun, or because they were suspended.

use super::fake_kubernetes::{FakeKubernetes, NO_SLOT, at, stored, unavailable};
use crate::observed_state::{JobSlot, ResolvedSource, SourceProblem};
use crate::plan::Reason;

fn set_restoring(fake: &mut FakeKubernetes, is_restoring: bool) {
    fake.observed.source = if is_restoring {
        unavailable(SourceProblem::BeingRestored)
    } else {
        Ok(ResolvedSource::default())
    };
}

#[test]
fn a_queued_run_gets_no_slot_while_its_cluster_is_restored() {
    let mut fake = FakeKubernetes::every(60);
    fake.observed.job_slot = NO_SLOT;
    assert_eq!(fake.reconcile_at(1).progress.reason, Reason::Queued);
    set_restoring(&mut fake, true);
    fake.observed.job_slot = JobSlot::Granted;
    for second in [2, 500] {
        let plan = fake.reconcile_at(second);
        assert!(plan.jobs_to_create.is_empty() && plan.queued_since.is_none());
        assert_eq!(plan.progress.reason, Reason::WaitsForCluster);
        assert!(plan.progress.is_blocked);
        assert_eq!(
            plan.progress.message,
            format!(
                "A backup is due since {} and waits: EtcdCluster orders is being restored.",
                at(0)
            )
        );
    }
    set_restoring(&mut fake, false);
    let plan = fake.reconcile_at(501);
    let run = &plan.jobs_to_create[0];
    assert_eq!((run.due, run.started_at), (at(0), Some(at(501))));
}

#[test]
fn a_run_without_a_job_gets_its_whole_timeout_after_the_restore() {
    let mut fake = FakeKubernetes::every(60);
    fake.observed.now = at(1);
    // The operator crashes right before it creates the Job.
    fake.reconcile_calls(2);
    set_restoring(&mut fake, true);
    assert!(fake.reconcile_at(300).jobs_to_create.is_empty());
    set_restoring(&mut fake, false);
    let plan = fake.reconcile_at(301);
    let run = &plan.jobs_to_create[0];
    assert_eq!((run.due, run.started_at), (at(0), Some(at(301))));
    fake.finish_job(&stored(at(302)));
    fake.reconcile_at(303);
    assert_eq!(
        (fake.successes.as_slice(), fake.failures.len()),
        (&[at(0)][..], 0)
    );
}

#[test]
fn a_run_with_a_job_continues_during_a_restore() {
    let mut fake = FakeKubernetes::every(60);
    fake.reconcile_at(1);
    set_restoring(&mut fake, true);
    assert_eq!(fake.reconcile_at(2).progress.reason, Reason::BackingUp);
    fake.finish_job(&stored(at(3)));
    fake.reconcile_at(4);
    assert_eq!(fake.successes, [at(0)]);
}

#[test]
fn a_suspended_run_reports_the_suspension_rather_than_the_restore() {
    let mut fake = FakeKubernetes::every(60);
    fake.observed.job_slot = NO_SLOT;
    fake.reconcile_at(1);
    set_restoring(&mut fake, true);
    fake.observed.desired.is_suspended = true;
    assert_eq!(fake.reconcile_at(2).progress.reason, Reason::Suspended);
}

/// The operator crashes, or the API server is away, right before the Job is created.
#[test]
fn a_started_run_without_a_job_waits_while_it_is_suspended_and_gets_its_whole_timeout_afterwards() {
    let mut fake = FakeKubernetes::every(60);
    fake.observed.now = at(1);
    fake.reconcile_calls(2);
    fake.observed.desired.is_suspended = true;
    fake.observed.is_edited = true;
    for second in [2, 500] {
        let plan = fake.reconcile_at(second);
        assert_eq!(plan.progress.reason, Reason::Suspended);
        assert!(plan.jobs_to_create.is_empty() && plan.queued_since.is_none());
        fake.observed.is_edited = false;
    }
    fake.observed.desired.is_suspended = false;
    let run = &fake.reconcile_at(501).jobs_to_create[0];
    assert_eq!((run.due, run.started_at), (at(0), Some(at(501))));
}

#[test]
fn a_run_that_was_requested_while_suspended_gets_its_job_after_a_crash() {
    let mut fake = FakeKubernetes::every(60);
    fake.observed.desired.is_suspended = true;
    fake.observed.backup_request = Some("now".to_owned());
    fake.observed.now = at(1);
    fake.reconcile_calls(2);
    assert_eq!(fake.reconcile_at(2).jobs_to_create.len(), 1);
}

#[test]
fn a_run_with_a_job_continues_when_it_is_suspended() {
    let mut fake = FakeKubernetes::every(60);
    fake.reconcile_at(1);
    fake.observed.desired.is_suspended = true;
    fake.observed.is_edited = true;
    assert_eq!(fake.reconcile_at(2).progress.reason, Reason::BackingUp);
}

#[test]
fn a_run_that_was_postponed_before_its_job_was_seen_continues() {
    let mut fake = FakeKubernetes::every(60);
    fake.reconcile_at(1);
    let (jobs, pods) = (
        std::mem::take(&mut fake.observed.jobs),
        std::mem::take(&mut fake.observed.pods),
    );
    fake.observed.desired.is_suspended = true;
    fake.observed.is_edited = true;
    assert_eq!(fake.reconcile_at(2).progress.reason, Reason::Suspended);
    (fake.observed.jobs, fake.observed.pods) = (jobs, pods);
    assert_eq!(fake.reconcile_at(3).progress.reason, Reason::BackingUp);
    fake.finish_job(&stored(at(4)));
    fake.reconcile_at(5);
    assert_eq!(fake.successes, [at(0)]);
}
