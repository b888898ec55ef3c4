//! What kstatus and `kubectl wait` read: `Ready`, `Reconciling`, `Stalled` and `Finished`.

use etcd_operator_api::condition::{self, ConditionType};
use etcd_operator_api::reference::References;
use etcd_operator_api::refusal::Refusal;
use etcd_operator_api::{EtcdBackup, EtcdBackupSpec};

use super::fake_kubernetes::{FakeKubernetes, failed, stored};
use crate::plan::Plan;
use crate::status::{refused, status};

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
