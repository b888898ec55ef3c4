//! What people are told of clusters in which nothing is wrong.

use etcd_operator_api::condition::{self, Condition, ConditionType};
use etcd_operator_api::refusal::Refusal;
use etcd_operator_api::{EtcdCluster, EtcdClusterSpec, EtcdClusterStatus};

use super::restore::restore_request;
use super::scene::{Scene, no_answer};
use super::{follow, plan};
use crate::build::PendingChange;
use crate::desired::{Image, Size};
use crate::observed_state::{Fetch, Membership, Unschedulable};
use crate::status::{StatusInputs, new_problems, status};

/// The status of a scene as it is.
pub fn status_of(scene: &Scene) -> EtcdClusterStatus {
    status_after(scene, None)
}

/// The same where this status stood.
pub fn status_after(scene: &Scene, before: Option<EtcdClusterStatus>) -> EtcdClusterStatus {
    status_after_refusal(scene, None, before)
}

/// The same where the API server refused this; none if it was not asked.
pub fn status_after_refusal(
    scene: &Scene,
    refused: Option<Vec<String>>,
    before: Option<EtcdClusterStatus>,
) -> EtcdClusterStatus {
    let status_inputs = StatusInputs {
        refused,
        ..status_inputs()
    };
    status_with(scene, &status_inputs, before)
}

/// What is reported beside the plan, where there is nothing to report.
pub fn status_inputs() -> StatusInputs<'static> {
    StatusInputs {
        refused: None,
        has_checked_names: true,
        drops_plans: false,
        step: None,
        refused_step: None,
        installation: "default",
        refusals: &[],
        conflicts: Vec::new(),
        pending: None,
        applied_template: None,
        last_served_template: None,
        backups: Vec::new(),
    }
}

/// The status of a scene with these inputs.
pub fn status_with(
    scene: &Scene,
    status_inputs: &StatusInputs<'_>,
    before: Option<EtcdClusterStatus>,
) -> EtcdClusterStatus {
    let mut cluster = EtcdCluster::new("c", EtcdClusterSpec::default());
    cluster.status = before;
    status(&cluster, &scene.observed, &plan(&scene.observed), status_inputs)
}

/// A condition of a status.
pub fn condition_of(status: &EtcdClusterStatus, type_: ConditionType) -> Option<Condition> {
    condition::find(status.conditions.as_deref().unwrap_or_default(), type_).cloned()
}

#[test]
fn a_pod_that_keeps_the_claim_of_the_backups_mounted_is_named_where_it_is_not_made_anew() {
    let mut scene = Scene::formed(3);
    scene.pod_at(0).fetch = Some(Fetch {
        is_done: true,
        claim: Some("backups".to_owned()),
        ..Fetch::default()
    });
    let message = |scene: &Scene| {
        let condition = condition_of(&status_of(scene), ConditionType::StorageEphemeral)?;
        condition.message
    };
    assert_eq!(message(&scene), None);
    scene.is_fleeting();
    let text = message(&scene).expect("a message");
    assert!(
        text.ends_with("Since its restore, the pod c-0 keeps the claim backups mounted, so that backups to it can fail. When at least two other members serve, annotate this EtcdCluster with etcd.database.coreos.com/replace and the ID 10: the member is then replaced."),
        "{text}"
    );
    scene.pod_at(0).fetch = None;
    let text = message(&scene).expect("a message");
    assert!(!text.contains("mounted"), "{text}");
}

#[test]
fn a_small_cluster_that_is_well_is_told_to_have_no_redundancy_and_nobody_is_woken() {
    for (size, reason, words) in [
        (1, "NoRedundancy", "One member has no redundancy"),
        (2, "NoRedundancy", "Two members have no redundancy"),
        (3, "SomeToSpare", "3 of 3 voters are well"),
    ] {
        let status = status_of(&Scene::formed(size));
        let risk = condition_of(&status, ConditionType::QuorumAtRisk).expect("the condition");
        assert_eq!(
            (risk.status.as_str(), risk.reason.as_deref()),
            ("False", Some(reason)),
            "{size}"
        );
        assert!(
            risk.message.as_deref().is_some_and(|text| text.contains(words)),
            "{risk:?}"
        );
        assert_eq!(new_problems(&EtcdClusterStatus::default(), &status), []);
    }
}

