//! The kinds the server knows: the built-in ones from a table, custom ones from their definitions. Says what a kind
//! has (scope, subresources, strategy flags), not what happens in a request.

mod table;

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::schema::{self, Schema};

/// Where the scale subresource finds its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    pub(crate) spec: String,
    pub(crate) status: String,
    /// Path of the selector; for built-in kinds the label selector object itself.
    pub(crate) selector: Option<String>,
}

/// One served kind in one version.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    clippy::struct_field_names,
    reason = "a row of the API server's table, in its own words"
)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) list_kind: String,
    pub(crate) namespaced: bool,
    pub(crate) custom: bool,
    pub(crate) schema: Arc<Schema>,
    pub(crate) status: bool,
    pub(crate) scale: Option<ScalePaths>,
    /// Whether `metadata.generation` follows the spec.
    pub(crate) generation: bool,
    /// Whether a replace may leave out the resourceVersion.
    pub(crate) unconditional_update: bool,
    /// Whether a replace of an absent object creates it.
    pub(crate) create_on_update: bool,
    /// Whether a delete answers with the object instead of a status.
    pub(crate) delete_returns_object: bool,
    /// Paths usable in field selectors beside name and namespace.
    pub(crate) selectable: Vec<String>,
    /// The name under which objects are stored, where two groups share them.
    pub(crate) storage: String,
}

impl Kind {
    /// `plural.group`, as messages name the resource.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// By what kinds are ordered.
    fn place(&self) -> [&str; 3] {
        [&self.group, &self.version, &self.plural]
    }

    /// Whether this is its `group/version`.
    pub(crate) fn has_api_version(&self, version: &str) -> bool {
        match version.rsplit_once('/') {
            Some((group, version)) => !group.is_empty() && self.group == group && self.version == version,
            None => self.group.is_empty() && self.version == version,
        }
    }

    /// `group/version`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Every kind the server serves now, in the order of group, version and plural. Copies share it until one changes.
#[derive(Debug, Clone)]
pub(crate) struct Kinds {
    all: Arc<Vec<Arc<Kind>>>,
}

static BUILT_IN: LazyLock<Kinds> = LazyLock::new(|| {
    let mut kinds = Kinds { all: Arc::default() };
    for kind in table::built_in() {
        kinds.insert(kind);
    }
    kinds
});

impl Kinds {
    /// The built-in kinds only.
    pub(crate) fn built_in() -> Self {
        BUILT_IN.clone()
    }

    fn insert(&mut self, kind: Kind) {
        let all = Arc::make_mut(&mut self.all);
        match all.binary_search_by(|other| other.place().cmp(&kind.place())) {
            Ok(index) => all[index] = Arc::new(kind),
            Err(index) => all.insert(index, Arc::new(kind)),
        }
    }

    /// The kind served at a path.
    pub(crate) fn at(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        let found = self
            .all
            .binary_search_by(|other| other.place().cmp(&[group, version, plural]));
        found.ok().map(|index| Arc::clone(&self.all[index]))
    }

    /// Whether anything is served under this group and version.
    pub(crate) fn has_version(&self, group: &str, version: &str) -> bool {
        self.all()
            .any(|kind| kind.group == group && kind.version == version)
    }

    /// The kind with this `apiVersion` and `kind`.
    pub(crate) fn named(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        self.all()
            .find(|k| k.kind == kind && k.has_api_version(api_version))
            .cloned()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.all.iter()
    }

    /// Serves what a custom resource definition describes.
    pub(crate) fn register(&mut self, definition: &Value) {
        self.unregister(definition);
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for version in spec["versions"].as_array().into_iter().flatten() {
            if version["served"] != json!(true) {
                continue;
            }
            let names = &spec["names"];
            let subresources = &version["subresources"];
            let scale = subresources.get("scale").map(|scale| ScalePaths {
                spec: text(&scale["specReplicasPath"]),
                status: text(&scale["statusReplicasPath"]),
                selector: scale["labelSelectorPath"].as_str().map(ToOwned::to_owned),
            });
            let kind = text(&names["kind"]);
            let singular = names["singular"]
                .as_str()
                .map_or_else(|| kind.to_lowercase(), ToOwned::to_owned);
            let short = names["shortNames"].as_array().into_iter().flatten();
            let selectable = version["selectableFields"].as_array().into_iter().flatten();
            let group = text(&spec["group"]);
            let plural = text(&names["plural"]);
            self.insert(Kind {
                version: text(&version["name"]),
                singular,
                short_names: short.filter_map(Value::as_str).map(ToOwned::to_owned).collect(),
                list_kind: names["listKind"]
                    .as_str()
                    .map_or_else(|| format!("{kind}List"), ToOwned::to_owned),
                namespaced: spec["scope"] == "Namespaced",
                custom: true,
                schema: schema::custom(&version["schema"]["openAPIV3Schema"]),
                status: subresources.get("status").is_some(),
                scale,
                generation: true,
                unconditional_update: false,
                create_on_update: false,
                delete_returns_object: false,
                selectable: selectable
                    .filter_map(|field| field["jsonPath"].as_str())
                    .map(|path| path.trim_start_matches('.').to_owned())
                    .collect(),
                storage: format!("{group}/{plural}"),
                kind,
                group,
                plural,
            });
        }
    }

    /// Stops serving what a custom resource definition describes.
    pub(crate) fn unregister(&mut self, definition: &Value) {
        let group = definition["spec"]["group"].as_str().unwrap_or_default();
        let plural = definition["spec"]["names"]["plural"].as_str().unwrap_or_default();
        Arc::make_mut(&mut self.all).retain(|kind| kind.group != group || kind.plural != plural);
    }
}
