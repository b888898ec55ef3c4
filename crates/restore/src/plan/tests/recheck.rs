//! The look at the verified backup right before the restore is requested.

use jiff::SignedDuration;

use super::{
    JobOutcome, JobTask, ObservedRestore, Phase, RequestChange, Verified, ended_job, plan, reconcile,
    requested, stored, verified, with_safety_backup,
};
use crate::plan::Reason;

/// A restore whose safety backup took an hour.
fn after_a_long_safety_backup() -> ObservedRestore {
    let mut observed = with_safety_backup();
    observed.jobs = vec![ended_job(
        "back-v1",
        JobOutcome::Verified(Box::new(Verified {
            etag: Some("e1".to_owned()),
            has_manifest: true,
            ..verified()
        })),
    )];
    reconcile(&mut observed);
    let hour = SignedDuration::from_hours(1);
    observed.now = observed.now.checked_add(hour).expect("a time");
    observed.jobs.push(ended_job("back-s1", stored()));
    observed
}

/// Ends the recheck Job now.
fn end_recheck(observed: &mut ObservedRestore, outcome: JobOutcome) {
    let mut job = ended_job("back-r1", outcome);
    job.end.as_mut().expect("an end").at = observed.now;
    observed.jobs.push(job);
}

#[test]
fn an_old_verification_is_followed_by_another_look_before_the_cluster_is_asked() {
    let mut observed = after_a_long_safety_backup();
    let looks = reconcile(&mut observed);
    assert_eq!(
        (looks.phase, &looks.request),
        (Phase::Verifying, &RequestChange::Keep)
    );
    let job = looks.job.expect("a Job");
    let task = JobTask::Recheck {
        size: 900,
        etag: Some("e1".to_owned()),
        has_manifest: true,
    };
    assert_eq!((job.name.as_str(), job.task), ("back-r1", task));
    end_recheck(&mut observed, JobOutcome::Unchanged);
    let asks = reconcile(&mut observed);
    assert_eq!(requested(&asks).revision, 40);
    assert!(
        asks.delete_jobs.iter().all(|(name, _)| name == "back-s1"),
        "the cluster may have changed, so the results are still needed: {:?}",
        asks.delete_jobs
    );
    observed.now = observed
        .now
        .checked_add(SignedDuration::from_mins(2))
        .expect("a time");
    let outdated = plan(&observed);
    assert_eq!((&outdated.request, outdated.job), (&RequestChange::Keep, None));
    assert!(
        outdated
            .delete_jobs
            .contains(&("back-r1".to_owned(), "back-r1-uid".to_owned())),
        "the look is made again: {:?}",
        outdated.delete_jobs
    );
}

#[test]
fn a_backup_that_was_deleted_meanwhile_fails_the_restore_before_anything_is_changed() {
    let mut observed = after_a_long_safety_backup();
    reconcile(&mut observed);
    let deleted = JobOutcome::Failed {
        reason: "NotFound".to_owned(),
        message: "s3://bucket/etcd/v1 was deleted after its verification".to_owned(),
        retriable: false,
    };
    end_recheck(&mut observed, deleted);
    let failed = reconcile(&mut observed);
    assert_eq!(
        (failed.phase, &failed.request),
        (Phase::Failed, &RequestChange::Keep)
    );
    assert_eq!(
        failed.message,
        "The verification of etcd/v1 failed: NotFound: s3://bucket/etcd/v1 was deleted after its verification. Nothing was changed; the restore is retried when its spec changes."
    );
    assert_eq!(reconcile(&mut observed).phase, Phase::Failed);
    observed.is_edited = true;
    assert_eq!(plan(&observed).job.expect("a Job").name, "back-v2");
}

#[test]
fn a_recheck_or_safety_backup_that_fails_once_after_an_hour_is_retried() {
    let unreachable = || JobOutcome::Failed {
        reason: "Unreachable".to_owned(),
        message: "no answer".to_owned(),
        retriable: true,
    };
    for fails_at in ["back-r1", "back-s1"] {
        let mut observed = after_a_long_safety_backup();
        if fails_at == "back-s1" {
            let mut failed = ended_job(fails_at, unreachable());
            failed.end.as_mut().expect("an end").at = observed.now;
            observed.jobs.retain(|job| job.name != fails_at);
            observed.jobs.push(failed);
        } else {
            reconcile(&mut observed);
            end_recheck(&mut observed, unreachable());
        }
        let failed = reconcile(&mut observed);
        assert_eq!(
            (failed.phase, failed.will_retry),
            (Phase::Failed, true),
            "{fails_at}"
        );
        observed.now += SignedDuration::from_secs(59);
        let waits = reconcile(&mut observed);
        assert_eq!(
            (waits.phase, waits.will_retry, waits.message),
            (Phase::Failed, true, failed.message),
            "{fails_at}"
        );
        observed.now += SignedDuration::from_secs(1);
        let again = reconcile(&mut observed);
        let job = again.job.expect("a Job");
        assert_eq!(
            (job.name.as_str(), job.task),
            ("back-v2", JobTask::Verify),
            "{fails_at}"
        );
    }
}

#[test]
fn a_retry_after_a_failed_recheck_is_not_made_up_for_long_after() {
    let mut observed = after_a_long_safety_backup();
    reconcile(&mut observed);
    let failed = JobOutcome::Failed {
        reason: "Unreachable".to_owned(),
        message: "no answer".to_owned(),
        retriable: true,
    };
    end_recheck(&mut observed, failed);
    assert!(reconcile(&mut observed).will_retry);
    observed.now += SignedDuration::from_mins(30);
    let missed = reconcile(&mut observed);
    assert_eq!(
        (missed.phase, missed.reason),
        (Phase::Failed, Reason::FailedBefore)
    );
}
