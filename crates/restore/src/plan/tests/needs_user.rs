//! Whether the status says that a person must act, and that a restore has ended.

use etcd_operator_api::condition::{self, FinishedReason};
use etcd_operator_api::restore::ClusterTemplate;
use k8s_openapi::api::batch::v1::Job;

use super::*;
use crate::observe::observe_foreign_job;
use crate::observed_state::ForeignJob;
use crate::plan::{Reason, cluster_rejected, job_name_conflict, job_rejected};

/// Which of Ready, Reconciling and Stalled is true, and the reason of Finished.
fn told(plan: &Plan) -> (String, FinishedReason) {
    let now = observed_restore().now;
    let status = status(&EtcdRestore::default(), plan, &References::default(), now);
    let conditions = status.conditions.expect("conditions");
    let mut holding = conditions.iter().filter(|condition| {
        let kstatus = ["Ready", "Reconciling", "Stalled"];
        kstatus.contains(&condition.type_.as_str()) && condition.status == "True"
    });
    let holds = holding.next().expect("one of them holds").type_.clone();
    assert_eq!(holding.next(), None, "only one of them holds");
    let finished = FinishedReason::read(&conditions).expect("the condition Finished");
    let condition = condition::find(&conditions, condition::ConditionType::Finished);
    let is_true = condition.expect("the condition Finished").status == "True";
    assert_eq!(is_true, finished.is_end());
    (holds, finished)
}

fn stalled() -> (String, FinishedReason) {
    ("Stalled".to_owned(), FinishedReason::Unfinished)
}

fn reconciling() -> (String, FinishedReason) {
    ("Reconciling".to_owned(), FinishedReason::Unfinished)
}

fn foreign_job(is_left_over: bool) -> ForeignJob {
    let name = "back-v1".to_owned();
    ForeignJob { name, is_left_over }
}

/// A restore whose members serve and whose request is on the cluster, before the comparison.
fn serving() -> ObservedRestore {
    let mut first = observed_restore();
    reconcile(&mut first);
    first.jobs = vec![ended_job("back-v1", JobOutcome::Verified(Box::new(verified())))];
    let mut observed = observed_restore();
    observed.state.attempt = 1;
    cluster(&mut observed).progress = Some(RestoreProgress {
        committed: true,
        object_sha256: Some(verified().object.sha256),
        ..progress("Serving")
    });
    cluster(&mut observed).request = Some(Ok(requested(&reconcile(&mut first))));
    observed
}

#[test]
fn a_waiting_restore_is_stalled_only_where_no_waiting_helps() {
    let changes: [(&str, Mutation, _); 11] = [
        (
            "ClusterPaused",
            |observed| cluster(observed).is_paused = true,
            stalled(),
        ),
        (
            "ClusterRefused",
            |observed| cluster(observed).spec_refusal = Some("spec.size: must be odd".to_owned()),
            stalled(),
        ),
        (
            "ClusterExists",
            |observed| observed.desired.template = Some(Box::default()),
            stalled(),
        ),
        (
            "NoOperatorImage",
            |observed| observed.operator_image = Err("which".to_owned()),
            stalled(),
        ),
        (
            "NameTaken",
            |observed| observed.foreign_job = Some(foreign_job(false)),
            stalled(),
        ),
        // The garbage collector deletes the Jobs of a restore that was deleted and created again.
        (
            "NameTaken",
            |observed| observed.foreign_job = Some(foreign_job(true)),
            reconciling(),
        ),
        (
            "NoCluster",
            |observed| observed.cluster = Err("gone".to_owned()),
            reconciling(),
        ),
        (
            "NoBackup",
            |observed| observed.source = Err("none".to_owned()),
            reconciling(),
        ),
        (
            "AnotherRestore",
            |observed| observed.competing_restore = Some("first".to_owned()),
            reconciling(),
        ),
        (
            "ClusterNotFormed",
            |observed| observed.desired.safety_backup = true,
            reconciling(),
        ),
        ("Verifying", |_| {}, reconciling()),
    ];
    for (reason, change, wanted) in changes {
        let mut observed = observed_restore();
        change(&mut observed);
        let next = plan(&observed);
        assert_eq!((next.reason.as_str(), told(&next)), (reason, wanted));
    }
}

#[test]
fn a_restore_in_progress_is_stalled_while_a_person_keeps_its_cluster_from_continuing() {
    for phase in ["Stopping", "Preparing", "Committed", "RollingBack", "Serving"] {
        let mut observed = serving();
        cluster(&mut observed).progress = Some(progress(phase));
        assert_eq!(told(&plan(&observed)), reconciling(), "{phase}");
        cluster(&mut observed).is_paused = true;
        assert_eq!(told(&plan(&observed)), stalled(), "{phase}");
        cluster(&mut observed).is_paused = false;
        cluster(&mut observed).spec_refusal = Some("spec.size: must be odd".to_owned());
        assert_eq!(told(&plan(&observed)), stalled(), "{phase}");
    }
}