#[test]
fn what_a_newer_version_wrote_of_members_and_conditions_is_no_news_and_stays() {
    let scene = Scene::formed(3);
    let mut before = status_after(&scene, Some(status_of(&scene)));
    let members = before.member_status.as_mut().expect("members");
    members[0].later.insert("later".to_owned(), "kept".into());
    let conditions = before.conditions.as_mut().expect("conditions");
    conditions[0].later.insert("later".to_owned(), "kept".into());
    assert_eq!(status_after(&scene, Some(before.clone())), before);
}

#[test]
fn members_that_a_restore_has_stopped_are_no_lost_quorum() {
    let mut scene = Scene::formed(3);
    scene.observed.restore = Ok(Some(restore_request("r")));
    follow(&mut scene);
    scene.unknown();
    for number in 0..3 {
        follow(&mut scene);
        scene.at_gone_pod(number);
    }
    // Also not while it goes on no further.
    for restore in [
        Ok(Some(restore_request("r"))),
        Err("of a later version".to_owned()),
    ] {
        scene.observed.restore = restore;
        let status = status_of(&scene);
        let lost = condition_of(&status, ConditionType::QuorumLost);
        assert!(lost.is_none_or(|lost| lost.status != "True"), "{status:?}");
        let woken = new_problems(&EtcdClusterStatus::default(), &status);
        assert!(
            woken.iter().all(|(reason, _)| *reason != "QuorumLost"),
            "{woken:?}"
        );
    }
}

#[test]
fn a_cluster_that_grows_is_scaling_before_the_next_member_has_a_pod() {
    let mut scene = Scene::formed(3);
    let truth = |scene: &Scene| {
        let scaling = condition_of(&status_of(scene), ConditionType::Scaling).expect("the condition");
        (scaling.status, scaling.reason.unwrap_or_default())
    };
    assert_eq!(truth(&scene), ("False".to_owned(), "Converged".to_owned()));
    scene.observed.desired.size = Size::saturating_new(5);
    assert_eq!(truth(&scene), ("True".to_owned(), "Waiting".to_owned()));
}

#[test]
fn two_of_three_that_are_asked_for_have_none_to_spare() {
    let mut scene = Scene::formed(2);
    scene.observed.desired.size = Size::saturating_new(3);
    let risk = condition_of(&status_of(&scene), ConditionType::QuorumAtRisk).expect("the condition");
    assert_eq!(
        (risk.status.as_str(), risk.reason.as_deref()),
        ("True", Some("NoneToSpare"))
    );
}

#[test]
fn a_name_that_is_taken_is_told_until_somebody_has_looked_again() {
    let scene = Scene::formed(3);
    let said = |conflicts: &[&str], has_checked_names, before: Option<&EtcdClusterStatus>| {
        let status_inputs = StatusInputs {
            conflicts: conflicts.iter().map(|text| (*text).to_owned()).collect(),
            has_checked_names,
            ..status_inputs()
        };
        status_with(&scene, &status_inputs, before.cloned())
    };
    let taken = said(&["the Service c-client exists"], true, None);
    // The copies do not hold what bears no label.
    let again = said(&[], false, Some(&taken));
    assert_eq!(again, taken);
    let free =
        condition_of(&said(&[], true, Some(&again)), ConditionType::NameConflict).expect("the condition");
    assert_eq!(
        (free.status.as_str(), free.reason.as_deref()),
        ("False", Some("NoConflict"))
    );
}

