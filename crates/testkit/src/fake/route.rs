//! From an HTTP request line to what is asked: verb, resource, subresource, namespace, name, query. No state.

use http::Method;

/// What a request wants done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read many objects.
    List,
    /// Follow changes.
    Watch,
    /// Make an object.
    Create,
    /// Replace an object.
    Update,
    /// Change an object by any kind of patch, server-side apply included.
    Patch,
    /// Delete one object.
    Delete,
    /// Delete many objects.
    DeleteCollection,
}

impl Verb {
    /// Whether the request can change anything.
    pub fn writes(self) -> bool {
        !matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }
}

/// The query string, decoded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        });
        Query(pairs.collect())
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.as_str())
            .filter(|v| !v.is_empty())
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        matches!(self.get(key), Some("true" | "1"))
    }
}

fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    if !bytes.contains(&b'%') && !bytes.contains(&b'+') {
        return text.to_owned();
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let hex = bytes
            .get(index + 1..index + 3)
            .and_then(|hex| std::str::from_utf8(hex).ok());
        match (bytes[index], hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                index += 3;
                continue;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        index += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A request for a resource.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) verb: Verb,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// What a path means.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Resource(Route),
    /// Anything that is not a resource: discovery, health, version.
    Other(Vec<String>),
}

/// Reads method and path.
pub(crate) fn parse(method: &Method, path: &str, query: &Query) -> Target {
    let parts: Vec<String> = path
        .split('/')
        .filter(|part| !part.is_empty())
        .map(decode)
        .collect();
    let (group, version, rest) = match parts.as_slice() {
        [api, version, rest @ ..] if api == "api" && !rest.is_empty() => {
            (String::new(), version.clone(), rest)
        }
        [apis, group, version, rest @ ..] if apis == "apis" && !rest.is_empty() => {
            (group.clone(), version.clone(), rest)
        }
        _ => return Target::Other(parts),
    };
    let (namespace, rest) = match rest {
        [word, namespace, plural, rest @ ..]
            if word == "namespaces" && !["status", "finalize"].contains(&plural.as_str()) =>
        {
            (namespace.clone(), [std::slice::from_ref(plural), rest].concat())
        }
        rest => (String::new(), rest.to_vec()),
    };
    let mut rest = rest.into_iter();
    let (Some(plural), name, subresource) = (
        rest.next(),
        rest.next().unwrap_or_default(),
        rest.collect::<Vec<_>>().join("/"),
    ) else {
        return Target::Other(parts);
    };
    let verb = match (method, name.is_empty()) {
        (&Method::GET, true) if query.flag("watch") => Verb::Watch,
        (&Method::GET, true) => Verb::List,
        (&Method::PUT, _) => Verb::Update,
        (&Method::POST, _) => Verb::Create,
        (&Method::PATCH, _) => Verb::Patch,
        (&Method::DELETE, true) => Verb::DeleteCollection,
        (&Method::DELETE, false) => Verb::Delete,
        _ => Verb::Get,
    };
    Target::Resource(Route {
        verb,
        group,
        version,
        plural,
        subresource,
        namespace,
        name,
    })
}
