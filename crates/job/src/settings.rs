//! Opens what an order names: a store, certificates, encryption keys, a user. Secrets are read from the directories in which
//! they are mounted, and from nowhere else.

use std::collections::BTreeMap;
use std::path::Path;

use etcd_operator_api::contract::{Source, StoreOrder};
use etcd_operator_api::location::names_user;
use etcd_operator_api::store::{ServerSideEncryption, StorageType};
use etcd_operator_etcd::client::User;
use etcd_operator_etcd::endpoint::{Endpoint, Identity, Limits, Tls};
use etcd_operator_snapshot::frames::{KeyId, KeyRing, MasterKey};
use etcd_operator_store::cloud::{AbsConfig, GcsConfig};
use etcd_operator_store::connect::{StoreConfig, connect};
use etcd_operator_store::oss::OssConfig;
use etcd_operator_store::platform::Platform;
use etcd_operator_store::s3::{Encryption, S3Config};
use etcd_operator_store::secret::Secret;
use etcd_operator_store::{Policy, Store};

use crate::failure::{AUTHORITY, CLIENT_TLS, Failure, KEY};

/// The size limit of a Secret in Kubernetes.
const MAX_SECRET: u64 = 1 << 20;

/// Reads a mounted Secret, or any directory of small files.
///
/// A missing optional Secret is mounted as an empty directory. `expected` says in the error what it should hold.
fn read_secret(directory: &str, expected: &str) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
    let failed = |error: std::io::Error| {
        Failure::bad_secret(format!(
            "the directory {directory}, in which a Secret must be mounted, cannot be read: {error}"
        ))
    };
    let mut data = BTreeMap::new();
    for entry in std::fs::read_dir(Path::new(directory)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        // The kubelet keeps the data of a mounted Secret in directories that start with two dots.
        let meta = std::fs::metadata(&path).map_err(failed)?;
        if name.starts_with("..") || !meta.is_file() {
            continue;
        }
        if meta.len() > MAX_SECRET {
            return Err(Failure::bad_secret(format!(
                "{} has {} bytes, which no entry of a Secret can have",
                path.display(),
                meta.len()
            )));
        }
        data.insert(name, std::fs::read(&path).map_err(failed)?);
    }
    if data.is_empty() {
        return Err(Failure::bad_secret(format!(
            "the Secret is missing or empty (nothing is mounted at {directory}); it must hold {expected}"
        )));
    }
    Ok(data)
}

/// The environment of the process, from which platform identities are read.
pub fn platform() -> Platform {
    let text = |text: std::ffi::OsString| text.into_string().ok();
    Platform {
        variables: std::env::vars_os()
            .filter_map(|(name, value)| Some((text(name)?, text(value)?)))
            .collect(),
        metadata: None,
    }
}

/// Connects to the store of an order, with credentials from its mounted Secrets.
pub async fn connect_store(order: &StoreOrder, policy: Policy) -> Result<Store, Failure> {
    let mounted = |directory: &Option<String>, expected: &str| match directory {
        Some(directory) => read_secret(directory, expected).map(|data| Some(Secret::from(data))),
        None => Ok(None),
    };
    let expected = match order.kind {
        StorageType::S3 => "credentials, and config with the region",
        StorageType::OSS => "accessKeyID and accessKeySecret",
        StorageType::GCS => "credentials.json or access-token",
        StorageType::ABS => "storage-account and storage-key",
        StorageType::Local => "nothing, as a volume needs none",
    };
    let secret = mounted(&order.secret, expected)?;
    let ca = mounted(&order.ca, "ca.crt").map_err(|failure| failure.with_reason(AUTHORITY))?;
    connect_store_with(order, secret.as_ref(), ca, policy).await
}

