//! The committed floor: tests may become more, never fewer without somebody lowering a number that others see.

use std::collections::BTreeMap;
use std::fs;

use crate::counts::{Kind, Tally};
use crate::places;

/// Where it stands, from the root of the repository.
pub(crate) const FILE: &str = ".ci/floor";

/// The least number of tests that must pass, by kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Floor(BTreeMap<Kind, usize>);

impl Floor {
    pub(crate) fn read() -> Result<Self, String> {
        let path = places::root().join(FILE);
        let text = fs::read_to_string(&path).map_err(|error| format!("cannot read {FILE}: {error}"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut floor = BTreeMap::new();
        for line in text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let wrong = || format!("{FILE}: `{line}` is not `KIND COUNT`");
            let (name, count) = line.split_once(' ').ok_or_else(wrong)?;
            let kind = Kind::ALL
                .into_iter()
                .find(|kind| kind.name() == name)
                .ok_or_else(wrong)?;
            if floor
                .insert(kind, count.trim().parse().map_err(|_| wrong())?)
                .is_some()
            {
                return Err(format!("{FILE} names {name} twice"));
            }
        }
        // A kind that is not mentioned could vanish unseen.
        match Kind::ALL.into_iter().find(|kind| !floor.contains_key(kind)) {
            Some(missing) => Err(format!("{FILE} says nothing about {}", missing.name())),
            None => Ok(Self(floor)),
        }
    }

    pub(crate) fn of(&self, kind: Kind) -> usize {
        self.0.get(&kind).copied().unwrap_or_default()
    }

    /// What is missing, in words; without a control plane only kinds that do not need one are looked at.
    pub(crate) fn missed(&self, tally: &Tally, fast: bool) -> Vec<String> {
        Kind::ALL
            .into_iter()
            .filter(|kind| !(fast && kind.needs_control_plane()))
            .filter(|kind| tally.passed(*kind) < self.of(*kind))
            .map(|kind| {
                let (found, floor) = (tally.passed(kind), self.of(kind));
                format!(
                    "{} tests: {found} passed, at least {floor} must ({FILE})",
                    kind.name()
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# why\nunit 3\nproperty 1\nconformance 2\ngenerated 0\nend-to-end 4\n";

    fn floor() -> Floor {
        Floor::parse(TEXT).expect("the text above is well-formed")
    }

    fn tally(unit: usize, end_to_end: usize) -> Tally {
        let mut tally = Tally::default();
        for (kind, count) in [
            (Kind::Unit, unit),
            (Kind::Property, 1),
            (Kind::Conformance, 2),
            (Kind::EndToEnd, end_to_end),
        ] {
            tally.add(kind, count);
        }
        tally
    }

    #[test]
    fn as_many_as_the_floor_is_enough() {
        assert!(floor().missed(&tally(3, 4), false).is_empty());
        assert!(floor().missed(&tally(30, 40), false).is_empty());
    }

    #[test]
    fn one_test_fewer_than_the_floor_is_reported_with_its_kind() {
        let missed = floor().missed(&tally(2, 4), false);
        assert_eq!(missed, ["unit tests: 2 passed, at least 3 must (.ci/floor)"]);
    }

    #[test]
    fn a_fast_run_is_not_held_to_what_it_leaves_out() {
        assert!(floor().missed(&tally(3, 0), true).is_empty());
        assert_eq!(floor().missed(&tally(3, 0), false).len(), 1);
        assert_eq!(floor().missed(&tally(0, 0), true).len(), 1);
    }

    #[test]
    fn a_floor_that_forgets_a_kind_or_misspells_one_is_refused() {
        assert!(Floor::parse("unit 3\n").is_err_and(|error| error.contains("property")));
        assert!(Floor::parse(&TEXT.replace("unit", "units")).is_err_and(|error| error.contains("units 3")));
        assert!(Floor::parse(&TEXT.replace('4', "four")).is_err());
        assert!(Floor::parse(&format!("{TEXT}unit 4\n")).is_err_and(|error| error.contains("twice")));
    }
}
