//! Addresses as people write them: what must not stand in one, and a place of backups in one line.

use super::{Location, ObjectPath};

/// Whether an address names a user: with an `@`, which nothing else in one needs. What stands before it may hold a password,
/// with signs of any kind, which everybody sees who reads the address: whoever refuses it must not repeat it.
pub fn names_user(address: &str) -> bool {
    address.contains('@')
}

impl Location {
    /// The place of backups to this path, in one line for people. Two texts are equal if the places surely are.
    pub fn address(&self, path: &str) -> String {
        let of = |scheme: &str, place: &ObjectPath, endpoint: Option<&str>| {
            let address = format!("{scheme}://{}/{path}", place.bucket);
            match endpoint.filter(|endpoint| !names_user(endpoint)) {
                Some(endpoint) => format!("{address} at {}", host(endpoint)),
                None => address,
            }
        };
        match self {
            Self::S3 { path, endpoint, .. } => of("s3", path, endpoint.as_deref()),
            Self::Abs { path, endpoint, .. } => of("abs", path, endpoint.as_deref()),
            Self::Gcs { path, endpoint, .. } => of("gs", path, endpoint.as_deref()),
            Self::Oss { path, endpoint, .. } => of("oss", path, Some(endpoint)),
            Self::Local { claim, .. } => format!("{path} on the PersistentVolumeClaim {claim}"),
        }
    }
}

/// An endpoint without what does not make it another store, and without a query, which may be a signature that opens it.
fn host(endpoint: &str) -> String {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    rest.trim_end_matches('/').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_whatever_signs_its_password_has() {
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
    fn a_place_is_told_with_its_store_and_a_scheme_or_a_slash_makes_no_other_one() {
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
