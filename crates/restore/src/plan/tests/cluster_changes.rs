//! Changes of the cluster, the request or the spec before and during a restore.

use super::*;
use crate::observe::{competing_restore_among, observe_cluster};
use crate::plan::Reason;
use crate::plan::is_request_still_valid;
use etcd_operator_api::{EtcdCluster, cluster::DefaultRepository};
use etcd_operator_runtime::key::ObjectKey;

/// A plan that requests the restore, and the observed state it is based on.
fn about_to_request() -> (ObservedRestore, Plan) {
    let mut observed = observed_restore();
    reconcile(&mut observed);
    observed.jobs = vec![ended_job("back-v1", JobOutcome::Verified(Box::new(verified())))];
    let next = plan(&observed);
    assert!(matches!(next.request, RequestChange::Set(_)));
    (observed, next)
}

#[test]
fn a_request_that_cannot_start_is_withdrawn_and_made_again_later() {
    let changes: [(&str, Mutation); 2] = [
        ("ClusterPaused", |observed| cluster(observed).is_paused = true),
        ("ClusterRefused", |observed| {
            cluster(observed).spec_refusal = Some("spec.auth: is not implemented".to_owned());
        }),
    ];
    for (reason, change) in changes {
        let (mut observed, request_plan) = about_to_request();
        observed.state = request_plan.state.clone();
        cluster(&mut observed).request = Some(Ok(requested(&request_plan)));
        assert_eq!(reconcile(&mut observed).reason.as_str(), "NotBegun");
        let before = observed.cluster.clone();
        change(&mut observed);
        let back = reconcile(&mut observed);
        assert_eq!(
            (back.reason.as_str(), &back.request),
            (reason, &RequestChange::Clear)
        );
        assert!(back.message.contains("had not started"), "{}", back.message);
        cluster(&mut observed).request = None;
        assert_eq!(reconcile(&mut observed).reason.as_str(), reason);
        observed.cluster = before;
        cluster(&mut observed).request = None;
        observed.jobs.clear();
        let again = reconcile(&mut observed);
        assert_eq!(
            (again.phase, again.request),
            (Phase::Verifying, RequestChange::Keep)
        );
        // A restore in progress is not withdrawn.
        cluster(&mut observed).progress = Some(progress("Stopping"));
        change(&mut observed);
        assert_eq!(plan(&observed).request, RequestChange::Keep);
    }
}

#[test]
fn a_request_that_reappears_after_the_end_is_removed() {
    for over in ["RolledBack", "Failed", "Invalid", "Succeeded"] {
        let (mut observed, request_plan) = about_to_request();
        cluster(&mut observed).request = Some(Ok(requested(&request_plan)));
        observed.state.phase = over.to_owned();
        observed.state.succeeded = over == "Succeeded";
        assert_eq!(plan(&observed).request, RequestChange::Clear, "{over}");
        cluster(&mut observed).progress = Some(progress("Stopping"));
        if over != "Succeeded" {
            assert_eq!(
                plan(&observed).request,
                RequestChange::Keep,
                "{over}: a restore in progress is followed"
            );
        }
    }
}

#[test]
fn a_restore_in_progress_is_not_withdrawn_if_the_cluster_lost_its_status() {
    for phase in ["Stopping", "Preparing", "Committed", "Serving"] {
        let (mut observed, request_plan) = about_to_request();
        observed.state = request_plan.state.clone();
        observed.state.phase = phase.to_owned();
        cluster(&mut observed).request = Some(Ok(requested(&request_plan)));
        cluster(&mut observed).progress = None;
        cluster(&mut observed).is_paused = true;
        assert_eq!(plan(&observed).request, RequestChange::Keep, "{phase}");
    }
}

#[test]
fn a_safety_backup_is_made_again_after_a_pause() {
    let mut observed = with_safety_backup();
    reconcile(&mut observed);
    observed.jobs.push(ended_job("back-s1", stored()));
    let request_plan = reconcile(&mut observed);
    cluster(&mut observed).request = Some(Ok(requested(&request_plan)));
    cluster(&mut observed).is_paused = true;
    reconcile(&mut observed);
    assert_eq!(
        reconcile(&mut observed).request,
        RequestChange::Clear,
        "the request stays withdrawn"
    );
    cluster(&mut observed).request = None;
    cluster(&mut observed).is_paused = false;
    assert_eq!(reconcile(&mut observed).job.expect("a Job").name, "back-v2");
}

