//! The image of etcd that members run, and where it is pulled from if the spec does not say.

use std::fmt;
use std::str::FromStr;

use super::{EtcdCluster, EtcdClusterSpec, EtcdClusterStatus};

/// The repository of upstream's etcd images.
pub const UPSTREAM_REPOSITORY: &str = "quay.io/coreos/etcd";

/// The repository of the etcd image of each `EtcdCluster` whose spec sets neither `repository` nor `image`: upstream's, or a
/// mirror of it.
///
/// It is a setting of the installation and not of a cluster, so it is not part of the hash by which members count as
/// outdated: another mirror restarts no member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultRepository(String);

/// Why a text is no repository.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a repository: it must name a registry and a path, without tag or digest; for example: registry.example.com/etcd"
)]
pub struct RepositoryError(String);

impl DefaultRepository {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether an image is upstream's, pulled from there or from the mirror.
    pub fn is_upstream(&self, image: &str) -> bool {
        [UPSTREAM_REPOSITORY, &self.0].into_iter().any(|repository| {
            let rest = image.strip_prefix(repository);
            rest.is_some_and(|rest| rest.starts_with(':'))
        })
    }
}

impl Default for DefaultRepository {
    fn default() -> Self {
        Self(UPSTREAM_REPOSITORY.to_owned())
    }
}

impl FromStr for DefaultRepository {
    type Err = RepositoryError;

    /// Reads a repository; an empty text is upstream's.
    fn from_str(text: &str) -> Result<Self, RepositoryError> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::default());
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:".contains(c);
        let parts = text.rsplit_once('/').filter(|(registry, name)| {
            registry.starts_with(|c: char| c.is_ascii_alphanumeric())
                && !name.is_empty()
                && !name.contains(':')
        });
        if parts.is_none() || text.len() > 256 || !text.chars().all(is_plain) {
            return Err(RepositoryError(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for DefaultRepository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl EtcdClusterSpec {
    /// The etcd image of a member that runs `version`, which is empty while unknown. `None` if the spec sets no `image` and
    /// the version is empty.
    pub fn etcd_image(&self, version: &str, default: &DefaultRepository) -> Option<String> {
        let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let image_of_version = || {
            let repository = filled(&self.repository).unwrap_or_else(|| default.to_string());
            (!version.is_empty()).then(|| format!("{repository}:v{version}"))
        };
        filled(&self.image).or_else(image_of_version)
    }
}

impl EtcdCluster {
    /// The etcd image that members run while a newer pod template waits for its rollout or has not served yet, else that of the
    /// spec for `version`, which is empty while unknown.
    pub fn etcd_image(&self, version: &str, default: &DefaultRepository) -> Option<String> {
        let applied = self
            .status
            .as_ref()
            .and_then(EtcdClusterStatus::running_etcd_image);
        applied.or_else(|| self.spec.etcd_image(version, default))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cluster(spec: &Value, status: &Value) -> EtcdCluster {
        serde_json::from_value(json!({
            "apiVersion": "etcd.database.coreos.com/v1beta2", "kind": "EtcdCluster", "metadata": {"name": "c"},
            "spec": spec, "status": status,
        }))
        .expect("a cluster")
    }

    fn mirror() -> DefaultRepository {
        "registry.example.com:5000/mirror/etcd"
            .parse()
            .expect("a repository")
    }

    /// A backup is test-restored with the etcd that runs, not with one that waits for its rollout.
    #[test]
    fn the_applied_template_decides_about_the_image_before_the_spec_does() {
        let applied = json!({"spec": {"containers": [
            {"name": "proxy", "image": "proxy:1"}, {"name": "etcd", "image": "a/etcd:v3.5.35"},
        ]}});
        let image = |spec: &Value, status: &Value, version: &str| {
            cluster(spec, status).etcd_image(version, &DefaultRepository::default())
        };
        let with_template = |spec: &Value, template: Option<&str>| {
            image(spec, &json!({"appliedTemplate": template}), "3.5.35")
        };
        let (applied, running) = (applied.to_string(), Some("a/etcd:v3.5.35".to_owned()));
        let fixed = json!({"image": "b/etcd:v3.6.16"});
        let versioned = json!({"repository": "b/etcd", "version": "3.6.16"});
        for spec in [&fixed, &versioned] {
            assert_eq!(with_template(spec, Some(&applied)), running, "{spec}");
        }
        for unusable in [None, Some("{}"), Some("not JSON")] {
            assert_eq!(with_template(&fixed, unusable), Some("b/etcd:v3.6.16".to_owned()));
        }
        // The current template has not served yet.
        let stalled = json!({"rollout": {"lastServed": applied}});
        assert_eq!(image(&fixed, &stalled, "3.6.16"), running);
        assert_eq!(with_template(&versioned, None), Some("b/etcd:v3.5.35".to_owned()));
    }

    #[test]
    fn a_mirror_serves_only_clusters_that_name_no_repository_and_no_image() {
        let image = |spec: Value| cluster(&spec, &Value::Null).etcd_image("3.6.16", &mirror());
        for (spec, expected) in [
            (json!({}), "registry.example.com:5000/mirror/etcd:v3.6.16"),
            (
                json!({"repository": "", "image": ""}),
                "registry.example.com:5000/mirror/etcd:v3.6.16",
            ),
            (
                json!({"repository": "quay.io/coreos/etcd"}),
                "quay.io/coreos/etcd:v3.6.16",
            ),
            (json!({"repository": "own/etcd"}), "own/etcd:v3.6.16"),
            (json!({"image": "own/etcd:v3.6.15"}), "own/etcd:v3.6.15"),
        ] {
            assert_eq!(image(spec.clone()).as_deref(), Some(expected), "{spec}");
        }
    }

    #[test]
    fn an_image_of_the_mirror_is_that_of_upstream() {
        for (image, with_mirror, without) in [
            ("quay.io/coreos/etcd:v3.6.16", true, true),
            ("registry.example.com:5000/mirror/etcd:v3.6.16", true, false),
            ("registry.example.com:5000/mirror/etcd-own:v3.6.16", false, false),
            ("registry.example.com:5000/mirror/etcd", false, false),
            ("registry.example.com:5000/etcd:v3.6.16", false, false),
        ] {
            assert_eq!(mirror().is_upstream(image), with_mirror, "{image}");
            assert_eq!(
                DefaultRepository::default().is_upstream(image),
                without,
                "{image}"
            );
        }
    }

    #[test]
    fn a_repository_names_a_registry_and_a_path() {
        for (text, name) in [
            ("", UPSTREAM_REPOSITORY),
            (" ", UPSTREAM_REPOSITORY),
            ("registry.example.com/etcd", "registry.example.com/etcd"),
            ("localhost:5000/a/b ", "localhost:5000/a/b"),
        ] {
            let read = text.parse::<DefaultRepository>();
            assert_eq!(
                read.map(|repository| repository.to_string()),
                Ok(name.to_owned()),
                "{text}"
            );
        }
        for bad in [
            "registry.example.com",
            "registry.example.com/etcd:v3.6.16",
            "registry.example.com/etcd@sha256",
            "registry.example.com/",
            "/etcd",
            "https://registry.example.com/etcd?",
            "a b/etcd",
            "$(X)/etcd",
        ] {
            let error = bad.parse::<DefaultRepository>().expect_err(bad).to_string();
            assert!(error.contains("for example: "), "{error}");
        }
    }
}
