//! Where a backup lies, parsed: exactly one store, its bucket and key apart, empty texts gone.

mod address;
mod object;

pub use address::names_user;
pub use object::{TIME, belongs};

use crate::{
    contract::{CLAIM_SUFFIX, MANIFEST_SUFFIX, StoreOrder, mounts},
    refusal::Refusal,
    store::{AbsStore, GcsStore, LocalStore, OssStore, S3Store, ServerSideEncryption, StorageType},
};

/// Alibaba's endpoint where the user names none.
pub const DEFAULT_OSS_ENDPOINT: &str = "http://oss-cn-hangzhou.aliyuncs.com";

/// A bucket (or container) and a key in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectPath {
    /// The bucket or container.
    pub bucket: String,
    /// The key, or the prefix of keys.
    pub key: String,
}

/// Where a backup lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A bucket of S3 or of a store that speaks its protocol.
    S3 {
        /// Bucket and key.
        path: ObjectPath,
        /// The Secret with the credentials; the platform's identity without.
        secret: Option<String>,
        /// The endpoint, where it is not Amazon's.
        endpoint: Option<String>,
        /// Whether the bucket goes into the path.
        path_style: bool,
        /// The region, where it is given.
        region: Option<String>,
        /// Encryption by the store.
        encryption: Option<ServerSideEncryption>,
        /// The storage class of new objects.
        class: Option<String>,
        /// The Secret with the certificate authority of the endpoint.
        ca_secret: Option<String>,
    },
    /// A container of Azure Blob Storage.
    Abs {
        /// Container and key.
        path: ObjectPath,
        /// The Secret with the credentials; the platform's identity without.
        secret: Option<String>,
        /// The endpoint, where it is not that of the cloud.
        endpoint: Option<String>,
        /// The Secret with the certificate authority of the endpoint.
        ca_secret: Option<String>,
    },
    /// A bucket of Google Cloud Storage.
    Gcs {
        /// Bucket and key.
        path: ObjectPath,
        /// The Secret with the credentials; the platform's identity without.
        secret: Option<String>,
        /// The endpoint, where it is not Google's.
        endpoint: Option<String>,
        /// The Secret with the certificate authority of the endpoint.
        ca_secret: Option<String>,
    },
    /// A bucket of Alibaba Cloud OSS.
    Oss {
        /// Bucket and key.
        path: ObjectPath,
        /// The Secret with the credentials; the platform's identity without.
        secret: Option<String>,
        /// The endpoint.
        endpoint: String,
        /// The region, where the endpoint does not tell it.
        region: Option<String>,
        /// The Secret with the certificate authority of the endpoint.
        ca_secret: Option<String>,
    },
    /// A directory on a volume.
    Local {
        /// The claim of the volume.
        claim: String,
        /// The path below the volume's root, where it is given.
        path: Option<String>,
    },
}

impl Location {
    /// The Secret with the credentials of the store.
    pub fn secret(&self) -> Option<&str> {
        match self {
            Self::S3 { secret, .. }
            | Self::Abs { secret, .. }
            | Self::Gcs { secret, .. }
            | Self::Oss { secret, .. } => secret.as_deref(),
            Self::Local { .. } => None,
        }
    }

    /// The Secret with the authority of the store.
    pub fn ca_secret(&self) -> Option<&str> {
        match self {
            Self::S3 { ca_secret, .. }
            | Self::Abs { ca_secret, .. }
            | Self::Gcs { ca_secret, .. }
            | Self::Oss { ca_secret, .. } => ca_secret.as_deref(),
            Self::Local { .. } => None,
        }
    }

    /// The claim of the volume.
    pub fn claim(&self) -> Option<&str> {
        match self {
            Self::Local { claim, .. } => Some(claim),
            _ => None,
        }
    }

    /// The key, or what keys begin with; of a volume, where it is given.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::S3 { path, .. }
            | Self::Abs { path, .. }
            | Self::Gcs { path, .. }
            | Self::Oss { path, .. } => Some(&path.key),
            Self::Local { path, .. } => path.as_deref(),
        }
    }

    /// The same for a process that finds at this path of the store what it is about, with Secrets and volume mounted.
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

/// The store blocks of a spec, as the user filled them in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blocks<'a> {
    /// The block `s3`.
    pub s3: Option<&'a S3Store>,
    /// The block `abs`.
    pub abs: Option<&'a AbsStore>,
    /// The block `gcs`.
    pub gcs: Option<&'a GcsStore>,
    /// The block `oss`.
    pub oss: Option<&'a OssStore>,
    /// The block `local`.
    pub local: Option<&'a LocalStore>,
}

impl Blocks<'_> {
    /// The names of the blocks that are filled in.
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

    /// The one location that `kind` names, or everything that is wrong. `field` is the spec field that `kind` stands in.
    pub fn locate(&self, kind: StorageType, field: &str) -> Result<Location, Vec<Refusal>> {
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
                format!("is {kind}, which is spec.{block}, and {others} is set beside it: take out {others}")
            } else {
                format!(
                    "is {kind}, which needs spec.{block}, and {others} is set instead: name the store of {others} here, or \
                     fill in spec.{block} and take out {others}"
                )
            };
            return Err(vec![Refusal::invalid(field, problem)]);
        }
        let missing = || {
            let problem = format!("is {}, so spec.{} must be set", kind.as_str(), kind.block());
            vec![Refusal::invalid(field, problem)]
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

/// Clients of the ancestor send empty texts for fields they do not set.
fn filled(text: Option<&String>) -> Option<String> {
    text.filter(|t| !t.is_empty()).cloned()
}

/// What is wrong with the path of a backup, wherever it lies: the names of manifests and claims are those of others.
pub fn problem(path: &str) -> Option<String> {
    if path.contains("://") {
        return Some("must be without a scheme, as spec.storageType names the store".to_owned());
    }
    if path.split('/').any(str::is_empty) && !path.is_empty() {
        return Some("must not begin or end with a slash, nor hold two in a row".to_owned());
    }
    if path.split('/').any(|part| part == "." || part == "..") {
        return Some("must not hold '.' or '..' between slashes".to_owned());
    }
    let taken = [MANIFEST_SUFFIX, CLAIM_SUFFIX]
        .into_iter()
        .find(|end| path.ends_with(end))?;
    Some(format!(
        "must not end in {taken}, as the file beside another backup does"
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
