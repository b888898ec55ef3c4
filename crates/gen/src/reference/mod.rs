//! Generates the reference pages: one per kind, and pages about conditions, versions of etcd, permissions and the
//! command line.
//!
//! The text comes from the sources: descriptions in the schema, messages of rules, and the table of
//! permissions. This module only lays out the pages.

mod blockers;
mod chart;
mod conditions;
mod events;
mod field;
mod flags;
mod kind;
mod rbac;
mod reasons;
mod table;
mod versions;

use crate::Files;

/// Generates the pages in `docs/reference`.
pub fn files() -> Files {
    let mut files = kind::files();
    files.insert("docs/reference/blockers.md".into(), blockers::page());
    files.insert("docs/reference/conditions.md".into(), conditions::page());
    files.extend(chart::files());
    files.insert("docs/reference/flags.md".into(), flags::page());
    files.insert("docs/reference/rbac.md".into(), rbac::page());
    files.insert("docs/reference/versions.md".into(), versions::page());
    files
}

/// The head of every page.
fn head(title: &str) -> String {
    format!("<!-- Made by `cargo xtask gen`; changes by hand are lost. -->\n# {title}\n")
}