#[test]
fn the_safety_backup_is_skipped_only_if_the_cluster_is_known_to_be_empty() {
    let mut observed = with_safety_backup();
    cluster(&mut observed).cluster_id = None;
    let waits = reconcile(&mut observed);
    assert_eq!(
        (waits.phase, &waits.request),
        (Phase::Waiting, &RequestChange::Keep)
    );
    for fragment in ["status.clusterID", "set spec.safetyBackup to false"] {
        assert!(waits.message.contains(fragment), "{}", waits.message);
    }
    cluster(&mut observed).cluster_id = Some("cdf8".to_owned());
    let again = plan(&observed).job.expect("a Job");
    assert_eq!(
        (again.task, again.name.as_str()),
        (JobTask::Verify, "back-v2"),
        "everything is verified again once the state is known"
    );

    let mut observed = with_safety_backup();
    cluster(&mut observed).cluster_id = None;
    cluster(&mut observed).awaits_restore = true;
    assert_eq!(
        plan(&observed).request,
        RequestChange::Keep,
        "its status may be lost"
    );
    cluster(&mut observed).is_known_empty = true;
    let request_plan = plan(&observed);
    assert!(matches!(request_plan.request, RequestChange::Set(_)));
    assert!(
        request_plan.message.contains("No safety backup is made"),
        "{}",
        request_plan.message
    );
}

#[test]
fn a_request_is_not_sent_to_a_cluster_that_changed() {
    type Mutation = fn(&mut ObservedCluster);
    let (observed, request_plan) = about_to_request();
    assert!(is_request_still_valid(
        &request_plan,
        &observed,
        observed.cluster.clone()
    ));
    let changes: [(&str, Mutation); 5] = [
        ("paused", |cluster| cluster.is_paused = true),
        ("refused", |cluster| cluster.spec_refusal = Some("why".to_owned())),
        ("older", |cluster| cluster.version = "3.5.0".parse().ok()),
        ("smaller", |cluster| cluster.volume_size = Some(1_000)),
        ("begun", |cluster| cluster.progress = Some(progress("Stopping"))),
    ];
    for (what, change) in changes {
        let mut now = observed.cluster.clone().expect("a cluster");
        change(&mut now);
        assert!(
            !is_request_still_valid(&request_plan, &observed, Ok(now)),
            "{what}"
        );
    }
    assert!(!is_request_still_valid(
        &request_plan,
        &observed,
        Err("It is being deleted.".to_owned())
    ));
    let mut template = observed.clone();
    template.desired.template = Some(Box::default());
    cluster(&mut template).awaits_restore = true;
    cluster(&mut template).is_known_empty = true;
    let request_plan = plan(&template);
    let mut started = template.cluster.clone().expect("a cluster");
    (started.awaits_restore, started.is_known_empty) = (false, false);
    assert!(
        !is_request_still_valid(&request_plan, &template, Ok(started)),
        "the cluster has data now"
    );
}

fn restore(name: &str, uid: &str) -> EtcdRestore {
    serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdRestore",
        "metadata": {"name": name, "uid": uid}, "spec": {"etcdCluster": {"name": "orders"}},
        "status": {"phase": "Failed"},
    }))
    .expect("a restore")
}

fn object(status: &Value) -> EtcdCluster {
    serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster", "metadata": {"name": "orders"},
        "spec": {"size": 3, "bootstrap": {"awaitRestore": true}}, "status": status,
    }))
    .expect("a cluster")
}

