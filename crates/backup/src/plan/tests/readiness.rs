//! What kstatus and `kubectl wait` read: `Ready`, `Reconciling`, `Stalled` and `Finished`.

use etcd_operator_api::condition::{self, ConditionType};
use etcd_operator_api::reference::References;
use etcd_operator_api::refusal::Refusal;
use etcd_operator_api::scope::NotServed;
use etcd_operator_api::{EtcdBackup, EtcdBackupSpec, EtcdBackupStatus};

use super::fake_kubernetes::{FakeKubernetes, NO_SLOT, at, failed, stored, unavailable};
use crate::observed_state::{JobSlot, SourceProblem};
use crate::plan::Plan;
use crate::status::{Obstacle, out_of_scope, refused, status};

/// Status and reason of a condition that the status has after this plan.
fn condition_of(fake: &FakeKubernetes, plan: &Plan, type_: ConditionType) -> (String, String) {
    let backup = EtcdBackup::new("nightly", EtcdBackupSpec::default());
    let status = status(&backup, &fake.observed, plan, &References::default(), None);
    let conditions = status.conditions.expect("conditions");
    let found = condition::find(&conditions, type_).expect("the condition");
    (found.status.clone(), found.reason.clone().unwrap_or_default())
}

fn is_true(fake: &FakeKubernetes, plan: &Plan, type_: ConditionType) -> bool {
    condition_of(fake, plan, type_).0 == "True"
}

/// The phase, and whether the status reports that the operator's image is missing.
fn without_image(fake: &FakeKubernetes, plan: &Plan) -> (String, bool) {
    let backup = EtcdBackup::new("nightly", EtcdBackupSpec::default());
    let missing = Obstacle::NoOperatorImage("Set --image.".to_owned());
    let status = status(
        &backup,
        &fake.observed,
        plan,
        &References::default(),
        Some(&missing),
    );
    let conditions = status.conditions.expect("conditions");
    let stalled = condition::find(&conditions, ConditionType::Stalled).expect("the condition");
    let is_reported = stalled.reason.as_deref() == Some("NoOperatorImage");
    (status.phase.expect("a phase"), is_reported)
}

/// Whether `Ready`, `Reconciling` and `Stalled` are true.
fn kstatus(fake: &FakeKubernetes, plan: &Plan) -> (bool, bool, bool) {
    (
        is_true(fake, plan, ConditionType::Ready),
        is_true(fake, plan, ConditionType::Reconciling),
        is_true(fake, plan, ConditionType::Stalled),
    )
}

const READY: (bool, bool, bool) = (true, false, false);
const RECONCILING: (bool, bool, bool) = (false, true, false);
const STALLED: (bool, bool, bool) = (false, false, true);
const NOT_READY: (bool, bool, bool) = (false, false, false);

#[test]
fn a_one_shot_backup_has_finished_only_when_no_retry_follows() {
    let finished = |fake: &FakeKubernetes, plan: &Plan| condition_of(fake, plan, ConditionType::Finished);
    let mut fake = FakeKubernetes::once();
    let mut second = 1 - 3_600;
    for failures in 1..=6 {
        second += 3_600;
        fake.reconcile_at(second);
        fake.finish_job(&failed("Credentials"));
        let plan = fake.reconcile_at(second + 1);
        let (expected, end) = match failures {
            6 => (STALLED, ("True", "Failed")),
            _ => (RECONCILING, ("False", "Retrying")),
        };
        assert_eq!(kstatus(&fake, &plan), expected, "{failures}");
        let (status, reason) = finished(&fake, &plan);
        assert_eq!((status.as_str(), reason.as_str()), end, "{failures}");
    }
    fake.observed.backup_request = Some("again".to_owned());
    fake.reconcile_at(second + 2);
    fake.finish_job(&stored(fake.observed.now));
    let plan = fake.reconcile_at(second + 3);
    assert_eq!(kstatus(&fake, &plan), READY);
    assert_eq!(finished(&fake, &plan).1, "Succeeded");
}

