//! What a newer version of the operator wrote of the items of lists. A list is written as a whole and told anew each
//! time, so each item takes along what stood there of the same thing; it must not inherit what was said of another.

use etcd_operator_api::cluster::{MemberStatus, RestoreProgress, StepIntent, StepTarget};

/// A member with the unknown fields of its item before, unless that was of another member with this name.
pub fn member(now: MemberStatus, was: Option<&MemberStatus>) -> MemberStatus {
    let same = was.filter(|was| was.name == now.name && is_or_becomes(was.id.as_deref(), now.id.as_deref()));
    MemberStatus {
        later: same.map(|was| was.later.clone()).unwrap_or_default(),
        ..now
    }
}

/// A step with the unknown fields of its targets before, if it is the same step.
pub fn step(mut now: StepIntent, was: Option<&StepIntent>) -> StepIntent {
    let same = was.filter(|was| was.kind == now.kind && was.incarnation == now.incarnation);
    let before = same.and_then(|was| was.targets.as_deref()).unwrap_or_default();
    for target in now.targets.iter_mut().flatten() {
        let was = before.iter().find(|was| is_same(was, target));
        target.later = was.map(|was| was.later.clone()).unwrap_or_default();
    }
    now
}

/// A restore with the unknown fields of its members before, if it is the same attempt of the same restore.
pub fn restore(mut now: RestoreProgress, was: Option<&RestoreProgress>) -> RestoreProgress {
    let same = was.filter(|was| was.uid == now.uid && was.incarnation == now.incarnation);
    let before = same.and_then(|was| was.members.as_deref()).unwrap_or_default();
    for member in now.members.iter_mut().flatten() {
        let was = before.iter().find(|was| was.name == member.name);
        member.later = was.map(|was| was.later.clone()).unwrap_or_default();
    }
    now
}

/// Whether both targets are of the same member, pod and process. What was not known before may be known now.
fn is_same(was: &StepTarget, now: &StepTarget) -> bool {
    was.member == now.member
        && is_or_becomes(was.id.as_deref(), now.id.as_deref())
        && is_or_becomes(was.pod_uid.as_deref(), now.pod_uid.as_deref())
        && is_or_becomes(was.process.as_deref(), now.process.as_deref())
        && is_or_becomes(was.nonce.as_deref(), now.nonce.as_deref())
        && is_or_becomes(was.claim_uid.as_deref(), now.claim_uid.as_deref())
}

/// Whether it is as it was; what was not known yet may become known.
fn is_or_becomes(was: Option<&str>, now: Option<&str>) -> bool {
    was.is_none() || was == now
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use etcd_operator_api::restore::MemberRestoreStatus;
    use serde_json::Value;

    use super::*;

    fn later() -> BTreeMap<String, Value> {
        BTreeMap::from([("later".to_owned(), Value::from("kept"))])
    }

    #[test]
    fn what_was_written_of_a_member_goes_with_its_id() {
        let member = |id: Option<&str>| MemberStatus {
            name: "c-0".to_owned(),
            id: id.map(str::to_owned),
            ..MemberStatus::default()
        };
        let table = [
            (Some("a"), Some("a"), true),
            (None, None, true),
            (None, Some("a"), true),
            (Some("a"), Some("b"), false),
            (Some("a"), None, false),
        ];
        for (before, now, stays) in table {
            let was = MemberStatus {
                later: later(),
                healthy: true,
                ..member(before)
            };
            let after = super::member(member(now), Some(&was));
            assert_eq!(after.later == later(), stays, "{before:?} {now:?}");
            assert!(!after.healthy, "nothing else of it is of before");
        }
        assert!(super::member(member(None), None).later.is_empty());
    }

    #[test]
    fn what_was_written_of_a_target_goes_with_its_step_and_its_process() {
        let of = |kind: &str, process: &str, id: Option<&str>| StepIntent {
            kind: kind.to_owned(),
            incarnation: Some(1),
            targets: Some(vec![StepTarget {
                member: "c-0".to_owned(),
                process: Some(process.to_owned()),
                id: id.map(str::to_owned),
                ..StepTarget::default()
            }]),
            ..StepIntent::default()
        };
        let mut was = of("Join", "p", None);
        was.instance = Some("another".to_owned());
        for target in was.targets.iter_mut().flatten() {
            target.later = later();
        }
        let stays = |now: StepIntent| {
            let after = step(now, Some(&was));
            after
                .targets
                .iter()
                .flatten()
                .all(|target| target.later == later())
        };
        assert!(stays(of("Join", "p", None)));
        assert!(stays(of("Join", "p", Some("a"))), "it has an ID by now");
        assert!(!stays(of("Join", "q", None)), "another process");
        assert!(!stays(of("Resume", "p", None)), "another step");
        let again = StepIntent {
            incarnation: Some(2),
            ..of("Join", "p", None)
        };
        assert!(!stays(again), "another life of the data");
    }

    #[test]
    fn what_was_written_of_a_part_goes_with_the_member_and_the_restore() {
        let of = |uid: &str, incarnation: i64, name: &str, later: BTreeMap<String, Value>| RestoreProgress {
            uid: uid.to_owned(),
            incarnation,
            members: Some(vec![MemberRestoreStatus {
                name: name.to_owned(),
                later,
                ..MemberRestoreStatus::default()
            }]),
            ..RestoreProgress::default()
        };
        let was = of("r", 2, "c-0", later());
        let table = [
            ("r", 2, "c-0", true),
            ("r", 2, "c-1", false),
            ("r", 3, "c-0", false),
            ("s", 2, "c-0", false),
        ];
        for (uid, incarnation, name, stays) in table {
            let after = restore(of(uid, incarnation, name, BTreeMap::new()), Some(&was));
            let kept = after.members.iter().flatten().all(|part| part.later == later());
            assert_eq!(kept, stays, "{uid} {incarnation} {name}");
        }
    }
}
