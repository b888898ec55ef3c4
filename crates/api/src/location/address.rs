//! Locations as text for users, and the check for credentials in an address.

use super::{Location, ObjectPath};

/// Whether an address contains user information, which an `@` indicates. It may hold a password with any characters. Callers
/// that reject the address must therefore not repeat it in a message.
pub fn names_user(address: &str) -> bool {
    address.contains('@')
}

impl Location {
    /// The location of backups at `path`, as one line for users. Equal texts mean the same location.
    pub fn address(&self, path: &str) -> String {
        let line = |scheme: &str, place: &ObjectPath, endpoint: Option<&str>| {
            let address = format!("{scheme}://{}/{path}", place.bucket);
            match endpoint.filter(|endpoint| !names_user(endpoint)) {
                Some(endpoint) => format!("{address} at {}", host(endpoint)),
                None => address,
            }
        };
        match self {
            Self::S3 { path, endpoint, .. } => line("s3", path, endpoint.as_deref()),
            Self::Abs { path, endpoint, .. } => line("abs", path, endpoint.as_deref()),
            Self::Gcs { path, endpoint, .. } => line("gs", path, endpoint.as_deref()),
            Self::Oss { path, endpoint, .. } => line("oss", path, Some(endpoint)),
            Self::Local { claim, .. } => format!("{path} on the PersistentVolumeClaim {claim}"),
        }
    }
}

/// The endpoint in lower case, without scheme, fragment and trailing slashes, which do not identify the store, and without its
/// query, which may be a signature. User information stays: the caller checks `names_user` first.
fn host(endpoint: &str) -> String {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    rest.trim_end_matches('/').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_information_is_found_whatever_characters_its_password_has() {
        for with in [
            "http://root:hunter2@a:2379",
            "root:hunter2@a",
            "https://root@a/x",
            "http://root:hun/te?r#2@a",
        ] {
            assert!(names_user(with), "{with}");
        }
        for without in ["http://a:2379", "a", "https://a/x?y", ""] {
            assert!(!names_user(without), "{without}");
        }
    }

    #[test]
    fn an_address_names_the_store_and_ignores_scheme_case_slash_and_query() {
        let s3 = |endpoint: Option<&str>| {
            let location = Location::S3 {
                path: ObjectPath {
                    bucket: "b".to_owned(),
                    key: "etcd/orders".to_owned(),
                },
                secret: None,
                endpoint: endpoint.map(str::to_owned),
                path_style: false,
                region: None,
                encryption: None,
                class: None,
                ca_secret: None,
            };
            location.address("etcd/orders")
        };
        assert_eq!(s3(None), "s3://b/etcd/orders");
        assert_eq!(
            s3(Some("https://Minio:9000/")),
            "s3://b/etcd/orders at minio:9000"
        );
        assert_eq!(s3(Some("http://minio:9000")), s3(Some("https://Minio:9000/")));
        for with_query in ["https://minio:9000/?sv=1&sig=secret", "https://minio:9000#sig"] {
            assert_eq!(
                s3(Some(with_query)),
                s3(Some("https://minio:9000")),
                "{with_query}"
            );
        }
        let volume = Location::Local {
            claim: "backups".to_owned(),
            path: None,
        };
        assert_eq!(
            volume.address("orders"),
            "orders on the PersistentVolumeClaim backups"
        );
    }
}