#[test]
fn a_backup_that_ended_stays_ended_when_an_edit_is_refused() {
    let mut fake = FakeKubernetes::once();
    fake.reconcile_at(1);
    fake.succeed_job();
    fake.reconcile_at(2);
    let mut backup = EtcdBackup::new("nightly", EtcdBackupSpec::default());
    let plan = fake.reconcile_at(3);
    backup.status = Some(status(
        &backup,
        &fake.observed,
        &plan,
        &References::default(),
        None,
    ));
    let refusals = [Refusal::invalid("spec.schedule", "never fires")];
    let status = refused(&backup, &refusals, &References::default(), fake.observed.now);
    let conditions = status.conditions.expect("conditions");
    for (type_, expected) in [
        (ConditionType::Ready, ("False", "Invalid")),
        (ConditionType::Stalled, ("True", "Invalid")),
        (ConditionType::Finished, ("True", "Succeeded")),
    ] {
        let found = condition::find(&conditions, type_).expect("the condition");
        assert_eq!(
            (found.status.as_str(), found.reason.as_deref()),
            (expected.0, Some(expected.1))
        );
    }
}

#[test]
fn a_periodic_backup_whose_cluster_waits_for_the_user_is_ready_until_it_is_late() {
    use SourceProblem::{
        BeingRestored, Hibernated, NoClientCertificate, NoServingMember, NotFormed, NotFound,
    };
    for (problem, in_time, late) in [
        (Hibernated, READY, STALLED),
        (NotFound, READY, STALLED),
        (NoClientCertificate, STALLED, STALLED),
        (NotFormed, RECONCILING, RECONCILING),
        (BeingRestored, RECONCILING, RECONCILING),
        (NoServingMember, RECONCILING, RECONCILING),
    ] {
        let mut fake = FakeKubernetes::every(600);
        fake.reconcile_at(1);
        fake.succeed_job();
        fake.reconcile_at(2);
        fake.observed.source = unavailable(problem);
        let plan = fake.reconcile_at(601);
        assert_eq!(kstatus(&fake, &plan), in_time, "{problem:?}");
        // The next backup was due after 600 s; 300 s of tolerance and the timeout of 60 s have passed.
        fake.reconcile_at(1_100);
        let plan = fake.reconcile_at(1_201);
        assert_eq!(kstatus(&fake, &plan), late, "{problem:?}");
        // The due run is given up after half of the period.
        let plan = fake.reconcile_at(1_600);
        assert!(!is_true(&fake, &plan, ConditionType::Ready), "{problem:?}");
        if problem.awaits_user() && problem != NoClientCertificate {
            assert_eq!(kstatus(&fake, &plan), STALLED, "{problem:?}");
        }
    }
}

#[test]
fn a_late_periodic_backup_is_not_ready() {
    let mut fake = FakeKubernetes::every(600);
    fake.reconcile_at(1);
    fake.succeed_job();
    fake.reconcile_at(2);
    // No operator was running: the run due at 1200 s is too late, and the next one is not due.
    let plan = fake.reconcile_at(1_700);
    assert_eq!(kstatus(&fake, &plan), NOT_READY);
    assert_eq!(condition_of(&fake, &plan, ConditionType::Ready).1, "Late");
    let plan = fake.reconcile_at(1_801);
    assert_eq!(kstatus(&fake, &plan), NOT_READY, "while the overdue backup runs");
    fake.succeed_job();
    fake.reconcile_at(1_802);
    let plan = fake.reconcile_at(1_803);
    assert_eq!(kstatus(&fake, &plan), READY);

    fake.observed.desired.is_suspended = true;
    let plan = fake.reconcile_at(1_900);
    assert_eq!(kstatus(&fake, &plan), READY);
    let plan = fake.reconcile_at(9_000);
    assert_eq!(kstatus(&fake, &plan), STALLED);
}

