//! Flags that users add: read, and refused where they belong to the operator.

use std::collections::BTreeSet;

use super::{FlagError, table};

/// Flags that no user may add: they decide identity, membership, addresses, certificates or durability, or have a
/// field of their own.
pub const RESERVED: &[&str] = &[
    "name",
    "data-dir",
    "wal-dir",
    "config-file",
    "listen-peer-urls",
    "listen-client-urls",
    "listen-client-http-urls",
    "listen-metrics-urls",
    "advertise-client-urls",
    "initial-advertise-peer-urls",
    "initial-cluster",
    "initial-cluster-state",
    "initial-cluster-token",
    "force-new-cluster",
    "unsafe-no-fsync",
    "strict-reconfig-check",
    "discovery",
    "discovery-srv",
    "discovery-endpoints",
    "discovery-token",
    "cert-file",
    "key-file",
    "client-cert-auth",
    "trusted-ca-file",
    "auto-tls",
    "peer-cert-file",
    "peer-key-file",
    "peer-client-cert-auth",
    "peer-trusted-ca-file",
    "peer-auto-tls",
    "auth-token",
    "quota-backend-bytes",
    "auto-compaction-mode",
    "auto-compaction-retention",
    "snapshot-count",
    "heartbeat-interval",
    "election-timeout",
    "max-request-bytes",
];

/// A flag that a user adds, or one feature gate of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    /// A flag.
    Flag { name: String, value: String },
    /// A part of `--feature-gates`.
    Gate { name: String, value: String },
}

impl Extra {
    pub(super) fn value(&self) -> &str {
        match self {
            Self::Flag { value, .. } | Self::Gate { value, .. } => value,
        }
    }
}

/// Parses the flags that a user adds, in their order. An error for one that is no flag, that is reserved, or that is
/// given twice, be it by its names in two minor versions.
pub(super) fn read(arguments: &[String]) -> Result<Vec<Extra>, FlagError> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for argument in arguments {
        let wrong = || FlagError::Misspelled(argument.clone());
        let plain = argument
            .strip_prefix("--")
            .or_else(|| argument.strip_prefix('-'))
            .ok_or_else(wrong)?;
        let (name, value) = plain.split_once('=').unwrap_or((plain, ""));
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.starts_with('-') || !name.bytes().all(is_name) {
            return Err(wrong());
        }
        if RESERVED.contains(&name) {
            return Err(FlagError::Reserved(name.to_owned()));
        }
        // Two names of one setting would be rendered as the same flag.
        let meaning = table::of_flag(name).map_or(name.to_owned(), table::name);
        if !seen.insert(meaning) {
            return Err(FlagError::Twice(name.to_owned()));
        }
        if name == table::GATES {
            for gate in value.split(',').filter(|gate| !gate.is_empty()) {
                let (name, value) = gate.split_once('=').ok_or_else(wrong)?;
                all.push(Extra::Gate {
                    name: name.trim().to_owned(),
                    value: value.trim().to_owned(),
                });
            }
        } else {
            all.push(Extra::Flag {
                name: name.to_owned(),
                value: value.to_owned(),
            });
        }
    }
    Ok(all)
}
