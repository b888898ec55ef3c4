//! Collects damage. All of it is counted but only the first is kept, so that a destroyed file does not fill
//! memory.

use super::damage::{Damage, DamageKind, Location};

/// The damage found by a full check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The first hundred findings.
    pub list: Vec<Damage>,
    /// The number of further findings.
    pub more: u64,
}

impl Findings {
    const MAX_LISTED: usize = 100;

    /// Adds damage.
    pub(crate) fn add(&mut self, damage: Damage) {
        if self.list.len() < Self::MAX_LISTED {
            self.list.push(damage);
        } else {
            self.more += 1;
        }
    }

    /// Adds damage by its location and kind.
    pub(crate) fn add_at(&mut self, location: Location, kind: DamageKind) {
        self.add(Damage { location, kind });
    }

    /// Whether no damage was found.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
