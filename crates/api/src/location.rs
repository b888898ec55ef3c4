//! The location of backups, parsed from a spec: exactly one store, with bucket and key.

mod address;
mod object;

pub use address::names_user;
pub use object::{TIME, belongs};

use crate::{
    backup::EtcdBackupSpec,
    contract::{CLAIM_SUFFIX, MANIFEST_SUFFIX, StoreOrder, mounts},
    refusal::Refusal,
    restore::EtcdRestoreSpec,
    store::{AbsStore, GcsStore, LocalStore, OssStore, S3Store, ServerSideEncryption, StorageType},
};

/// The OSS endpoint if the user sets none.
pub const DEFAULT_OSS_ENDPOINT: &str = "http://oss-cn-hangzhou.aliyuncs.com";

/// A bucket (or container) and a key in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectPath {
    /// Bucket or container.
    pub bucket: String,
    /// Key, or prefix of keys.
    pub key: String,
}

/// Location of backups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// Bucket of S3 or an S3-compatible store.
    S3 {
        /// Bucket and key.
        path: ObjectPath,
        /// Secret with the credentials. Without it, the platform's identity is used.
        secret: Option<String>,
        /// Endpoint, if it is not Amazon's.
        endpoint: Option<String>,
        /// Whether requests carry the bucket in the path instead of the host name.
        path_style: bool,
        /// Region, if set.
        region: Option<String>,
        /// Server-side encryption by the store.
        encryption: Option<ServerSideEncryption>,
        /// Storage class of new objects.
        class: Option<String>,
        /// Secret with the certificate authority of the endpoint.
        ca_secret: Option<String>,
    },
    /// Container of Azure Blob Storage.
    Abs {
        /// Container and key.
        path: ObjectPath,
        /// Secret with the credentials. Without it, the platform's identity is used.
        secret: Option<String>,
        /// Endpoint, if it is not the default of the Azure cloud.
        endpoint: Option<String>,
        /// Secret with the certificate authority of the endpoint.
        ca_secret: Option<String>,
    },
    /// Bucket of Google Cloud Storage.
    Gcs {
        /// Bucket and key.
        path: ObjectPath,
        /// Secret with the credentials. Without it, the platform's identity is used.
        secret: Option<String>,
        /// Endpoint, if it is not Google's.
        endpoint: Option<String>,
        /// Secret with the certificate authority of the endpoint.
        ca_secret: Option<String>,
    },
    /// Bucket of Alibaba Cloud OSS.
    Oss {
        /// Bucket and key.
        path: ObjectPath,
        /// Secret with the credentials. Without it, the platform's identity is used.
        secret: Option<String>,
        /// Endpoint.
        endpoint: String,
        /// Region, if the endpoint does not contain it.
        region: Option<String>,
        /// Secret with the certificate authority of the endpoint.
        ca_secret: Option<String>,
    },
    /// Directory on a volume.
    Local {
        /// Name of the PersistentVolumeClaim.
        claim: String,
        /// Path below the volume's root, if set.
        path: Option<String>,
    },
}

impl Location {
    /// The Secret with the credentials of the store; `None` for a volume, and where the platform's identity is used.
    pub fn secret(&self) -> Option<&str> {
        match self {
            Self::S3 { secret, .. }
            | Self::Abs { secret, .. }
            | Self::Gcs { secret, .. }
            | Self::Oss { secret, .. } => secret.as_deref(),
            Self::Local { .. } => None,
        }
    }

    /// The Secret with the certificate authority of the store; `None` for a volume, and where the CA is a public one.
    pub fn ca_secret(&self) -> Option<&str> {
        match self {
            Self::S3 { ca_secret, .. }
            | Self::Abs { ca_secret, .. }
            | Self::Gcs { ca_secret, .. }
            | Self::Oss { ca_secret, .. } => ca_secret.as_deref(),
            Self::Local { .. } => None,
        }
    }

    /// The PersistentVolumeClaim of the volume; `None` for other stores.
    pub fn claim(&self) -> Option<&str> {
        match self {
            Self::Local { claim, .. } => Some(claim),
            _ => None,
        }
    }

