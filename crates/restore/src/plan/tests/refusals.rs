//! Failed and refused restores, and when they are retried.

use etcd_operator_api::condition::{self, ConditionType};

use super::*;
use crate::plan::Reason;

#[test]
fn a_permanent_failure_is_retried_only_after_an_edit() {
    let failed = |attempt: i64, retriable: bool| {
        let mut observed = observed_restore();
        reconcile(&mut observed);
        observed.state.attempt = attempt;
        let outcome = JobOutcome::Failed {
            reason: "Key".to_owned(),
            message: "no key 2026".to_owned(),
            retriable,
        };
        observed.jobs = vec![ended_job(&format!("back-v{attempt}"), outcome)];
        observed.now = "2026-03-08T12:00:00Z".parse().expect("a time");
        observed
    };
    for (attempt, retriable) in [(1, false), (6, true)] {
        let mut observed = failed(attempt, retriable);
        let awaits_edit = reconcile(&mut observed);
        assert_eq!((awaits_edit.phase, awaits_edit.job), (Phase::Failed, None));
        assert!(
            awaits_edit.message.contains("when its spec changes"),
            "{}",
            awaits_edit.message
        );
        observed.is_edited = true;
        let next = format!("back-v{}", attempt + 1);
        assert_eq!(plan(&observed).job.expect("a Job").name, next);
    }
    let again = reconcile(&mut failed(5, true));
    assert_eq!(again.job.expect("a Job").name, "back-v6");
}

#[test]
fn an_object_that_was_replaced_since_its_selection_is_refused() {
    let mut observed = observed_restore();
    reconcile(&mut observed);
    // The status shows whole seconds, so the exact completion time is later.
    let found = Verified {
        completed_at: "2026-03-01T10:00:00.9Z".parse().ok(),
        ..verified()
    };
    observed.jobs = vec![ended_job("back-v1", JobOutcome::Verified(Box::new(found)))];
    let backup_at = |at| BackupRef::Backup {
        name: "nightly".to_owned(),
        at,
    };
    let early = "2026-03-01T09:59:58Z".parse().expect("a time");
    for at in [PointInTime::Revision(39), PointInTime::Time(early)] {
        observed.desired.backup = backup_at(at);
        let refused = plan(&observed);
        assert_eq!(
            (refused.phase, &refused.request),
            (Phase::Failed, &RequestChange::Keep)
        );
        assert!(
            refused.message.contains("Nothing was changed"),
            "{}",
            refused.message
        );
    }
    for at in [
        PointInTime::Revision(40),
        PointInTime::Time("2026-03-01T10:00:00Z".parse().expect("a time")),
    ] {
        observed.desired.backup = backup_at(at);
        assert!(matches!(plan(&observed).request, RequestChange::Set(_)), "{at:?}");
    }
}

/// A paused cluster, another restore, a missing backup or a deleted Job does not trigger another attempt.
#[test]
fn a_failed_restore_stays_failed_whatever_blocks_it_temporarily() {
    let outcome = JobOutcome::Failed {
        reason: "Key".to_owned(),
        message: "no key 2026".to_owned(),
        retriable: false,
    };
    let blockers: [Mutation; 4] = [
        |observed| cluster(observed).is_paused = true,
        |observed| observed.competing_restore = Some("another".to_owned()),
        |observed| observed.source = Err("there is no such backup".to_owned()),
        |observed| observed.jobs.clear(),
    ];
    for (number, blocker) in blockers.into_iter().enumerate() {
        let mut observed = observed_restore();
        reconcile(&mut observed);
        observed.jobs = vec![ended_job("back-v1", outcome.clone())];
        let failed = reconcile(&mut observed);
        observed.state.message = Some(failed.message.clone());
        let unblocked = observed.clone();
        blocker(&mut observed);
        let awaits_edit = reconcile(&mut observed);
        assert_eq!(
            (awaits_edit.phase, &awaits_edit.job, &awaits_edit.message),
            (Phase::Failed, &None, &failed.message),
            "{number}"
        );
        // Weeks later the Job is gone, or only the pod with its result.
        let mut job_without_result = ended_job("back-v1", outcome.clone());
        job_without_result.result = None;
        observed = ObservedRestore {
            state: observed.state,
            jobs: vec![job_without_result],
            now: "2026-03-22T12:00:00Z".parse().expect("a time"),
            ..unblocked.clone()
        };
        let later = reconcile(&mut observed);
        assert_eq!(
            (later.phase, later.job, later.request),
            (Phase::Failed, None, RequestChange::Keep),
            "{number}"
        );
        observed = ObservedRestore {
            state: observed.state,
            jobs: Vec::new(),
            ..unblocked
        };
        let later = plan(&observed);
        assert_eq!(
            (later.phase, later.job, later.request),
            (Phase::Failed, None, RequestChange::Keep),
            "{number}"
        );
        observed.is_edited = true;
        assert!(plan(&observed).job.is_some(), "{number}");
    }
}

