//! Settings of etcd: numbers in their ranges, and no flag that belongs to the operator.

use std::time::Duration;

use etcd_operator_api::{
    cluster::{AutoCompaction, AutoCompactionMode, EtcdOptions},
    quantity,
    refusal::Refusal,
    reserved,
    span::Span,
};

/// The size that etcd lets a database grow to where no flag says so.
pub const DEFAULT_QUOTA: u64 = 2 * 1024 * 1024 * 1024;

/// Settings of etcd; what is absent stays at etcd's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The quota of the database in bytes.
    pub quota: Option<u64>,
    /// How old revisions are forgotten.
    pub compaction: Option<Compaction>,
    /// Entries between raft snapshots.
    pub snapshot_count: Option<u64>,
    /// Milliseconds between heartbeats.
    pub heartbeat_ms: Option<u64>,
    /// Milliseconds until an election.
    pub election_ms: Option<u64>,
    /// The largest request in bytes.
    pub max_request_bytes: Option<u64>,
    /// Further flags, as the user wrote them.
    pub extra: Vec<String>,
}

/// How old revisions are forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// What is older than this.
    Periodic(Duration),
    /// All but this many.
    Revisions(u64),
}

/// Parses the settings of etcd. Whether the version has an extra flag shows only when the pod template is built.
pub(super) fn options(options: Option<&EtcdOptions>) -> Result<Options, Vec<Refusal>> {
    let Some(options) = options else {
        return Ok(Options::default());
    };
    let mut refused = Vec::new();
    let mut number = |field: &str, value: Option<i64>, low: i64, high: i64| -> Option<u64> {
        let value = value?;
        if !(low..=high).contains(&value) {
            let problem = format!("is {value}, must be {low} to {high}; for example: {low}");
            refused.push(Refusal::invalid(format!("spec.etcd.{field}"), problem));
        }
        u64::try_from(value).ok()
    };
    let snapshot_count = number("snapshotCount", options.snapshot_count, 100, 1_000_000);
    let heartbeat_ms = number("heartbeatMs", options.heartbeat_ms.map(i64::from), 10, 10_000);
    let election_ms = number("electionMs", options.election_ms.map(i64::from), 50, 50_000);
    let max_request_bytes = number("maxRequestBytes", options.max_request_bytes, 1024, 100 << 20);
    if let (Some(heartbeat), Some(election)) = (heartbeat_ms, election_ms)
        && election < heartbeat * 5
    {
        let problem =
            "must be at least five times etcd.heartbeatMs; for example: heartbeatMs: 100, electionMs: 1000";
        refused.push(Refusal::invalid("spec.etcd.electionMs", problem));
    }
    let quota = options
        .quota_backend_bytes
        .as_ref()
        .and_then(|q| match quantity::bytes(q) {
            Ok(bytes) if bytes > 0 => Some(bytes),
            Ok(_) => {
                refused.push(Refusal::invalid(
                    "spec.etcd.quotaBackendBytes",
                    "must be above zero; for example: 4Gi",
                ));
                None
            }
            Err(e) => {
                refused.push(Refusal::invalid("spec.etcd.quotaBackendBytes", e.to_string()));
                None
            }
        });
    let compaction = options
        .auto_compaction
        .as_ref()
        .and_then(|c| compaction(c).map_err(|r| refused.push(r)).ok());
    let extra = options.extra_args.clone().unwrap_or_default();
    refused.extend(extra.iter().filter_map(|argument| flag(argument)));
    if !refused.is_empty() {
        return Err(refused);
    }
    Ok(Options {
        quota,
        compaction,
        snapshot_count,
        heartbeat_ms,
        election_ms,
        max_request_bytes,
        extra,
    })
}

/// Parses the retention. A bare number means hours in mode Periodic, as etcd takes it.
fn compaction(auto: &AutoCompaction) -> Result<Compaction, Refusal> {
    let field = "spec.etcd.autoCompaction.retention";
    let text = &auto.retention;
    match auto.mode {
        // etcd takes a bare number for hours.
        AutoCompactionMode::Periodic => match text.parse::<u64>() {
            Ok(hours) => Ok(Compaction::Periodic(Duration::from_secs(
                hours.saturating_mul(3600),
            ))),
            Err(_) => text
                .parse::<Span>()
                .map(|span| Compaction::Periodic(span.0))
                .map_err(|e| Refusal::invalid(field, e.to_string())),
        },
        AutoCompactionMode::Revision => text.parse().map(Compaction::Revisions).map_err(|_| {
            Refusal::invalid(
                field,
                format!(
                    "is '{text}', must be a number of revisions for mode Revision; for example: \"10000\""
                ),
            )
        }),
    }
}

/// Why an extra flag is refused; `None` if it is not the operator's and is well-formed.
fn flag(argument: &str) -> Option<Refusal> {
    let field = "spec.etcd.extraArgs";
    if let Some((name, why)) = reserved::flag(argument) {
        return Some(Refusal::invalid(field, format!("must not set --{name}: {why}")));
    }
    let name = argument
        .strip_prefix("--")
        .and_then(|rest| rest.split('=').next())
        .unwrap_or_default();
    let is_well_formed = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    (!is_well_formed).then(|| {
        Refusal::invalid(
            field,
            format!(
                "holds '{argument}', must hold flags written --name=value; for example: --log-level=warn"
            ),
        )
    })
}
