//! Where in an object a value stands.

use std::fmt;

use super::schema::Settled;

/// Where a value stands, written out only where something is wrong with it.
#[derive(Clone, Copy)]
pub(crate) enum Path<'a> {
    /// The top, with what need not be looked into.
    Root(Settled<'a>),
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    pub(crate) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    pub(crate) fn is_root(self) -> bool {
        matches!(self, Path::Root(_))
    }

    /// Whether a field need not be looked into: one at the top, or one below as `above.name`.
    pub(crate) fn is_settled(self, name: &str) -> bool {
        match self {
            Path::Root(settled) => settled.contains(&name),
            Path::Field(Path::Root(settled), above) => {
                let is_here = |known: &&str| {
                    let below = known.strip_prefix(above).and_then(|rest| rest.strip_prefix('.'));
                    below == Some(name)
                };
                settled.iter().any(is_here)
            }
            _ => false,
        }
    }

    pub(crate) fn text(self) -> String {
        self.to_string()
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root(_) => Ok(()),
            Path::Field(Path::Root(_), name) => f.write_str(name),
            Path::Field(above, name) => write!(f, "{above}.{name}"),
            Path::Item(above, index) => write!(f, "{above}[{index}]"),
        }
    }
}
