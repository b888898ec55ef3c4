//! The summary of a snapshot file for users and programs, as text and as JSON. Nothing is read here.

use std::fmt;

use serde::Serialize;

use crate::content::Facts;
use crate::content::audit::{Audit, BucketSize};
use crate::content::live_keys::{LiveKeys, PrefixSize};
use crate::content::quick_look::QuickLook;
use crate::database::Database;
use crate::source::ReadAt;
use crate::stream::{StreamKind, VerifiedStream};

/// How many prefixes the text shows.
const SHOWN_PREFIXES: usize = 10;

/// Everything known about a file. Parts that were not determined are absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The version of the JSON format.
    pub version: u32,
    /// The size of the file, in bytes.
    pub size: u64,
    /// Whether etcd appended a hash to the file.
    pub is_snapshot: bool,
    /// The appended hash, if the whole file was read and the hash matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The page size, in bytes.
    pub page_size: u64,
    /// The revision at which etcd starts from this file.
    pub revision: i64,
    /// What etcd stores besides keys: members, versions, users, alarms.
    pub facts: Facts,
    /// The result of a full check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walk: Option<Walk>,
    /// The live keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<LiveKeys>,
}

/// The result of a full check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Walk {
    /// The first hundred damages.
    pub damage: Vec<String>,
    /// The number of further damages.
    pub more_damage: u64,
    /// The number of pages in use.
    pub pages: u64,
    /// The buckets.
    pub buckets: Vec<BucketSize>,
    /// The number of entries in the bucket `key`, including older revisions and deletions.
    pub records: u64,
    /// The number of deletions among them.
    pub deletions: u64,
    /// The hash that etcd's tools print.
    pub hash: u32,
}

impl Summary {
    /// Creates a summary from a quick look.
    pub fn from_quick_look<S: ReadAt>(database: &Database<S>, look: QuickLook) -> Self {
        let hash = if database.has_hash() {
            crate::database::HASH_SIZE
        } else {
            0
        };
        Self {
            version: 1,
            size: database.length() + hash,
            is_snapshot: database.has_hash(),
            sha256: None,
            page_size: database.meta().page_size,
            revision: look.revision,
            facts: look.facts,
            walk: None,
            keys: None,
        }
    }

    /// Creates a summary from a full check.
    pub fn from_audit<S: ReadAt>(database: &Database<S>, audit: Audit) -> Self {
        let walk = Walk {
            damage: audit.findings.list.iter().map(ToString::to_string).collect(),
            more_damage: audit.findings.more,
            pages: audit.pages,
            buckets: audit.buckets,
            records: audit.records,
            deletions: audit.deletions,
            hash: audit.hash,
        };
        Self {
            walk: Some(walk),
            ..Self::from_quick_look(database, audit.look)
        }
    }

    /// Adds the live keys.
    #[must_use]
    pub fn with_keys(self, keys: LiveKeys) -> Self {
        Self {
            keys: Some(keys),
            ..self
        }
    }

    /// Adds the hash after the whole file was read and verified.
    #[must_use]
    pub fn with_verified_stream(self, checked: &VerifiedStream) -> Self {
        let sha256 = match &checked.kind {
            StreamKind::Snapshot { database } => Some(database.clone()),
            StreamKind::Copy => None,
        };
        Self { sha256, ..self }
    }
}

/// Writes a line with a name and a value.
fn write_line(f: &mut fmt::Formatter<'_>, name: &str, what: impl fmt::Display) -> fmt::Result {
    writeln!(f, "{name:<14}{what}")
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_snapshot {
            "snapshot"
        } else {
            "copy of a database file, without a hash"
        };
        write_line(f, "file", format_args!("{kind}, {}", HumanBytes(self.size)))?;
        match (&self.sha256, self.is_snapshot) {
            (Some(hash), _) => write_line(f, "sha256", format_args!("{hash} (verified)"))?,
            (None, true) => write_line(f, "sha256", "not verified")?,
            (None, false) => {}
        }
        write_line(f, "revision", self.revision)?;
        self.write_versions(f)?;
        self.write_cluster(f)?;
        if let Some(keys) = &self.keys {
            write_sizes(f, keys)?;
        }
        match &self.walk {
            Some(walk) => walk.fmt(f),
            None => write_line(f, "check", "not checked"),
        }
    }
}

