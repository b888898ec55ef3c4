//! From what the API server sends to objects: one bad object must not spoil the list or the watch it came in.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::Resource;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::Value;

use crate::key::ObjectKey;
use crate::store::Malformed;

/// The annotation `kubectl apply` leaves: a second copy of the object that nobody here reads.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// One object, decoded or not; `None` if it does not even have a name. Reading it never fails: the client would take
/// a line of a watch that fails to decode for the end of the watch.
#[derive(Clone, Debug)]
pub(super) struct Decoded<K>(pub(super) Option<Result<K, Malformed>>);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Decoded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let decoded = match K::deserialize(&value) {
            Ok(object) => Some(Ok(object)),
            Err(_) => malformed(&value, fault::<K>(&value)).map(Err),
        };
        Ok(Self(decoded))
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

/// A page of a list.
#[derive(Debug, Deserialize)]
#[serde(bound = "K: DeserializeOwned")]
pub(super) struct Page<K> {
    #[serde(default)]
    pub(super) metadata: ListMeta,
    /// Absent or null from servers that spell an empty list so.
    items: Option<Vec<Decoded<K>>>,
}

impl<K> Page<K> {
    /// The objects of this page.
    pub(super) fn items(&mut self) -> Vec<Decoded<K>> {
        self.items.take().unwrap_or_default()
    }
}

/// Which field cannot be read, and why. Asked only of what has failed, for keeping track of the path has a price.
fn fault<K: DeserializeOwned>(value: &Value) -> String {
    match serde_path_to_error::deserialize::<_, K>(value) {
        Ok(_) => "it cannot be read".to_owned(),
        Err(error) => format!("{}: {}", error.path(), error.inner()),
    }
}

/// Whatever can still be said of an object, read field by field.
fn malformed(value: &Value, error: String) -> Option<Malformed> {
    let meta = value.get("metadata")?;
    let text = |field: &str| meta.get(field).and_then(Value::as_str);
    Some(Malformed {
        key: ObjectKey::new(text("namespace").unwrap_or_default(), text("name")?),
        uid: text("uid").map(str::to_owned),
        generation: meta.get("generation").and_then(Value::as_i64),
        resource_version: text("resourceVersion").map(str::to_owned),
        error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    #[test]
    fn a_bad_object_spoils_neither_its_list_nor_its_own_name() {
        let mut page: Page<ConfigMap> = serde_json::from_value(json!({
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
        }))
        .unwrap();
        let items = page.items();
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
        assert!(bad.error.starts_with("data.a: "), "{}", bad.error);
    }

    #[test]
    fn what_nobody_reads_is_not_kept() {
        let decoded: Decoded<ConfigMap> = serde_json::from_value(json!({
            "metadata": {
                "name": "a",
                "managedFields": [{"manager": "kubectl"}],
                "annotations": {LAST_APPLIED: "{}", "mine": "x"},
            },
            "data": {"large": "…", "small": "s"},
        }))
        .unwrap();
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
