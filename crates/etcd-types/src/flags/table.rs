//! The one table of names: which flag or feature gate says the same thing in which minors. Flags that every minor has
//! under one name are not in it.

use std::borrow::Cow;

use crate::version::{Minor, Version};

/// The flag or the feature gate by which a version of etcd has a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// By a flag of this name.
    Flag(Cow<'static, str>),
    /// By this name within `--feature-gates`.
    Gate(Cow<'static, str>),
}

/// The flag that holds the gates.
pub(super) const GATES: &str = "feature-gates";

/// One name of a setting, and the versions that have it.
#[derive(Clone, Debug)]
pub(super) struct Spelling {
    since: (Minor, u32),
    /// The first minor that does not.
    until: Option<Minor>,
    how: How,
}

use Minor::{V3_2, V3_3, V3_4, V3_5, V3_6, V3_7};

/// A flag that exists from one minor version on, and before another one if `until` names it.
const fn flag(name: &'static str, since: Minor, until: Option<Minor>) -> Spelling {
    patch(name, (since, 0), until)
}

/// A flag that exists from a patch on, and before the minor version that `until` names.
const fn patch(name: &'static str, since: (Minor, u32), until: Option<Minor>) -> Spelling {
    Spelling {
        since,
        until,
        how: How::Flag(Cow::Borrowed(name)),
    }
}

/// A gate since 3.6. The experimental flag that it replaces still works in 3.6, but no longer in 3.7.
const fn gate(name: &'static str) -> Spelling {
    Spelling {
        since: (V3_6, 0),
        until: None,
        how: How::Gate(Cow::Borrowed(name)),
    }
}

/// A flag that exists from a minor version on.
const fn since(name: &'static str, minor: Minor) -> [Spelling; 1] {
    [flag(name, minor, None)]
}

/// A flag that exists in every minor version before this one.
const fn until(name: &'static str, minor: Minor) -> [Spelling; 1] {
    [flag(name, V3_2, Some(minor))]
}

/// An experiment of some minors that got its plain name in 3.6.
const fn grown(experiment: &'static str, from: (Minor, u32), name: &'static str) -> [Spelling; 2] {
    [patch(experiment, from, Some(V3_6)), flag(name, V3_6, None)]
}

/// An experiment of some minors that became a gate in 3.6.
const fn gated(experiment: &'static str, from: (Minor, u32), name: &'static str) -> [Spelling; 2] {
    [patch(experiment, from, Some(V3_6)), gate(name)]
}

/// Each row is one meaning.
static TABLE: &[&[Spelling]] = &[
    // What the operator itself sets.
    &since("auto-compaction-mode", V3_3),
    &since("listen-metrics-urls", V3_3),
    &since("pre-vote", V3_4),
    &since("max-learners", V3_6),
    &since(GATES, V3_6),
    &gated(
        "experimental-initial-corrupt-check",
        (V3_3, 0),
        "InitialCorruptCheck",
    ),
    &grown("experimental-corrupt-check-time", (V3_3, 0), "corrupt-check-time"),
    &gated(
        "experimental-compact-hash-check-enabled",
        (V3_5, 5),
        "CompactHashCheck",
    ),
    &grown(
        "experimental-compact-hash-check-time",
        (V3_5, 5),
        "compact-hash-check-time",
    ),
    &gated(
        "experimental-stop-grpc-service-on-defrag",
        (V3_5, 14),
        "StopGRPCServiceOnDefrag",
    ),
    // What users set besides.
    &gated(
        "experimental-enable-lease-checkpoint",
        (V3_4, 0),
        "LeaseCheckpoint",
    ),
    &gated(
        "experimental-enable-lease-checkpoint-persist",
        (V3_4, 0),
        "LeaseCheckpointPersist",
    ),
    &gated(
        "experimental-txn-mode-write-with-shared-buffer",
        (V3_5, 0),
        "TxnModeWriteWithSharedBuffer",
    ),
    &[
        flag("experimental-backend-bbolt-freelist-type", V3_4, Some(V3_5)),
        flag("backend-bbolt-freelist-type", V3_5, None),
    ],
    &grown(
        "experimental-bootstrap-defrag-threshold-megabytes",
        (V3_5, 0),
        "bootstrap-defrag-threshold-megabytes",
    ),
    &grown(
        "experimental-compaction-batch-limit",
        (V3_4, 0),
        "compaction-batch-limit",
    ),
    &grown(
        "experimental-compaction-sleep-interval",
        (V3_5, 7),
        "compaction-sleep-interval",
    ),
    &grown("experimental-memory-mlock", (V3_5, 0), "memory-mlock"),
    &grown(
        "experimental-peer-skip-client-san-verification",
        (V3_3, 0),
        "peer-skip-client-san-verification",
    ),
    &grown(
        "experimental-warning-apply-duration",
        (V3_4, 0),
        "warning-apply-duration",
    ),
    &[
        flag("warning-unary-request-duration", V3_6, None),
        flag("experimental-warning-unary-request-duration", V3_6, Some(V3_7)),
    ],
    &grown(
        "experimental-watch-progress-notify-interval",
        (V3_4, 0),
        "watch-progress-notify-interval",
    ),
    &grown(
        "experimental-downgrade-check-time",
        (V3_5, 0),
        "downgrade-check-time",
    ),
    &grown(
        "experimental-enable-distributed-tracing",
        (V3_5, 0),
        "enable-distributed-tracing",
    ),
    &grown(
        "experimental-distributed-tracing-address",
        (V3_5, 0),
        "distributed-tracing-address",
    ),
    &grown(
        "experimental-distributed-tracing-service-name",
        (V3_5, 0),
        "distributed-tracing-service-name",
    ),
    &grown(
        "experimental-distributed-tracing-instance-id",
        (V3_5, 0),
        "distributed-tracing-instance-id",
    ),
    &grown(
        "experimental-distributed-tracing-sampling-rate",
        (V3_5, 7),
        "distributed-tracing-sampling-rate",
    ),
    &grown(
        "experimental-snapshot-catchup-entries",
        (V3_5, 0),
        "snapshot-catchup-entries",
    ),
    &since("log-format", V3_6),
    &since("auth-token-ttl", V3_3),
    &since("max-txn-ops", V3_3),
    &since("raft-read-timeout", V3_5),
    &since("raft-write-timeout", V3_5),
    &since("socket-reuse-port", V3_5),
    &since("socket-reuse-address", V3_5),
    &since("enable-log-rotation", V3_5),
    &since("log-rotation-config-json", V3_5),
    &since("log-level", V3_4),
    &since("log-outputs", V3_4),
    &since("bcrypt-cost", V3_4),
    &since("backend-batch-interval", V3_4),
    &since("backend-batch-limit", V3_4),
    &since("host-whitelist", V3_4),
    &since("logger", V3_4),
    &until("debug", V3_5),
    &until("log-package-levels", V3_5),
    &until("enable-v2", V3_6),
    &until("proxy", V3_6),
    &[flag("experimental-enable-v2v3", V3_3, Some(V3_6))],
    &since("v2-deprecation", V3_5),
];

/// The row of a flag, by its name in any minor version. `None` if all minor versions have it under one name, or if it
/// is not known.
pub(super) fn of_flag(name: &str) -> Option<&'static [Spelling]> {
    row(|how| matches!(how, How::Flag(flag) if flag == name))
}

