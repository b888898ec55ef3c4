//! Connects to a store: creates the backend for a store configuration.

use std::sync::Arc;

use crate::backend::Backend;
use crate::cloud::{AbsConfig, Cloud, GcsConfig};
use crate::local::Local;
use crate::oss::{Oss, OssConfig};
use crate::platform::Platform;
use crate::policy::Policy;
use crate::s3::{S3, S3Config};
use crate::secret::{InvalidConfig, Secret};
use crate::store::Store;

/// The configuration of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreConfig {
    /// A bucket of S3 or of an S3-compatible store.
    S3(S3Config),
    /// A bucket of Alibaba Cloud OSS.
    Oss(OssConfig),
    /// A bucket of Google Cloud Storage.
    Gcs(GcsConfig),
    /// A container of Azure Blob Storage.
    Abs(AbsConfig),
    /// A directory, by its absolute path.
    Local(String),
}

/// Creates a store from its configuration. Without a Secret, the identity of the platform is used (workload
/// identity, metadata service, environment).
pub async fn connect(
    config: &StoreConfig,
    secret: Option<&Secret>,
    platform: &Platform,
    policy: Policy,
) -> Result<Store, InvalidConfig> {
    let backend: Arc<dyn Backend> = match config {
        StoreConfig::S3(config) => Arc::new(S3::new(config, secret).await?),
        StoreConfig::Oss(config) => Arc::new(Oss::new(config, secret, platform)?),
        StoreConfig::Gcs(config) => Arc::new(Cloud::gcs(config, secret, platform)?),
        StoreConfig::Abs(config) => Arc::new(Cloud::abs(config, secret, platform)?),
        StoreConfig::Local(path) => Arc::new(Local::new(path.as_str())?),
    };
    Ok(Store::new(backend, policy))
}
