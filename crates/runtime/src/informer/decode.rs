//! Decodes the responses of the API server object by object, so that one malformed object does not break its list or
//! watch.
//!
//! Each object is extracted as raw JSON first and decoded on its own. The surrounding document is read without recursion,
//! so that a deeply nested object cannot affect the others.

use std::collections::BTreeMap;

use etcd_operator_api::{refusal::bounded, reserved};
use kube::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::key::ObjectKey;
use crate::store::Malformed;

/// The annotation of `kubectl apply`: a second copy of the object, which no controller reads.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Longest path in an error message; the path to a deeply nested field is truncated.
const MAX_PATH_CHARS: usize = 100;

/// Most bytes of an object, without its metadata, that are decoded: the limit of client-side `kubectl apply`.
///
/// A decoded value can need many times the memory of its text, so a larger object could exhaust the memory.
const MAX_DECODED_BYTES: usize = 262_144;

/// Longest error message that is kept for an object.
const MAX_ERROR_CHARS: usize = 1000;

/// One object, decoded or malformed; `None` if not even its name can be read.
#[derive(Clone, Debug)]
pub(super) struct Decoded<K>(pub(super) Option<Result<K, Malformed>>);

impl<K: DeserializeOwned> Decoded<K> {
    /// Decodes an object. Never fails: an error is part of the result.
    pub(super) fn decode(raw: &RawValue) -> Self {
        if let Some(error) = size_error(raw) {
            return Self(malformed(raw, &error).map(Err));
        }
        Self(match serde_json::from_str(raw.get()) {
            Ok(object) => Some(Ok(object)),
            Err(_) => malformed(raw, &decode_error::<K>(raw)).map(Err),
        })
    }
}

impl<K> Decoded<K> {
    /// The resourceVersion from which a watch can continue after this object.
    pub(super) fn resource_version(&self) -> Option<String>
    where
        K: Resource,
    {
        match self.0.as_ref()? {
            Ok(object) => object.meta().resource_version.clone(),
            Err(bad) => bad.resource_version.clone(),
        }
    }

    /// Removes the fields that no controller reads, and the memory that decoding has reserved for more.
    pub(super) fn trim(self, trim: fn(&mut K)) -> Option<Result<K, Malformed>>
    where
        K: Resource + Clone,
    {
        let mut decoded = self.0?;
        if let Ok(object) = &mut decoded {
            let meta = object.meta_mut();
            meta.managed_fields = None;
            if let Some(annotations) = &mut meta.annotations {
                annotations.remove(LAST_APPLIED);
            }
            trim(object);
            // Decoded vectors have room for four elements at least, and those of pods are large. Copies have none to spare.
            *object = object.clone();
        }
        Some(decoded)
    }
}

/// A page of a list whose objects are not decoded yet.
#[derive(Debug, Deserialize)]
pub(super) struct Page<'a> {
    #[serde(default)]
    pub(super) metadata: PageMeta,
    /// Some servers omit the items of an empty list or send null.
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

/// The list metadata of a page.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMeta {
    pub(super) resource_version: Option<String>,
    #[serde(rename = "continue")]
    pub(super) continue_token: Option<String>,
}

impl Page<'_> {
    /// Decodes the objects of this page.
    pub(super) fn items<K: DeserializeOwned>(&self) -> impl Iterator<Item = Decoded<K>> {
        self.items.iter().flatten().map(|raw| Decoded::decode(raw))
    }
}

/// One event of a watch whose object is not decoded yet.
#[derive(Debug, Deserialize)]
pub(super) struct Line<'a> {
    #[serde(rename = "type")]
    pub(super) event_type: String,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

/// The resourceVersion of a bookmark event.
pub(super) fn bookmark_version(raw: &RawValue) -> Option<String> {
    text(&metadata(raw)?, "resourceVersion")
}

