//! What the machine or pod tells about itself. The caller reads the environment; this crate never does.

use std::collections::BTreeMap;
use std::fmt;

/// The environment that cloud identities are taken from.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Platform {
    /// The environment variables of the process.
    pub variables: BTreeMap<String, String>,
    /// The address of the cloud's metadata service, if it is not the default one.
    pub metadata: Option<String>,
}

impl Platform {
    /// The value of a variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}
