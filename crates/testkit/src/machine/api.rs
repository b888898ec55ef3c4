//! What the machines ask of the API server: reads of what is stored, and writes as any client makes them, which may be
//! refused or come too late. No machine decides anything here.

use std::sync::Arc;

use http::{Method, Request};
use serde_json::{Value, json};

use crate::Fake;
use crate::fake::{Sent, Stored};

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
}

impl Kind {
    pub(crate) fn row(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Pod => ("v1", "Pod", "pods"),
            Self::Claim => ("v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
            Self::Volume => ("v1", "PersistentVolume", "persistentvolumes"),
            Self::Node => ("v1", "Node", "nodes"),
            Self::Set => ("apps/v1", "StatefulSet", "statefulsets"),
            Self::Budget => ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
        }
    }

    fn path(self, namespace: &str, name: &str) -> String {
        let (version, _, plural) = self.row();
        let root = if version.contains('/') { "apis" } else { "api" };
        let place = if namespace.is_empty() {
            String::new()
        } else {
            format!("/namespaces/{namespace}")
        };
        let name = if name.is_empty() {
            String::new()
        } else {
            format!("/{name}")
        };
        format!("/{root}/{version}{place}/{plural}{name}")
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
    let mut names = path.split('/').skip(1);
    names.try_fold(object, |value, name| match value {
        Value::Object(fields) => fields.get(name),
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        _ => None,
    })
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
pub(crate) async fn write(client: &kube::Client, fake: &Fake, write: Write) -> bool {
    let (method, path, body, content) = match write {
        Write::Create { kind, mut object } => {
            let (version, name, _) = kind.row();
            object["apiVersion"] = json!(version);
            object["kind"] = json!(name);
            let path = kind.path(namespace(&object), "");
            (Method::POST, path, object, "application/json")
        }
        Write::Patch {
            kind,
            namespace,
            name,
            is_status,
            patch,
        } => {
            let path = kind.path(&namespace, &name);
            let path = if is_status { format!("{path}/status") } else { path };
            (Method::PATCH, path, patch, "application/merge-patch+json")
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
            (
                Method::DELETE,
                kind.path(&namespace, &name),
                options,
                "application/json",
            )
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
            return bound.is_some();
        }
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, content)
        .extension(Sent(Arc::new(body)))
        .body(Vec::new())
        .expect("paths of names are well formed");
    client.request_text(request).await.is_ok()
}
