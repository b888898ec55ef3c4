//! Plans from the verification of the backup to the end of a restore.

mod cluster_changes;
mod needs_user;
mod new_cluster;
mod recheck;
mod refusals;
mod select_backup;

use etcd_operator_api::EtcdRestore;
use etcd_operator_api::cluster::RestoreProgress;
use etcd_operator_api::contract::{JobOutcome, JobResult, ObjectFacts, RestoreIntent, Stored, Verified};
use etcd_operator_api::location::{Location, ObjectPath};
use etcd_operator_api::reference::References;
use etcd_operator_api::restore::RESTORE_PHASES;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{JobTask, Phase, Plan, RequestChange, locate_backup, plan};
use crate::desired::{BackupRef, Desired, PointInTime, desired};
use crate::observed_state::{JobEnd, ObservedCluster, ObservedJob, ObservedRestore, Source};
use crate::persisted_state::PersistedState;
use crate::status::status;

fn desired_restore() -> Desired {
    let object: EtcdRestore = serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore", "metadata": {"name": "back"},
        "spec": {"etcdCluster": {"name": "orders"}, "backupStorageType": "S3", "s3": {"path": "bucket/etcd/v1", "awsSecret": "aws"}},
    }))
    .expect("a restore");
    desired(&object).expect("a valid spec")
}

fn observed_restore() -> ObservedRestore {
    let desired = desired_restore();
    let source = locate_backup(&desired.backup, None, "orders", None);
    ObservedRestore {
        now: "2026-03-01T12:00:00Z".parse().expect("a time"),
        name: "back".to_owned(),
        uid: "r".to_owned(),
        is_edited: false,
        state: PersistedState::default(),
        cluster: Ok(ObservedCluster {
            name: "orders".to_owned(),
            member_count: 3,
            version: "3.6.16".parse().ok(),
            volume_size: Some(8 << 30),
            endpoints: vec!["http://orders-0.orders.shop.svc:2379".to_owned()],
            ..ObservedCluster::default()
        }),
        is_cluster_missing: false,
        scope: None,
        source,
        competing_restore: None,
        is_pvc_shared: None,
        jobs: Vec::new(),
        foreign_job: None,
        operator_image: Ok("operator:1".to_owned()),
        desired,
    }
}

fn verified() -> Verified {
    Verified {
        name: "etcd/v1".to_owned(),
        object: ObjectFacts {
            size: 900,
            sha256: "bb".to_owned(),
            snapshot_size: 20_512,
            snapshot_sha256: "aa".to_owned(),
        },
        revision: 40,
        digest: "1:2:00".to_owned(),
        keys: 2,
        etcd_version: Some("3.6.16".to_owned()),
        completed_at: "2026-03-01T10:00:00Z".parse().ok(),
        ..Verified::default()
    }
}

fn ended_job(name: &str, outcome: JobOutcome) -> ObservedJob {
    ObservedJob {
        name: name.to_owned(),
        uid: format!("{name}-uid"),
        is_deleting: false,
        end: Some(JobEnd {
            is_complete: !matches!(outcome, JobOutcome::Failed { .. }),
            at: "2026-03-01T12:00:00Z".parse().expect("a time"),
            message: String::new(),
        }),
        pending_reason: None,
        tool_error: None,
        result: Some(Ok(JobResult {
            version: 1,
            run: name.to_owned(),
            outcome,
        })),
    }
}

fn cluster(observed: &mut ObservedRestore) -> &mut ObservedCluster {
    observed.cluster.as_mut().expect("a cluster")
}

fn progress(phase: &str) -> RestoreProgress {
    RestoreProgress {
        uid: "r".to_owned(),
        phase: phase.to_owned(),
        cluster_id: Some("d".to_owned()),
        revision_bump: Some(1_000),
        ..RestoreProgress::default()
    }
}

/// A change of the observed state.
type Mutation = fn(&mut ObservedRestore);

