//! One configuration as the flags of etcd, whatever its minor. Pure: what a version cannot take is an error that says
//! so, never a flag left out in silence.

mod config;
mod extra;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::version::{Minor, Version};

pub use config::{ClientTls, Compaction, Config, Figures, First, FirstState, PeerTls, Tuning};
pub use extra::RESERVED;
use table::How;

/// Why a configuration has no flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    /// The version's flags are unknown.
    #[error("the flags of etcd {0} are not known")]
    Unknown(Version),
    /// The version has nothing for what is asked.
    #[error("etcd {version} has no --{flag}: {hint}")]
    Absent {
        /// What is asked, by its newest name.
        flag: String,
        /// Who has it not.
        version: Version,
        /// Since or until when there is one.
        hint: String,
    },
    /// The version takes the setting, not this value of it.
    #[error("etcd {version} does not take {value} for --{flag}: {allowed}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// What was asked.
        value: String,
        /// Who does not take it.
        version: Version,
        /// What would do.
        allowed: &'static str,
    },
    /// An extra flag that is the operator's.
    #[error("--{0} belongs to the operator and cannot be an extra flag")]
    Reserved(String),
    /// An extra flag that is none.
    #[error("'{0}' is not a flag: write --NAME=VALUE or --NAME, for example --max-txn-ops=256")]
    Misspelled(String),
    /// An extra flag given twice.
    #[error("--{0} is given twice")]
    Twice(String),
}

/// Renders etcd's arguments for this version, in an order that depends only on the configuration. An error if the
/// version lacks a flag or value that is set, or if an extra flag is reserved, malformed or repeated. An extra flag
/// replaces the operator's.
pub fn render(config: &Config, version: &Version) -> Result<Vec<String>, FlagError> {
    if Minor::of(version).is_none() {
        return Err(FlagError::Unknown(version.clone()));
    }
    let extra = extra::read(&config.extra)?;
    let mut flags = Flags::default();
    for (name, value) in config::settings(config, version)? {
        flags.set(how(name, version)?, value);
    }
    for (name, value) in config::wishes() {
        if let Ok(how) = how(name, version) {
            flags.set(how, value.to_owned());
        }
    }
    for setting in &extra {
        let how = match setting {
            extra::Extra::Flag { name, .. } => how(name, version)?,
            extra::Extra::Gate { name, .. } => gate(name, version)?,
        };
        flags.set(how, setting.value().to_owned());
    }
    Ok(flags.arguments())
}

/// Every flag whose name depends on the version, with whether this version has it by the table. Tests compare that with
/// etcd itself. A former name that 3.6 still accepts counts as absent there.
pub fn claims(version: &Version) -> Vec<(&'static str, bool)> {
    table::claims(version)
}

/// The flags and feature gates to render, each once. A later value replaces an earlier one, so that extra flags win.
#[derive(Default)]
struct Flags {
    order: Vec<String>,
    values: BTreeMap<String, String>,
    gates: BTreeMap<String, String>,
}

impl Flags {
    /// Sets a flag or a gate. A gate without a value becomes `true`.
    fn set(&mut self, how: How, value: String) {
        match how {
            How::Gate(name) => {
                let value = if value.is_empty() {
                    "true".to_owned()
                } else {
                    value
                };
                self.gates.insert(name.into_owned(), value);
            }
            How::Flag(name) => {
                let name = name.into_owned();
                if self.values.insert(name.clone(), value).is_none() {
                    self.order.push(name);
                }
            }
        }
    }

    /// The arguments. A flag with an empty value is given by its name alone; all gates are one `--feature-gates` at the
    /// end.
    fn arguments(self) -> Vec<String> {
        let flag = |name: &String| match self.values.get(name).map(String::as_str) {
            None | Some("") => format!("--{name}"),
            Some(value) => format!("--{name}={value}"),
        };
        let mut arguments: Vec<String> = self.order.iter().map(flag).collect();
        if !self.gates.is_empty() {
            let gates: Vec<String> = self
                .gates
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            arguments.push(format!("--feature-gates={}", gates.join(",")));
        }
        arguments
    }
}

/// How this version spells a flag, which may be given by its name in any minor version. A flag that the table does not
/// know is passed on as it is.
fn how(name: &str, version: &Version) -> Result<How, FlagError> {
    match table::of_flag(name) {
        // Flags that no row speaks of are the same in every minor, or are etcd's to judge.
        None => Ok(How::Flag(name.to_owned().into())),
        Some(spellings) => table::spelled(spellings, version).ok_or_else(|| absent(name, spellings, version)),
    }
}

/// How this version spells a feature gate. One that the table does not know is passed on if the version has
/// `--feature-gates`.
fn gate(name: &str, version: &Version) -> Result<How, FlagError> {
    let gates = table::of_flag(table::GATES).unwrap_or_default();
    match table::of_gate(name) {
        Some(spellings) => table::spelled(spellings, version).ok_or_else(|| absent(name, spellings, version)),
        None if table::spelled(gates, version).is_some() => Ok(How::Gate(name.to_owned().into())),
        None => Err(absent(table::GATES, gates, version)),
    }
}

/// The error for a flag or feature gate of the table that this version does not have. Flags that the table does not
/// know never lead to it: they are passed on.
fn absent(name: &str, spellings: &[table::Spelling], version: &Version) -> FlagError {
    FlagError::Absent {
        flag: name.to_owned(),
        version: version.clone(),
        hint: table::hint(spellings),
    }
}