/// `kubectl wait --for=condition=Finished` returns, and a person creates another restore.
#[test]
fn a_restore_whose_data_cannot_be_used_has_failed() {
    for (failure, reason) in [
        ("DataDiffer", Reason::DataDiffer),
        ("Compacted", Reason::NotComparable),
    ] {
        let mut observed = serving();
        let outcome = |reason: &str| JobOutcome::Failed {
            reason: reason.to_owned(),
            message: "1:3:11 is served".to_owned(),
            retriable: false,
        };
        observed.jobs = vec![ended_job("back-c1", outcome("Unreachable"))];
        assert_eq!(told(&plan(&observed)), reconciling(), "it is compared again");

        observed.jobs = vec![ended_job("back-c1", outcome(failure))];
        let failed = ("Stalled".to_owned(), FinishedReason::Failed);
        let next = reconcile(&mut observed);
        assert_eq!((next.reason, told(&next)), (reason, failed.clone()));
        // A paused cluster and an edit change nothing about that.
        cluster(&mut observed).is_paused = true;
        observed.is_edited = true;
        let later = reconcile(&mut observed);
        assert_eq!(
            (later.reason, told(&later), &later.message),
            (reason, failed.clone(), &next.message)
        );
        assert!(later.observes_generation);

        // The node with the pod is removed, so the result of the Job is lost.
        cluster(&mut observed).is_paused = false;
        observed.is_edited = false;
        observed.jobs[0].result = None;
        observed.now += SignedDuration::from_hours(1);
        let last = reconcile(&mut observed);
        assert_eq!((last.reason, told(&last)), (reason, failed.clone()));
        assert_eq!(last.job.expect("the same Job").name, "back-c1");

        // The Job is deleted, or the request makes way for that of the restore that takes its place.
        let request = cluster(&mut observed).request.clone();
        observed.jobs.clear();
        for request in [request, None] {
            cluster(&mut observed).request = request;
            let last = reconcile(&mut observed);
            assert_eq!((last.reason, told(&last)), (reason, failed.clone()));
            assert_eq!(last.job.map(|job| job.name), None);
        }
        // The status of the EtcdCluster is lost and written anew.
        cluster(&mut observed)
            .progress
            .as_mut()
            .expect("progress")
            .cluster_id = None;
        let last = reconcile(&mut observed);
        assert_eq!((last.reason, told(&last)), (reason, failed));
    }
}

#[test]
fn a_restore_without_a_request_to_compare_with_is_stalled() {
    let mut observed = serving();
    cluster(&mut observed).request = None;
    assert_eq!(told(&plan(&observed)), reconciling(), "it is requested again");
    observed.source = Err("the EtcdBackup is gone".to_owned());
    let next = plan(&observed);
    assert_eq!((next.reason, told(&next)), (Reason::CompareFailed, stalled()));
    // Members that download continue without it.
    cluster(&mut observed).progress = Some(progress("Preparing"));
    assert_eq!(told(&plan(&observed)), reconciling());
}

/// What the plan waits for, and whether that stalls it.
fn reported(plan: &Plan) -> (Reason, &str, (String, FinishedReason)) {
    (plan.reason, &plan.message, told(plan))
}

/// Plans, and persists that the API server did not create what the plan asks for.
fn fail_create(observed: &mut ObservedRestore, reason: Reason, message: &str) {
    let failed = plan(observed).with_obstacle(reason, message);
    persist(observed, &failed);
}

/// The two ways in which a Job is not created.
fn failed_creates(job: &str) -> [(Reason, String); 2] {
    [
        (Reason::FailedCreate, job_rejected(job, "exceeded quota")),
        (Reason::NameTaken, job_name_conflict(job)),
    ]
}

#[test]
fn a_restore_that_cannot_create_its_job_is_stalled_until_the_retry_has_a_result() {
    for (reason, message) in failed_creates("back-v1") {
        let mut observed = observed_restore();
        reconcile(&mut observed);
        fail_create(&mut observed, reason, &message);
        for _ in 0..2 {
            let kept = reconcile(&mut observed);
            assert_eq!(reported(&kept), (reason, message.as_str(), stalled()));
        }
        // The retry created the Job.
        let mut created = observed.clone();
        let mut job = ended_job("back-v1", JobOutcome::Unchanged);
        job.end = None;
        created.jobs = vec![job];
        let next = reconcile(&mut created);
        assert_eq!((next.reason, told(&next)), (Reason::Verifying, reconciling()));
        // An edit asks for another Job.
        observed.is_edited = true;
        let next = plan(&observed);
        assert_eq!((next.reason, told(&next)), (Reason::Verifying, reconciling()));
        assert_eq!(next.job.expect("a Job").name, "back-v2");
    }
    let mut observed = serving();
    observed.operator_image = Err("set --operator-image".to_owned());
    let next = plan(&observed);
    assert_eq!((next.reason, told(&next)), (Reason::Comparing, stalled()));
}