impl Summary {
    fn write_versions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &self.facts;
        if let Some(compacted) = facts.compacted.max(facts.compacting) {
            write_line(f, "compacted at", compacted)?;
        }
        let unknown = || "unknown".to_owned();
        write_line(
            f,
            "cluster",
            facts.versions.cluster.clone().unwrap_or_else(unknown),
        )?;
        if let Some(storage) = &facts.versions.storage {
            write_line(f, "storage", storage)?;
        }
        if let Some(downgrade) = facts
            .versions
            .downgrade
            .as_ref()
            .filter(|downgrade| downgrade.enabled)
        {
            write_line(
                f,
                "downgrade",
                format_args!("to {}, in progress", downgrade.target),
            )?;
        }
        match (facts.consistent_index, facts.term) {
            (Some(index), Some(term)) => write_line(f, "raft", format_args!("index {index}, term {term}")),
            (Some(index), None) => write_line(f, "raft", format_args!("index {index}")),
            _ => Ok(()),
        }
    }

    fn write_cluster(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &self.facts;
        for member in &facts.roster.members {
            let role = if member.is_learner { "learner" } else { "voter" };
            let name = if member.name.is_empty() {
                "not started"
            } else {
                &member.name
            };
            let urls = member.peer_urls.join(" ");
            write_line(f, "member", format_args!("{:x} {role} {name} {urls}", member.id))?;
        }
        if !facts.roster.removed.is_empty() {
            write_line(
                f,
                "removed",
                format_args!("{} members", facts.roster.removed.len()),
            )?;
        }
        for alarm in &facts.alarms {
            write_line(
                f,
                "alarm",
                format_args!("{} of member {:x}", alarm.alarm, alarm.member),
            )?;
        }
        let auth = &facts.auth;
        if auth.enabled || !auth.users.is_empty() {
            let state = if auth.enabled { "enabled" } else { "disabled" };
            let (users, roles) = (auth.users.len(), auth.roles.len());
            write_line(f, "auth", format_args!("{state}, {users} users, {roles} roles"))?;
        }
        match facts.leases {
            Some(leases) => write_line(f, "leases", leases),
            None => Ok(()),
        }
    }
}

fn write_sizes(f: &mut fmt::Formatter<'_>, keys: &LiveKeys) -> fmt::Result {
    write_line(
        f,
        "keys",
        format_args!("{}, {}", keys.keys, HumanBytes(keys.bytes)),
    )?;
    write_line(f, "digest", keys.digest)?;
    let mut prefixes: Vec<(&String, &PrefixSize)> = keys.prefixes.iter().collect();
    prefixes.sort_by_key(|(_, size)| std::cmp::Reverse(size.bytes + size.record_bytes));
    for (prefix, size) in prefixes.iter().take(SHOWN_PREFIXES) {
        let name = if prefix.is_empty() { "(no prefix)" } else { prefix };
        let (live, old) = (HumanBytes(size.bytes), HumanBytes(size.record_bytes));
        write_line(
            f,
            "prefix",
            format_args!("{name} {} keys, {live}, and {old} in older revisions", size.keys),
        )?;
    }
    match prefixes.len().saturating_sub(SHOWN_PREFIXES) {
        0 => Ok(()),
        more => write_line(f, "prefix", format_args!("{more} more prefixes")),
    }
}

impl fmt::Display for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, "etcd's hash", format_args!("{:x}", self.hash))?;
        let (records, deletions) = (self.records, self.deletions);
        write_line(
            f,
            "entries",
            format_args!("{records}, including {deletions} deletions"),
        )?;
        if self.damage.is_empty() {
            return write_line(f, "check", format_args!("{} pages, no damage", self.pages));
        }
        let count = self.damage.len() as u64 + self.more_damage;
        write_line(
            f,
            "check",
            format_args!("{} pages, damaged ({count} findings)", self.pages),
        )?;
        for damage in &self.damage {
            write_line(f, "damage", damage)?;
        }
        match self.more_damage {
            0 => Ok(()),
            more => write_line(f, "damage", format_args!("and {more} more")),
        }
    }
}

/// A number of bytes in the unit that fits.
struct HumanBytes(u64);

impl fmt::Display for HumanBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut whole, mut tenths, mut unit) = (self.0, 0, "bytes");
        for next in ["KiB", "MiB", "GiB"] {
            if whole < 1024 {
                break;
            }
            (tenths, unit) = (whole % 1024 * 10 / 1024, next);
            whole /= 1024;
        }
        match unit {
            "bytes" => write!(f, "{whole} bytes"),
            _ => write!(f, "{whole}.{tenths} {unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (5 << 30, "5.0 GiB"),
        ] {
            assert_eq!(HumanBytes(bytes).to_string(), text);
        }
    }
}