/// The error for an object above the size limit; `None` if it is small enough.
fn size_error(raw: &RawValue) -> Option<String> {
    if raw.get().len() <= MAX_DECODED_BYTES {
        return None;
    }
    let fields: Fields<'_> = serde_json::from_str(raw.get()).ok()?;
    let sizes = fields.iter().filter(|(name, _)| *name != "metadata");
    let sizes: Vec<(usize, &String)> = sizes.map(|(name, text)| (text.get().len(), name)).collect();
    let all: usize = sizes.iter().map(|(size, _)| size).sum();
    let (size, largest) = sizes.iter().max().filter(|_| all > MAX_DECODED_BYTES)?;
    Some(format!(
        "{largest}: has {size} bytes; objects above {MAX_DECODED_BYTES} bytes are not decoded"
    ))
}

/// The field that cannot be decoded, and why. Called only after a failure, because tracking the path is slow.
fn decode_error<K: DeserializeOwned>(raw: &RawValue) -> String {
    let mut source = serde_json::Deserializer::from_str(raw.get());
    let Err(error) = serde_path_to_error::deserialize::<_, K>(&mut source) else {
        return "cannot be decoded".to_owned();
    };
    let mut path = error.path().to_string();
    if path.len() > MAX_PATH_CHARS {
        path.truncate(path.floor_char_boundary(MAX_PATH_CHARS));
        path.push('…');
    }
    let inner = error.inner();
    // The response is a single line, so the position does not help the user.
    let position = format!(" at line {} column {}", inner.line(), inner.column());
    let why = inner.to_string();
    let why = match why.strip_suffix(&position).unwrap_or(&why) {
        "recursion limit exceeded" => "nested too deeply",
        why => why,
    };
    format!("{path}: {why}")
}

type Fields<'a> = BTreeMap<String, &'a RawValue>;

fn metadata(raw: &RawValue) -> Option<Fields<'_>> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: Fields<'a>,
    }
    let object: Object<'_> = serde_json::from_str(raw.get()).ok()?;
    Some(object.metadata)
}

fn text(fields: &Fields<'_>, name: &str) -> Option<String> {
    serde_json::from_str(fields.get(name)?.get()).ok()
}

/// Reads the identifying fields of an object that cannot be decoded; `None` if even its name cannot be read.
fn malformed(raw: &RawValue, error: &str) -> Option<Malformed> {
    let meta = metadata(raw)?;
    let text = |name| text(&meta, name);
    Some(Malformed {
        key: ObjectKey::new(text("namespace").unwrap_or_default(), text("name")?),
        uid: text("uid"),
        generation: meta
            .get("generation")
            .and_then(|raw| serde_json::from_str(raw.get()).ok()),
        resource_version: text("resourceVersion"),
        annotations: meta
            .get("annotations")
            .map(|raw| operator_annotations(raw))
            .unwrap_or_default(),
        controlled_by: string_at(raw, &["status", "controlledBy"]),
        cluster: string_at(raw, &["spec", "etcdCluster", "name"]),
        // The decoder's message may contain the whole value.
        error: bounded(error, MAX_ERROR_CHARS),
    })
}

/// The operator's annotations among the entries of a map, as far as their values are strings.
fn operator_annotations(map: &RawValue) -> BTreeMap<String, String> {
    let entries: Fields<'_> = serde_json::from_str(map.get()).unwrap_or_default();
    let names = entries.keys().filter(|name| reserved::annotation(name));
    names
        .filter_map(|name| Some((name.clone(), text(&entries, name)?)))
        .collect()
}

