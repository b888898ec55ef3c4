//! Parses addresses of stored backups on the command line: `s3://bucket/key`, `oss://`, `gs://`, `abs://`, or a path. Pure.

use etcd_operator_api::contract::{CLAIM_SUFFIX, MANIFEST_SUFFIX, StoreOrder};
use etcd_operator_api::store::StorageType;

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The kind of the store.
    pub kind: StorageType,
    /// The bucket, container or directory.
    pub bucket: String,
    /// The name of an object, or a prefix of names.
    pub key: String,
}

/// An invalid address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not the address of a backup: {problem}; for example: s3://my-bucket/etcd/orders, the same with oss://, gs:// or abs://, or the path of a file"
)]
pub struct InvalidAddress {
    text: String,
    problem: &'static str,
}

const SCHEMES: [(&str, StorageType); 6] = [
    ("s3", StorageType::S3),
    ("oss", StorageType::OSS),
    ("gs", StorageType::GCS),
    ("gcs", StorageType::GCS),
    ("abs", StorageType::ABS),
    ("file", StorageType::Local),
];

impl Address {
    /// Parses an address. A relative path is resolved against `directory`.
    pub fn parse(text: &str, directory: &str) -> Result<Self, InvalidAddress> {
        let is_companion_file = [MANIFEST_SUFFIX, CLAIM_SUFFIX]
            .iter()
            .any(|end| text.ends_with(end));
        let invalid = |problem| InvalidAddress {
            text: text.to_owned(),
            problem,
        };
        if is_companion_file {
            return Err(invalid("it names the manifest or claim of a backup"));
        }
        let (kind, rest) = match text.split_once("://") {
            None => (StorageType::Local, text),
            Some((scheme, rest)) => {
                let known = SCHEMES.iter().find(|(name, _)| *name == scheme);
                let (_, kind) = known.ok_or_else(|| invalid("its scheme is unknown"))?;
                (*kind, rest)
            }
        };
        if kind == StorageType::Local {
            let path = if rest.starts_with('/') {
                rest.to_owned()
            } else {
                format!("{}/{rest}", directory.trim_end_matches('/'))
            };
            let (bucket, key) = path.rsplit_once('/').unwrap_or_default();
            let bucket = if bucket.is_empty() { "/" } else { bucket };
            return Ok(Self {
                kind,
                bucket: bucket.to_owned(),
                key: key.to_owned(),
            });
        }
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(invalid("it names no bucket"));
        }
        Ok(Self {
            kind,
            bucket: bucket.to_owned(),
            key: key.to_owned(),
        })
    }

    /// The store of an order, without settings such as credentials.
    pub fn order(self) -> StoreOrder {
        StoreOrder {
            kind: self.kind,
            bucket: self.bucket,
            path: self.key,
            ..StoreOrder::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (StorageType, String, String) {
        let address = Address::parse(text, "/here").expect("an address");
        (address.kind, address.bucket, address.key)
    }

    #[test]
    fn addresses_of_all_stores_are_parsed() {
        for (text, kind, bucket, key) in [
            ("s3://b/a/b", StorageType::S3, "b", "a/b"),
            ("oss://b/a", StorageType::OSS, "b", "a"),
            ("gs://b/a", StorageType::GCS, "b", "a"),
            ("abs://b/a", StorageType::ABS, "b", "a"),
            ("s3://b", StorageType::S3, "b", ""),
            ("/var/backups/x", StorageType::Local, "/var/backups", "x"),
            ("file:///var/x", StorageType::Local, "/var", "x"),
            ("x", StorageType::Local, "/here", "x"),
            ("a/x", StorageType::Local, "/here/a", "x"),
            ("/x", StorageType::Local, "/", "x"),
        ] {
            assert_eq!(parsed(text), (kind, bucket.to_owned(), key.to_owned()), "{text}");
        }
    }

    #[test]
    fn an_invalid_address_is_refused_with_an_example() {
        for text in [
            "http://b/a",
            "s3:///a",
            "s3://",
            "s3://b/a.manifest.json",
            "/a/b.claim.json",
        ] {
            let message = Address::parse(text, "/").expect_err("refused").to_string();
            assert!(message.contains("for example: s3://"), "{message}");
        }
    }
}