/// The row of a feature gate. `None` if it is not known.
pub(super) fn of_gate(name: &str) -> Option<&'static [Spelling]> {
    row(|how| matches!(how, How::Gate(gate) if gate == name))
}

fn row(is_wanted: impl Fn(&How) -> bool) -> Option<&'static [Spelling]> {
    TABLE
        .iter()
        .copied()
        .find(|row| row.iter().any(|spelling| is_wanted(&spelling.how)))
}

/// The flag or gate by which a version has the setting of a row. `None` if it does not have it, or if its minor version
/// is not known.
pub(super) fn spelled(row: &[Spelling], version: &Version) -> Option<How> {
    let minor = Minor::of(version)?;
    let understands = |spelling: &&Spelling| {
        let (since, patch) = spelling.since;
        let is_new_enough = minor > since || (minor == since && version.patch >= patch);
        is_new_enough && spelling.until.is_none_or(|until| minor < until)
    };
    row.iter().find(understands).map(|spelling| spelling.how.clone())
}

/// The first name in a row, which stands for all of them.
pub(super) fn name(row: &'static [Spelling]) -> String {
    match row.first().map(|spelling| &spelling.how) {
        Some(How::Flag(name) | How::Gate(name)) => name.clone().into_owned(),
        None => String::new(),
    }
}

/// Since which version and before which one a row's setting exists, as text for an error.
pub(super) fn hint(row: &[Spelling]) -> String {
    let first = row.iter().map(|spelling| spelling.since).min();
    let is_lasting = row.iter().any(|spelling| spelling.until.is_none());
    let end = row.iter().filter_map(|spelling| spelling.until).max();
    let first = first.map_or_else(String::new, |(minor, patch)| format!("since {minor}.{patch}"));
    match end.filter(|_| !is_lasting) {
        Some(end) => format!("there is one {first} and before {end}"),
        None => format!("there is one {first}"),
    }
}

/// Every flag of the table, with whether this version has it under that name. Gates are left out.
pub(super) fn claims(version: &Version) -> Vec<(&'static str, bool)> {
    let spellings = TABLE.iter().flat_map(|row| row.iter());
    spellings
        .filter_map(|spelling| match &spelling.how {
            How::Flag(Cow::Borrowed(name)) => {
                Some((*name, spelled(std::slice::from_ref(spelling), version).is_some()))
            }
            _ => None,
        })
        .collect()
}
