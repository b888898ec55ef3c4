//! Namespace and name of an object, as used by queues, stores and logs.

use std::fmt;

use kube::Resource;

/// Namespace and name of an object; the namespace is empty for cluster-scoped kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace, or empty.
    pub namespace: String,
    /// Name within the namespace.
    pub name: String,
}

impl ObjectKey {
    /// A key from namespace and name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key of an object.
    pub fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        Self::new(
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
        )
    }

    /// The key of another object in the same namespace.
    #[must_use]
    pub fn beside(&self, name: &str) -> Self {
        Self::new(self.namespace.as_str(), name)
    }

    /// The namespace; `None` for cluster-scoped kinds.
    pub fn namespace(&self) -> Option<&str> {
        (!self.namespace.is_empty()).then_some(self.namespace.as_str())
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_displayed_as_namespace_slash_name() {
        assert_eq!(ObjectKey::new("shop", "orders").to_string(), "shop/orders");
        assert_eq!(ObjectKey::new("", "node-1").to_string(), "node-1");
    }
}
