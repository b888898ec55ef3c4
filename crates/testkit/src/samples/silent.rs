//! Finds fields that a user can set and that change nothing, without a word.

use serde_json::Value;

use super::leaf::Leaf;

/// What a controller makes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// All of it, refusals included, as text.
    pub outcome: String,
    /// The fields it refuses because their feature does not exist; everything below them counts as refused.
    pub unimplemented_fields: Vec<String>,
}

/// The paths of the leaves that no base makes heard: neither does some value of theirs change the outcome, nor are
/// they refused for lack of the feature. `hear` answers nothing for an object that cannot be decoded.
pub fn silent(leaves: &[Leaf], bases: &[Value], hear: impl Fn(&Value) -> Option<Heard>) -> Vec<String> {
    leaves
        .iter()
        .filter(|leaf| !bases.iter().any(|base| is_heard(leaf, base, &hear)))
        .map(|leaf| leaf.path().to_owned())
        .collect()
}

/// Compared are objects that differ in nothing but this leaf: not its parent's presence, which would hide it.
fn is_heard(leaf: &Leaf, base: &Value, hear: &impl Fn(&Value) -> Option<Heard>) -> bool {
    let with = leaf.samples().iter().map(|sample| leaf.with(base, sample, 0));
    let mut answers = std::iter::once(leaf.without(base))
        .chain(with)
        .filter_map(|object| hear(&object));
    let Some(first) = answers.next() else {
        return false;
    };
    let refused = |heard: &Heard| {
        heard
            .unimplemented_fields
            .iter()
            .any(|field| leaf.is_within(field))
    };
    refused(&first) || answers.any(|heard| heard.outcome != first.outcome || refused(&heard))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples::leaves;

    fn found(hear: impl Fn(&Value) -> Option<Heard>) -> Vec<String> {
        let text = json!({"type": "string"});
        let pod = json!({"type": "object", "properties": {
            "name": text,
            "ports": {"type": "array", "items": {"type": "object", "required": ["number"], "properties": {
                "number": {"type": "integer"}, "label": text,
            }}},
        }});
        let schema = json!({"type": "object", "properties": {"pod": pod, "size": {"type": "integer"}}});
        silent(&leaves(&schema), &[json!({})], hear)
    }

    fn says(outcome: &Value) -> Heard {
        Heard {
            outcome: outcome.to_string(),
            unimplemented_fields: Vec::new(),
        }
    }

    #[test]
    fn a_controller_that_reads_everything_leaves_nothing_silent() {
        assert_eq!(found(|object| Some(says(object))), Vec::<String>::new());
    }

    #[test]
    fn a_controller_that_reads_nothing_leaves_everything_silent() {
        let nothing = |_: &Value| Some(says(&Value::Null));
        assert_eq!(
            found(nothing),
            ["pod.name", "pod.ports[].label", "pod.ports[].number", "size"]
        );
    }

    #[test]
    fn that_a_parent_is_there_does_not_make_its_fields_heard() {
        let shallow = |object: &Value| {
            let ports = object["pod"]["ports"].as_array().map(Vec::len);
            Some(says(&json!([
                object["size"],
                object["pod"]["name"],
                object["pod"].is_object(),
                ports
            ])))
        };
        assert_eq!(found(shallow), ["pod.ports[].label", "pod.ports[].number"]);
    }

    #[test]
    fn a_refused_parent_speaks_for_its_fields_but_not_for_those_of_a_like_name() {
        let refuses = |field: &'static str| {
            move |_: &Value| {
                Some(Heard {
                    outcome: String::new(),
                    unimplemented_fields: vec![field.to_owned()],
                })
            }
        };
        assert_eq!(found(refuses("pod")), ["size"]);
        assert_eq!(found(refuses("pod.ports")), ["pod.name", "size"]);
        assert_eq!(found(refuses("pod.port")).len(), 4);
    }

    #[test]
    fn a_field_that_cannot_be_decoded_counts_as_silent() {
        assert_eq!(found(|_| None).len(), 4);
    }
}
