//! The human-readable output of a dry run.

use std::fmt;
use std::time::Duration;

use etcd_operator_api::quantity::Bytes;
use etcd_operator_api::span::Span;

use super::{Backup, DryRun, MemberState, ReplacedCluster};

/// Writes a line with a label and a value.
fn line(f: &mut fmt::Formatter<'_>, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(f, "{name:<12}{value}")
}

impl fmt::Display for DryRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "restore", &self.restore)?;
        match &self.backup {
            Some(backup) => backup.fmt(f)?,
            None => line(f, "backup", "none")?,
        }
        match &self.replaces {
            Some(replaced) => replaced.fmt(f)?,
            None => line(f, "replaces", "nothing")?,
        }
        if let Some(room) = self.room {
            line(
                f,
                "space",
                format_args!("{} of free space on each volume", Bytes(room)),
            )?;
        }
        if self.passes {
            line(
                f,
                "verdict",
                format_args!("would be carried out: {}", self.message),
            )
        } else {
            line(
                f,
                "verdict",
                format_args!("refused, {}: {}", self.reason, self.message),
            )
        }
    }
}

impl fmt::Display for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "backup", &self.object)?;
        let Some(revision) = self.revision else {
            return line(f, "verified", "no");
        };
        match self.keys {
            Some(keys) => line(f, "revision", format_args!("{revision}, {keys} keys"))?,
            None => line(f, "revision", revision)?,
        }
        if let Some((at, seconds)) = self.completed_at.zip(self.age_seconds) {
            let age = Span(Duration::from_secs(seconds.unsigned_abs()));
            line(f, "age", format_args!("{age}, completed {at}"))?;
        } else {
            line(f, "age", "unknown, because there is no manifest")?;
        }
        let sizes = self.size.unwrap_or_default();
        let snapshot = self.snapshot_size.unwrap_or_default();
        line(
            f,
            "size",
            format_args!("{} as stored, {} as a snapshot", Bytes(sizes), Bytes(snapshot)),
        )?;
        let verification = match self.verified {
            "whole" => "every byte and every page",
            _ => "only its size and both ends; a restore verifies every byte first",
        };
        line(f, "verified", verification)?;
        line(f, "etcd", self.etcd_version.as_deref().unwrap_or("unknown"))?;
        let state = if self.auth_enabled { "on" } else { "off" };
        let (users, roles) = (self.users, self.roles);
        line(f, "auth", format_args!("{state}, {users} users, {roles} roles"))?;
        if self.alarms.is_empty() {
            return Ok(());
        }
        line(f, "alarms", self.alarms.join(", "))
    }
}

impl fmt::Display for ReplacedCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = self
            .etcd_version
            .as_ref()
            .map_or_else(String::new, |version| format!(", etcd {version}"));
        let volume = self.volume.map_or_else(
            || "ephemeral data".to_owned(),
            |volume| format!("volumes of {}", Bytes(volume)),
        );
        let (cluster, count) = (&self.cluster, self.members.len());
        let members = if count == 1 { "member" } else { "members" };
        line(
            f,
            "replaces",
            format_args!("EtcdCluster {cluster}{version}, {count} {members}, {volume}"),
        )?;
        for member in &self.members {
            line(f, "", member)?;
        }
        if let Some(lost) = self.lost_revisions {
            line(
                f,
                "lost",
                format_args!("{lost} revisions that were written after the backup"),
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match (self.revision, &self.unknown) {
            (Some(revision), _) => {
                let database = Bytes(self.database.unwrap_or_default());
                write!(f, "{name}, revision {revision}, database of {database}")
            }
            (None, Some(why)) => write!(f, "{name}, unknown: {why}"),
            (None, None) => f.write_str(name),
        }
    }
}