#[test]
fn an_image_without_the_restore_tool_is_refused() {
    let mut observed = observed_restore();
    reconcile(&mut observed);
    cluster(&mut observed).image = Some("registry.example.com/etcd:lean".to_owned());
    let mut job = ended_job("back-v1", JobOutcome::Fetched { bytes: 0 });
    job.result = None;
    job.tool_error = Some("StartError (exit code 128) no such file or directory".to_owned());
    job.end.as_mut().expect("an end").is_complete = false;
    observed.jobs = vec![job];
    let refused = reconcile(&mut observed);
    assert_eq!(
        (refused.phase, &refused.request),
        (Phase::Failed, &RequestChange::Keep)
    );
    for fragment in [
        "NoTool",
        "registry.example.com/etcd:lean",
        "no such file",
        "Nothing was changed",
    ] {
        assert!(refused.message.contains(fragment), "{}", refused.message);
    }
}

#[test]
fn the_volume_must_fit_the_old_data_too() {
    // The download and the new database, plus the WAL.
    let needed = 2 * 20_512 + (128 << 20);
    for (beside, wanted) in [
        (None, true),
        (Some((1 << 30) - needed), true),
        (Some((1 << 30) - needed + 1), false),
    ] {
        let mut observed = observed_restore();
        reconcile(&mut observed);
        cluster(&mut observed).volume_size = Some(1 << 30);
        let verified = Verified { beside, ..verified() };
        observed.jobs = vec![ended_job("back-v1", JobOutcome::Verified(Box::new(verified)))];
        let next = plan(&observed);
        assert_eq!(
            matches!(next.request, RequestChange::Set(_)),
            wanted,
            "{beside:?}: {}",
            next.message
        );
        if let Some(beside) = beside.filter(|_| !wanted) {
            assert!(
                next.message
                    .contains(&format!("in addition to the {beside} bytes")),
                "{}",
                next.message
            );
        }
    }
}

/// A script learns of the refusal, upgrades the cluster and creates a second restore. The first must not start then.
#[test]
fn a_refused_restore_starts_again_only_after_an_edit() {
    for at in [
        "2026-03-01T12:00:00Z",
        "2026-03-01T12:40:00Z",
        "2026-06-01T12:00:00Z",
    ] {
        let mut observed = observed_restore();
        reconcile(&mut observed);
        let newer = Verified {
            etcd_version: Some("3.7.1".to_owned()),
            ..verified()
        };
        observed.jobs = vec![ended_job("back-v1", JobOutcome::Verified(Box::new(newer)))];
        let refused = reconcile(&mut observed);
        assert_eq!(refused.reason, Reason::NewerVersion);
        assert_eq!(
            observed.state.failure.as_ref(),
            Some(&refused.message),
            "Finished is true"
        );
        cluster(&mut observed).cluster_id = Some("d".to_owned());
        for safety_backup in [false, true] {
            observed.desired.safety_backup = safety_backup;
            assert_eq!(plan(&observed).reason, Reason::NewerVersion);
        }
        observed.now = at.parse().expect("a time");
        cluster(&mut observed).version = "3.7.3".parse().ok();
        for safety_backup in [false, true, false] {
            observed.desired.safety_backup = safety_backup;
            let next = reconcile(&mut observed);
            assert_eq!(
                (next.phase, next.job, next.request, &next.message),
                (Phase::Failed, None, RequestChange::Keep, &refused.message),
                "{at}"
            );
        }
        let text = "Nothing was changed; the restore is retried when its spec changes.";
        assert!(refused.message.ends_with(text), "{}", refused.message);
        observed.is_edited = true;
        assert_eq!(plan(&observed).job.expect("a Job").name, "back-v2", "{at}");
    }
}