/// Plans, and persists the plan: the next call knows only what the status contains.
fn reconcile(observed: &mut ObservedRestore) -> Plan {
    let next = plan(observed);
    persist(observed, &next);
    next
}

/// Persists a plan in the status.
fn persist(observed: &mut ObservedRestore, plan: &Plan) {
    let stored = status(
        &EtcdRestore::default(),
        plan,
        &References::default(),
        observed.now,
    );
    observed.state = PersistedState::read(Some(&stored));
}

fn requested(plan: &Plan) -> RestoreIntent {
    match &plan.request {
        RequestChange::Set(request) => (**request).clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_schema_lists_exactly_the_phases_that_are_written() {
    let mut written = vec!["Invalid"];
    written.extend(Phase::ALL.map(Phase::as_str));
    written.sort_unstable();
    let mut listed = RESTORE_PHASES.to_vec();
    listed.sort_unstable();
    assert_eq!(written, listed);
}

#[test]
fn a_backup_is_verified_before_the_restore_is_requested_and_described() {
    let mut observed = observed_restore();
    let first = reconcile(&mut observed);
    assert_eq!(
        (first.phase, &first.request),
        (Phase::Verifying, &RequestChange::Keep)
    );
    let job = first.job.expect("a Job");
    assert_eq!((job.name.as_str(), job.task), ("back-v1", JobTask::Verify));
    assert_eq!(observed.state.object.as_deref(), Some("etcd/v1"));

    observed.jobs = vec![ended_job("back-v1", JobOutcome::Verified(Box::new(verified())))];
    let next = reconcile(&mut observed);
    let request = requested(&next);
    assert_eq!((request.uid.as_str(), request.revision), ("r", 40));
    assert_eq!(request.secrets.store.as_deref(), Some("aws"));
    assert_eq!(request.store.path, "etcd/v1");
    assert_eq!(request.compared_cluster, None);
    let text = observed.state.plan.clone().expect("a plan");
    for word in ["etcd/v1", "revision 40", "2 keys", "2h old", "orders", "24h"] {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
}

#[test]
fn an_unsuitable_backup_is_refused_before_anything_is_changed() {
    let auth = Verified {
        auth_enabled: true,
        ..verified()
    };
    let newer = Verified {
        etcd_version: Some("3.7.1".to_owned()),
        ..verified()
    };
    let by_bucket_alone = Verified {
        etcd_version: Some("3.6".to_owned()),
        cluster_version: Some("3.7.0".to_owned()),
        ..verified()
    };
    let high = Verified {
        revision: i64::MAX - 7,
        ..verified()
    };
    let older_by_bucket = Verified {
        etcd_version: None,
        cluster_version: Some("3.7.0".to_owned()),
        ..verified()
    };
    let alarmed = Verified {
        alarms: vec!["NOSPACE".to_owned(), "3".to_owned()],
        ..verified()
    };
    let mut large = verified();
    large.object.snapshot_size = 5 << 30;
    let quota = Some(8 << 30);
    for (verified, reason, fragment) in [
        (auth, "AuthEnabled", "authentication enabled"),
        (newer, "NewerVersion", "set spec.version"),
        (older_by_bucket, "NewerVersion", "3.7.0"),
        (by_bucket_alone, "NewerVersion", "3.7.0"),
        (alarmed, "NewerVersion", "the alarm 3 of a newer etcd"),
        (high, "RevisionTooHigh", "spec.revisionBump"),
        (large, "NoRoom", "increase spec.storage.size"),
    ] {
        let mut observed = observed_restore();
        reconcile(&mut observed);
        cluster(&mut observed).quota = quota;
        observed.jobs = vec![ended_job("back-v1", JobOutcome::Verified(Box::new(verified)))];
        let next = reconcile(&mut observed);
        assert_eq!((next.phase, next.reason.as_str()), (Phase::Failed, reason));
        assert!(next.message.contains(fragment), "{}", next.message);
        assert!(next.message.contains("Nothing was changed;"), "{}", next.message);
        assert_eq!(next.request, RequestChange::Keep);
    }
}

#[test]
fn one_member_restores_from_a_single_node_pvc() {
    let mut observed = observed_restore();
    observed.source = Ok(Source {
        location: Location::Local {
            claim: "backups".to_owned(),
            path: None,
        },
        object: "etcd/v1".to_owned(),
        keys: None,
    });
    reconcile(&mut observed);
    observed.jobs = vec![ended_job("back-v1", JobOutcome::Verified(Box::new(verified())))];
    for (is_shared, single_member) in [(None, false), (Some(true), false), (Some(false), true)] {
        observed.is_pvc_shared = is_shared;
        let request = requested(&plan(&observed));
        assert_eq!(request.single_member, single_member, "{is_shared:?}");
    }
    let text = plan(&observed).state.plan.expect("a description");
    assert!(
        text.contains("orders-0 restores the backup") && text.contains("deleted when they join"),
        "{text}"
    );
    cluster(&mut observed).member_count = 1;
    let text = plan(&observed).state.plan.expect("a description");
    assert!(!text.contains("join"), "{text}");
}

#[test]
fn a_failed_verification_is_retried_later_and_at_once_after_an_edit() {
    let mut observed = observed_restore();
    reconcile(&mut observed);
    observed.jobs = vec![ended_job(
        "back-v1",
        JobOutcome::Failed {
            reason: "Unreachable".to_owned(),
            message: "no answer".to_owned(),
            retriable: true,
        },
    )];
    let failed = reconcile(&mut observed);
    assert_eq!(
        (failed.phase, failed.reason.as_str()),
        (Phase::Failed, "VerificationFailed")
    );
    assert!(
        failed.message.contains("Unreachable: no answer"),
        "{}",
        failed.message
    );
    assert!(
        failed.delete_jobs.is_empty(),
        "the failed Job is kept for troubleshooting"
    );
    let mut edited = observed.clone();
    edited.is_edited = true;
    assert_eq!(plan(&edited).job.expect("a Job").name, "back-v2");
    observed.now = "2026-03-01T12:01:00Z".parse().expect("a time");
    let again = reconcile(&mut observed);
    assert_eq!(again.job.expect("a Job").name, "back-v2");
    assert_eq!(
        again.delete_jobs,
        [("back-v1".to_owned(), "back-v1-uid".to_owned())]
    );
}

#[test]
fn a_pending_result_is_awaited_and_a_lost_one_leads_to_a_retry() {
    let mut observed = observed_restore();
    reconcile(&mut observed);
    let mut job = ended_job("back-v1", JobOutcome::Verified(Box::new(verified())));
    job.result = None;
    observed.jobs = vec![job];
    let waits = reconcile(&mut observed);
    assert_eq!(
        (waits.phase, waits.reason.as_str()),
        (Phase::Verifying, "Verifying")
    );
    observed.now = "2026-03-01T12:00:40Z".parse().expect("a time");
    let lost = plan(&observed);
    assert!(lost.message.contains("ResultLost"), "{}", lost.message);
    observed.now = "2026-03-01T12:01:00Z".parse().expect("a time");
    assert_eq!(plan(&observed).job.expect("a Job").name, "back-v2");
}

#[test]
fn a_restore_waits_while_its_cluster_or_backup_is_not_ready() {
    let change: [(&str, Mutation); 6] = [
        ("NoCluster", |observed| observed.cluster = Err("gone".to_owned())),
        ("AnotherRestore", |observed| {
            observed.competing_restore = Some("first".to_owned());
        }),
        ("ClusterPaused", |observed| cluster(observed).is_paused = true),
        ("ClusterRefused", |observed| {
            cluster(observed).spec_refusal = Some("spec.auth: is not implemented".to_owned());
        }),
        ("NoOperatorImage", |observed| {
            observed.operator_image = Err("which".to_owned());
        }),
        ("NoBackup", |observed| observed.source = Err("none".to_owned())),
    ];
    for (reason, change) in change {
        let mut observed = observed_restore();
        change(&mut observed);
        let next = plan(&observed);
        assert_eq!((next.phase, next.reason.as_str()), (Phase::Waiting, reason));
        assert_eq!((next.job, next.request), (None, RequestChange::Keep), "{reason}");
    }
}

#[test]
fn the_progress_of_the_cluster_is_followed_to_the_end() {
    let mut observed = observed_restore();
    reconcile(&mut observed);
    observed.jobs = vec![ended_job("back-v1", JobOutcome::Verified(Box::new(verified())))];
    let request = requested(&reconcile(&mut observed));
    cluster(&mut observed).request = Some(Ok(request));
    assert_eq!(reconcile(&mut observed).reason.as_str(), "NotBegun");
    for (phase, wanted) in [
        ("Stopping", Phase::Stopping),
        ("Preparing", Phase::Preparing),
        ("Committed", Phase::Committed),
    ] {
        let mut now = progress(phase);
        now.committed = phase == "Committed";
        cluster(&mut observed).progress = Some(now);
        let next = reconcile(&mut observed);
        assert_eq!((next.phase, next.request), (wanted, RequestChange::Keep));
    }
    assert!(observed.state.committed);

    cluster(&mut observed).progress = Some(progress("Serving"));
    let comparing = reconcile(&mut observed);
    let job = comparing.job.expect("a Job");
    assert_eq!(job.name, "back-c1");
    let JobTask::Compare { revision, .. } = job.task else {
        panic!("another task")
    };
    assert_eq!(revision, 1_040, "the revision of the backup plus the bump");
    let compared = JobOutcome::Compared {
        revision,
        keys: 2,
        digest: "1:2:00".to_owned(),
    };
    observed.jobs = vec![ended_job("back-c1", compared)];
    let request = requested(&reconcile(&mut observed));
    assert!(request.compared_cluster.is_some());
    cluster(&mut observed).request = Some(Ok(request));
    assert!(!observed.state.succeeded);

    cluster(&mut observed).progress = Some(progress("Finished"));
    let done = reconcile(&mut observed);
    assert_eq!(
        (done.phase, done.request),
        (Phase::Succeeded, RequestChange::Clear)
    );
    assert!(observed.state.succeeded && observed.state.completed_at.is_some());
    cluster(&mut observed).progress = None;
    cluster(&mut observed).request = None;
    let after = reconcile(&mut observed);
    assert_eq!((after.phase, after.job), (Phase::Succeeded, None));
}

/// The user deletes or edits the `EtcdBackup` while members restore: the served data can still be compared.
#[test]
fn the_comparison_needs_no_backup() {
    let mut first = self::observed_restore();
    reconcile(&mut first);
    first.jobs = vec![ended_job("back-v1", JobOutcome::Verified(Box::new(verified())))];
    let mut observed = self::observed_restore();
    let mut now = progress("Serving");
    now.committed = true;
    cluster(&mut observed).progress = Some(now);
    cluster(&mut observed).request = Some(Ok(requested(&reconcile(&mut first))));
    observed.source = Err("there is no readable EtcdBackup nightly".to_owned());
    let next = reconcile(&mut observed);
    let job = next.job.expect("a Job");
    assert_eq!(
        (job.name.as_str(), super::job_blocker(&observed, &job.task)),
        ("back-c1", None)
    );
    assert!(!next.message.contains("cannot be created"), "{}", next.message);
    assert!(super::job_blocker(&observed, &JobTask::Verify).is_some());

    observed.operator_image = Err("set --operator-image".to_owned());
    let next = reconcile(&mut observed);
    let text = "The Job back-c1 cannot be created: set --operator-image";
    assert!(next.message.ends_with(text), "{}", next.message);
    observed.desired.backup = BackupRef::Refused("spec.s3.path ends in a slash".to_owned());
    let next = reconcile(&mut observed);
    assert!(
        next.message.contains("ends in a slash") && !next.observes_generation,
        "{}",
        next.message
    );
}

#[test]
fn the_progress_column_shows_downloads() {
    let mut observed = observed_restore();
    let mut now = progress("Preparing");
    let members = json!([
        {"name": "orders-0", "phase": "Prepared"},
        {"name": "orders-1", "phase": "Fetching", "bytes": 1_288_490_188_i64, "total": 4_294_967_296_i64},
    ]);
    now.members = serde_json::from_value(members).expect("members");
    cluster(&mut observed).progress = Some(now);
    let text = reconcile(&mut observed).progress.expect("a text");
    assert_eq!(text, "1/2 prepared, orders-1 1.1 GiB of 4.0 GiB");
}

#[test]
fn the_client_service_stays_closed_if_the_data_differs() {
    let mut observed = observed_restore();
    observed.state.attempt = 1;
    let mut next = progress("Serving");
    next.committed = true;
    cluster(&mut observed).progress = Some(next);
    let mut first = self::observed_restore();
    reconcile(&mut first);
    first.jobs = vec![ended_job("back-v1", JobOutcome::Verified(Box::new(verified())))];
    cluster(&mut observed).request = Some(Ok(requested(&reconcile(&mut first))));
    for (failed, wanted) in [("DataDiffer", "DataDiffer"), ("Compacted", "NotComparable")] {
        observed.jobs = vec![ended_job(
            "back-c1",
            JobOutcome::Failed {
                reason: failed.to_owned(),
                message: "1:3:11 is served".to_owned(),
                retriable: false,
            },
        )];
        let next = reconcile(&mut observed);
        assert_eq!(
            (next.reason.as_str(), next.request),
            (wanted, RequestChange::Keep)
        );
        assert!(
            next.message.contains("Create another EtcdRestore"),
            "{}",
            next.message
        );
        assert!(!observed.state.succeeded);
        observed.now += SignedDuration::from_hours(1);
        let later = reconcile(&mut observed).job.expect("the same Job");
        assert_eq!(later.name, "back-c1", "the result is final");
    }
}

fn stored() -> JobOutcome {
    let at = "2026-03-01T12:00:00Z".parse().expect("a time");
    JobOutcome::Stored(Box::new(Stored {
        object: "etcd/before-back_v90".to_owned(),
        revision: 90,
        size: 700,
        sha256: "cc".to_owned(),
        etcd_version: "3.6.16".to_owned(),
        cluster_id: "cdf8".to_owned(),
        member: "orders-1".to_owned(),
        verification: "Full".to_owned(),
        incarnation: Some(1),
        started_at: at,
        completed_at: at,
    }))
}

/// A verified backup, and a spec that requests a safety backup.
fn with_safety_backup() -> ObservedRestore {
    let mut observed = observed_restore();
    observed.desired.safety_backup = true;
    cluster(&mut observed).cluster_id = Some("cdf8".to_owned());
    reconcile(&mut observed);
    observed.jobs = vec![ended_job("back-v1", JobOutcome::Verified(Box::new(verified())))];
    observed
}

#[test]
fn a_requested_safety_backup_is_made_before_the_restore_is_requested() {
    let mut observed = with_safety_backup();
    let first = reconcile(&mut observed);
    assert_eq!(
        (first.phase, &first.request),
        (Phase::BackingUp, &RequestChange::Keep)
    );
    let job = first.job.expect("a Job");
    assert_eq!((job.name.as_str(), job.task), ("back-s1", JobTask::BackUp));
    assert!(
        first.delete_jobs.is_empty(),
        "the verification result is still needed"
    );
    observed.jobs.push(ended_job("back-s1", stored()));
    let next = reconcile(&mut observed);
    assert_eq!(requested(&next).revision, 40);
    let made = observed.state.safety_backup.clone().expect("a backup");
    assert_eq!(
        (made.object.as_str(), made.revision),
        ("etcd/before-back_v90", Some(90))
    );
    assert_eq!(made.verified.as_deref(), Some("Full"));
    assert_eq!(made.location.as_deref(), Some("s3://bucket/etcd/before-back"));
    observed.jobs.pop();
    let again = reconcile(&mut observed);
    assert!(
        matches!(again.request, RequestChange::Set(_)),
        "the safety backup is made once"
    );
    observed.is_edited = true;
    assert_eq!(plan(&observed).job.expect("a Job").name, "back-v2");
}

#[test]
fn a_failed_safety_backup_leaves_the_cluster_unchanged_and_names_the_way_to_skip_it() {
    let failed = JobOutcome::Failed {
        reason: "NoMember".to_owned(),
        message: "no member answers".to_owned(),
        retriable: true,
    };
    let mut broken = with_safety_backup();
    broken.jobs.push(ended_job("back-s1", failed));
    let mut silent = with_safety_backup();
    cluster(&mut silent).backup_blocker = Some("it has no quorum (1 of 3 answers)".to_owned());
    for (observed, fragment) in [(&mut broken, "no member answers"), (&mut silent, "no quorum")] {
        let next = reconcile(observed);
        assert_eq!(
            (next.phase, next.reason.as_str()),
            (Phase::Failed, "SafetyBackupFailed")
        );
        assert_eq!(next.request, RequestChange::Keep);
        for fragment in [fragment, "Nothing was changed", "set spec.safetyBackup to false"] {
            assert!(next.message.contains(fragment), "{}", next.message);
        }
    }
    broken.now = "2026-03-01T12:01:00Z".parse().expect("a time");
    assert_eq!(plan(&broken).job.expect("a Job").name, "back-v2");
    // A quorum that comes back days later must not start the restore unexpectedly.
    cluster(&mut silent).backup_blocker = None;
    let awaits_edit = reconcile(&mut silent);
    assert_eq!(
        (awaits_edit.phase, awaits_edit.job, awaits_edit.request),
        (Phase::Failed, None, RequestChange::Keep)
    );
    silent.is_edited = true;
    assert_eq!(plan(&silent).job.expect("a Job").name, "back-v2");
}

#[test]
fn an_outdated_safety_backup_is_made_again() {
    let mut observed = with_safety_backup();
    reconcile(&mut observed);
    observed.jobs.push(ended_job("back-s1", stored()));
    reconcile(&mut observed);
    // The spec is edited while the EtcdBackup does not exist; clients write before it exists again.
    observed.is_edited = true;
    let source = std::mem::replace(&mut observed.source, Err("none".to_owned()));
    assert_eq!(reconcile(&mut observed).phase, Phase::Waiting);
    observed.is_edited = false;
    assert_eq!(reconcile(&mut observed).phase, Phase::Waiting);
    observed.source = source;
    assert_eq!(reconcile(&mut observed).job.expect("a Job").name, "back-v2");
    observed
        .jobs
        .push(ended_job("back-v2", JobOutcome::Verified(Box::new(verified()))));
    let next = reconcile(&mut observed);
    assert_eq!(
        (next.phase, &next.request),
        (Phase::BackingUp, &RequestChange::Keep)
    );
    assert_eq!(next.job.expect("a Job").name, "back-s2");
}

#[test]
fn another_selected_backup_is_verified_again() {
    let mut observed = observed_restore();
    reconcile(&mut observed);
    observed.jobs = vec![ended_job("back-v1", JobOutcome::Verified(Box::new(verified())))];
    let source = observed.source.as_mut().expect("a source");
    source.object = "etcd/v2".to_owned();
    let next = plan(&observed);
    assert_eq!(next.request, RequestChange::Keep);
    assert_eq!(next.job.expect("a Job").name, "back-v2");
}
