//! What became of what was sent.

/// What became of a write.
#[derive(Clone, Debug, PartialEq)]
pub enum Written<K> {
    /// Nothing was sent: the stored object is as wanted.
    Unchanged,
    /// Sent; this is the object now.
    Changed(K),
}

/// What became of a creation.
#[derive(Clone, Debug, PartialEq)]
pub enum Introduced<K> {
    /// It was created; this is it.
    Created(K),
    /// There was one of its name already; this is it.
    There(K),
}

impl<K> Written<K> {
    /// The new state of the object, if it changed.
    pub fn changed(self) -> Option<K> {
        match self {
            Self::Unchanged => None,
            Self::Changed(object) => Some(object),
        }
    }
}