#[test]
fn members_that_download_continue_without_the_job() {
    for (reason, message) in failed_creates("back-v1") {
        let mut observed = observed_restore();
        reconcile(&mut observed);
        cluster(&mut observed).progress = Some(RestoreProgress {
            object_sha256: Some(verified().object.sha256),
            ..progress("Preparing")
        });
        fail_create(&mut observed, reason, &message);
        let kept = plan(&observed);
        assert_eq!(reported(&kept), (reason, message.as_str(), reconciling()));
    }
}

/// Earlier operators stored these messages without a reason of their own.
#[test]
fn the_text_of_a_message_decides_nothing() {
    let mut without_cluster = without_cluster();
    reconcile(&mut without_cluster);
    let mut verifying = observed_restore();
    reconcile(&mut verifying);
    let rejected_cluster = cluster_rejected("orders", "exceeded quota");
    for (mut observed, message) in [
        (without_cluster, rejected_cluster),
        (verifying.clone(), job_rejected("back-v1", "exceeded quota")),
        (verifying, job_name_conflict("back-v1")),
    ] {
        let before = plan(&observed);
        observed.state.message = Some(message.clone());
        let after = plan(&observed);
        assert_eq!(reported(&after), reported(&before), "{message}");
        assert_eq!(told(&after), reconciling(), "{message}");
        assert_eq!(
            (after.job, after.create_cluster),
            (before.job, before.create_cluster)
        );
    }
}

/// A quota or a LimitRange forbids the pod, or no node takes it.
#[test]
fn a_job_whose_pod_does_not_start_is_reported() {
    let mut verifying = observed_restore();
    reconcile(&mut verifying);
    for (mut observed, name) in [
        (verifying, "back-v1"),
        (with_safety_backup(), "back-s1"),
        (serving(), "back-c1"),
    ] {
        let wanted = plan(&observed);
        assert_eq!(wanted.job.as_ref().map(|job| job.name.as_str()), Some(name));
        let mut job = ended_job(name, JobOutcome::Unchanged);
        (job.end, job.result) = (None, None);
        observed.jobs.push(job);
        assert_eq!(plan(&observed).message, wanted.message, "{name}");
        let job = observed.jobs.last_mut().expect("a Job");
        job.pending_reason = Some("the Job has no pod".to_owned());
        let next = plan(&observed);
        assert_eq!(
            next.message,
            format!("The pod of the Job {name} does not start: the Job has no pod")
        );
        assert_eq!(next.job, wanted.job, "it is awaited");
    }
}

/// A restore with a template whose cluster does not exist.
fn without_cluster() -> ObservedRestore {
    let template: ClusterTemplate = serde_json::from_value(json!({"spec": {"size": 5}})).expect("a template");
    let mut observed = observed_restore();
    observed.desired.template = Some(Box::new(template));
    observed.cluster = Err("There is no EtcdCluster orders.".to_owned());
    observed.is_cluster_missing = true;
    observed
}

#[test]
fn a_restore_whose_cluster_the_api_server_rejects_is_stalled_until_an_edit() {
    let mut observed = without_cluster();
    assert_eq!(told(&reconcile(&mut observed)), reconciling());
    let message = cluster_rejected("orders", "admission webhook denied it");
    fail_create(&mut observed, Reason::FailedCreate, &message);
    for _ in 0..2 {
        let next = reconcile(&mut observed);
        assert!(next.create_cluster, "it is tried again");
        let wanted = (Reason::FailedCreate, message.as_str(), stalled());
        assert_eq!(reported(&next), wanted);
    }
    observed.is_edited = true;
    assert_eq!(told(&plan(&observed)), reconciling());
}

#[test]
fn only_jobs_of_an_earlier_restore_of_the_name_vanish_by_themselves() {
    let owner = |api: &str, kind: &str, name: &str, uid: &str| json!({"apiVersion": api, "kind": kind, "name": name, "uid": uid});
    let own_api = "etcd.database.coreos.com/v1beta2";
    let earlier = owner(own_api, "EtcdRestore", "back", "earlier");
    for (owners, deleted, wanted) in [
        (json!([earlier]), None, true),
        (json!([]), None, false),
        (json!([]), Some("2026-03-01T12:00:00Z"), true),
        (
            json!([owner(own_api, "EtcdRestore", "other", "earlier")]),
            None,
            false,
        ),
        (
            json!([owner("example.com/v1", "EtcdRestore", "back", "earlier")]),
            None,
            false,
        ),
        (json!([owner("batch/v1", "CronJob", "back", "c")]), None, false),
        // The garbage collector does not delete what the present restore owns, too.
        (
            json!([earlier, owner(own_api, "EtcdRestore", "back", "r")]),
            None,
            false,
        ),
    ] {
        let job: Job = serde_json::from_value(json!({
            "metadata": {"name": "back-v1", "uid": "j", "deletionTimestamp": deleted, "ownerReferences": owners},
        }))
        .expect("a Job");
        let found = observe_foreign_job(&job, "back", "r");
        assert_eq!(
            (found.name.as_str(), found.is_left_over),
            ("back-v1", wanted),
            "{owners}"
        );
    }
}
