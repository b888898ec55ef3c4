//! The reference pages: one for each kind, one for conditions, one for rights, one for the command line.
//!
//! Sentences come from the sources alone (descriptions in the schema, messages of rules, the table of rights); here
//! is only how a page is laid out.

mod conditions;
mod field;
mod flags;
mod kind;
mod reasons;
mod rights;
mod table;
mod told;

use crate::Files;

/// The pages in `docs/reference`.
pub fn files() -> Files {
    let mut files = kind::files();
    files.insert("docs/reference/conditions.md".into(), conditions::page());
    files.insert("docs/reference/flags.md".into(), flags::page());
    files.insert("docs/reference/rbac.md".into(), rights::page());
    files
}

/// The head of every page.
fn head(title: &str) -> String {
    format!("<!-- Made by `cargo xtask gen`; changes by hand are lost. -->\n# {title}\n")
}
