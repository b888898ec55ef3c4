//! What the operator asks the API servers of beds for, by their audit logs: which of its rights it uses, and what it is
//! refused. What that means for a run of scenarios is in [`verdict`].

mod bed;
pub mod verdict;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;

use anyhow::{Context, Result};

use crate::control_plane::AuditEntry;
use bed::Bed;

/// How the operator names itself to API servers, up to its version.
const OPERATOR: &str = "etcd-operator/";
/// What gives rights and takes them: the end of two names of resources.
const BINDINGS: &str = "rolebindings";

/// Something that is asked of an API server, and what a right is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask {
    /// The API group; empty for the core of Kubernetes.
    pub group: String,
    /// The resource, with its subresource behind a slash.
    pub resource: String,
    /// What is done with it.
    pub verb: String,
}

impl Ask {
    /// From what roles are written with.
    pub fn new(verb: &str, resource: &str, group: &str) -> Self {
        Self {
            group: group.to_owned(),
            resource: resource.to_owned(),
            verb: verb.to_owned(),
        }
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            group,
            resource,
            verb,
        } = self;
        match group.as_str() {
            "" => write!(f, "{verb} {resource}"),
            _ => write!(f, "{verb} {resource}.{group}"),
        }
    }
}

/// What was heard on one bed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// What the operator asked for and had a right to.
    pub used: BTreeSet<Ask>,
    /// What it asked for without ever having a right to it there, in words.
    pub refused: Vec<String>,
}

/// Reads the audit log of a bed. One that was never written says that nothing was asked.
pub fn hear(log: &Path) -> Result<Heard> {
    match File::open(log) {
        Ok(file) => read(BufReader::new(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Heard::default()),
        Err(error) => Err(error).with_context(|| format!("cannot open {}", log.display())),
    }
}

fn read(mut log: impl BufRead) -> Result<Heard> {
    let mut bed = Bed::default();
    let mut line = String::new();
    loop {
        line.clear();
        log.read_line(&mut line).context("cannot read the audit log")?;
        // A line without its end is still being written.
        if !line.ends_with('\n') {
            return Ok(bed.heard());
        }
        // Nearly all of a log is about others.
        if line.contains(OPERATOR) || line.contains(BINDINGS) {
            let entry: AuditEntry =
                serde_json::from_str(&line).with_context(|| format!("odd line in the audit log: {line}"))?;
            bed.note(&entry);
        }
    }
}

#[cfg(test)]
mod tests;