    /// The key, or the prefix of keys. `None` for a volume without a path.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::S3 { path, .. }
            | Self::Abs { path, .. }
            | Self::Gcs { path, .. }
            | Self::Oss { path, .. } => Some(&path.key),
            Self::Local { path, .. } => path.as_deref(),
        }
    }

    /// This location for a Job's order, with the given path, and with Secrets and volume at their mount paths.
    pub fn order(&self, path: &str) -> StoreOrder {
        let mounted = |secret: Option<&str>, at: &str| secret.map(|_| at.to_owned());
        let order = |kind, bucket: &str| StoreOrder {
            kind,
            bucket: bucket.to_owned(),
            path: path.to_owned(),
            secret: mounted(self.secret(), mounts::STORE_SECRET),
            ca: mounted(self.ca_secret(), mounts::STORE_CA),
            ..StoreOrder::default()
        };
        match self {
            Self::S3 {
                path,
                endpoint,
                path_style,
                region,
                encryption,
                class,
                ..
            } => StoreOrder {
                endpoint: endpoint.clone(),
                path_style: *path_style,
                region: region.clone(),
                encryption: *encryption,
                storage_class: class.clone(),
                ..order(StorageType::S3, &path.bucket)
            },
            Self::Abs { path, endpoint, .. } => StoreOrder {
                endpoint: endpoint.clone(),
                ..order(StorageType::ABS, &path.bucket)
            },
            Self::Gcs { path, endpoint, .. } => StoreOrder {
                endpoint: endpoint.clone(),
                ..order(StorageType::GCS, &path.bucket)
            },
            Self::Oss {
                path,
                endpoint,
                region,
                ..
            } => StoreOrder {
                endpoint: Some(endpoint.clone()),
                region: region.clone(),
                ..order(StorageType::OSS, &path.bucket)
            },
            Self::Local { .. } => order(StorageType::Local, mounts::VOLUME),
        }
    }
}

/// The store fields of a spec, as the user set them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blocks<'a> {
    /// Field `s3`.
    pub s3: Option<&'a S3Store>,
    /// Field `abs`.
    pub abs: Option<&'a AbsStore>,
    /// Field `gcs`.
    pub gcs: Option<&'a GcsStore>,
    /// Field `oss`.
    pub oss: Option<&'a OssStore>,
    /// Field `local`.
    pub local: Option<&'a LocalStore>,
}

/// Both kinds have the same store fields.
macro_rules! blocks_of {
    ($($spec:ty),+) => {
        $(impl<'a> From<&'a $spec> for Blocks<'a> {
            fn from(spec: &'a $spec) -> Self {
                Self {
                    s3: spec.s3.as_ref(),
                    abs: spec.abs.as_ref(),
                    gcs: spec.gcs.as_ref(),
                    oss: spec.oss.as_ref(),
                    local: spec.local.as_ref(),
                }
            }
        })+
    };
}

blocks_of!(EtcdBackupSpec, EtcdRestoreSpec);

