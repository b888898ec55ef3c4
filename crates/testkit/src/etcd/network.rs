//! Who reaches whom. Everything that sends has labels (a pod, a node, the operator); what is cut is cut between labels
//! and in one direction. Nothing is sent here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What is cut and what is slow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Network {
    cuts: BTreeSet<(String, String)>,
    slow: BTreeMap<String, Duration>,
}

impl Network {
    pub(crate) fn cut(&mut self, from: &str, to: &str) {
        self.cuts.insert((from.to_owned(), to.to_owned()));
    }

    pub(crate) fn mend(&mut self, from: &str, to: &str) {
        self.cuts.remove(&(from.to_owned(), to.to_owned()));
    }

    pub(crate) fn mend_all(&mut self) {
        self.cuts.clear();
        self.slow.clear();
    }

    /// Every message to or from this label takes so much longer.
    pub(crate) fn slow(&mut self, label: &str, by: Duration) {
        if by.is_zero() {
            self.slow.remove(label);
        } else {
            self.slow.insert(label.to_owned(), by);
        }
    }

    /// Whether messages from one arrive at the other.
    pub(crate) fn carries(&self, from: &[String], to: &[String]) -> bool {
        self.cuts.is_empty()
            || !from.iter().any(|from| {
                to.iter()
                    .any(|to| self.cuts.contains(&(from.clone(), to.clone())))
            })
    }

    /// Whether messages arrive both ways.
    pub(crate) fn connects(&self, one: &[String], other: &[String]) -> bool {
        self.carries(one, other) && self.carries(other, one)
    }

    /// What a message between the two takes beyond the usual.
    pub(crate) fn delay(&self, one: &[String], other: &[String]) -> Duration {
        one.iter()
            .chain(other)
            .filter_map(|label| self.slow.get(label))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_of_one_direction_and_of_any_label() {
        let mut network = Network::default();
        let labels = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let (a, b) = (labels(&["pod-a", "node-1"]), labels(&["pod-b", "node-2"]));
        network.cut("node-1", "pod-b");
        assert!(!network.carries(&a, &b) && network.carries(&b, &a) && !network.connects(&a, &b));
        network.mend("node-1", "pod-b");
        assert!(network.connects(&a, &b));
        network.slow("pod-a", Duration::from_secs(1));
        assert_eq!(network.delay(&b, &a), Duration::from_secs(1));
    }
}
