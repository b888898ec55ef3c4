//! Tests with real files of etcd 3.2 to 3.7. The results must equal what etcd served and what its tools
//! printed.

mod support;

use etcd_operator_snapshot::content::live_keys::{find_live_keys, find_live_keys_within};
use etcd_operator_snapshot::content::quick_look::{RemoteStep, quick_look, quick_look_step};
use etcd_operator_snapshot::content::{Alarm, Facts};
use etcd_operator_snapshot::database::Database;
use etcd_operator_snapshot::source::{File, Ranges};
use etcd_operator_snapshot::stream::{StreamKind, StreamVerifier};
use support::{Row, bytes, check_database, table};

fn facts(name: &str) -> Facts {
    check_database(&bytes(name)).expect("it can be read").look.facts
}

#[test]
fn no_damage_is_found_in_real_files() {
    for Row { name, .. } in table() {
        let audit = check_database(&bytes(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(audit.findings.is_empty(), "{name}: {:?}", audit.findings);
    }
}

#[test]
fn the_revision_equals_the_one_etcd_served() {
    for row in table() {
        let bytes = bytes(&row.name);
        let look = quick_look(&mut Database::open(&bytes[..]).expect("open")).expect("look");
        assert_eq!(look.revision, row.served_revision, "{}", row.name);
        let edge = look.right_edge.map_or(0, |edge| edge.main);
        assert_eq!(
            edge, row.revision,
            "{}: etcd's tool prints the right edge alone",
            row.name
        );
    }
}

#[test]
fn after_compaction_at_a_deletion_the_last_key_is_too_low_up_to_3_4() {
    let behind: Vec<String> = table()
        .into_iter()
        .filter(|row| row.name.ends_with("-tombstone") && row.revision < row.served_revision)
        .map(|row| row.name)
        .collect();
    assert_eq!(behind, ["3.2-tombstone", "3.3-tombstone", "3.4-tombstone"]);
}

#[test]
fn keys_and_hash_equal_those_of_etcds_tools() {
    for row in table() {
        let bytes = bytes(&row.name);
        let mut database = Database::open(&bytes[..]).expect("open");
        let audit = etcd_operator_snapshot::content::audit::audit(&mut database).expect("a walk");
        assert_eq!(audit.hash, row.hash, "{}", row.name);
        // Since 3.6 etcd's tool counts live keys; before it counted the entries of all buckets.
        let keys = match row.minor() {
            ..6 => audit.entries(),
            _ => {
                find_live_keys(&mut database, None, audit.records)
                    .expect("keys")
                    .keys
            }
        };
        assert_eq!(keys, row.keys, "{}", row.name);
    }
}

#[test]
fn the_digest_equals_that_of_range_reads() {
    for row in table() {
        let bytes = bytes(&row.name);
        let mut database = Database::open(&bytes[..]).expect("open");
        let records = check_database(&bytes).expect("a walk").records;
        let all = find_live_keys(&mut database, None, records).expect("keys");
        assert_eq!(all.digest.to_string(), row.served_digest, "{}", row.name);
        let at = find_live_keys(&mut database, Some(row.served_revision), records).expect("keys");
        assert_eq!(at, all, "{}", row.name);
        let sums = all.prefixes.values().fold((0, 0), |(keys, bytes), size| {
            (keys + size.keys, bytes + size.bytes)
        });
        assert_eq!(sums, (all.keys, all.bytes), "{}", row.name);
    }
}

#[test]
fn the_digest_does_not_depend_on_the_memory_limit() {
    let bytes = bytes("3.6-full");
    let mut database = Database::open(&bytes[..]).expect("open");
    let records = check_database(&bytes).expect("a walk").records;
    let wanted = find_live_keys(&mut database, None, records).expect("keys");
    // With a record count that is too low, the scan must split its ranges itself.
    for (remembered, told) in [(100, records), (90, 0)] {
        let found = find_live_keys_within(&mut database, None, told, remembered).expect("keys");
        assert_eq!(found, wanted, "{remembered} at once, told of {told}");
    }
}

#[test]
fn the_digest_at_an_older_revision_excludes_later_changes() {
    let bytes = bytes("3.5-full");
    let mut database = Database::open(&bytes[..]).expect("open");
    let audit = check_database(&bytes).expect("a walk");
    let compacted = audit.look.facts.compacted.expect("it was compacted");
    let then = find_live_keys(&mut database, Some(compacted), audit.records).expect("keys");
    let now = find_live_keys(&mut database, None, audit.records).expect("keys");
    // Later changes: 60 events and two large keys added, one pod deleted, one colour changed.
    assert_eq!(now.keys, then.keys + 61);
    assert_eq!(then.prefixes["/registry/pods/"].keys, 90);
    assert_eq!(now.prefixes["/registry/pods/"].keys, 89);
    assert!(!then.prefixes.contains_key("/registry/events/"));
    assert_ne!(now.digest, then.digest);
}

#[test]
fn snapshots_and_copies_are_distinguished_by_length_and_hash() {
    for row in table() {
        let bytes = bytes(&row.name);
        let mut check = StreamVerifier::default();
        for piece in bytes.chunks(32 << 10) {
            check.push(piece);
        }
        let checked = check
            .finish()
            .unwrap_or_else(|error| panic!("{}: {error}", row.name));
        let is_snapshot = matches!(checked.kind, StreamKind::Snapshot { .. });
        assert_eq!(is_snapshot, row.is_snapshot(), "{}", row.name);
        assert_eq!(
            Database::open(&bytes[..]).expect("open").has_hash(),
            row.is_snapshot()
        );
    }
}

#[test]
fn voters_learners_and_removed_members_are_distinguished() {
    for minor in 4..=7 {
        let name = format!("3.{minor}-full");
        let roster = facts(&name).roster;
        let (learners, voters): (Vec<_>, Vec<_>) =
            roster.members.iter().partition(|member| member.is_learner);
        assert_eq!(
            (voters.len(), learners.len(), roster.removed.len()),
            (1, 1, 1),
            "{name}"
        );
        assert_eq!(voters[0].name, "m", "{name}");
        assert_eq!(learners[0].peer_urls, ["http://127.0.0.1:9"], "{name}");
        assert!(!roster.removed.contains(&learners[0].id), "{name}");
    }
    assert_eq!(facts("3.2-full").roster.members.len(), 1);
}

#[test]
fn users_alarms_leases_and_versions_are_read() {
    for minor in 2..=7 {
        let full = facts(&format!("3.{minor}-full"));
        assert!(full.auth.enabled, "3.{minor}");
        assert_eq!(full.auth.users, ["ann", "root"], "3.{minor}");
        assert_eq!(full.auth.roles, ["reader", "root"], "3.{minor}");
        assert_eq!(full.leases, Some(1), "3.{minor}");
        assert_eq!(full.versions.cluster, Some(format!("3.{minor}.0")));
        assert!(full.consistent_index.is_some_and(|index| index > 10), "3.{minor}");
        assert_eq!(full.term.is_some(), minor >= 5, "3.{minor}");
        assert_eq!(full.conf_state.is_some(), minor >= 5, "3.{minor}");
        assert_eq!(full.versions.storage.is_some(), minor >= 6, "3.{minor}");
        let fresh = facts(&format!("3.{minor}-fresh"));
        assert!(!fresh.auth.enabled && fresh.auth.users.is_empty(), "3.{minor}");
        let alarms = facts(&format!("3.{minor}-nospace")).alarms;
        assert!(
            matches!(&alarms[..], [Alarm { alarm, member }] if alarm == "NOSPACE" && *member != 0),
            "3.{minor}: {alarms:?}"
        );
    }
}

#[test]
fn other_page_sizes_and_a_freelist_are_supported() {
    let same = check_database(&bytes("3.5-full")).expect("a walk");
    for (name, size) in [
        ("3.5-pages16", 16_384),
        ("3.5-pages64", 65_536),
        ("3.5-synced", 4096),
    ] {
        let bytes = bytes(name);
        let database = Database::open(&bytes[..]).expect("open");
        assert_eq!(database.meta().page_size, size, "{name}");
        assert_eq!(database.meta().freelist.is_some(), name == "3.5-synced", "{name}");
        let audit = check_database(&bytes).expect("a walk");
        assert_eq!((audit.hash, &audit.look), (same.hash, &same.look), "{name}");
    }
}

#[test]
fn one_valid_meta_page_is_enough() {
    for name in ["3.2-full", "3.7-full", "3.5-pages16", "3.5-pages64"] {
        let whole = bytes(name);
        let wanted = quick_look(&mut Database::open(&whole[..]).expect("open")).expect("look");
        let size =
            usize::try_from(Database::open(&whole[..]).expect("open").meta().page_size).expect("small");
        for torn in [16, size + 16] {
            let mut bytes = whole.clone();
            bytes[torn + 48] ^= 1;
            let mut database = Database::open(&bytes[..]).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(quick_look(&mut database).expect("look"), wanted, "{name}");
            let findings = check_database(&bytes).expect("a walk").findings;
            assert_eq!(findings.list.len(), 1, "{name}: {findings:?}");
        }
    }
}

#[test]
fn a_file_on_disk_is_read_like_one_in_memory() {
    let bytes = bytes("3.6-full");
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("real.db");
    std::fs::write(&path, &bytes).expect("the file is written");
    let file = File::new(std::fs::File::open(&path).expect("the file opens")).expect("it has a length");
    let mut database = Database::open(file).expect("open");
    let found = etcd_operator_snapshot::content::audit::audit(&mut database).expect("a walk");
    assert_eq!(found, check_database(&bytes).expect("a walk"));
}

#[test]
fn a_remote_file_needs_few_small_reads() {
    for row in table() {
        let bytes = bytes(&row.name);
        let mut ranges = Ranges::with_length(bytes.len() as u64);
        let (mut reads, mut fetched) = (0, 0);
        let seen = loop {
            match quick_look_step(&mut ranges).expect("a step") {
                RemoteStep::Done(look) => break look,
                RemoteStep::Fetch {
                    offset: place,
                    length,
                } => {
                    reads += 1;
                    fetched += length;
                    let from = usize::try_from(place).expect("small");
                    let until = from + usize::try_from(length).expect("small");
                    ranges.put(place, bytes[from..until].to_vec());
                }
            }
        };
        assert_eq!(seen.revision, row.served_revision, "{}", row.name);
        assert!(reads <= 24, "{}: {reads} reads", row.name);
        assert!(fetched <= 1 << 20, "{}: {fetched} bytes", row.name);
    }
}