#[test]
fn the_members_of_a_cluster_whose_spec_is_refused_are_told_of_as_they_are() {
    let mut scene = Scene::formed(3);
    scene.silent(1);
    scene.silent(2);
    scene.observed.desired.paused = true;
    scene.observed.membership = Membership::Unknown(vec![no_answer()]);
    let mut cluster = EtcdCluster::new("c", EtcdClusterSpec::default());
    let refusals = [Refusal::invalid("spec.version", "is unknown")];
    let status_inputs = StatusInputs {
        refusals: &refusals,
        ..status_inputs()
    };
    let told = status(
        &cluster,
        &scene.observed,
        &plan(&scene.observed).for_refused_spec(),
        &status_inputs,
    );
    cluster.status = Some(told.clone());
    scene.observed.now += jiff::SignedDuration::from_secs(30);
    let again = status(
        &cluster,
        &scene.observed,
        &plan(&scene.observed).for_refused_spec(),
        &status_inputs,
    );
    assert_eq!(again, told, "nothing is new");
    assert_eq!(told.phase, "Invalid");
    assert_eq!(told.ready_members.as_deref(), Some("1/3"));
    for (type_, wanted) in [
        (ConditionType::Accepted, "False"),
        (ConditionType::Available, "False"),
        (ConditionType::QuorumLost, "True"),
        (ConditionType::Degraded, "True"),
    ] {
        let found = condition_of(&told, type_).map(|found| found.status);
        assert_eq!(found.as_deref(), Some(wanted), "{type_:?}");
    }
    let progress = condition_of(&told, ConditionType::Progressing).expect("the condition");
    assert_eq!(progress.reason.as_deref(), Some("Invalid"));
}

#[test]
fn another_version_that_is_asked_for_is_named() {
    let mut scene = Scene::formed(3);
    scene.observed.desired.image = Image::Tagged {
        repository: Some("r".to_owned()),
        version: Some("3.7.0".parse().expect("a version")),
    };
    scene.edited("edited");
    scene.observed.wanted.version = "3.7.0".parse().expect("a version");
    let pending = StatusInputs {
        pending: Some(PendingChange::Spec(vec!["version".to_owned()])),
        ..status_inputs()
    };
    let status = status_with(&scene, &pending, None);
    assert_eq!(status.target_version, "3.7.0");
    let why = status.plan.and_then(|plan| plan.why).expect("a text");
    assert_eq!(
        why,
        "All members are healthy. Pending changes of version (etcd 3.6.16 → 3.7.0): waiting for etcd to raise the version of the cluster to that of its members, which it does within seconds."
    );
}

#[test]
fn what_is_asked_for_and_not_done_is_not_called_done() {
    let mut scene = Scene::formed(3);
    scene.pending_from_before("edited");
    let pending = StatusInputs {
        pending: Some(PendingChange::Spec(vec!["version".to_owned()])),
        ..status_inputs()
    };
    let status = status_with(&scene, &pending, None);
    for (type_, status_value) in [
        (ConditionType::Progressing, "False"),
        (ConditionType::RolledOut, "False"),
        (ConditionType::Ready, "False"),
        (ConditionType::Stalled, "True"),
        (ConditionType::Reconciling, "False"),
    ] {
        let found = condition_of(&status, type_).expect("the condition");
        assert_eq!(found.status, status_value, "{type_:?}");
        assert_eq!(found.reason.as_deref(), Some("Pending"), "{type_:?}");
    }
    assert_eq!(
        status.reason.as_deref(),
        Some(
            "All members are healthy. Pending changes of version: the change was pending when an operator took over that rolls changes out, so it waits for your word. Edit the spec, or annotate this EtcdCluster with etcd.database.coreos.com/restart and any value."
        )
    );

    let status = status_with(&Scene::formed(3), &status_inputs(), None);
    for (type_, status_value) in [
        (ConditionType::RolledOut, "True"),
        (ConditionType::Ready, "True"),
        (ConditionType::Stalled, "False"),
        (ConditionType::Reconciling, "False"),
    ] {
        let found = condition_of(&status, type_).map(|found| found.status);
        assert_eq!(found.as_deref(), Some(status_value), "{type_:?}");
    }
}

