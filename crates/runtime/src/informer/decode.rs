//! From what the API server sends to objects: one bad object must not spoil the list or the watch it came in.
//!
//! Each object is cut out as text first and decoded alone. Whatever is read around it is read without recursion, so no
//! depth of one object is too much for the others.

use std::collections::BTreeMap;

use etcd_operator_api::{refusal::bounded, reserved};
use kube::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::key::ObjectKey;
use crate::store::Malformed;

/// The annotation `kubectl apply` leaves: a second copy of the object that nobody here reads.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A longer path to a fault is cut: that of what is nested too deeply would be longer than people read.
const LONGEST_PATH: usize = 100;

/// How many bytes of an object are decoded, its metadata aside: as much as `kubectl apply` can bear. A few bytes of text
/// can become many of a decoded value, and one hostile object must not take the memory of all others.
const LARGEST: usize = 262_144;

/// How many characters of what is wrong with an object are kept.
const LONGEST_ERROR: usize = 1000;

/// One object, decoded or not; `None` if it does not even have a name.
#[derive(Clone, Debug)]
pub(super) struct Decoded<K>(pub(super) Option<Result<K, Malformed>>);

impl<K: DeserializeOwned> Decoded<K> {
    /// Reading an object never fails: what is wrong with it is part of the result.
    pub(super) fn of(raw: &RawValue) -> Self {
        if let Some(error) = too_large(raw) {
            return Self(malformed(raw, &error).map(Err));
        }
        Self(match serde_json::from_str(raw.get()) {
            Ok(object) => Some(Ok(object)),
            Err(_) => malformed(raw, &fault::<K>(raw)).map(Err),
        })
    }
}

impl<K> Decoded<K> {
    /// The version a watch can go on from after this object.
    pub(super) fn resource_version(&self) -> Option<String>
    where
        K: Resource,
    {
        match self.0.as_ref()? {
            Ok(object) => object.meta().resource_version.clone(),
            Err(bad) => bad.resource_version.clone(),
        }
    }

    /// Drops what nobody reads.
    pub(super) fn trimmed(self, trim: fn(&mut K)) -> Option<Result<K, Malformed>>
    where
        K: Resource,
    {
        let mut decoded = self.0?;
        if let Ok(object) = &mut decoded {
            let meta = object.meta_mut();
            meta.managed_fields = None;
            if let Some(annotations) = &mut meta.annotations {
                annotations.remove(LAST_APPLIED);
            }
            trim(object);
        }
        Some(decoded)
    }
}

/// A page of a list, its objects not yet read.
#[derive(Debug, Deserialize)]
pub(super) struct Page<'a> {
    #[serde(default)]
    pub(super) metadata: PageMeta,
    /// Absent or null from servers that spell an empty list so.
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

/// What a page says of the list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PageMeta {
    pub(super) resource_version: Option<String>,
    #[serde(rename = "continue")]
    pub(super) more: Option<String>,
}

impl Page<'_> {
    /// The objects of this page.
    pub(super) fn items<K: DeserializeOwned>(&self) -> impl Iterator<Item = Decoded<K>> {
        self.items.iter().flatten().map(|raw| Decoded::of(raw))
    }
}

/// One line of a watch, its object not yet read.
#[derive(Debug, Deserialize)]
pub(super) struct Line<'a> {
    #[serde(rename = "type")]
    pub(super) what: String,
    #[serde(borrow)]
    pub(super) object: &'a RawValue,
}

/// The version that a bookmark tells.
pub(super) fn version_of(raw: &RawValue) -> Option<String> {
    text(&metadata(raw)?, "resourceVersion")
}

/// What is wrong with an object that is larger than what is decoded.
fn too_large(raw: &RawValue) -> Option<String> {
    if raw.get().len() <= LARGEST {
        return None;
    }
    let fields: Fields<'_> = serde_json::from_str(raw.get()).ok()?;
    let sizes = fields.iter().filter(|(name, _)| *name != "metadata");
    let sizes: Vec<(usize, &String)> = sizes.map(|(name, text)| (text.get().len(), name)).collect();
    let all: usize = sizes.iter().map(|(size, _)| size).sum();
    let (size, largest) = sizes.iter().max().filter(|_| all > LARGEST)?;
    Some(format!(
        "{largest}: has {size} bytes, and of an object at most {LARGEST} are read"
    ))
}

