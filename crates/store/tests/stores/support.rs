//! Clients of the five stores, connected to their fakes. They give up early, so that tests end soon.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use etcd_operator_store::cloud::{AbsConfig, GcsConfig};
use etcd_operator_store::connect::{StoreConfig, connect};
use etcd_operator_store::local::Local;
use etcd_operator_store::oss::OssConfig;
use etcd_operator_store::platform::Platform;
use etcd_operator_store::s3::S3Config;
use etcd_operator_store::secret::Secret;
use etcd_operator_store::{Policy, Store};

use etcd_operator_store::testing::fake::{CertificateAuthority, Dialect, Fake};

pub const BUCKET: &str = "my-bucket";

/// The secret that the fakes accept.
pub const PASSWORD: &str = "hunter2hunter2";

pub fn policy() -> Policy {
    Policy {
        max_attempts: 3,
        initial_backoff: Duration::from_millis(1),
        max_backoff: Duration::from_millis(5),
        request_timeout: Duration::from_secs(20),
        part_timeout: Duration::from_secs(20),
        complete_timeout: Duration::from_secs(20),
        idle_timeout: Duration::from_secs(20),
    }
}

pub fn secret(pairs: &[(&str, &str)]) -> Secret {
    let data: BTreeMap<String, Vec<u8>> = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()))
        .collect();
    Secret::from(data)
}

/// A Secret in the format of the older operator.
pub fn secret_of(dialect: Dialect) -> Secret {
    match dialect {
        Dialect::S3 => {
            let credentials =
                format!("[default]\naws_access_key_id = AKIATEST\naws_secret_access_key = {PASSWORD}\n");
            secret(&[
                ("credentials", &credentials),
                ("config", "[default]\nregion = test-region\n"),
            ])
        }
        Dialect::Oss => secret(&[("accessKeyID", "LTAITEST"), ("accessKeySecret", PASSWORD)]),
        Dialect::Gcs => secret(&[("access-token", PASSWORD)]),
        Dialect::Abs => secret(&[
            ("storage-account", "testaccount"),
            ("storage-key", "aHVudGVyMmh1bnRlcjI="),
        ]),
    }
}

pub fn config(dialect: Dialect, endpoint: &str, ca: Option<&str>) -> StoreConfig {
    let endpoint = Some(endpoint.to_owned());
    let ca = ca.map(|pem| secret(&[("ca.crt", pem)]));
    match dialect {
        Dialect::S3 => StoreConfig::S3(S3Config {
            bucket: BUCKET.to_owned(),
            endpoint,
            path_style: true,
            ca,
            ..S3Config::default()
        }),
        Dialect::Oss => StoreConfig::Oss(OssConfig {
            bucket: BUCKET.to_owned(),
            endpoint,
            region: Some("test-region".to_owned()),
            ca,
        }),
        Dialect::Gcs => StoreConfig::Gcs(GcsConfig {
            bucket: BUCKET.to_owned(),
            endpoint,
            ca,
        }),
        Dialect::Abs => StoreConfig::Abs(AbsConfig {
            container: BUCKET.to_owned(),
            endpoint,
            ca,
        }),
    }
}

pub async fn store(dialect: Dialect, fake: &Fake, authority: Option<&CertificateAuthority>) -> Store {
    let config = config(
        dialect,
        &fake.endpoint,
        authority.map(|authority| authority.pem.as_str()),
    );
    let secret = secret_of(dialect);
    connect(&config, Some(&secret), &Platform::default(), policy())
        .await
        .expect("a store")
}

/// A temporary directory, removed when the value is dropped.
pub struct Directory(pub std::path::PathBuf);

impl Directory {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("etcd-operator-store-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    pub fn store(&self) -> Store {
        Store::new(Arc::new(self.backend()), policy())
    }

    pub fn backend(&self) -> Local {
        Local::new(&self.0).expect("a backend")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Errors are ignored: the machine cleans up its temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
