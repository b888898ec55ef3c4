//! What the machines ask of the API server: reads of what is stored, and writes as any client makes them, which may be
//! refused or come too late. No machine decides anything here.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::Fake;
use crate::fake::{PatchKind, Route, Stored, Verb};

/// One write.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    /// A new object.
    Create { kind: Kind, object: Value },
    /// A merge patch of an object, or of its status.
    Patch {
        kind: Kind,
        namespace: String,
        name: String,
        is_status: bool,
        patch: Value,
    },
    /// A deletion of the object with this UID, at once or with the time it has been given.
    Delete {
        kind: Kind,
        namespace: String,
        name: String,
        uid: String,
        is_at_once: bool,
    },
    /// A pod gets its node, which no other request can give it.
    Bind {
        namespace: String,
        name: String,
        node: String,
    },
}

/// A kind that machines know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pod,
    Claim,
    Volume,
    Node,
    Set,
    Budget,
    Job,
}

impl Kind {
    pub(crate) fn row(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Pod => ("v1", "Pod", "pods"),
            Self::Claim => ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
            Self::Volume => ("v1", "PersistentVolume", "persistentvolumes"),
            Self::Node => ("v1", "Node", "nodes"),
            Self::Set => ("apps/v1", "StatefulSet", "statefulsets"),
            Self::Job => ("batch/v1", "Job", "jobs"),
            Self::Budget => ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
        }
    }

    /// The way to objects of this kind, or to the status of one.
    fn route(self, verb: Verb, (namespace, name): (&str, &str), is_status: bool) -> Route {
        let (api_version, _, plural) = self.row();
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        Route {
            verb,
            group: group.to_owned(),
            version: version.to_owned(),
            namespace: namespace.to_owned(),
            plural: plural.to_owned(),
            name: name.to_owned(),
            subresource: if is_status { "status" } else { "" }.to_owned(),
        }
    }
}

/// Everything of the kinds that machines know, as stored at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects {
    pub(crate) pods: Vec<Arc<Stored>>,
    pub(crate) claims: Vec<Arc<Stored>>,
    pub(crate) volumes: Vec<Arc<Stored>>,
    pub(crate) nodes: Vec<Arc<Stored>>,
    pub(crate) sets: Vec<Arc<Stored>>,
    pub(crate) budgets: Vec<Arc<Stored>>,
    pub(crate) jobs: Vec<Arc<Stored>>,
}

impl Objects {
    pub(crate) fn of(fake: &Fake) -> Self {
        let all = |kind: Kind| {
            let (version, name, _) = kind.row();
            fake.stored(version, name)
        };
        Self {
            pods: all(Kind::Pod),
            claims: all(Kind::Claim),
            volumes: all(Kind::Volume),
            nodes: all(Kind::Node),
            sets: all(Kind::Set),
            budgets: all(Kind::Budget),
            jobs: all(Kind::Job),
        }
    }

    /// Whether these are the very same.
    pub(crate) fn are(&self, others: &Self) -> bool {
        let are_same = |one: &[Arc<Stored>], other: &[Arc<Stored>]| {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| Arc::ptr_eq(one, other))
        };
        are_same(&self.pods, &others.pods)
            && are_same(&self.claims, &others.claims)
            && are_same(&self.volumes, &others.volumes)
            && are_same(&self.nodes, &others.nodes)
            && are_same(&self.sets, &others.sets)
            && are_same(&self.budgets, &others.budgets)
            && are_same(&self.jobs, &others.jobs)
    }

    pub(crate) fn claim(&self, namespace: &str, name: &str) -> Option<&Arc<Stored>> {
        self.claims.iter().find(|claim| is_at(claim, namespace, name))
    }

    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Option<&Arc<Stored>> {
        self.pods.iter().find(|pod| is_at(pod, namespace, name))
    }
}

fn is_at(object: &Value, namespace: &str, name: &str) -> bool {
    object["metadata"]["namespace"] == namespace && object["metadata"]["name"] == name
}

/// A text field; empty where there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// A field by its path. Unlike a JSON pointer it takes every name as it is.
pub(crate) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = object;
    let mut rest = path.strip_prefix('/');
    while let Some(names) = rest {
        // Asked so often that a search for a character would show.
        let end = names.bytes().position(|byte| byte == b'/');
        let name = end.map_or(names, |end| &names[..end]);
        rest = end.map(|end| &names[end + 1..]);
        value = match value {
            Value::Object(fields) => fields.get(name)?,
            Value::Array(items) => items.get(name.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(value)
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

pub(crate) fn is_ending(object: &Value) -> bool {
    at(object, "/metadata/deletionTimestamp").is_some()
}

/// The claims a pod mounts, by the name of the volume.
pub(crate) fn claims_of(pod: &Value) -> impl Iterator<Item = (&str, &str)> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| {
        let claim = at(volume, "/persistentVolumeClaim/claimName")?.as_str()?;
        Some((volume["name"].as_str()?, claim))
    })
}

/// Does one write. Whether it was done; what was refused is tried again when it is still wanted.
pub(crate) async fn write(fake: &Fake, write: Write) -> bool {
    match write {
        Write::Create { kind, mut object } => {
            let (version, name, _) = kind.row();
            object["apiVersion"] = json!(version);
            object["kind"] = json!(name);
            let route = kind.route(Verb::Create, (namespace(&object), ""), false);
            fake.write(route, None, object).await
        }
        Write::Patch {
            kind,
            namespace,
            name,
            is_status,
            patch,
        } => {
            let route = kind.route(Verb::Patch, (&namespace, &name), is_status);
            fake.write(route, Some(PatchKind::Merge), patch).await
        }
        Write::Delete {
            kind,
            namespace,
            name,
            uid,
            is_at_once,
        } => {
            let mut options = json!({
                "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid},
                "propagationPolicy": "Background",
            });
            if is_at_once {
                options["gracePeriodSeconds"] = json!(0);
            }
            let route = kind.route(Verb::Delete, (&namespace, &name), false);
            fake.write(route, None, options).await
        }
        Write::Bind {
            namespace,
            name,
            node,
        } => {
            let bound = fake.update_object("v1", "Pod", &namespace, &name, |pod| {
                pod["spec"]["nodeName"] = json!(node);
                let scheduled = json!([{"type": "PodScheduled", "status": "True", "lastProbeTime": null}]);
                pod["status"]["conditions"] = scheduled;
            });
            bound.is_some()
        }
    }
}
