//! The series of a cluster, compared with the cluster.

use std::time::Duration;

use etcd_operator_api::cluster::StepIntent;
use etcd_operator_etcd::status::Status;
use jiff::Timestamp;
use serde_json::json;

use super::*;

fn orders() -> EtcdCluster {
    let members = ["voter", "voter", "voter", "learner"];
    let members = members.iter().enumerate().map(
        |(number, role)| json!({"name": format!("orders-{number}"), "role": role, "healthy": number != 2}),
    );
    let members: Vec<_> = members
        .chain([json!({"name": "orders-4", "healthy": false})])
        .collect();
    serde_json::from_value(json!({
        "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster",
        "metadata": {"name": "orders", "namespace": "shop"}, "spec": {"size": 5},
        "status": {
            "leader": "orders-1", "currentVersion": "3.6.16", "clusterID": "cafe", "memberStatus": members,
            "plan": {"blockedBy": ["one", "two"]},
            "conditions": [
                {"type": "Available", "status": "True"}, {"type": "QuorumLost", "status": "Unknown"},
                {"type": "Accepted", "status": "False", "reason": "Invalid"},
            ],
        },
    }))
    .expect("a cluster")
}

/// The figures of a family, each as its labels beyond those of the cluster, and its value.
fn told(name: &str, cluster: &EtcdCluster, reading: &Reading) -> Vec<String> {
    let (_, _, family) = FAMILIES
        .iter()
        .find(|(found, ..)| *found == name)
        .expect("a family");
    let figures = family(cluster, reading).into_iter();
    figures
        .map(|figure| {
            let (object, more) = figure.labels.split_at(2);
            assert_eq!(
                object,
                [("namespace", "shop".to_owned()), ("cluster", "orders".to_owned())]
            );
            let values = more.iter().map(|(_, value)| format!("{value} "));
            format!("{}{}", values.collect::<String>(), figure.value)
        })
        .collect()
}

#[test]
fn figures_follow_from_the_status() {
    let none = Reading::default();
    let table: &[(&str, &[&str])] = &[
        ("cluster_info", &["3.6.16 cafe 1"]),
        ("cluster_members_desired", &["5"]),
        (
            "cluster_members",
            &[
                "voter healthy 2",
                "voter unhealthy 1",
                "learner healthy 1",
                "none unhealthy 1",
            ],
        ),
        // A learner and a member that has not joined.
        ("cluster_members_pending", &["2"]),
        ("cluster_members_outdated", &[]),
        ("cluster_has_leader", &["1"]),
        (
            "cluster_condition",
            &["Available True 1", "QuorumLost Unknown 1", "Accepted False 1"],
        ),
        // An older operator wrote no reasons.
        ("cluster_blockers", &["Unknown 2"]),
        // What was not observed has no series, never a zero.
        ("cluster_database_quota_bytes", &[]),
        ("member_database_bytes", &[]),
        ("cluster_step_start_timestamp_seconds", &[]),
    ];
    for (name, lines) in table {
        assert_eq!(told(name, &orders(), &none), *lines, "{name}");
    }
    let mut fresh = orders();
    fresh.status = None;
    assert_eq!(
        told("cluster_members", &fresh, &none),
        ["voter healthy 0", "voter unhealthy 0"]
    );
    assert_eq!(told("cluster_has_leader", &fresh, &none), ["0"]);
    assert_eq!(told("cluster_members_pending", &fresh, &none), ["5"]);
    assert_eq!(told("cluster_info", &fresh, &none), ["  1"]);
}

#[test]
fn a_cluster_with_more_voters_than_desired_has_no_pending_members() {
    let mut cluster = orders();
    cluster.spec.size = 1;
    let none = Reading::default();
    assert_eq!(told("cluster_members_pending", &cluster, &none), ["0"]);
}

