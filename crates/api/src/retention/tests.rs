//! Tests of retention: examples, and properties that hold for any limits.

use proptest::prelude::*;

use super::*;

const OWN: &str = "11111111-own";

fn stored(object: &str, revision: i64, completed: &str) -> Stored {
    Stored {
        object: object.to_owned(),
        owner: OWN.to_owned(),
        cluster_id: "7".to_owned(),
        incarnation: 1,
        revision,
        completed: completed.parse().unwrap(),
    }
}

fn now() -> Timestamp {
    "2026-11-22T12:00:00Z".parse().unwrap()
}

fn newest(count: usize) -> Policy {
    Policy {
        newest: Some(count),
        ..Policy::default()
    }
}

#[test]
fn the_newest_are_chosen_by_time_and_not_by_name() {
    // Sorted as text, v1000 would come before v999.
    let all = [
        stored("c_v998", 998, "2026-11-22T09:00:00Z"),
        stored("c_v1000", 1000, "2026-11-22T11:00:00Z"),
        stored("c_v999", 999, "2026-11-22T10:00:00Z"),
    ];
    assert_eq!(prune(&all, OWN, &newest(2), now()), ["c_v998"]);
    assert_eq!(prune(&all, OWN, &newest(1), now()), ["c_v998", "c_v999"]);
}

#[test]
fn backups_with_equal_revisions_still_count_separately() {
    let all = [
        stored("a", 7, "2026-11-22T09:00:00Z"),
        stored("b", 7, "2026-11-22T10:00:00Z"),
        stored("c", 7, "2026-11-22T11:00:00Z"),
    ];
    assert_eq!(prune(&all, OWN, &newest(1), now()), ["a", "b"]);
}

#[test]
fn limits_are_parsed_and_an_unknown_time_zone_is_refused() {
    let keep = Keep {
        newest: Some(4),
        daily: 2,
        zone: Some("Europe/Berlin".to_owned()),
        ..Keep::default()
    };
    let policy = keep.policy().unwrap();
    assert_eq!((policy.newest, policy.daily), (Some(4), 2));
    assert_eq!(policy.zone.iana_name(), Some("Europe/Berlin"));
    assert!(keep.is_bounded() && !Keep::default().is_bounded());
    let unknown = Keep {
        zone: Some("Middle/Earth".to_owned()),
        ..keep
    };
    assert_eq!(unknown.policy(), None);
}

#[test]
fn without_a_limit_everything_is_kept() {
    let all = [
        stored("a", 1, "1999-01-01T00:00:00Z"),
        stored("b", 2, "2026-11-22T10:00:00Z"),
    ];
    assert!(prune(&all, OWN, &Policy::default(), now()).is_empty());
}

#[test]
fn a_backup_that_a_restore_needs_is_kept_beside_those_of_the_limits() {
    let all = [
        stored("a", 1, "2026-11-20T10:00:00Z"),
        stored("b", 2, "2026-11-21T10:00:00Z"),
        stored("c", 3, "2026-11-22T10:00:00Z"),
    ];
    let keep = Keep {
        newest: Some(1),
        max_age_seconds: Some(1),
        held: ["a".to_owned(), "elsewhere".to_owned()].into(),
        ..Keep::default()
    };
    let order = serde_json::to_value(&keep).unwrap();
    assert_eq!(order["held"], serde_json::json!(["a", "elsewhere"]));
    let keep: Keep = serde_json::from_value(order).unwrap();
    assert_eq!(prune(&all, OWN, &keep.policy().unwrap(), now()), ["b"]);
}

#[test]
fn backups_of_another_owner_are_never_deleted() {
    let mut all = vec![
        stored("etcd2_v1", 1, "2026-01-01T00:00:00Z"),
        stored("etcd_v9", 9, "2026-11-22T10:00:00Z"),
    ];
    all[0].owner = "22222222-other".to_owned();
    let strict = Policy {
        age: Some(Duration::from_secs(1)),
        ..newest(1)
    };
    assert!(prune(&all, OWN, &strict, now()).is_empty());
    assert!(prune(&all, "33333333-nobody", &strict, now()).is_empty());
}

#[test]
fn the_newest_backup_is_kept_however_old_it_is() {
    let all = [
        stored("old", 5, "2020-01-01T00:00:00Z"),
        stored("older", 4, "2019-01-01T00:00:00Z"),
    ];
    let strict = Policy {
        age: Some(Duration::from_hours(24)),
        ..Policy::default()
    };
    assert_eq!(prune(&all, OWN, &strict, now()), ["older"]);
}

/// If credentials expired eight days ago, backups from before must not expire.
#[test]
fn no_backup_expires_while_no_newer_one_is_stored() {
    let all = [
        stored("six_days_before", 1, "2026-11-08T03:00:00Z"),
        stored("last", 2, "2026-11-14T03:00:00Z"),
        stored("eight_days_before", 0, "2026-11-06T02:00:00Z"),
    ];
    let week = Policy {
        age: Some(Duration::from_hours(168)),
        ..Policy::default()
    };
    assert_eq!(prune(&all, OWN, &week, now()), ["eight_days_before"]);
}