#[test]
fn a_step_that_the_api_server_refuses_is_told_with_what_to_do_until_it_is_taken() {
    let scene = Scene::formed(3);
    let progress = |step, refused: Option<&str>, before: Option<&EtcdClusterStatus>| {
        let status_inputs = StatusInputs {
            step,
            refused_step: refused.map(str::to_owned),
            ..status_inputs()
        };
        let status = status_with(&scene, &status_inputs, before.cloned());
        let message = condition_of(&status, ConditionType::Progressing).and_then(|one| one.message);
        (status, message.unwrap_or_default())
    };
    let permit = Some("StartPermitted");
    let (refused, message) = progress(permit, Some("annotate Pod ns/c-0: forbidden"), None);
    assert!(
        message.ends_with(
            " The API server refuses the step StartPermitted: annotate Pod ns/c-0: forbidden. Correct the quota, the PodDisruptionBudget or the admission rule that it names, or grant the operator the missing permission. The operator retries."
        ),
        "{message}"
    );
    let (not_asked, same) = progress(permit, None, Some(&refused));
    assert_eq!((&same, &not_asked), (&message, &refused));
    let (_, anew) = progress(permit, Some("annotate Pod ns/c-1: no"), Some(&refused));
    assert_eq!(anew.matches("The API server refuses").count(), 1, "{anew}");
    for other in [None, Some("PodDeleted")] {
        let (_, message) = progress(other, None, Some(&refused));
        assert!(!message.contains("refuses"), "{other:?} {message}");
    }
}

#[test]
fn definitions_that_drop_the_plan_are_told_with_what_to_do_unless_nothing_is_to_be_done() {
    let forgets = StatusInputs {
        drops_plans: true,
        ..status_inputs()
    };
    let progress = |scene: &Scene, status_inputs: &StatusInputs<'_>| {
        let status = status_with(scene, status_inputs, None);
        let one = condition_of(&status, ConditionType::Progressing).expect("the condition");
        (one, status.reason.unwrap_or_default())
    };
    let mut scene = Scene::new(3);
    for formed in [false, true] {
        if formed {
            scene = Scene::formed(3);
        }
        let (told, short) = progress(&scene, &forgets);
        assert_eq!(
            (told.status.as_str(), told.reason.as_deref()),
            ("False", Some("DefinitionsOutdated"))
        );
        for text in [told.message.unwrap_or_default(), short] {
            assert!(
                text.contains("kubectl apply --server-side --kustomize config/crd"),
                "{text}"
            );
        }
        let (usual, _) = progress(&scene, &status_inputs());
        assert_ne!(usual.reason.as_deref(), Some("DefinitionsOutdated"));
    }
    scene.observed.desired.paused = true;
    assert_eq!(progress(&scene, &forgets).0.reason.as_deref(), Some("Paused"));
}

#[test]
fn what_is_in_the_way_is_told_in_full_by_one_condition_and_by_that_of_lost_data() {
    let mut stuck = Scene::new(3);
    stuck.pod(0, "pod-0");
    stuck.pod_at(0).unschedulable = Some(Unschedulable::from_scheduler("no room anywhere"));
    let mut silent = Scene::formed(3);
    silent.unknown();
    for number in 0..3 {
        silent.ended(number, 7);
    }
    let mut cut_off = Scene::formed(3);
    cut_off.unknown();
    for number in 0..3 {
        cut_off.silent(number);
    }
    let table = [
        (stuck, "no room anywhere", vec!["Progressing"]),
        (silent, "ended with code 7", vec!["Progressing", "QuorumLost"]),
        (cut_off, "no answer", vec!["Progressing"]),
    ];
    for (scene, words, expected) in table {
        let status = status_of(&scene);
        let conditions = status.conditions.clone().unwrap_or_default();
        let message = |one: &Condition| one.message.clone().unwrap_or_default();
        let in_full = conditions.iter().filter(|one| message(one).contains(words));
        let in_full: Vec<_> = in_full.map(|one| one.type_.as_str()).collect();
        assert_eq!(in_full, expected);
        let available = condition_of(&status, ConditionType::Available).expect("the condition");
        assert!(
            message(&available).ends_with(". See the condition Progressing."),
            "{available:?}"
        );
    }
}