/// Connects to the store of an order with these Secrets.
pub async fn connect_store_with(
    order: &StoreOrder,
    secret: Option<&Secret>,
    ca: Option<Secret>,
    policy: Policy,
) -> Result<Store, Failure> {
    let bucket = order.bucket.clone();
    let endpoint = order.endpoint.clone();
    let config = match order.kind {
        StorageType::S3 => StoreConfig::S3(S3Config {
            bucket,
            endpoint,
            path_style: order.path_style,
            region: order.region.clone(),
            encryption: order.encryption.map(|encryption| match encryption {
                ServerSideEncryption::AES256 => Encryption::Aes256,
                ServerSideEncryption::Kms => Encryption::Kms,
            }),
            storage_class: order.storage_class.clone(),
            profile: None,
            ca,
        }),
        StorageType::OSS => StoreConfig::Oss(OssConfig {
            bucket,
            endpoint,
            region: order.region.clone(),
            ca,
        }),
        StorageType::GCS => StoreConfig::Gcs(GcsConfig { bucket, endpoint, ca }),
        StorageType::ABS => StoreConfig::Abs(AbsConfig {
            container: bucket,
            endpoint,
            ca,
        }),
        StorageType::Local => StoreConfig::Local(bucket),
    };
    Ok(connect(&config, secret, &platform(), policy).await?)
}

/// Reads the encryption keys in a directory: one key per file, whose name is the key ID. `None` means no keys; a
/// directory that is missing or empty is a failure.
pub fn read_keys(directory: Option<&str>) -> Result<KeyRing, Failure> {
    Ok(key_ring(read_key_list(directory)?))
}

/// Parses the encryption keys in a Secret.
pub fn parse_keys(secret: &BTreeMap<String, Vec<u8>>) -> Result<KeyRing, Failure> {
    Ok(key_ring(parse_key_list(secret)?))
}

fn key_ring(keys: Vec<(KeyId, MasterKey)>) -> KeyRing {
    let mut ring = KeyRing::default();
    for (id, key) in keys {
        ring.add(id, key);
    }
    ring
}

/// The IDs of the encryption keys in a directory.
pub fn read_key_ids(directory: Option<&str>) -> Result<Vec<String>, Failure> {
    let keys = read_key_list(directory)?;
    Ok(keys.into_iter().map(|(id, _)| id.as_str().to_owned()).collect())
}

/// The key that encrypts new backups: the one whose ID is last in alphabetical order.
pub fn read_encryption_key(directory: &str) -> Result<(KeyId, MasterKey), Failure> {
    let mut keys = read_key_list(Some(directory))?;
    keys.pop().ok_or_else(|| {
        Failure::permanent(
            KEY,
            "the Secret of spec.encryption has no keys; each entry must be a key of 32 bytes under its id",
        )
    })
}

fn read_key_list(directory: Option<&str>) -> Result<Vec<(KeyId, MasterKey)>, Failure> {
    let Some(directory) = directory else {
        return Ok(Vec::new());
    };
    let read = read_secret(directory, "keys of 32 bytes, each under its id");
    parse_key_list(&read.map_err(|failure| failure.with_reason(KEY))?)
}

/// Parses encryption keys, sorted by ID.
fn parse_key_list(secret: &BTreeMap<String, Vec<u8>>) -> Result<Vec<(KeyId, MasterKey)>, Failure> {
    let mut keys = Vec::new();
    for (id, bytes) in secret {
        let invalid = |error| {
            Failure::permanent(
                KEY,
                format!("the key {id:?} of spec.encryption cannot be used: {error}"),
            )
        };
        keys.push((
            KeyId::new(id).map_err(invalid)?,
            MasterKey::new(bytes).map_err(invalid)?,
        ));
    }
    keys.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(keys)
}

/// How to reach an etcd cluster.
#[derive(Clone, Debug)]
pub struct EtcdAccess {
    /// The given endpoints.
    pub endpoints: Vec<Endpoint>,
    /// The user to log in as.
    pub user: Option<User>,
}