/// A retry was pending when the quorum was lost, and the user was told that the restore has failed.
#[test]
fn a_restore_that_was_reported_as_failed_is_not_retried_once_the_quorum_is_back() {
    let mut observed = with_safety_backup();
    let failed = JobOutcome::Failed {
        reason: "NoMember".to_owned(),
        message: "no member answers".to_owned(),
        retriable: true,
    };
    observed.jobs.push(ended_job("back-s1", failed));
    assert!(reconcile(&mut observed).will_retry);
    assert_eq!(observed.state.failure, None);
    cluster(&mut observed).backup_blocker = Some("it has no quorum".to_owned());
    let lost = reconcile(&mut observed);
    assert_eq!((lost.phase, lost.will_retry), (Phase::Failed, false));
    assert!(observed.state.failure.is_some());
    cluster(&mut observed).backup_blocker = None;
    observed.now = "2026-03-01T12:01:00Z".parse().expect("a time");
    let later = reconcile(&mut observed);
    assert_eq!(
        (later.phase, later.will_retry, later.job, later.message),
        (Phase::Failed, false, None, lost.message)
    );
}

/// An operator that did not implement a field refused the spec, and another version took over.
#[test]
fn a_failed_restore_stays_failed_after_its_spec_was_refused_for_a_while() {
    let mut observed = observed_restore();
    reconcile(&mut observed);
    let outcome = JobOutcome::Failed {
        reason: "Key".to_owned(),
        message: "no key 2026".to_owned(),
        retriable: false,
    };
    observed.jobs = vec![ended_job("back-v1", outcome)];
    let failed = reconcile(&mut observed);
    observed.state.phase = "Invalid".to_owned();
    observed.state.message = Some("spec.new: is not implemented".to_owned());
    observed.jobs.clear();
    let later = reconcile(&mut observed);
    assert_eq!(
        (later.phase, later.job, later.message),
        (Phase::Failed, None, failed.message)
    );
    observed.is_edited = true;
    assert_eq!(plan(&observed).job.expect("a Job").name, "back-v2");
}

/// Another restore succeeded meanwhile, and clients write. This one must not start, although its retry is due or its
/// verification result would be sufficient now.
#[test]
fn a_failed_restore_stays_failed_after_its_blocker_disappears() {
    let unreachable = JobOutcome::Failed {
        reason: "Unreachable".to_owned(),
        message: "no route".to_owned(),
        retriable: true,
    };
    let whole = JobOutcome::Verified(Box::new(verified()));
    for (outcome, volume) in [(unreachable, 8 << 30), (whole, 1)] {
        let mut observed = observed_restore();
        reconcile(&mut observed);
        observed.jobs = vec![ended_job("back-v1", outcome)];
        cluster(&mut observed).volume_size = Some(volume);
        assert_eq!(reconcile(&mut observed).phase, Phase::Failed);
        observed.competing_restore = Some("another".to_owned());
        let awaits_edit = reconcile(&mut observed);
        assert_eq!(awaits_edit.phase, Phase::Failed);
        assert!(
            awaits_edit.message.contains("when its spec changes"),
            "{}",
            awaits_edit.message
        );

        observed.competing_restore = None;
        cluster(&mut observed).volume_size = Some(8 << 30);
        observed.now = "2026-03-01T12:02:00Z".parse().expect("a time");
        for _ in 0..2 {
            let still = reconcile(&mut observed);
            assert_eq!(
                (still.phase, &still.job, &still.request, &still.message),
                (Phase::Failed, &None, &RequestChange::Keep, &awaits_edit.message)
            );
        }
        observed.is_edited = true;
        let again = plan(&observed);
        assert!(
            again.job.is_some() || again.request != RequestChange::Keep,
            "{again:?}"
        );
    }
}

