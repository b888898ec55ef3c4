//! An object as it is kept. It is never changed, so what was made of it once (its text, the owners of its fields) is kept
//! beside it; nothing here decides what an object is.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::Value;

use super::ownership::Owners;
use super::request::{bare_text_of, text_of};

/// An object as it is kept.
#[derive(Default)]
pub(crate) struct Stored {
    /// Not there yet where nobody has looked since it was folded.
    value: OnceLock<Value>,
    text: OnceLock<Bytes>,
    bare_text: OnceLock<Bytes>,
    owners: OnceLock<Owners>,
    settled_by: Option<u64>,
}

impl Stored {
    /// An object whose owners are not known yet.
    pub(crate) fn new(value: Value) -> Self {
        Stored::default().of(value)
    }

    /// The same about this object.
    pub(crate) fn of(self, value: Value) -> Self {
        Stored {
            value: OnceLock::from(value),
            ..self
        }
    }

    /// The same in the little room of its text, where that was made: for what is seldom looked at again.
    pub(crate) fn folded(&self) -> Option<Self> {
        let text = self.text.get()?;
        Some(Stored {
            text: OnceLock::from(text.clone()),
            owners: self.owners.clone(),
            settled_by: self.settled_by,
            ..Stored::default()
        })
    }

    /// The same with the owners that it names.
    pub(crate) fn with_owners(self, owners: Owners) -> Self {
        Stored {
            owners: OnceLock::from(owners),
            ..self
        }
    }

    /// The same, in the form in which the server keeps objects, and found valid, by the definitions of this number.
    pub(crate) fn settled(self, by: Option<u64>) -> Self {
        Stored {
            settled_by: by,
            ..self
        }
    }

    /// By which definitions it is in the form in which the server keeps objects, and was found valid.
    pub(crate) fn settled_by(&self) -> Option<u64> {
        self.settled_by
    }

    /// The object as text.
    pub(crate) fn text(&self) -> Bytes {
        self.text.get_or_init(|| text_of(self)).clone()
    }

    /// The object as text without its kind, as in lists of built-in kinds.
    pub(crate) fn bare_text(&self) -> Bytes {
        let bare = || match &**self {
            Value::Object(object) => bare_text_of(object),
            _ => self.text(),
        };
        self.bare_text.get_or_init(bare).clone()
    }

    /// Who owns which of its fields.
    pub(crate) fn owners(&self) -> &Owners {
        self.owners.get_or_init(|| Owners::read(self))
    }
}

impl Deref for Stored {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.value.get_or_init(|| {
            let text = self.text.get().map(|text| serde_json::from_slice(text));
            text.map_or(Value::Null, |value| value.expect("the text of a value"))
        })
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Value::fmt(self, f)
    }
}