#[test]
fn a_restore_that_cannot_continue_does_not_block_others() {
    let own = restore("later", "own");
    let gone = Vec::new;
    let there = || vec![earlier_restore("r", "Serving", "Comparing")];
    let differs = || vec![earlier_restore("r", "Serving", "DataDiffer")];
    let compacted = || vec![earlier_restore("r", "Serving", "NotComparable")];
    let data_lost = json!([{"type": "DataLost", "status": "True"}]);
    let no_data_loss = json!([{"type": "DataLost", "status": "False"}]);
    for (phase, committed, open, conditions, others, blocks) in [
        ("Preparing", true, false, &no_data_loss, gone(), false),
        ("Stopping", true, false, &no_data_loss, gone(), false),
        // Another object of the same name is another restore.
        (
            "Preparing",
            true,
            false,
            &no_data_loss,
            vec![restore("back", "other")],
            false,
        ),
        (
            "Preparing",
            true,
            false,
            &no_data_loss,
            vec![restore("back", "r")],
            true,
        ),
        ("Preparing", false, false, &no_data_loss, gone(), true),
        ("Committed", true, false, &no_data_loss, gone(), false),
        ("Committed", true, false, &data_lost, there(), true),
        // The client Service is closed and stays closed without a comparison.
        ("Serving", true, false, &no_data_loss, gone(), false),
        ("Serving", true, false, &no_data_loss, there(), true),
        ("Serving", true, false, &no_data_loss, differs(), false),
        ("Serving", true, false, &no_data_loss, compacted(), false),
        // Clients are already writing.
        ("Serving", true, true, &no_data_loss, gone(), true),
        ("Serving", true, true, &no_data_loss, differs(), true),
        ("Serving", true, true, &data_lost, gone(), false),
        // The restore still exists and may continue.
        ("Serving", true, true, &data_lost, there(), true),
        ("Serving", true, false, &data_lost, there(), true),
    ] {
        let status = json!({
            "conditions": conditions,
            "restore": {
                "uid": "r", "name": "back", "incarnation": 2, "phase": phase, "committed": committed, "open": open,
            },
        });
        let cluster = object(&status);
        let competing_restore = competing_restore_among(&own, others.iter(), Some(&cluster));
        assert_eq!(
            competing_restore.is_some(),
            blocks,
            "{phase} {committed} {open} {conditions} {others:?}"
        );
    }
}

/// An earlier restore in this phase with this reason.
fn earlier_restore(uid: &str, phase: &str, reason: &str) -> EtcdRestore {
    let mut older = restore("back", uid);
    older.metadata.creation_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
    older.status = serde_json::from_value(json!({
        "phase": phase, "conditions": [{"type": "Progressing", "status": "True", "reason": reason}],
    }))
    .expect("a status");
    older
}

/// A client replaced the `EtcdCluster` without the annotation; the client Service must not open without a comparison.
#[test]
fn a_lost_request_is_restored_before_the_client_service_opens() {
    let mut observed = observed_restore();
    reconcile(&mut observed);
    observed.jobs = vec![ended_job("back-v1", JobOutcome::Verified(Box::new(verified())))];
    let request_plan = reconcile(&mut observed);
    let request = requested(&request_plan);
    let facts = verified().object;
    cluster(&mut observed).progress = Some(RestoreProgress {
        object_sha256: Some(facts.sha256.clone()),
        ..progress("Serving")
    });
    observed.jobs.clear();
    let reads = reconcile(&mut observed);
    assert_eq!(reads.job.as_ref().expect("a Job").task, JobTask::Verify);
    assert_eq!(
        (reads.phase, &reads.request),
        (Phase::Serving, &RequestChange::Keep)
    );
    let name = reads.job.expect("a Job").name;
    let mut other = verified();
    other.object.sha256 = "cc".to_owned();
    observed.jobs = vec![ended_job(&name, JobOutcome::Verified(Box::new(other)))];
    let stuck = plan(&observed);
    assert_eq!(
        (stuck.reason.as_str(), &stuck.request),
        ("CompareFailed", &RequestChange::Keep)
    );
    assert!(
        stuck.message.contains("replaced by another object"),
        "{}",
        stuck.message
    );
    observed.jobs = vec![ended_job(&name, JobOutcome::Verified(Box::new(verified())))];
    let again = reconcile(&mut observed);
    assert_eq!(requested(&again), request, "not compared yet");
    cluster(&mut observed).request = Some(Ok(request));
    let compares = reconcile(&mut observed);
    assert!(matches!(
        compares.job.expect("a Job").task,
        JobTask::Compare { .. }
    ));
    // Another restore replaced this one and is not disturbed.
    cluster(&mut observed).request = Some(Ok(RestoreIntent {
        uid: "another".to_owned(),
        ..requested(&again)
    }));
    assert_eq!(plan(&observed).request, RequestChange::Keep);
}