#[test]
fn a_restore_has_finished_only_when_no_retry_follows() {
    let outcome = |retriable| JobOutcome::Failed {
        reason: "Unreachable".to_owned(),
        message: "no route".to_owned(),
        retriable,
    };
    let verify = |retriable| vec![ended_job("back-v1", outcome(retriable))];
    let back_up = |retriable| {
        let verified = ended_job("back-v1", JobOutcome::Verified(Box::new(verified())));
        vec![verified, ended_job("back-s1", outcome(retriable))]
    };
    for (is_safety_backup, jobs, will_retry) in [
        (false, verify(true), true),
        (false, verify(false), false),
        (true, back_up(true), true),
        (true, back_up(false), false),
    ] {
        let mut observed = observed_restore();
        observed.desired.safety_backup = is_safety_backup;
        cluster(&mut observed).cluster_id = Some("d".to_owned());
        reconcile(&mut observed);
        observed.jobs = jobs;
        let failed = plan(&observed);
        assert_eq!(failed.phase, Phase::Failed);
        let status = status(
            &EtcdRestore::default(),
            &failed,
            &References::default(),
            observed.now,
        );
        let conditions = status.conditions.expect("conditions");
        let is_true = |type_| {
            let found = condition::find(&conditions, type_).expect("the condition");
            found.status == "True"
        };
        assert!(!is_true(ConditionType::Ready));
        assert_eq!(is_true(ConditionType::Reconciling), will_retry);
        assert_eq!(is_true(ConditionType::Stalled), !will_retry);
        assert_eq!(is_true(ConditionType::Finished), !will_retry);
    }
}

/// No operator was running when the retry was due; it is not made up for days later.
#[test]
fn a_missed_retry_is_not_made_up_for() {
    let outcome = JobOutcome::Failed {
        reason: "Unreachable".to_owned(),
        message: "no route".to_owned(),
        retriable: true,
    };
    let mut observed = observed_restore();
    reconcile(&mut observed);
    observed.jobs = vec![ended_job("back-v1", outcome)];
    let failed = reconcile(&mut observed);
    assert!(failed.message.contains("retried at"), "{}", failed.message);
    observed.state.message = Some(failed.message);
    observed.now = "2026-03-01T12:05:00Z".parse().expect("a time");
    assert_eq!(plan(&observed).job.expect("a Job").name, "back-v2");
    observed.now = "2026-03-03T12:00:00Z".parse().expect("a time");
    let awaits_edit = plan(&observed);
    assert_eq!((awaits_edit.phase, &awaits_edit.job), (Phase::Failed, &None));
    assert!(
        awaits_edit
            .message
            .ends_with("the restore is retried when its spec changes."),
        "{}",
        awaits_edit.message
    );
}

#[test]
fn a_database_above_the_quota_is_refused() {
    let mut full = verified();
    full.alarms = vec!["NOSPACE".to_owned()];
    full.object.snapshot_size = 3 << 30;
    for (quota, alarms, wanted) in [
        (None, true, false),
        (Some(3 << 30), true, false),
        (Some(4 << 30), true, true),
        // No alarm, but too large: its source cluster had a larger quota, or received no write since it was full.
        (None, false, false),
        (Some(4 << 30), false, true),
    ] {
        let mut observed = observed_restore();
        reconcile(&mut observed);
        cluster(&mut observed).quota = quota;
        let mut full = full.clone();
        full.alarms.retain(|_| alarms);
        observed.jobs = vec![ended_job("back-v1", JobOutcome::Verified(Box::new(full)))];
        let next = plan(&observed);
        assert_eq!(
            matches!(next.request, RequestChange::Set(_)),
            wanted,
            "{quota:?}: {}",
            next.message
        );
        if !wanted {
            assert!(
                next.message.contains("larger spec.etcd.quotaBackendBytes"),
                "{}",
                next.message
            );
        }
    }
}

#[test]
fn a_rolled_back_restore_is_retried_only_after_an_edit() {
    let mut observed = observed_restore();
    observed.state.attempt = 1;
    let mut back = progress("RolledBack");
    back.message = Some("c-0: NoRoom".to_owned());
    cluster(&mut observed).progress = Some(back);
    let next = reconcile(&mut observed);
    assert_eq!(next.phase, Phase::RolledBack);
    assert!(next.message.contains("c-0: NoRoom"), "{}", next.message);
    cluster(&mut observed).progress = None;
    observed.now = "2026-03-02T12:00:00Z".parse().expect("a time");
    let later = reconcile(&mut observed);
    assert_eq!(
        (later.phase, &later.message),
        (Phase::RolledBack, &next.message),
        "the reason is kept after the cluster dropped it"
    );
    // An earlier operator worded it otherwise.
    let earlier = "Rolled back: c-0: NoRoom".to_owned();
    observed.state.message = Some(earlier.clone());
    assert_eq!(reconcile(&mut observed).message, earlier);
    observed.is_edited = true;
    assert_eq!(reconcile(&mut observed).job.expect("a Job").name, "back-v2");
}
