//! The type of an Event.

/// The type of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// An expected change.
    Normal,
    /// A problem that may need action by the user.
    Warning,
}

impl Severity {
    /// As the API server has it.
    pub const fn event_type(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}