/// The same before the commit, when members may not have received the request yet.
#[test]
fn a_lost_request_is_restored_while_members_download() {
    for phase in ["Stopping", "Preparing"] {
        let mut observed = observed_restore();
        reconcile(&mut observed);
        observed.jobs = vec![ended_job("back-v1", JobOutcome::Verified(Box::new(verified())))];
        let request = requested(&reconcile(&mut observed));
        let now = RestoreProgress {
            object_sha256: Some(verified().object.sha256),
            ..progress(phase)
        };
        cluster(&mut observed).progress = Some(now);
        assert_eq!(requested(&plan(&observed)), request, "{phase}");
        observed.jobs.clear();
        let reads = plan(&observed);
        assert_eq!(reads.job.expect("a Job").task, JobTask::Verify, "{phase}");
        assert!(reads.message.contains("is verified again"), "{}", reads.message);
        observed.source = Err("the EtcdBackup is gone".to_owned());
        let is_resumed = plan(&observed);
        assert_eq!(
            (is_resumed.job, is_resumed.request),
            (None, RequestChange::Keep),
            "{phase}"
        );
        assert!(
            is_resumed.message.contains("the EtcdBackup is gone"),
            "{}",
            is_resumed.message
        );
    }
}

/// An edit between the request and the start of the restore takes effect.
#[test]
fn an_edit_before_the_start_withdraws_the_request() {
    let (mut observed, request_plan) = about_to_request();
    cluster(&mut observed).request = Some(Ok(requested(&request_plan)));
    observed.state = request_plan.state;
    assert_eq!(plan(&observed).request, RequestChange::Keep);
    observed.is_edited = true;
    let next = plan(&observed);
    assert_eq!(
        (next.phase, next.request, next.observes_generation),
        (Phase::Waiting, RequestChange::Clear, true)
    );
    assert!(next.message.contains("The spec was changed"), "{}", next.message);
}

/// An edit during the restore takes effect after a rollback and is not lost until then.
#[test]
fn an_edit_during_the_restore_takes_effect_after_the_rollback() {
    let mut observed = observed_restore();
    observed.is_edited = true;
    for phase in ["Stopping", "Preparing", "RollingBack", "RolledBack"] {
        cluster(&mut observed).progress = Some(progress(phase));
        let next = reconcile(&mut observed);
        assert!(!next.observes_generation, "{phase}");
        assert_eq!(
            next.message.contains("was changed since the restore started"),
            phase != "RolledBack",
            "{}",
            next.message
        );
    }
    cluster(&mut observed).progress = None;
    let again = reconcile(&mut observed);
    assert_eq!((again.phase, again.observes_generation), (Phase::Verifying, true));
}

#[test]
fn a_cluster_is_known_empty_only_if_its_controller_reports_it() {
    let key = ObjectKey::new("shop", "orders");
    let waits =
        json!({"conditions": [{"type": "Progressing", "status": "False", "reason": "AwaitingRestore"}]});
    let formed = json!({"clusterID": "cdf8", "conditions": waits["conditions"]});
    for (status, wanted) in [(waits, true), (json!({}), false), (formed, false)] {
        assert_eq!(
            observe_cluster(&object(&status), &key, &DefaultRepository::default()).is_known_empty,
            wanted,
            "{status}"
        );
    }
}

#[test]
fn a_failed_member_and_a_blocked_cluster_are_reported_in_the_message() {
    let mut observed = observed_restore();
    let mut progress_now = progress("Preparing");
    progress_now.members = serde_json::from_value(json!([
        {"name": "orders-0", "phase": "Fetching", "bytes": 1, "total": 2},
        {"name": "orders-1", "phase": "Failed", "message": "the image etcd:none cannot be pulled."},
    ]))
    .ok();
    cluster(&mut observed).progress = Some(progress_now);
    let next = plan(&observed);
    let text = "orders-1 failed: the image etcd:none cannot be pulled.";
    assert!(next.message.ends_with(text), "{}", next.message);

    cluster(&mut observed).is_paused = true;
    let held = plan(&observed);
    assert_eq!(held.reason, Reason::ClusterPaused);
    assert!(
        held.message
            .starts_with("The restore is on hold while spec.paused"),
        "{}",
        held.message
    );
    cluster(&mut observed).is_paused = false;
    cluster(&mut observed).spec_refusal = Some("spec.size: must be odd".to_owned());
    assert_eq!(plan(&observed).reason, Reason::ClusterRefused);
}
