//! What the page tells about a cluster, compared with the cluster.

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
            "leader": "orders-1", "memberStatus": members,
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
                [("namespace", "shop".to_owned()), ("name", "orders".to_owned())]
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
        ("cluster_members_wanted", &["5"]),
        (
            "cluster_members",
            &[
                "voter healthy 2",
                "voter unhealthy 1",
                "learner healthy 1",
                "none unhealthy 1",
            ],
        ),
        ("cluster_has_leader", &["1"]),
        (
            "cluster_condition",
            &["Available True 1", "QuorumLost Unknown 1", "Accepted False 1"],
        ),
        ("cluster_blocked", &["2"]),
        // An older operator wrote no reasons.
        ("cluster_blocked_reason", &["Unknown 1"]),
        // Nobody has looked: that is said by no series, and never by a zero.
        ("cluster_database_quota_bytes", &[]),
        ("member_database_bytes", &[]),
        ("cluster_plan_step", &[]),
        ("cluster_plan_step_age_seconds", &["0"]),
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
fn a_step_grows_old_until_another_one_takes_its_place() {
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
    for (second, step, age) in [
        (0, Some(&add), Some(0)),
        (30, Some(&add), Some(30)),
        // The same anew is a step of its own.
        (40, Some(&again), Some(0)),
        (70, Some(&remove), Some(0)),
        (75, None, None),
        (80, Some(&remove), Some(0)),
    ] {
        let sample = Sample {
            uid: "u",
            now: at(second),
            step,
            answers: Vec::new(),
            quota: None,
        };
        readings.record(&key, &sample);
        let reading = readings.get(&key, Some("u"), at(second));
        assert_eq!(reading.step.as_ref().map(|(_, age)| *age), age, "{second}");
        let kind = step.map(|step| format!("{} 1", step.kind));
        let told = told("cluster_plan_step", &orders(), &reading);
        assert_eq!(told.first(), kind.as_ref(), "{second}");
    }
}

#[test]
fn reasons_that_block_a_cluster_are_counted_once_each_and_none_without_blockers() {
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
        told("cluster_blocked_reason", &cluster, &none),
        ["NoLeader 1", "PodMissing 1"]
    );
    cluster.status.as_mut().expect("a status").plan = None;
    assert_eq!(told("cluster_blocked_reason", &cluster, &none), [""; 0]);
}