/// Which field cannot be read, and why. Asked only of what has failed, for keeping track of the path has a price.
fn fault<K: DeserializeOwned>(raw: &RawValue) -> String {
    let mut source = serde_json::Deserializer::from_str(raw.get());
    let Err(error) = serde_path_to_error::deserialize::<_, K>(&mut source) else {
        return "it cannot be read".to_owned();
    };
    let mut path = error.path().to_string();
    if path.len() > LONGEST_PATH {
        path.truncate(path.floor_char_boundary(LONGEST_PATH));
        path.push('…');
    }
    let inner = error.inner();
    // Where in the API server's answer it was helps nobody: it is one line.
    let place = format!(" at line {} column {}", inner.line(), inner.column());
    let why = inner.to_string();
    let why = match why.strip_suffix(&place).unwrap_or(&why) {
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

/// Whatever can still be said of an object, read field by field.
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
        annotations: meta.get("annotations").map(|raw| ours(raw)).unwrap_or_default(),
        controlled_by: within(raw, &["status", "controlledBy"]),
        cluster: within(raw, &["spec", "etcdCluster", "name"]),
        // What the decoder says may quote the value, however long.
        error: bounded(error, LONGEST_ERROR),
    })
}

/// The entries of a map that are texts, and the operator's business.
fn ours(map: &RawValue) -> BTreeMap<String, String> {
    let entries: Fields<'_> = serde_json::from_str(map.get()).unwrap_or_default();
    let names = entries.keys().filter(|name| reserved::annotation(name));
    names
        .filter_map(|name| Some((name.clone(), text(&entries, name)?)))
        .collect()
}

/// A text deep within an object, by the names on the way to it.
fn within(raw: &RawValue, path: &[&str]) -> Option<String> {
    let (name, rest) = path.split_first()?;
    let fields: Fields<'_> = serde_json::from_str(raw.get()).ok()?;
    if rest.is_empty() {
        return text(&fields, name);
    }
    within(fields.get(*name)?, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    const OURS: &str = "etcd.database.coreos.com/x";

    #[test]
    fn a_bad_object_spoils_neither_its_list_nor_its_own_name() {
        let text = json!({
            "metadata": {"resourceVersion": "9"},
            "items": [
                {"metadata": {"name": "good", "namespace": "shop", "resourceVersion": "1"}, "data": {"a": "b"}},
                {"metadata": {"name": "bad", "namespace": "shop", "uid": "u", "generation": 3,
                              "resourceVersion": "2"}, "data": {"a": 5}},
                // Even metadata that cannot be decoded leaves the name readable.
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
    fn what_is_wrong_is_cut_and_what_says_whose_it_is_is_kept() {
        let text = json!({
            "metadata": {"name": "a", "annotations": {OURS: "x", "theirs": "y"}},
            "data": "ü".repeat(100_000),
            "spec": {"etcdCluster": {"name": "orders"}},
            "status": {"controlledBy": "ops/etcd-operator"},
        })
        .to_string();
        let raw: &RawValue = serde_json::from_str(&text).unwrap();
        let bad = Decoded::<ConfigMap>::of(raw).0.unwrap().unwrap_err();
        assert!(
            bad.error.chars().count() <= LONGEST_ERROR + 2,
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
    fn an_object_larger_than_is_decoded_is_told_which_field_it_is() {
        let object = |data: usize, label: usize| {
            let text = json!({
                "metadata": {"name": "a", "labels": {"l": "x".repeat(label)}},
                "data": {"a": "x".repeat(data)},
            });
            RawValue::from_string(text.to_string()).unwrap()
        };
        let fitting = Decoded::<ConfigMap>::of(&object(LARGEST - 100, LARGEST));
        assert!(fitting.0.unwrap().is_ok());
        let too_large = Decoded::<ConfigMap>::of(&object(LARGEST, 1));
        let bad = too_large.0.unwrap().unwrap_err();
        assert!(bad.error.starts_with("data: has 262"), "{}", bad.error);
        assert_eq!(bad.key.name, "a");
    }

    #[test]
    fn what_nobody_reads_is_not_kept() {
        let object = json!({
            "metadata": {
                "name": "a",
                "managedFields": [{"manager": "kubectl"}],
                "annotations": {LAST_APPLIED: "{}", "mine": "x"},
            },
            "data": {"large": "…", "small": "s"},
        });
        let raw = RawValue::from_string(object.to_string()).unwrap();
        let decoded: Decoded<ConfigMap> = Decoded::of(&raw);
        let map = decoded.trimmed(|map| {
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