/// Reads how to reach the etcd cluster of an order. Endpoints that name a user, or use https without certificates, are
/// refused.
pub fn read_etcd_access(source: &Source) -> Result<EtcdAccess, Failure> {
    let tls = source
        .tls
        .as_deref()
        .map(|directory| read_certificates(directory, source.server_name.clone()))
        .transpose()?;
    let user = source.user.as_deref().map(read_user).transpose()?;
    let mut endpoints = Vec::new();
    for text in &source.endpoints {
        if names_user(text) {
            // The endpoint is not repeated, as it may contain a password.
            return Err(Failure::bad_order(
                "etcdEndpoints holds an address with a user in it: the user of etcd belongs into a Secret with username and \
                 password (by hand --user), and the address is without; for example: http://orders-client:2379",
            ));
        }
        let url = with_default_port(text).parse().map_err(|_| {
            Failure::bad_order(format!(
                "etcdEndpoints holds {text:?}, which is no address; for example: http://orders-client:2379"
            ))
        })?;
        endpoints.push(Endpoint {
            url,
            tls: tls.clone(),
            limits: Limits::default(),
        });
    }
    if endpoints.is_empty() {
        return Err(Failure::bad_order("etcdEndpoints is empty"));
    }
    if tls.is_none() && endpoints.iter().any(|endpoint| endpoint.url.is_secure()) {
        let message = "an endpoint says https and there are no certificates: clientTLSSecret must name a Secret with etcd-client-ca.crt, and with etcd-client.crt and etcd-client.key where etcd asks for them";
        return Err(Failure::bad_order(message));
    }
    Ok(EtcdAccess { endpoints, user })
}

/// Adds etcd's client port to an endpoint without a port.
fn with_default_port(text: &str) -> String {
    let text = text.trim_end_matches('/');
    let host = text.split_once("://").map_or(text, |(_, host)| host);
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    if has_port {
        text.to_owned()
    } else {
        format!("{text}:2379")
    }
}

/// Reads the CA, and the client certificate with its key if there is one.
fn read_certificates(directory: &str, server_name: Option<String>) -> Result<Tls, Failure> {
    let expected = "etcd-client-ca.crt, etcd-client.crt and etcd-client.key";
    let read = read_secret(directory, expected).map_err(|failure| failure.with_reason(CLIENT_TLS));
    let secret = Secret::from(read?);
    let setting = "clientTLSSecret";
    let pem = |key: &str| secret.required(setting, key).map(|text| text.as_bytes().to_vec());
    let has_identity = secret.text(setting, "etcd-client.crt")?.is_some();
    let identity = if has_identity {
        Some(Identity {
            certificate: pem("etcd-client.crt")?,
            key: pem("etcd-client.key")?,
        })
    } else {
        None
    };
    Ok(Tls {
        authority: pem("etcd-client-ca.crt")?,
        identity,
        server_name,
    })
}

fn read_user(directory: &str) -> Result<User, Failure> {
    let secret = Secret::from(read_secret(directory, "username and password")?);
    let setting = "the Secret of etcd's user";
    Ok(User {
        name: secret.required(setting, "username")?.to_owned(),
        password: secret.required(setting, "password")?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_a_port_gets_etcds_client_port() {
        for (text, whole) in [
            ("http://a", "http://a:2379"),
            ("http://a/", "http://a:2379"),
            ("https://a:1", "https://a:1"),
            ("http://[::1]", "http://[::1]:2379"),
            ("http://[::1]:2", "http://[::1]:2"),
        ] {
            assert_eq!(with_default_port(text), whole);
        }
    }

    #[test]
    fn https_without_certificates_is_refused_naming_the_field() {
        let source = Source {
            endpoints: vec!["https://a:2379".to_owned()],
            ..Source::default()
        };
        let failure = read_etcd_access(&source).expect_err("refused");
        assert!(failure.message.contains("clientTLSSecret"), "{failure}");
    }

    #[test]
    fn a_password_in_an_endpoint_is_refused_and_not_repeated() {
        for text in ["http://root:hunter2@a:2379", "root:hunter2@a"] {
            let source = Source {
                endpoints: vec![text.to_owned()],
                ..Source::default()
            };
            let message = read_etcd_access(&source).expect_err("refused").to_string();
            assert!(
                !message.contains("hunter2") && message.contains("--user"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_secret_that_is_not_mounted_is_reported_with_its_directory() {
        let failure = read_secret("/nowhere/at/all", "x").expect_err("refused");
        assert!(failure.message.contains("/nowhere/at/all"), "{failure}");
        assert_eq!(
            (failure.reason.as_ref(), failure.is_retriable),
            ("Credentials", false)
        );
    }
}