#[test]
fn the_backup_with_the_newest_data_is_kept_if_a_clock_was_wrong() {
    let all = [
        stored("from_the_future", 5, "2031-01-01T00:00:00Z"),
        stored("newest_data", 90, "2026-11-22T11:00:00Z"),
        stored("between", 80, "2026-11-22T11:30:00Z"),
    ];
    assert_eq!(prune(&all, OWN, &newest(1), now()), ["between"]);
}

#[test]
fn the_newest_backup_of_a_lost_cluster_is_kept_whatever_its_replacement_stores() {
    let mut all = vec![
        stored("lost_older", 899, "2026-11-20T09:00:00Z"),
        stored("lost", 900, "2026-11-20T10:00:00Z"),
        stored("empty_1", 1, "2026-11-22T10:00:00Z"),
        stored("empty_2", 2, "2026-11-22T11:00:00Z"),
    ];
    for new in &mut all[2..] {
        new.cluster_id = "8".to_owned();
        // As for another EtcdCluster of the same name, or after a restore.
        new.incarnation = 2;
    }
    let strict = Policy {
        age: Some(Duration::from_hours(3)),
        ..newest(1)
    };
    assert_eq!(prune(&all, OWN, &strict, now()), ["lost_older", "empty_1"]);
}

#[test]
fn daily_and_weekly_backups_are_chosen_in_the_users_time_zone() {
    let all = [
        stored("sat_late", 1, "2026-11-21T22:30:00Z"),
        stored("sun_0030_berlin", 2, "2026-11-21T23:30:00Z"),
        stored("sun", 3, "2026-11-22T11:00:00Z"),
        stored("two_weeks_ago", 0, "2026-11-08T11:00:00Z"),
    ];
    let daily = Policy {
        daily: 2,
        zone: TimeZone::get("Europe/Berlin").unwrap(),
        ..Policy::default()
    };
    assert_eq!(
        prune(&all, OWN, &daily, now()),
        ["two_weeks_ago", "sun_0030_berlin"]
    );
    let weekly = Policy {
        weekly: 2,
        ..Policy::default()
    };
    assert_eq!(prune(&all, OWN, &weekly, now()), ["sat_late", "sun_0030_berlin"]);
}

fn any_stored() -> impl Strategy<Value = Stored> {
    (
        0..3_i64,
        0..2_000_i64,
        0..4_000_000_i64,
        any::<bool>(),
        (0..3_u8, 0..1_000_000_u32),
    )
        .prop_map(
            |(incarnation, revision, second, is_own, (cluster, number))| Stored {
                object: format!("o{number}"),
                cluster_id: cluster.to_string(),
                owner: if is_own { OWN } else { "other" }.to_owned(),
                incarnation,
                revision,
                completed: Timestamp::from_second(1_790_000_000 + second).unwrap(),
            },
        )
}

proptest! {
    #[test]
    fn the_newest_and_foreign_backups_are_kept_and_pruning_is_idempotent(
        all in prop::collection::vec(any_stored(), 0..40),
        (count, age, hourly, daily, weekly) in
            (prop::option::of(1..9_usize), prop::option::of(1..4_000_000_u64), 0..5_usize, 0..5_usize, 0..5_usize),
    ) {
        let policy = Policy {
            newest: count,
            age: age.map(Duration::from_secs),
            hourly, daily, weekly,
            zone: TimeZone::UTC,
            held: BTreeSet::new(),
        };
        let now = Timestamp::from_second(1_794_000_000).unwrap();
        let gone: BTreeSet<String> = prune(&all, OWN, &policy, now).into_iter().map(str::to_owned).collect();
        let mut own: Vec<&Stored> = all.iter().filter(|stored| stored.owner == OWN).collect();
        own.sort_by_key(|stored| stored.completed);
        for cluster in ["0", "1", "2"] {
            let of_cluster = || own.iter().filter(|stored| stored.cluster_id == cluster);
            if let Some(last) = of_cluster().next_back() {
                let mut newest = of_cluster().filter(|stored| stored.completed == last.completed);
                prop_assert!(newest.any(|stored| !gone.contains(&stored.object)));
            }
        }
        for stored in &all {
            let has_namesake = own.iter().any(|own| own.object == stored.object);
            prop_assert!(stored.owner == OWN || has_namesake || !gone.contains(&stored.object));
        }
        let left: Vec<Stored> = all.iter().filter(|stored| !gone.contains(&stored.object)).cloned().collect();
        prop_assert!(prune(&left, OWN, &policy, now).is_empty());
        let is_limited_by_number = policy.limits_number() && policy.age.is_none();
        if is_limited_by_number {
            let kept = own.iter().filter(|stored| !gone.contains(&stored.object)).count();
            prop_assert!(kept >= own.len().min(count.unwrap_or(0)));
        }
    }
}
