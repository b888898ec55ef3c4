//! Valid objects by chance: grown out of a seed, leaf by leaf, keeping only what the schema and its rules allow.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::{Strategy, any};
use proptest::sample::{Index, select};
use serde_json::Value;

use super::leaf::{Leaf, leaves};
use crate::fake::Judge;

/// How many leaves are tried on one object.
const TRIES: usize = 16;

/// The most items a list of objects grows to.
const ITEMS: usize = 3;

/// Valid objects of a kind, each grown out of one of the seeds by setting leaves below `under` (such as `spec`). The
/// seeds must be valid. Failing objects shrink towards their seed.
pub fn objects(schema: &Value, under: &str, seeds: Vec<Value>) -> impl Strategy<Value = Value> + use<> {
    let judge = Judge::new(schema);
    for seed in &seeds {
        let causes = judge.refusals(seed);
        assert!(
            causes.is_empty(),
            "the seed {seed} is refused: {}",
            causes.join("; ")
        );
    }
    let leaves: Vec<Leaf> = leaves(schema)
        .into_iter()
        .filter(|leaf| leaf.is_within(under) && !leaf.samples().is_empty())
        .collect();
    let changes = vec((0..leaves.len(), any::<Index>(), 0..ITEMS), 0..=TRIES);
    let (judge, leaves) = (Arc::new(judge), Arc::new(leaves));
    (select(seeds), changes).prop_map(move |(seed, changes)| {
        changes.into_iter().fold(seed, |object, (leaf, sample, item)| {
            let leaf = &leaves[leaf];
            let grown = leaf.with(&object, sample.get(leaf.samples()), item);
            if judge.refusals(&grown).is_empty() {
                grown
            } else {
                object
            }
        })
    })
}
