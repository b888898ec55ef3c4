//! Addresses of stored backups as people write them: `s3://bucket/key`, `oss://`, `gs://`, `abs://`, or a path. Pure.

use etcd_operator_api::contract::{CLAIM_SUFFIX, MANIFEST_SUFFIX, StoreOrder};
use etcd_operator_api::store::StorageType;

/// What an address means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The protocol.
    pub kind: StorageType,
    /// The bucket, container or directory.
    pub bucket: String,
    /// The name of an object, or what names begin with.
    pub key: String,
}

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no address of a backup: {problem}; for example: s3://my-bucket/etcd/orders, oss://, gs:// or abs:// likewise, or the path of a file"
)]
pub struct BadAddress {
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
    /// Reads an address. A path must be absolute: `directory` is where it begins otherwise.
    pub fn parse(text: &str, directory: &str) -> Result<Self, BadAddress> {
        let names_anothers = [MANIFEST_SUFFIX, CLAIM_SUFFIX]
            .iter()
            .any(|end| text.ends_with(end));
        let bad = |problem| BadAddress {
            text: text.to_owned(),
            problem,
        };
        if names_anothers {
            return Err(bad("it is that of a file beside a backup"));
        }
        let (kind, rest) = match text.split_once("://") {
            None => (StorageType::Local, text),
            Some((scheme, rest)) => {
                let known = SCHEMES.iter().find(|(name, _)| *name == scheme);
                let (_, kind) = known.ok_or_else(|| bad("its scheme is unknown"))?;
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
            return Err(bad("it names no bucket"));
        }
        Ok(Self {
            kind,
            bucket: bucket.to_owned(),
            key: key.to_owned(),
        })
    }

    /// The place of an order.
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
    fn addresses_of_all_stores_are_read() {
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
    fn what_is_no_address_is_refused_with_an_example() {
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