#[test]
fn a_missing_operator_image_is_reported_only_while_a_run_needs_it() {
    let reported = |phase: &str, is_reported| (phase.to_owned(), is_reported);
    let blocked = reported("Waiting", true);
    let mut fake = FakeKubernetes::once();
    fake.observed.job_slot = NO_SLOT;
    let plan = fake.reconcile_at(1);
    assert_eq!(without_image(&fake, &plan), blocked, "due");
    fake.observed.job_slot = JobSlot::Granted;
    let plan = fake.reconcile_at(2);
    assert_eq!(without_image(&fake, &plan), blocked, "started");
    fake.finish_job(&failed("Credentials"));
    let plan = fake.reconcile_at(3);
    assert_eq!(without_image(&fake, &plan), blocked, "to be retried");
    fake.reconcile_at(100);
    fake.succeed_job();
    let plan = fake.reconcile_at(101);
    assert_eq!(without_image(&fake, &plan), reported("Succeeded", false));

    let mut fake = FakeKubernetes::every(600);
    fake.reconcile_at(1);
    fake.succeed_job();
    let plan = fake.reconcile_at(2);
    assert_eq!(without_image(&fake, &plan), blocked, "scheduled");
    fake.observed.source = unavailable(SourceProblem::NotFormed);
    let plan = fake.reconcile_at(601);
    assert_eq!(
        without_image(&fake, &plan),
        blocked,
        "due while its cluster has not formed"
    );
    fake.observed.desired.is_suspended = true;
    let plan = fake.reconcile_at(602);
    assert_eq!(without_image(&fake, &plan), reported("Suspended", false));
}

/// The ancestor, or another client, stored conditions with fewer fields.
#[test]
fn fields_that_stored_conditions_lack_are_added_though_nothing_else_changes() {
    let mut fake = FakeKubernetes::once();
    fake.reconcile_at(1);
    fake.succeed_job();
    fake.reconcile_at(2);
    let plan = fake.reconcile_at(3);
    let now = fake.observed.now;
    let (references, refusals) = (
        References::default(),
        [Refusal::invalid("spec.schedule", "never fires")],
    );
    let not_served = NotServed { why: "so".to_owned() };
    let mut backup = EtcdBackup::new("nightly", EtcdBackupSpec::default());
    let finished = status(&backup, &fake.observed, &plan, &references, None).conditions;
    let invalid = refused(&backup, &refusals, &references, now).conditions;
    for complete in [finished, invalid] {
        let mut stored = complete.clone();
        for condition in stored.iter_mut().flatten() {
            condition.last_transition_time = Some(String::new());
            condition.last_update_time = None;
        }
        backup.status = Some(EtcdBackupStatus {
            conditions: stored,
            ..EtcdBackupStatus::default()
        });
        for after in [
            status(&backup, &fake.observed, &plan, &references, None),
            refused(&backup, &refusals, &references, now),
            out_of_scope(&backup, None, &not_served, now).expect("a status"),
        ] {
            for condition in after.conditions.iter().flatten() {
                let time = condition.last_transition_time.as_deref();
                assert_eq!(time, Some(&*now.to_string()), "{condition:?}");
            }
        }
    }
}

#[test]
fn a_backup_that_is_not_served_has_not_finished_as_far_as_is_known() {
    let not_served = NotServed { why: "so".to_owned() };
    let mut backup = EtcdBackup::new("nightly", EtcdBackupSpec::default());
    for (schedule, finished) in [(None, Some("Unknown")), (Some("0 3 * * *".to_owned()), None)] {
        backup.spec.schedule = schedule;
        let status = out_of_scope(&backup, None, &not_served, at(0)).expect("a status");
        let conditions = status.conditions.expect("conditions");
        let found = condition::find(&conditions, ConditionType::Finished);
        assert_eq!(found.map(|one| one.status.as_str()), finished);
        let stalled = condition::find(&conditions, ConditionType::Stalled).expect("the condition");
        assert_eq!(stalled.status, "Unknown");
    }
}