impl Blocks<'_> {
    /// The names of the fields that are set.
    pub fn set(&self) -> Vec<&'static str> {
        let blocks = [
            ("s3", self.s3.is_some()),
            ("abs", self.abs.is_some()),
            ("gcs", self.gcs.is_some()),
            ("oss", self.oss.is_some()),
            ("local", self.local.is_some()),
        ];
        blocks
            .iter()
            .filter(|(_, set)| *set)
            .map(|(name, _)| *name)
            .collect()
    }

    /// Returns the location that `kind` selects, or all problems. `kind_field` is the spec field that holds `kind`.
    pub fn locate(&self, kind: StorageType, kind_field: &str) -> Result<Location, Vec<Refusal>> {
        let surplus: Vec<_> = self
            .set()
            .into_iter()
            .filter(|name| *name != kind.block())
            .collect();
        if !surplus.is_empty() {
            let (kind, block) = (kind.as_str(), kind.block());
            let others: Vec<_> = surplus.iter().map(|name| format!("spec.{name}")).collect();
            let others = others.join(", ");
            let problem = if self.set().len() > surplus.len() {
                format!("is {kind}, which uses spec.{block}, but {others} is also set: remove {others}")
            } else {
                format!(
                    "is {kind}, which needs spec.{block}, but {others} is set: change it to the store of {others}, or set \
                     spec.{block} and remove {others}"
                )
            };
            return Err(vec![Refusal::invalid(kind_field, problem)]);
        }
        let missing = || {
            let problem = format!("is {}, so spec.{} must be set", kind.as_str(), kind.block());
            vec![Refusal::invalid(kind_field, problem)]
        };
        match kind {
            StorageType::S3 => s3(self.s3.ok_or_else(missing)?),
            StorageType::ABS => {
                let block = self.abs.ok_or_else(missing)?;
                Ok(Location::Abs {
                    path: path(block.path.as_ref(), "abs")?,
                    secret: filled(block.abs_secret.as_ref()),
                    endpoint: filled(block.endpoint.as_ref()),
                    ca_secret: filled(block.ca_secret.as_ref()),
                })
            }
            StorageType::GCS => {
                let block = self.gcs.ok_or_else(missing)?;
                Ok(Location::Gcs {
                    path: path(block.path.as_ref(), "gcs")?,
                    secret: filled(block.gcp_secret.as_ref()),
                    endpoint: filled(block.endpoint.as_ref()),
                    ca_secret: filled(block.ca_secret.as_ref()),
                })
            }
            StorageType::OSS => {
                let block = self.oss.ok_or_else(missing)?;
                Ok(Location::Oss {
                    path: path(block.path.as_ref(), "oss")?,
                    secret: filled(block.oss_secret.as_ref()),
                    endpoint: filled(block.endpoint.as_ref())
                        .unwrap_or_else(|| DEFAULT_OSS_ENDPOINT.to_owned()),
                    region: filled(block.region.as_ref()),
                    ca_secret: filled(block.ca_secret.as_ref()),
                })
            }
            StorageType::Local => {
                let block = self.local.ok_or_else(missing)?;
                let claim = filled(block.persistent_volume_claim.as_ref()).ok_or_else(|| {
                    vec![Refusal::invalid(
                        "spec.local.persistentVolumeClaim",
                        "must name a PersistentVolumeClaim of this namespace; for example: etcd-backups",
                    )]
                })?;
                let path = filled(block.path.as_ref());
                match path.as_deref().and_then(problem) {
                    Some(problem) => {
                        let problem = format!("{problem}; for example: etcd/orders");
                        Err(vec![Refusal::invalid("spec.local.path", problem)])
                    }
                    None => Ok(Location::Local { claim, path }),
                }
            }
        }
    }
}

fn s3(block: &S3Store) -> Result<Location, Vec<Refusal>> {
    Ok(Location::S3 {
        path: path(block.path.as_ref(), "s3")?,
        secret: filled(block.aws_secret.as_ref()),
        endpoint: filled(block.endpoint.as_ref()),
        path_style: block.force_path_style.unwrap_or(false),
        region: filled(block.region.as_ref()),
        encryption: block.server_side_encryption,
        class: filled(block.storage_class.as_ref()),
        ca_secret: filled(block.ca_secret.as_ref()),
    })
}

/// Drops empty strings: clients of the older operator send them for fields they do not set.
fn filled(text: Option<&String>) -> Option<String> {
    text.filter(|t| !t.is_empty()).cloned()
}

/// What is wrong with the path of a backup, if anything. The suffixes of manifests and claims are reserved.
pub fn problem(path: &str) -> Option<String> {
    if path.contains("://") {
        return Some("must not contain a scheme: spec.storageType selects the store".to_owned());
    }
    if path.split('/').any(str::is_empty) && !path.is_empty() {
        return Some("must not start or end with a slash, nor contain two slashes in a row".to_owned());
    }
    if path.split('/').any(|part| part == "." || part == "..") {
        return Some("must not contain '.' or '..' as a path segment".to_owned());
    }
    let reserved = [MANIFEST_SUFFIX, CLAIM_SUFFIX]
        .into_iter()
        .find(|end| path.ends_with(end))?;
    Some(format!(
        "must not end in {reserved}, which is reserved for files beside backups"
    ))
}

fn path(text: Option<&String>, block: &str) -> Result<ObjectPath, Vec<Refusal>> {
    if let Some(problem) = text.and_then(|text| problem(text)) {
        let problem = format!("{problem}: it is BUCKET/KEY; for example: my-bucket/etcd/orders");
        return Err(vec![Refusal::invalid(format!("spec.{block}.path"), problem)]);
    }
    let (bucket, key) = text.and_then(|t| t.split_once('/')).unwrap_or_default();
    if bucket.is_empty() || key.is_empty() {
        let problem = "must be BUCKET/KEY; for example: my-bucket/etcd/orders";
        return Err(vec![Refusal::invalid(format!("spec.{block}.path"), problem)]);
    }
    Ok(ObjectPath {
        bucket: bucket.to_owned(),
        key: key.to_owned(),
    })
}

#[cfg(test)]
mod tests;
