//! What a walk collects: all damage counted, the first of it kept, so that a ruined file fills no memory.

use super::damage::{Damage, Place, What};

/// Damage collected in a walk: all of it counted, the first of it kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The first of them.
    pub list: Vec<Damage>,
    /// How many more there were.
    pub more: u64,
}

impl Findings {
    const KEPT: usize = 100;

    /// Takes one in.
    pub(crate) fn add(&mut self, damage: Damage) {
        if self.list.len() < Self::KEPT {
            self.list.push(damage);
        } else {
            self.more += 1;
        }
    }

    /// Takes one in by its parts.
    pub(crate) fn at(&mut self, place: Place, what: What) {
        self.add(Damage { place, what });
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}
