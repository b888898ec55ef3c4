//! What is told of a file to people and to programs. Only text and numbers; nothing is read here.

use std::fmt;

use serde::Serialize;

use crate::content::Facts;
use crate::content::audit::{Audit, BucketSize};
use crate::content::live::{Live, Size};
use crate::content::look::Look;
use crate::database::Database;
use crate::source::ReadAt;
use crate::stream::{Checked, Kind};

/// How many prefixes are shown to people.
const SHOWN: usize = 10;

/// Everything that was learnt of a file; what was not looked for is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The version of this form.
    pub version: u32,
    /// Bytes of the file.
    pub size: u64,
    /// Whether etcd appended a hash to it.
    pub is_snapshot: bool,
    /// The hash, if every byte was read and it was right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Bytes of a page.
    pub page_size: u64,
    /// The revision etcd has when it starts with this file.
    pub revision: i64,
    /// What etcd keeps beside keys.
    pub facts: Facts,
    /// What a full walk found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walk: Option<Walk>,
    /// Which keys there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Live>,
}

/// What a full walk found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Walk {
    /// Everything that is damaged, the first hundred.
    pub damage: Vec<String>,
    /// How much more there was.
    pub more_damage: u64,
    /// Pages in use.
    pub pages: u64,
    /// The buckets.
    pub buckets: Vec<BucketSize>,
    /// Entries of the bucket of keys, with older revisions and deletions.
    pub records: u64,
    /// Of them, deletions.
    pub deletions: u64,
    /// The hash that etcd's own tools print.
    pub hash: u32,
}

impl Summary {
    /// What a look tells.
    pub fn of_look<S: ReadAt>(database: &Database<S>, look: Look) -> Self {
        let hash = if database.has_hash() {
            crate::database::HASH
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

    /// What a full walk tells.
    pub fn of_audit<S: ReadAt>(database: &Database<S>, audit: Audit) -> Self {
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
            ..Self::of_look(database, audit.look)
        }
    }

    /// Adds which keys there are.
    #[must_use]
    pub fn with_keys(self, keys: Live) -> Self {
        Self {
            keys: Some(keys),
            ..self
        }
    }

    /// Adds that every byte was read and that its hash was right.
    #[must_use]
    pub fn with_check(self, checked: &Checked) -> Self {
        let sha256 = match &checked.kind {
            Kind::Snapshot { database } => Some(database.clone()),
            Kind::Copy => None,
        };
        Self { sha256, ..self }
    }
}

/// A line of a name and what it is.
fn line(f: &mut fmt::Formatter<'_>, name: &str, what: impl fmt::Display) -> fmt::Result {
    writeln!(f, "{name:<14}{what}")
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_snapshot {
            "snapshot"
        } else {
            "copy of a database, without a hash"
        };
        line(f, "file", format_args!("{kind}, {}", Bytes(self.size)))?;
        match (&self.sha256, self.is_snapshot) {
            (Some(hash), _) => line(f, "sha256", format_args!("{hash} (right)"))?,
            (None, true) => line(f, "sha256", "not compared")?,
            (None, false) => {}
        }
        line(f, "revision", self.revision)?;
        self.versions(f)?;
        self.cluster(f)?;
        if let Some(keys) = &self.keys {
            sizes(f, keys)?;
        }
        match &self.walk {
            Some(walk) => walk.fmt(f),
            None => line(f, "walk", "not walked"),
        }
    }
}

impl Summary {
    fn versions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &self.facts;
        if let Some(compacted) = facts.compacted.max(facts.compacting) {
            line(f, "compacted at", compacted)?;
        }
        let none = || "unknown".to_owned();
        line(f, "cluster", facts.versions.cluster.clone().unwrap_or_else(none))?;
        if let Some(storage) = &facts.versions.storage {
            line(f, "storage", storage)?;
        }
        if let Some(downgrade) = facts
            .versions
            .downgrade
            .as_ref()
            .filter(|downgrade| downgrade.enabled)
        {
            line(f, "downgrade", format_args!("to {}, under way", downgrade.target))?;
        }
        match (facts.consistent_index, facts.term) {
            (Some(index), Some(term)) => line(f, "raft", format_args!("index {index}, term {term}")),
            (Some(index), None) => line(f, "raft", format_args!("index {index}")),
            _ => Ok(()),
        }
    }

    fn cluster(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &self.facts;
        for member in &facts.roster.members {
            let role = if member.is_learner { "learner" } else { "voter" };
            let name = if member.name.is_empty() {
                "not started"
            } else {
                &member.name
            };
            let urls = member.peer_urls.join(" ");
            line(f, "member", format_args!("{:x} {role} {name} {urls}", member.id))?;
        }
        if !facts.roster.removed.is_empty() {
            line(
                f,
                "removed",
                format_args!("{} members", facts.roster.removed.len()),
            )?;
        }
        for alarm in &facts.alarms {
            line(
                f,
                "alarm",
                format_args!("{} of member {:x}", alarm.alarm, alarm.member),
            )?;
        }
        let auth = &facts.auth;
        if auth.enabled || !auth.users.is_empty() {
            let state = if auth.enabled { "enabled" } else { "disabled" };
            let (users, roles) = (auth.users.len(), auth.roles.len());
            line(f, "auth", format_args!("{state}, {users} users, {roles} roles"))?;
        }
        match facts.leases {
            Some(leases) => line(f, "leases", leases),
            None => Ok(()),
        }
    }
}

fn sizes(f: &mut fmt::Formatter<'_>, keys: &Live) -> fmt::Result {
    line(f, "keys", format_args!("{}, {}", keys.keys, Bytes(keys.bytes)))?;
    line(f, "digest", keys.digest)?;
    let mut prefixes: Vec<(&String, &Size)> = keys.prefixes.iter().collect();
    prefixes.sort_by_key(|(_, size)| std::cmp::Reverse(size.bytes + size.record_bytes));
    for (prefix, size) in prefixes.iter().take(SHOWN) {
        let name = if prefix.is_empty() { "(no prefix)" } else { prefix };
        let (live, old) = (Bytes(size.bytes), Bytes(size.record_bytes));
        line(
            f,
            "below",
            format_args!("{name} {} keys, {live}, and {old} of older revisions", size.keys),
        )?;
    }
    match prefixes.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => line(f, "below", format_args!("{more} more prefixes")),
    }
}

impl fmt::Display for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "etcd's hash", format_args!("{:x}", self.hash))?;
        let (records, deletions) = (self.records, self.deletions);
        line(
            f,
            "entries",
            format_args!("{records}, of them {deletions} deletions"),
        )?;
        if self.damage.is_empty() {
            return line(f, "walk", format_args!("{} pages, no damage", self.pages));
        }
        let count = self.damage.len() as u64 + self.more_damage;
        line(
            f,
            "walk",
            format_args!("{} pages, DAMAGED in {count} places", self.pages),
        )?;
        for damage in &self.damage {
            line(f, "damage", damage)?;
        }
        match self.more_damage {
            0 => Ok(()),
            more => line(f, "damage", format_args!("and {more} more")),
        }
    }
}

/// Bytes for people.
struct Bytes(u64);

impl fmt::Display for Bytes {
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
    fn sizes_are_told_in_the_unit_that_fits() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (5 << 30, "5.0 GiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