/// The string at a path within an object.
fn string_at(raw: &RawValue, path: &[&str]) -> Option<String> {
    let (name, rest) = path.split_first()?;
    let fields: Fields<'_> = serde_json::from_str(raw.get()).ok()?;
    if rest.is_empty() {
        return text(&fields, name);
    }
    string_at(fields.get(*name)?, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    const OURS: &str = "etcd.database.coreos.com/x";

    #[test]
    fn a_malformed_object_does_not_affect_its_list_and_keeps_its_name() {
        let text = json!({
            "metadata": {"resourceVersion": "9"},
            "items": [
                {"metadata": {"name": "good", "namespace": "shop", "resourceVersion": "1"}, "data": {"a": "b"}},
                {"metadata": {"name": "bad", "namespace": "shop", "uid": "u", "generation": 3,
                              "resourceVersion": "2"}, "data": {"a": 5}},
                // The name can be read even if the metadata cannot be decoded.
                {"metadata": {"name": "worse", "namespace": "shop", "labels": "none"}},
                {"metadata": "nonsense"},
                null,
            ],
        })
        .to_string();
        let page: Page<'_> = serde_json::from_str(&text).unwrap();
        let items: Vec<Decoded<ConfigMap>> = page.items().collect();
        let bad = |index: usize| match &items[index].0 {
            Some(Err(bad)) => bad,
            other => panic!("{other:?}"),
        };
        assert!(matches!(items[0].0, Some(Ok(_))));
        assert_eq!(bad(2).key.name, "worse");
        assert!(items[3].0.is_none() && items[4].0.is_none());
        let bad = bad(1);
        assert_eq!(
            (bad.key.to_string(), bad.generation),
            ("shop/bad".to_owned(), Some(3))
        );
        assert_eq!(bad.error, "data.a: invalid type: integer `5`, expected a string");
    }

    #[test]
    fn a_long_error_is_truncated_and_identifying_fields_are_kept() {
        let text = json!({
            "metadata": {"name": "a", "annotations": {OURS: "x", "theirs": "y"}},
            "data": "ü".repeat(100_000),
            "spec": {"etcdCluster": {"name": "orders"}},
            "status": {"controlledBy": "ops/etcd-operator"},
        })
        .to_string();
        let raw: &RawValue = serde_json::from_str(&text).unwrap();
        let bad = Decoded::<ConfigMap>::decode(raw).0.unwrap().unwrap_err();
        assert!(
            bad.error.chars().count() <= MAX_ERROR_CHARS + 2,
            "{}",
            bad.error.len()
        );
        assert!(bad.error.starts_with("data: "), "{:.80}", bad.error);
        assert!(bad.error.ends_with('…'), "{}", bad.error);
        assert_eq!(bad.annotations, [(OURS.to_owned(), "x".to_owned())].into());
        assert_eq!(bad.controlled_by.as_deref(), Some("ops/etcd-operator"));
        assert_eq!(bad.cluster.as_deref(), Some("orders"));
    }

    #[test]
    fn the_error_of_an_oversized_object_names_its_largest_field() {
        let object = |data: usize, label: usize| {
            let text = json!({
                "metadata": {"name": "a", "labels": {"l": "x".repeat(label)}},
                "data": {"a": "x".repeat(data)},
            });
            RawValue::from_string(text.to_string()).unwrap()
        };
        let fitting = Decoded::<ConfigMap>::decode(&object(MAX_DECODED_BYTES - 100, MAX_DECODED_BYTES));
        assert!(fitting.0.unwrap().is_ok());
        let too_large = Decoded::<ConfigMap>::decode(&object(MAX_DECODED_BYTES, 1));
        let bad = too_large.0.unwrap().unwrap_err();
        assert!(bad.error.starts_with("data: has 262"), "{}", bad.error);
        assert_eq!(bad.key.name, "a");
    }

    #[test]
    fn unused_fields_are_trimmed() {
        let object = json!({
            "metadata": {
                "name": "a",
                "managedFields": [{"manager": "kubectl"}],
                "annotations": {LAST_APPLIED: "{}", "mine": "x"},
            },
            "data": {"large": "…", "small": "s"},
        });
        let raw = RawValue::from_string(object.to_string()).unwrap();
        let decoded: Decoded<ConfigMap> = Decoded::decode(&raw);
        let map = decoded.trim(|map| {
            map.data.as_mut().map(|data| data.remove("large"));
        });
        let map = map.unwrap().unwrap();
        assert_eq!(map.metadata.managed_fields, None);
        assert_eq!(
            map.metadata.annotations.unwrap().into_keys().collect::<Vec<_>>(),
            ["mine"]
        );
        assert_eq!(map.data.unwrap().into_keys().collect::<Vec<_>>(), ["small"]);
    }
}