#[test]
fn every_pod_is_outdated_while_the_new_template_is_not_applied() {
    let mut cluster = orders();
    let reading = Reading {
        pods: Some(PodCounts { all: 3, outdated: 1 }),
        ..Reading::default()
    };
    assert_eq!(told("cluster_members_outdated", &cluster, &reading), ["1"]);
    let status = cluster.status.as_mut().expect("a status");
    status.applied_template = Some("{}".to_owned());
    // The spec is refused, and asks for no template.
    assert_eq!(told("cluster_members_outdated", &cluster, &reading), ["1"]);
    let status = cluster.status.as_mut().expect("a status");
    status.conditions = None;
    assert_eq!(told("cluster_members_outdated", &cluster, &reading), ["3"]);
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn status(raft_index: u64, size: u64, in_use: Option<u64>, quota: Option<u64>) -> Status {
    use etcd_operator_etcd::id::{ClusterId, MemberId, RaftIndex, RaftTerm, Revision};
    use etcd_operator_etcd::status::Position;
    Status {
        position: Position {
            cluster: ClusterId::new(1).expect("an ID"),
            member: MemberId::new(2).expect("an ID"),
            revision: Revision(3),
            term: RaftTerm(4),
        },
        version: "3.6.16".parse().expect("a version"),
        leader: None,
        raft_index: RaftIndex(raft_index),
        applied: None,
        is_learner: false,
        db_size: size,
        db_in_use: in_use,
        db_quota: quota,
        storage_version: None,
        downgrade: None,
        errors: Vec::new(),
    }
}

#[test]
fn sizes_are_those_that_members_told_at_the_last_look() {
    let (readings, key) = (Readings::default(), ObjectKey::of(&orders()));
    let (one, other) = (
        status(90, 4096, Some(1024), Some(8192)),
        status(100, 8192, None, None),
    );
    let sample = Sample {
        uid: "u",
        now: at(0),
        step: None,
        answers: vec![("orders-0".to_owned(), &one), ("orders-1".to_owned(), &other)],
        quota: Some(9000),
        pods: PodCounts::default(),
    };
    readings.record(&key, &sample);
    let reading = readings.get(&key, Some("u"), at(1));
    for (name, lines) in [
        ("member_database_bytes", &["orders-0 4096", "orders-1 8192"][..]),
        ("member_database_in_use_bytes", &["orders-0 1024"]),
        ("member_raft_lag_entries", &["orders-0 10", "orders-1 0"]),
        ("cluster_database_quota_bytes", &["8192"]),
    ] {
        assert_eq!(told(name, &orders(), &reading), lines, "{name}");
    }
    // Members before 3.6 do not tell their quota: it is the one asked for, or etcd's own.
    for (asked, told) in [(Some(9000), 9000), (None, 2 << 30)] {
        let answers = vec![("orders-1".to_owned(), &other)];
        readings.record(
            &key,
            &Sample {
                answers,
                quota: asked,
                ..sample.clone()
            },
        );
        assert_eq!(readings.get(&key, Some("u"), at(1)).quota, Some(told));
    }
}

#[test]
fn nothing_is_told_of_a_cluster_that_is_gone_replaced_or_was_not_looked_at_for_long() {
    let (readings, key) = (Readings::default(), ObjectKey::of(&orders()));
    let one = status(1, 1, None, None);
    let sample = Sample {
        uid: "u",
        now: at(0),
        step: None,
        answers: vec![("orders-0".to_owned(), &one)],
        quota: None,
        pods: PodCounts::default(),
    };
    readings.record(&key, &sample);
    let minutes = |n: u64| at(0) + Duration::from_mins(n);
    assert_ne!(readings.get(&key, Some("u"), minutes(5)), Reading::default());
    assert_eq!(readings.get(&key, Some("u"), minutes(6)), Reading::default());
    assert_eq!(
        readings.get(&key, Some("another"), minutes(0)),
        Reading::default()
    );
    readings.forget(&key);
    assert_eq!(readings.get(&key, Some("u"), minutes(0)), Reading::default());
}

#[test]
fn a_step_keeps_its_start_until_another_one_takes_its_place() {
    let (readings, key) = (Readings::default(), ObjectKey::of(&orders()));
    let step = |kind: &str, attempt| StepIntent {
        kind: kind.to_owned(),
        attempt: Some(attempt),
        ..StepIntent::default()
    };
    let (add, again, remove) = (
        step("AddMember", 1),
        step("AddMember", 2),
        step("RemoveMember", 1),
    );
    for (second, step, since) in [
        (1, Some(&add), Some(1)),
        (30, Some(&add), Some(1)),
        // Another attempt is another step.
        (40, Some(&again), Some(40)),
        (70, Some(&remove), Some(70)),
        (75, None, None),
        (80, Some(&remove), Some(80)),
    ] {
        let sample = Sample {
            uid: "u",
            now: at(second),
            step,
            answers: Vec::new(),
            quota: None,
            pods: PodCounts::default(),
        };
        readings.record(&key, &sample);
        let reading = readings.get(&key, Some("u"), at(second));
        let told = told("cluster_step_start_timestamp_seconds", &orders(), &reading);
        let series = step
            .zip(since)
            .map(|(step, since)| format!("{} {since}", step.kind));
        assert_eq!(told, Vec::from_iter(series), "{second}");
    }
}

#[test]
fn blockers_are_counted_by_reason() {
    let mut cluster = orders();
    let none = Reading::default();
    let blocker = |reason: &str, member: &str| json!({"reason": reason, "member": member, "message": "m"});
    let blockers = [
        blocker("PodMissing", "orders-0"),
        blocker("PodMissing", "orders-1"),
        blocker("NoLeader", "orders-2"),
    ];
    let plan = json!({"blockedBy": ["one"], "blockers": blockers});
    let status = cluster.status.as_mut().expect("a status");
    status.plan = serde_json::from_value(plan).expect("a plan");
    assert_eq!(
        told("cluster_blockers", &cluster, &none),
        ["NoLeader 1", "PodMissing 2"]
    );
    cluster.status.as_mut().expect("a status").plan = None;
    assert_eq!(told("cluster_blockers", &cluster, &none), [""; 0]);
}
