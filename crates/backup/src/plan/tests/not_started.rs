//! Runs whose pods do not start or whose tries fail: the cause is reported, and a correction of the spec takes effect.

use etcd_operator_api::location::Location;

use super::fake_kubernetes::{FakeKubernetes, at, failed};
use crate::plan::Outcome;

#[test]
fn a_job_whose_pod_cannot_start_is_replaced_when_the_spec_is_corrected() {
    let mut fake = FakeKubernetes::once();
    fake.reconcile_at(1);
    fake.observed.pods[0].has_started = false;
    let text = "Unschedulable: persistentvolumeclaim \"backup\" not found";
    fake.observed.pods[0].waiting_reason = Some(text.to_owned());
    fake.observed.desired.location = Location::Local {
        claim: "backup".to_owned(),
        path: None,
    };
    let plan = fake.reconcile_at(2);
    assert_eq!(
        plan.progress.message,
        "Job nightly-1790000000 makes a backup, but its pod has not started: spec.local.persistentVolumeClaim: \
         Unschedulable: persistentvolumeclaim \"backup\" not found."
    );
    assert!(plan.jobs_to_delete.is_empty());
    fake.observed.generation += 1;
    let plan = fake.reconcile_at(3);
    assert!(plan.jobs_to_delete[0].is_replaced, "{:?}", plan.jobs_to_delete);
    let makes_backup = "Job nightly-1790000000 makes a backup.";
    assert_eq!(
        plan.progress.message, makes_backup,
        "the API server rejects no Job"
    );
    assert_eq!(fake.reconcile_at(4).jobs_to_create[0].attempt, 1);
}

#[test]
fn a_deleted_job_whose_pod_had_not_started_is_no_job_that_the_api_server_rejects() {
    let mut fake = FakeKubernetes::once();
    fake.reconcile_at(1);
    fake.observed.pods[0].has_started = false;
    fake.observed.pods[0].waiting_reason = Some("Unschedulable: no node".to_owned());
    fake.reconcile_at(2);
    fake.observed.jobs.clear();
    fake.observed.pods.clear();
    let plan = fake.reconcile_at(3);
    assert_eq!(plan.progress.message, "Job nightly-1790000000 makes a backup.");
    assert_eq!(plan.persisted.runs[0].message, None);
}

#[test]
fn the_failure_of_earlier_tries_is_reported_instead_of_the_missed_deadline() {
    let mut fake = FakeKubernetes::once();
    fake.reconcile_at(1);
    fake.fail_pod("NoMember");
    fake.observed.now = at(70);
    fake.observed.pods.rotate_left(1);
    fake.finish_job(&failed("Deadline"));
    fake.observed.pods[1].termination = fake.observed.pods[0].termination.clone();
    let first = fake.observed.pods[0].termination.as_mut().unwrap();
    first.result.as_mut().unwrap().outcome = failed("NoMember");
    let plan = fake.reconcile_at(71);
    let Outcome::Failed { reason, .. } = &plan.finished_runs[0].outcome else {
        panic!("{:?}", plan.finished_runs)
    };
    assert_eq!(reason, "NoMember");
}

#[test]
fn a_job_without_a_pod_is_reported_with_the_way_to_its_reason() {
    let mut fake = FakeKubernetes::once();
    fake.reconcile_at(1);
    fake.observed.pods.clear();
    let progress = |fake: &mut FakeKubernetes, second| fake.reconcile_at(second).progress.message;
    assert_eq!(
        progress(&mut fake, 10),
        "Job nightly-1790000000 makes a backup.",
        "the Job controller has time"
    );
    assert_eq!(
        progress(&mut fake, 40),
        "Job nightly-1790000000 makes a backup, but it has no pod; see kubectl events --for job/nightly-1790000000 for the \
         reason, for example a ResourceQuota or LimitRange."
    );
}
