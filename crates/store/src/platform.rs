//! What the machine or the pod says of itself: handed in by whoever reads the environment, never read here.

use std::collections::BTreeMap;
use std::fmt;

/// The environment, as far as identities need it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Platform {
    /// The variables of the process.
    pub variables: BTreeMap<String, String>,
    /// The address of the machine's metadata service, where it is not the usual one.
    pub metadata: Option<String>,
}

impl Platform {
    /// A variable that is set and not empty.
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
